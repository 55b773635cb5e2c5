"""What one step of one deployment came to, and which part of it needs no write."""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.control.conditions import Finding, Speculation
from specpilot.control.live import Live
from specpilot.control.step import Taken
from specpilot.decide.arm import Arm
from specpilot.decide.arms import Turn
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.memory import Memory


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was seen of traffic and engines: it holds whatever can be written."""

    persisted: Memory
    metrics: Finding | None
    speculation: Speculation
    undrafted: int
    arms_due: float  # monotonic
    explored: float | None


@dataclass(frozen=True, slots=True)
class Decided:
    """Of this nothing holds before it is written, but for the evidence in `taken` and what was `learnt`."""

    mode: str
    arm: Arm
    tuned: bool  # the tuner of depths has the word
    taken: Taken
    arms: ArmMemory
    turn: Turn | None
    caps: CapMemory
    tuning: Finding | None
    learnt: Learnt


def take_in(live: Live, decided: Decided) -> None:
    """What needs no write is known from now on."""
    learnt = decided.learnt
    live.evidence, live.persisted = decided.taken.evidence, learnt.persisted
    live.metrics, live.speculation, live.undrafted = learnt.metrics, learnt.speculation, learnt.undrafted
    live.arms_due = learnt.arms_due
