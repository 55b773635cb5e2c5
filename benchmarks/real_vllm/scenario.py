"""What is played: two drafts, phases of load and sampling, and six arms in an order drawn for each phase."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

CANDIDATES = (0, 1, 2, 3, 5)  # of the sample deployment
PRODUCT = "specpilot"
FIXED = {f"k={k}": k for k in CANDIDATES}
ARMS = (PRODUCT, *FIXED)
DEEPEST = f"k={max(CANDIDATES)}"  # what a user may have hard-coded
# By the damping of the target's layers that the draft lacks: survival .70 .48 .32 .22 .15 and .30 .10 .02.
DRAFTS = {"strong": 0.05, "weak": 0.15}
# Loads in their order, and after two of them the same clients sample: there and back.
PHASES = ("1", "16", "16s", "4", "32", "4s", "1")

_PHASE = re.compile("([1-9][0-9]{0,2})(s?)")


class Key(NamedTuple):
    """One segment: an arm under one phase's load. `phase` counts from 0."""

    repeat: int
    draft: str
    phase: int
    arm: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase is all greedy or all sampling: where one request of a batch samples, this vLLM accepts no draft of
    any other."""

    clients: int
    sampling: bool

    @property
    def temperature(self) -> float:
        return 1.0 if self.sampling else 0.0


def phase(text: str) -> Phase:
    """Of "16" (greedy) or "16s" (sampling). Raises ValueError."""
    found = _PHASE.fullmatch(text)
    if found is None:
        raise ValueError(
            f'{text!r} is no phase: give the clients, with an "s" where they sample, such as 16s'
        )
    return Phase(int(found[1]), bool(found[2]))


@dataclass(frozen=True, slots=True)
class Plan:
    """All that two runs must have in common to be one. Times in seconds; `repeats` may grow."""

    repeats: int
    # Measured of each segment: as long for all arms, since what answers are like changes as they get longer.
    seconds: float = 48.0
    warmup: float = 3.0  # before, in which the prompts are read
    # Between specpilot's looks; at a deployment's default, ten times as long, a phase would be eight minutes.
    interval: float = 3.0
    exploration: float = 0.005  # its price, a deployment's default
    profile: bool = True  # step times are measured beforehand, as in production
    seed: int = 0
    drafts: tuple[str, ...] = tuple(DRAFTS)
    phases: tuple[str, ...] = PHASES

    def segments(self, repeat: int, draft: str) -> Iterator[Key]:
        """Those of one draft in one repeat, in their order: phase by phase, the arms shuffled in each."""
        for number in range(len(self.phases)):
            arms = list(ARMS)
            random.Random(f"{self.seed}/{repeat}/{draft}/{number}").shuffle(arms)
            for arm in arms:
                yield Key(repeat, draft, number, arm)

    def all_segments(self) -> Iterator[Key]:
        """Of every repeat."""
        for repeat in range(self.repeats):
            for draft in self.drafts:
                yield from self.segments(repeat, draft)

    def prompts(self, key: Key) -> int:
        """Seed of a segment's prompts: the same for all arms of a phase, another in each repeat."""
        return random.Random(f"prompts/{self.seed}/{key.repeat}/{key.draft}/{key.phase}").getrandbits(32)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def differs(self, other: Plan) -> str:
        """The name of something that two parts of one run may not differ in, "" if nothing."""
        names = (f.name for f in fields(self) if f.name != "repeats")
        return next((name for name in names if getattr(self, name) != getattr(other, name)), "")


def plan_from_json(doc: dict[str, Any]) -> Plan:
    """Inverse of as_json. Raises KeyError or TypeError."""
    return Plan(**{**doc, "drafts": tuple(doc["drafts"]), "phases": tuple(doc["phases"])})
