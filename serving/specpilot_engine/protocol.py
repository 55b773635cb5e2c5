"""What the operator and the engine package say to each other, in one place.

Three things cross between them: the schedule file (operator → engine), the
exported series (engine → Prometheus or a scrape) and the state document
(engine → operator, the acknowledgement). Standard library only: this module is
imported inside the user's vLLM image as well as in the operator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEDULE_VERSION = 1
SCHEDULE_KEY = "schedule.json"  # key in the ConfigMap, name of the file in its volume
MAX_TOKENS = 32  # no drafter in use drafts deeper; bounds what a bad file can ask for

PORT = 9101  # of the engine package inside the engine process: GET METRICS_PATH, STATE_PATH, STEPS_PATH
PROFILER_PORT = 9102  # of the profiler beside it: GET PROFILE_PATH, READY_PATH
METRICS_PATH, STATE_PATH, STEPS_PATH = "/metrics", "/v1/state", "/v1/steps"
PROFILE_PATH, READY_PATH = "/v1/profile", "/ready"

# Environment of the engine container, set by the plan and read by the engine package.
ENV_SCHEDULE_FILE = "SPECPILOT_SCHEDULE_FILE"
ENV_OVERRIDE_FILE = "SPECPILOT_OVERRIDE_FILE"  # a schedule that wins while it is younger than OVERRIDE_TTL
ENV_PORT = "SPECPILOT_PORT"
ENV_SIM = "SPECPILOT_SIM"  # the simulated engine's truth as JSON (specpilot_engine.sim); vLLM ignores it
# Environment of the profiler container, which runs beside the engine in the same pod.
ENV_PROFILE = "SPECPILOT_PROFILE"  # what to measure, a ProfileRequest as JSON
ENV_PROFILE_FILE = "SPECPILOT_PROFILE_FILE"  # where measured points are kept, resumable
ENV_PROFILER_PORT = "SPECPILOT_PROFILER_PORT"
ENV_ENGINE_URL = "SPECPILOT_ENGINE_URL"  # the engine's OpenAI API, e.g. http://127.0.0.1:8000

# The profiler touches its override while it works: one left behind by a profiler that died must not
# hold a depth for ever.
OVERRIDE_TTL = 15.0  # seconds since the file's mtime

# Exported series. At most 64 a replica: cells of (k, batch bucket) are bounded by MAX_CELLS.
MAX_CELLS = 10
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # upper edges of running requests in a step
M_LIVE = "specpilot_live_tuning"  # gauge 0/1, label reason ("" when live)
M_GENERATION = "specpilot_schedule_generation"  # gauge: generation in force
M_STEPS = "specpilot_steps_total"  # clean decode steps, labels k, batch
M_SECONDS = "specpilot_step_seconds_total"  # their time
M_REQUESTS = "specpilot_step_requests_total"  # running requests summed over them
M_EMITTED = "specpilot_emitted_tokens_total"  # tokens emitted in them
M_CONTEXT = "specpilot_step_context_tokens_total"  # context tokens summed over requests of clean steps
M_ALL_STEPS = "specpilot_engine_steps_total"  # every step, clean or not
M_DRAFTED = (
    "specpilot_drafted_tokens_total"  # requests whose draft had this position, label position (0-based)
)
M_ACCEPTED = "specpilot_accepted_tokens_total"  # of those, accepted at this position
M_EXPLORED_STEPS = "specpilot_exploration_steps_total"  # steps taken to explore
M_EXPLORATION = "specpilot_exploration_share"  # gauge: share of goodput that exploring cost lately


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
class Schedule:
    """Draft depth by number of running requests; beyond the last step its depth holds."""

    generation: int
    steps: tuple[Step, ...]
    exploration: Exploration = Exploration()

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

    def body(self) -> dict[str, Any]:
        x = self.exploration
        return {
            "version": SCHEDULE_VERSION,
            "generation": self.generation,
            "schedule": [{"upTo": s.up_to, "tokens": s.tokens} for s in self.steps],
            "exploration": {"price": x.price, "tokens": x.tokens, "cost": x.cost, "maxBatch": x.max_batch},
        }

    @property
    def hash(self) -> str:
        """Sixteen hex digits over the whole content, generation included."""
        return _digest(self.body())

    def dump(self) -> str:
        """The file's text: canonical JSON, so that equal schedules are equal bytes."""
        return _canonical({**self.body(), "hash": self.hash})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:16]


def parse_schedule(text: str, max_tokens: int = MAX_TOKENS) -> Schedule:
    """Read a schedule file.

    Raises ScheduleError for anything but a complete, valid file of this version: a half-written or
    hand-edited one must leave the schedule in force untouched.
    """
    try:
        doc = json.loads(text)
    except ValueError as e:
        raise ScheduleError(f"not JSON: {e}") from None
    if not isinstance(doc, dict):
        raise ScheduleError("not a JSON object")
    if doc.get("version") != SCHEDULE_VERSION:
        raise ScheduleError(f"version {doc.get('version')!r} is not {SCHEDULE_VERSION}")
    steps = _steps(doc.get("schedule"), max_tokens)
    x = doc.get("exploration") or {}
    if not isinstance(x, dict):
        raise ScheduleError("exploration is not an object")
    exploration = Exploration(
        _number(x, "price", 0.0, 0.0, 1.0),
        int(_number(x, "tokens", 0, 0, max_tokens)),
        _number(x, "cost", 1.0, 0.0, 1e6),
        int(_number(x, "maxBatch", 0, 0, 1e9)),
    )
    schedule = Schedule(int(_number(doc, "generation", -1, 0, 2**53)), steps, exploration)
    if doc.get("hash") != schedule.hash:
        raise ScheduleError("hash does not match the content")
    return schedule


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


def bucket(batch: int) -> int:
    """The batch bucket, by its upper edge, that a step with `batch` running requests counts in."""
    for edge in BUCKETS:
        if batch <= edge:
            return edge
    return BUCKETS[-1]


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
        return _canonical(
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
    """Inverse of ProfilePoint.as_json. Raises KeyError, TypeError or ValueError."""
    return ProfilePoint(
        int(doc["tokens"]),
        int(doc["batchSize"]),
        int(doc["contextLength"]),
        float(doc["seconds"]),
        float(doc["spread"]),
        int(doc["steps"]),
    )


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


def state_document(
    live: bool, reason: str, schedule: Schedule | None, file_error: str, versions: dict[str, str]
) -> dict[str, Any]:
    """What GET STATE_PATH answers; `schedule` is what the scheduler really uses at its next step.

    `live` False with a `reason` means the engine runs as stock vLLM with its start-up schedule.
    `fileError` names what is wrong with the file on disk while an earlier schedule stays in force.
    """
    return {
        "live": live,
        "reason": reason,
        "generation": schedule.generation if schedule else None,
        "hash": schedule.hash if schedule else None,
        "schedule": schedule.body()["schedule"] if schedule else None,
        "fileError": file_error,
        "versions": versions,
    }
