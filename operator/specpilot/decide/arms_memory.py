"""What is known of arms, and its small JSON form that survives a restart of the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specpilot.decide.arm import SCHEDULE, Arm, parse
from specpilot.decide.stored import UNREADABLE, finite, load_of
from specpilot.estimate.load import LoadMemory

VERSION = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """Log goodput beyond the same depth's under a schedule, as measured in one batch bucket of one arm:
    precision (1 / variance) and mean, of all replicas together."""

    precision: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True)
class Going:
    """A change of arm under way, and then on probation. `ready_at` 0 while pods are still replaced: `ready` of
    them serve, and did since `moved_at`; `lasted` seconds with traffic count from there. A restart forgets these three."""

    before: Arm
    at: float
    predicted: float
    ready_at: float = 0.0
    lasted: float = 0.0
    ready: int = 0
    moved_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Barred:
    """An arm that is not tried again while load and accepted length (its log) stay as they were;
    `failed`: never for this spec, since its pods did not start."""

    arm: Arm
    load: LoadMemory = field(default_factory=LoadMemory)
    length: float = 0.0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ArmMemory:
    """Of one spec (its hash).

    `since`: when `in_force` was first seen, and `looks` that told something of it since, which a restart forgets;
    `next`: where to restart to, with the log gain predicted, until it is in force; `back`: that this is a return;
    `told`: what is recommended; `startup`: seconds that pods took to start when that was last seen.
    """

    spec: str = ""
    in_force: Arm = SCHEDULE
    since: float = 0.0
    looks: int = 0
    next: tuple[Arm, float] | None = None
    back: bool = False
    going: Going | None = None
    barred: tuple[Barred, ...] = ()
    told: Arm | None = None
    why: str = ""
    reason: str = ""
    startup: float = 0.0
    seen: Mapping[Arm, Mapping[int, Seen]] = field(default_factory=dict)

    @property
    def decided(self) -> tuple[object, ...]:
        """What must not be lost: written at once. Evidence goes along with it."""
        going = self.going and (self.going.before, self.going.at, self.going.ready_at)
        barred = tuple((b.arm, b.failed) for b in self.barred)
        return self.spec, self.in_force, self.next, self.back, going, barred, self.told, self.reason

    @property
    def empty(self) -> bool:
        """Whether there is nothing that a fresh start would not find out by itself."""
        return replace(self, spec="", since=0.0, looks=0, startup=0.0, seen={}) == ArmMemory()

    def to_json(self) -> str:
        """Canonical JSON."""
        g = self.going
        document = {
            "version": VERSION,
            "spec": self.spec,
            "inForce": str(self.in_force),
            "since": round(self.since, 3),
            "next": [str(self.next[0]), round(self.next[1], 4)] if self.next else None,
            "back": self.back,
            "going": [str(g.before), g.at, round(g.predicted, 4), g.ready_at] if g else None,
            "barred": [[str(b.arm), _rows(b.load), round(b.length, 4), b.failed] for b in self.barred],
            "told": str(self.told) if self.told else None,
            "why": self.why,
            "reason": self.reason,
            "startup": round(self.startup, 3),
            "seen": {
                str(arm): [
                    [edge, *(float(f"{v:.5g}") for v in (s.precision, s.mean))]
                    for edge, s in sorted(buckets.items())
                ]
                for arm, buckets in self.seen.items()
            },
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ArmMemory:
        """Read back. Never raises: what cannot be read gives an empty memory. The arm in force stands on the
        Deployment, so that nothing is restarted for it."""
        try:
            doc = json.loads(text)
            return cls._read(doc) if doc["version"] == VERSION else cls()
        except UNREADABLE:
            return cls()

    @classmethod
    def _read(cls, doc: dict[str, Any]) -> ArmMemory:
        going, then = doc["going"], doc["next"]
        return cls(
            str(doc["spec"]),
            _arm(doc["inForce"]),
            finite(doc["since"]),
            0,
            (_arm(then[0]), finite(then[1])) if then else None,
            bool(doc["back"]),
            _going(*going) if going else None,
            tuple(
                Barred(_arm(arm), load_of(rows), finite(length), bool(failed))
                for arm, rows, length, failed in doc["barred"]
            ),
            _arm(doc["told"]) if doc["told"] else None,
            str(doc["why"]),
            str(doc["reason"]),
            finite(doc["startup"]),
            {
                _arm(arm): {int(e): Seen(finite(precision), finite(mean)) for e, precision, mean, *_ in rows}
                for arm, rows in doc["seen"].items()
            },
        )


def _going(before: Any, at: Any, predicted: Any, ready_at: Any) -> Going:
    return Going(_arm(before), finite(at), finite(predicted), finite(ready_at))


def _rows(load: LoadMemory) -> list[list[float]]:
    return [[edge, seconds, load.batch[edge]] for edge, seconds in sorted(load.seconds.items())]


def _arm(text: Any) -> Arm:
    arm = parse(str(text))
    if arm is None:
        raise ValueError(f"not an arm: {text!r}")
    return arm
