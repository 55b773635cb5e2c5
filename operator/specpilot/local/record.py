"""What a demonstration leaves behind: measurements over time, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specpilot.local.view import Change, View

LEAST_BUSY = 0.88  # of the clients' time that engines decode; 0.95 is usual, and below this the machine is what is measured


@dataclass(frozen=True, slots=True)
class Scene:
    """One phase of the traffic: `clients` over all replicas, requests of one kind."""

    title: str
    clients: int
    traffic: str


@dataclass(frozen=True, slots=True)
class Played:
    """A scene as it happened: seconds from the beginning; tokens, and seconds of decoding summed over
    requests, that the engines counted."""

    scene: Scene
    start: float
    end: float
    emitted: float
    decoding: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading: `at` seconds from the beginning; rates of all replicas together, means over them."""

    at: float
    goodput: float
    depth: float | None
    running: float
    accepted_length: float | None
    planned: int | None  # depth that the schedule says for this load


def moment(view: View, start: float) -> Moment:
    """A reading from what a run shows."""
    seen = [r for r in view.replicas if r.depth is not None and r.batch is not None]
    depth = length = None
    running = sum(r.batch or 0.0 for r in seen)
    planned = None
    if seen:
        depth = sum(r.depth or 0.0 for r in seen) / len(seen)
        length = sum(r.accepted_length or 0.0 for r in seen) / len(seen)
        if view.schedule is not None:
            planned = view.schedule.tokens_at(round(running / len(seen)))
    return Moment(view.at - start, view.goodput, depth, running, length, planned)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Tokens that one depth, held throughout, emits: in each scene, and in each second."""

    scenes: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Everything the report shows.

    `fixed` is what each depth, held throughout, emits under the same traffic.
    """

    started: float  # epoch seconds
    played: tuple[Played, ...]
    moments: tuple[Moment, ...]
    changes: tuple[Change, ...]
    fixed: Mapping[int, Fixed]
    candidates: tuple[int, ...]
    replicas: int
    time_scale: float
    engine: str  # what was served, in words

    def fixed_tokens(self, depth: int, scene: int) -> float:
        """Tokens that a fixed depth emits in a scene, by its index."""
        return self.fixed[depth].scenes[scene]

    def oracle(self, scene: int) -> tuple[int, float]:
        """The depth that emits most in a scene, and its tokens."""
        depth = max(self.fixed, key=lambda k: self.fixed_tokens(k, scene))
        return depth, self.fixed_tokens(depth, scene)

    @property
    def emitted(self) -> float:
        return sum(p.emitted for p in self.played)

    @property
    def busy_share(self) -> float:
        """The share of the clients' time that the engines spent decoding for them.

        Prefills and the way to the engine take a few percent; a machine that has no time to simulate
        takes more, and whatever it takes is counted against what was measured.
        """
        return sum(p.decoding for p in self.played) / sum(p.seconds * p.scene.clients for p in self.played)

    @property
    def kept_up(self) -> bool:
        """Whether the machine had the time to simulate, so that the shares mean something."""
        return self.busy_share >= LEAST_BUSY

    @property
    def depth_changes(self) -> int:
        """How often the depths changed; a trial that confirmed a change is none."""
        return sum(c.steps_changed for c in self.changes)

    @property
    def oracle_tokens(self) -> float:
        """Tokens of an oracle that holds the best fixed depth in each scene."""
        return sum(self.oracle(i)[1] for i in range(len(self.played)))

    def total(self, depth: int) -> float:
        """Tokens of one depth held throughout."""
        return sum(self.fixed[depth].scenes)

    @property
    def best_fixed(self) -> int:
        """The depth that emits most when held throughout."""
        return max(self.fixed, key=self.total)

    @property
    def oracle_share(self) -> float:
        return self.emitted / self.oracle_tokens

    @property
    def best_fixed_share(self) -> float:
        return self.total(self.best_fixed) / self.oracle_tokens

    def as_json(self) -> dict[str, Any]:
        """report.json."""
        return {
            "oracle_share": round(self.oracle_share, 4),
            "best_fixed_share": round(self.best_fixed_share, 4),
            "best_fixed_depth": self.best_fixed,
            "fixed_shares": {
                str(k): round(self.total(k) / self.oracle_tokens, 4) for k in sorted(self.fixed)
            },
            "busy_share": round(self.busy_share, 4),
            "time_scale": self.time_scale,
            "replicas": self.replicas,
            "changes": self.depth_changes,
            "decisions": [_change(c, self.started) for c in self.changes],
            "phases": [self._phase(i, p) for i, p in enumerate(self.played)],
        }

    def _phase(self, index: int, played: Played) -> dict[str, Any]:
        depth, tokens = self.oracle(index)
        return {
            **asdict(played.scene),
            "start": round(played.start, 2),
            "seconds": round(played.seconds, 2),
            "emitted_tokens": round(played.emitted),
            "oracle_depth": depth,
            "oracle_tokens": round(tokens),
            "share": round(played.emitted / tokens, 4),
            "fixed_tokens": {str(k): round(self.fixed_tokens(k, index)) for k in sorted(self.fixed)},
        }


def busy_machine(record: Record) -> str:
    """What to say when the machine did not keep up."""
    return (
        f"This machine was too busy to simulate: engines decoded in {record.busy_share:.0%} of their clients' time,"
        " which lowers what was measured but not what it is compared with. Run it again while nothing else runs."
    )


def _change(change: Change, started: float) -> dict[str, Any]:
    after = change.acknowledged_after
    return {
        "at": round(change.at - started, 2),
        "generation": change.schedule.generation,
        "schedule": [{"upTo": s.up_to, "tokens": s.tokens} for s in change.schedule.steps],
        "reason": str(change.reason),
        "message": change.message,
        "predicted_gain": None if change.predicted_gain is None else round(change.predicted_gain, 4),
        "acknowledged_after": None if after is None else round(after, 3),
    }


def schedules(changes: Sequence[Change]) -> list[Change]:
    """The changes that a person hears of: those of depths and the ends of trials, not of what is explored."""
    return [c for c in changes if c.told]
