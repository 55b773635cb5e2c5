"""The schedule file (operator → engine) and the state document (engine → operator, the acknowledgement)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

SCHEDULE_VERSION = 1
SCHEDULE_KEY = "schedule.json"  # key in the ConfigMap, name of the file in its volume
MAX_TOKENS = 32  # no drafter in use drafts deeper; bounds what a bad file can ask for


class ScheduleError(ValueError):
    """The schedule text cannot be used; the message says which field and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """Draft `tokens` per request while at most `up_to` requests run."""

    up_to: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Exploration:
    """How much the engine may spend on steps at another depth than the schedule's.

    `price` is the share of goodput that exploring may cost (0 turns it off), `tokens` the depth to
    explore, and `cost` the operator's present estimate of the share of one step's goodput lost by
    exploring once, by which the engine turns the price into a number of steps: it explores at most
    a share price/cost of its steps.
    """

    price: float = 0.0
    tokens: int = 0
    cost: float = 1.0
    max_batch: int = 0  # explore only while at most so many requests run (graphs, token budget)


@dataclass(frozen=True, slots=True)
class Trial:
    """The schedule before, with which the new one alternates until their goodput is told apart.

    Where the two differ, slices come in pairs, one of each schedule: `slice` clean steps of the one before,
    `ratio` times as many of the new one. At most `pairs` pairs are tried; after that, or as soon as it is
    clear which is better, the engine goes on with the winner, the one before if none is.
    """

    against: tuple[Step, ...]
    slice: int
    pairs: int
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Whether the engine may verify fewer draft rows than were drafted, where it can.

    `price` is the share of goodput that looking at other row counts may cost while all rows are
    verified; 0 keeps every draft whole.
    """

    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Caps:
    """How deep is drafted, by number of running requests, where vLLM itself sizes what is verified of a draft.

    `trial`: as that of a schedule, with the caps before.
    """

    steps: tuple[Step, ...]
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Draft depth by number of running requests; beyond the last step its depth holds.

    Engines that verify adaptively go by `caps` instead: see `under_adaptive`.
    """

    generation: int
    steps: tuple[Step, ...]
    exploration: Exploration = Exploration()
    budget: Budget = Budget()
    trial: Trial | None = None
    caps: Caps | None = None

    def tokens_at(self, batch: int) -> int:
        """Depth in force with `batch` running requests."""
        for step in self.steps:
            if batch <= step.up_to:
                return step.tokens
        return self.steps[-1].tokens

    def as_vllm(self) -> list[tuple[int, int, int]]:
        """`num_speculative_tokens_per_batch_size`: [[first, last, k], …]."""
        rows, first = [], 1
        for step in self.steps:
            rows.append((first, step.up_to, step.tokens))
            first = step.up_to + 1
        return rows

    def under_adaptive(self, most: int) -> Schedule:
        """What engines run that were started with adaptive verification of `most` drafts: the caps, or `most` at
        any load. Nothing is explored or cut there, since vLLM verifies what it thinks good enough."""
        caps = self.caps or Caps((Step(self.steps[-1].up_to, most),))
        steps = tuple(Step(s.up_to, min(s.tokens, most)) for s in caps.steps)
        trial = caps.trial
        if trial is not None:
            against = tuple(Step(s.up_to, min(s.tokens, most)) for s in trial.against)
            trial = Trial(against, trial.slice, trial.pairs, trial.ratio)
        return Schedule(self.generation, steps, trial=trial)

    def body(self) -> dict[str, Any]:
        x = self.exploration
        return {
            "version": SCHEDULE_VERSION,
            "generation": self.generation,
            "schedule": [{"upTo": s.up_to, "tokens": s.tokens} for s in self.steps],
            "exploration": {"price": x.price, "tokens": x.tokens, "cost": x.cost, "maxBatch": x.max_batch},
        }

    def optional(self) -> dict[str, Any]:
        """What engines of earlier versions read past, so it has a hash of its own in the file."""
        parts: dict[str, Any] = {}
        if self.budget.price > 0:
            parts["budget"] = {"price": self.budget.price}
        if self.trial is not None:
            parts["trial"] = _trial_body(self.trial)
        if self.caps is not None:
            parts["caps"] = {"steps": _rows(self.caps.steps)}
            if self.caps.trial is not None:
                parts["caps"]["trial"] = _trial_body(self.caps.trial)
        return parts

    @property
    def hash(self) -> str:
        """Sixteen hex digits over the content that every engine knows, generation included: whatever else is
        changed has another generation."""
        return _digest(self.body())

    def dump(self) -> str:
        """The file's text: canonical JSON, so that equal schedules are equal bytes."""
        document = {**self.body(), "hash": self.hash}
        if parts := self.optional():
            document["optional"] = {**parts, "hash": _digest(parts)}
        return canonical(document)


def _rows(steps: tuple[Step, ...]) -> list[list[int]]:
    return [[s.up_to, s.tokens] for s in steps]


