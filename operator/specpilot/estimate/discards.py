"""Why two readings of an engine's counters make no window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Discard(StrEnum):
    """Why two readings make no window."""

    OTHER_LIFE = "OtherLife"
    CLOCK_BACK = "ClockBack"
    CLOCK_SET = "ClockSet"
    GAP = "Gap"
    NOT_A_NUMBER = "NotANumber"
    RESET = "Reset"
    IDLE = "Idle"
    PROMPT_HEAVY = "PromptHeavy"
    PREEMPTED = "Preempted"
    NOTHING_CLEAN = "NothingClean"


@dataclass(frozen=True, slots=True)
class Discarded:
    """No window: `message` is one sentence with the numbers."""

    reason: Discard
    message: str
