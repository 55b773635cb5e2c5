"""Arms: the configurations of an engine that only a restart leads to or away from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What differs between arms in the engine's arguments."""

    SCHEDULE = "schedule"  # depths by batch size, changed while the engine runs
    STATIC = "static"  # one depth and no schedule: drafts stay padded, decode graphs whole
    ADAPTIVE = "adaptive"  # vLLM sizes the verification of whole drafts itself
    NONE = "none"  # no drafter at all


_TEXT = re.compile(r"(schedule|none|(?:static|adaptive)-([0-9]{1,2}))(?:@([0-9]{1,7}))?")


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration. Its text (`static-3`, `adaptive-7@8192`) is what annotations and memory hold."""

    kind: Kind
    tokens: int = 0  # drafted per request and step, where that is fixed
    context: int = 0  # tokens of context at which vLLM times its verification; 0: at vLLM's own default

    @property
    def scheduled(self) -> bool:
        """Whether its depths come from estimates, live: engines show what each is worth, and change it at any step."""
        return self.kind is Kind.SCHEDULE

    @property
    def capped(self) -> bool:
        """Whether the depths that its engines change live are caps, which nothing but a trial can tell the worth of."""
        return self.kind is Kind.ADAPTIVE

    @property
    def blind(self) -> bool:
        """Whether its engines show nothing of what drafts are worth: there are none, or only those that the
        engine thought good enough are verified."""
        return self.kind in (Kind.NONE, Kind.ADAPTIVE)

    @property
    def words(self) -> str:
        """For people, after "to" or "with"."""
        match self.kind:
            case Kind.SCHEDULE:
                return "a schedule of depths"
            case Kind.STATIC:
                return f"depth {self.tokens} without a schedule"
            case Kind.ADAPTIVE:
                at = f", timed at {self.context} tokens of context" if self.context else ""
                return f"vLLM's adaptive verification of {self.tokens} drafts{at}"
            case Kind.NONE:
                return "no speculation"

    def __str__(self) -> str:
        fixed = f"-{self.tokens}" if self.kind in (Kind.STATIC, Kind.ADAPTIVE) else ""
        return f"{self.kind}{fixed}{f'@{self.context}' if self.context else ''}"


SCHEDULE, NONE = Arm(Kind.SCHEDULE), Arm(Kind.NONE)


def parse(text: str) -> Arm | None:
    """The arm of such a text; None where it is none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    name, tokens, context = found.groups()
    return Arm(Kind(name.partition("-")[0]), int(tokens or 0), int(context or 0))