def _trial_body(trial: Trial) -> dict[str, Any]:
    body = {"against": _rows(trial.against), "slice": trial.slice, "pairs": trial.pairs}
    return body if trial.ratio == 1 else {**body, "ratio": trial.ratio}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def parse_schedule(text: str, max_tokens: int = MAX_TOKENS) -> Schedule:
    """Read a schedule file.

    Raises ScheduleError for anything but a complete, valid file of this version: a half-written or
    hand-edited one must leave the schedule in force untouched.
    """
    try:
        doc = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ScheduleError(f"not JSON: {e}") from None
    if not isinstance(doc, dict):
        raise ScheduleError("not a JSON object")
    if doc.get("version") != SCHEDULE_VERSION:
        raise ScheduleError(f"version {doc.get('version')!r} is not {SCHEDULE_VERSION}")
    steps = _steps(doc.get("schedule"), max_tokens)
    x = _object(doc, "exploration")
    exploration = Exploration(
        _number(x, "price", 0.0, 0.0, 1.0),
        int(_number(x, "tokens", 0, 0, max_tokens)),
        _number(x, "cost", 1.0, 0.0, 1e6),
        int(_number(x, "maxBatch", 0, 0, 1e9)),
    )
    optional = _optional(doc)
    trial = _trial(optional["trial"], max_tokens) if "trial" in optional else None
    caps = _caps(optional["caps"], max_tokens) if "caps" in optional else None
    budget = Budget(_number(_object(optional, "budget"), "price", 0.0, 0.0, 1.0, "budget"))
    generation = int(_number(doc, "generation", -1, 0, 2**53))
    schedule = Schedule(generation, steps, exploration, budget, trial, caps)
    if doc.get("hash") != schedule.hash:
        raise ScheduleError("hash does not match the content")
    return schedule


def _optional(doc: dict[str, Any]) -> dict[str, Any]:
    """The optional parts, those of later versions among them. Raises ScheduleError."""
    parts = _object(doc, "optional")
    known = {name: part for name, part in parts.items() if name != "hash"}
    if known and parts.get("hash") != _digest(known):
        raise ScheduleError("optional.hash does not match the content")
    return known


def _object(parts: dict[str, Any], name: str) -> dict[str, Any]:
    part = parts.get(name) or {}
    if not isinstance(part, dict):
        raise ScheduleError(f"{name} is not an object")
    return part


def _caps(doc: Any, max_tokens: int) -> Caps:
    steps = _pairs_of(doc, "steps", max_tokens, "caps")
    return Caps(steps, _trial(doc["trial"], max_tokens) if "trial" in doc else None)


def _pairs_of(doc: Any, key: str, max_tokens: int, where: str) -> tuple[Step, ...]:
    rows = doc.get(key) if isinstance(doc, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
        raise ScheduleError(f"{where}.{key} is not a list of [upTo, tokens]")
    return _steps([{"upTo": up_to, "tokens": tokens} for up_to, tokens in rows], max_tokens)


def _trial(doc: Any, max_tokens: int) -> Trial:
    return Trial(
        _pairs_of(doc, "against", max_tokens, "trial"),
        int(_number(doc, "slice", 0, 4, 1e6, "trial")),
        int(_number(doc, "pairs", 0, 1, 1e6, "trial")),
        _number(doc, "ratio", 1.0, 0.1, 100.0, "trial"),
    )


def _steps(rows: Any, max_tokens: int) -> tuple[Step, ...]:
    if not isinstance(rows, list) or not rows:
        raise ScheduleError("schedule is not a list with at least one step")
    steps: list[Step] = []
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ScheduleError(f"schedule[{i}] is not an object")
        step = Step(
            int(_number(row, "upTo", 0, 1, 1e9, f"schedule[{i}]")),
            int(_number(row, "tokens", -1, 0, max_tokens, f"schedule[{i}]")),
        )
        if steps and step.up_to <= steps[-1].up_to:
            raise ScheduleError(f"schedule[{i}].upTo must be above the step before it")
        steps.append(step)
    return tuple(steps)


def _number(obj: dict[str, Any], key: str, default: float, low: float, high: float, where: str = "") -> float:
    value = obj.get(key, default)
    name = f"{where}.{key}" if where else key
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ScheduleError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
    return value


def state_document(
    live: bool,
    reason: str,
    schedule: Schedule | None,
    file_error: str,
    versions: dict[str, str],
    trial: dict[str, Any] | None = None,
    adaptive: int = 0,
) -> dict[str, Any]:
    """What GET STATE_PATH answers; `schedule` is what the scheduler really uses at its next step, under
    vLLM's adaptive verification of `adaptive` drafts (0: none) the caps of that schedule.

    `live` False with a `reason` means the engine runs as stock vLLM with its start-up schedule. `trial`
    tells how far the comparison with the schedule before has come, None where there is none.
    `fileError` names what is wrong with the file on disk while an earlier schedule stays in force.
    """
    drafted = schedule.under_adaptive(adaptive) if schedule and adaptive else schedule
    return {
        "live": live,
        "reason": reason,
        "generation": schedule.generation if schedule else None,
        "hash": schedule.hash if schedule else None,
        "schedule": drafted.body()["schedule"] if drafted else None,
        "fileError": file_error,
        "versions": versions,
        "trial": trial,
        "adaptive": adaptive,
    }
