"""What the operator keeps in memory about one SpeculativeDeployment; all of it can be lost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from specpilot.api.deployment import SpeculativeDeploymentSpec as Spec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.status import LastDecision
from specpilot.control.conditions import Finding, Speculation
from specpilot.control.profile_choice import Choice, Identity
from specpilot.control.rollout import Trouble
from specpilot.control.step import Evidence
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings

PATIENCE = 30.0  # seconds that profilers may not answer before it is worth saying


@dataclass(frozen=True, slots=True)
class Parsed:
    """One generation of the object, read: `sd` None where it cannot be served, with the reason."""

    version: str
    sd: SpeculativeDeployment | None
    problem: Trouble | None = None
    complaints: tuple[Trouble, ...] = ()
    warnings: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan that the API server refused, so that it is not tried again with every event."""

    plan: str  # hash over the plan
    trouble: Trouble
    until: float  # monotonic


@dataclass(slots=True)
class Measurement:
    """One that runs, as far as this process knows it."""

    written_at: float = float("-inf")
    seen: dict[str, int] = field(default_factory=dict)  # by pod: its points that are stored for good
    answered_at: float = field(default_factory=time.monotonic)
    error: str = ""  # of the last question without an answer

    @property
    def trouble(self) -> str:
        """Why no profiler has answered for a while; "" while one does."""
        return self.error if time.monotonic() - self.answered_at >= PATIENCE else ""


@dataclass(slots=True)
class Live:
    uid: str
    parsed: Parsed | None = None
    settings: tuple[Spec, Settings] | None = None  # with what they are made of: the graph map takes a moment
    evidence: Evidence | None = None  # None until the tuner's ConfigMap has been read
    persisted: Memory | None = None  # None until the schedule in force has been noted once
    persisted_at: float = float("-inf")  # monotonic
    remembered: bool = False  # the ConfigMap of what is persisted was there once
    arms: ArmMemory = field(default_factory=ArmMemory)
    caps: CapMemory = field(default_factory=CapMemory)
    # What is written of what they decide.
    kept: tuple[object, ...] = (ArmMemory().decided, CapMemory().decided)
    arms_due: float = 0.0  # monotonic
    arms_spoke: bool = False  # the word on Tuned is theirs
    choice: Choice | None = None
    identity: Identity | None = None
    room: bool = False  # one more pod would have fitted when the plan was first made
    measurement: Measurement | None = None  # while profilers run
    unread: str = ""  # why profilers that measure cannot be read, or what they say cannot be written
    unstored: int = 0  # failures in a row to write what was measured
    unstored_until: float = 0.0  # monotonic
    due_at: float = 0.0  # monotonic
    tuning: Finding | None = None
    fault: Finding | None = None  # a bug that its last step met, or a write that was refused or fails
    unwritten: int = 0  # steps in a row whose writes failed
    metrics: Finding | None = None
    speculation: Speculation = field(default_factory=Speculation)
    undrafted: int = 0  # ticks in a row with traffic at a depth above 0 and no draft
    decision: LastDecision | None = None  # not yet in the status
    refused: Refused | None = None
    unapplied: int = 0  # attempts in a row at which the API server could not take the plan
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of whoever writes the schedule
