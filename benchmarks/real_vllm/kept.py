"""The file of a run: its plan, the profiles, and a line for each finished segment, so that it can go on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.real_vllm.scenario import Key, Plan, plan_from_json
from deploy.console import TroubleError

from specpilot_engine.protocol import ProfilePoint, parse_point


@dataclass(frozen=True, slots=True)
class Segment:
    """What one arm did in one phase.

    `tokens` were emitted in `seconds`; `depths` is the share of decoding time by depth. Of specpilot's:
    `tuner` is its state afterwards (arms.Tuned), `changes` what it changed and when, `discarded` how many looks
    taught it nothing, by reason.
    """

    key: Key
    tokens: float
    seconds: float
    load_average: float  # of the machine, one minute
    depths: dict[str, float] = field(default_factory=dict)
    tuner: dict[str, Any] | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    discarded: dict[str, int] = field(default_factory=dict)

    @property
    def goodput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@dataclass(slots=True)
class Kept:
    """A run so far. `profiles` are step times by draft."""

    path: Path
    plan: Plan
    profiles: dict[str, tuple[ProfilePoint, ...]] = field(default_factory=dict)
    segments: dict[Key, Segment] = field(default_factory=dict)

    def add_profile(self, draft: str, points: tuple[ProfilePoint, ...]) -> None:
        self.profiles[draft] = points
        _write(self.path, {"profile": {"draft": draft, "points": [p.as_json() for p in points]}})

    def add(self, segment: Segment) -> None:
        self.segments[segment.key] = segment
        _write(self.path, {"segment": {**asdict(segment), "key": list(segment.key)}})

    def missing(self, repeat: int, draft: str) -> list[Key]:
        """Segments to come of one draft in one repeat, in their order."""
        return [key for key in self.plan.segments(repeat, draft) if key not in self.segments]

    def tuner(self, repeat: int, draft: str) -> dict[str, Any] | None:
        """specpilot's state after its last segment of a repeat, None before the first."""
        states = [
            s.tuner
            for key in self.plan.segments(repeat, draft)
            if (s := self.segments.get(key)) is not None and s.tuner is not None
        ]
        return states[-1] if states else None


def begin(path: Path, plan: Plan, resume: bool = True) -> Kept:
    """Go on with the run in `path`, or start it where there is none, or where `resume` is False.

    Raises TroubleError where the file is another plan's or no run's, or cannot be written.
    """
    if not (resume and path.exists()):
        kept = Kept(path, plan)
        _write(path, {"plan": plan.as_json()}, "w")
        return kept
    kept = read(path)
    if name := plan.differs(kept.plan):
        raise TroubleError(
            f"{path} was begun with another --{name}, {getattr(kept.plan, name)}: give the same again,"
            " or name another file with --out."
        )
    try:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)  # a line cut short when the run before was killed
    except OSError as e:
        raise _unwritable(path, e) from None
    kept.plan = plan
    return kept


def read(path: Path) -> Kept:
    """A run as it was written. Raises TroubleError."""
    try:
        text = path.read_text()
        # The last line may be cut short.
        docs = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        kept = Kept(path, plan_from_json(docs[0]["plan"]))
        for doc in docs[1:]:
            if "profile" in doc:
                points = doc["profile"]["points"]
                kept.profiles[doc["profile"]["draft"]] = tuple(parse_point(p) for p in points)
            else:
                segment = Segment(**{**doc["segment"], "key": Key(*doc["segment"]["key"])})
                kept.segments[segment.key] = segment
    except OSError as e:
        raise TroubleError(f"{path} cannot be read ({e.strerror}): check the path.") from None
    except (ValueError, KeyError, TypeError, IndexError):
        raise TroubleError(f"{path} holds no run of this benchmark: name another file.") from None
    return kept


def _write(path: Path, doc: dict[str, Any], mode: Literal["w", "a"] = "a") -> None:
    try:
        with path.open(mode) as file:
            file.write(json.dumps(doc) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as e:
        raise _unwritable(path, e) from None


def _unwritable(path: Path, e: OSError) -> TroubleError:
    return TroubleError(f"{path} cannot be written ({e.strerror}): name another file with --out.")
