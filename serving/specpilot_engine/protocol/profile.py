"""What the profiler is asked and what it answers, and the step samples it reads."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specpilot_engine.protocol.schedule import canonical


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What the profiler measures: every depth × batch size × context length, most telling first.

    `repeats` clean steps are timed per point, after `warmup` ones. `key` names what is measured
    (the fingerprint of model, image, GPU and arguments): points kept under another key are not used.
    After `budget` seconds the profiler stops with what it has. Afterwards it either stays and answers
    (`then` "serve", beside a serving engine) or ends once all its points have been read ("exit", a Job).
    """

    key: str
    tokens: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    context_lengths: tuple[int, ...]
    repeats: int = 16
    warmup: int = 3
    budget: float = 1800.0
    then: str = "serve"

    def dump(self) -> str:
        return canonical(
            {
                "key": self.key,
                "tokens": list(self.tokens),
                "batchSizes": list(self.batch_sizes),
                "contextLengths": list(self.context_lengths),
                "repeats": self.repeats,
                "warmup": self.warmup,
                "budget": self.budget,
                "then": self.then,
            }
        )


def parse_profile_request(text: str) -> ProfileRequest:
    """Read ENV_PROFILE. Raises ValueError or KeyError when it is not what `dump` writes."""
    doc = json.loads(text)
    return ProfileRequest(
        str(doc["key"]),
        tuple(int(x) for x in doc["tokens"]),
        tuple(int(x) for x in doc["batchSizes"]),
        tuple(int(x) for x in doc["contextLengths"]),
        int(doc.get("repeats", 16)),
        int(doc.get("warmup", 3)),
        float(doc.get("budget", 1800.0)),
        str(doc.get("then", "serve")),
    )


PROFILED_KEY = "profiled.json"  # of the ConfigMap that becomes ENV_PROFILED_FILE


def profiled_document(key: str) -> str:
    """Says to the profilers of new pods that what they are asked under `key` is known, or not wanted."""
    return canonical({"key": key})


def parse_profiled(text: str) -> str:
    """Inverse of profiled_document; "" for anything else."""
    try:
        key = json.loads(text)["key"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return key if isinstance(key, str) else ""


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """One measured step time: seconds per decode step with `batch` requests at `context` tokens each."""

    tokens: int
    batch: int
    context: int
    seconds: float  # median
    spread: float  # (p75 - p25) / median
    steps: int  # how many clean steps it is the median of

    def as_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "batchSize": self.batch,
            "contextLength": self.context,
            "seconds": self.seconds,
            "spread": self.spread,
            "steps": self.steps,
        }


def parse_point(doc: dict[str, Any]) -> ProfilePoint:
    """Inverse of ProfilePoint.as_json. Raises KeyError, TypeError, ValueError or OverflowError."""
    point = ProfilePoint(
        int(doc["tokens"]),
        int(doc["batchSize"]),
        int(doc["contextLength"]),
        float(doc["seconds"]),
        float(doc["spread"]),
        int(doc["steps"]),
    )
    if not (0 < point.seconds < math.inf and 0 <= point.spread < math.inf):
        raise ValueError(f"no step takes {point.seconds} s with a spread of {point.spread}")
    return point


def profile_document(
    key: str, points: Sequence[ProfilePoint], total: int, finished: bool, error: str = ""
) -> dict[str, Any]:
    """What GET PROFILE_PATH answers.

    The reader says how many points it has stored with `?seen=N`. `finished` means that nothing more
    will be measured; fewer points than `total` then come with the reason in `error`.
    """
    return {
        "key": key,
        "points": [p.as_json() for p in points],
        "total": total,
        "finished": finished,
        "error": error,
    }


@dataclass(frozen=True, slots=True)
class StepSample:
    """One clean decode step as GET STEPS_PATH lists it (?since=SEQ: only later ones)."""

    seq: int
    tokens: int
    batch: int
    context: float  # mean tokens of context per request
    seconds: float

    def as_json(self) -> list[float]:
        """A row, not an object: the ring holds thousands."""
        return [self.seq, self.tokens, self.batch, self.context, self.seconds]
