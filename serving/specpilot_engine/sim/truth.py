"""What is true in the simulated world: step times and survival curves, read from ENV_SIM."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specpilot_engine.acceptance import block_survival
from specpilot_engine.sim.defaults import DEFAULT_TRUTH

# Keys of a world file that only a replay of policies reads: one file serves both.
WORLD_KEYS = {"name", "source", "phases", "profile", "scrape_seconds", "window_noise"}


class TruthError(ValueError):
    """The simulated engine's settings cannot be used; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Faults to play, for tests of what stands around the engine."""

    start: bool = False  # end with status 1 instead of starting
    live: str = ""  # live tuning is off, for this reason
    crash_after: float = 0.0  # seconds after start until the process dies; 0: never
    never_ready: bool = False  # /health stays 503
    without_drafter: bool = False  # as `start`, where no drafter is given


@dataclass(frozen=True, slots=True)
class Truth:
    """The simulated world, in wall-clock seconds: `time_scale` has already divided what it speeds up.

    That is steps, prefill and start-up; `grace_seconds` and a planned crash are the process's own.

    `step_seconds_table[i][j]` is the mean time of a decode step at `depths[i]` with `batches[j]`
    running requests at the context where `context_factor` is 1. `traffic` maps a kind of request to
    its survival curve: the unconditional probability that draft slot j (0-based) is emitted. `sampled`
    are the curves of requests with a temperature above 0 where those have others.
    """

    depths: tuple[int, ...]
    batches: tuple[int, ...]
    step_seconds_table: tuple[tuple[float, ...], ...]
    traffic: Mapping[str, tuple[float, ...]]
    default_traffic: str
    context_factor: tuple[tuple[float, float], ...] = ()
    prefill_seconds_per_token: float = 0.0
    startup_seconds: float = 1.0
    grace_seconds: float = 25.0
    step_noise: float = 0.03
    schedule_overhead: float = 0.0  # share by which a schedule makes steps longer, or (negative) shorter
    outright_share: float = 0.0  # of rejections: see specpilot_engine.acceptance
    sampled: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seed: int = 0
    fail: Failures = field(default_factory=Failures)

    def step_seconds(self, tokens: int, batch: int, context: float) -> float:
        """Mean seconds of a decode step verifying `tokens` drafts for each of `batch` requests.

        Linear between the table's depths, batches and contexts. Above the last depth or batch the
        last segment is continued; below the first, and outside the contexts, the end value holds.
        """
        at_batch = [interpolate(self.batches, row, batch) for row in self.step_seconds_table]
        base = interpolate(self.depths, at_batch, tokens)
        if not self.context_factor:
            return base
        contexts = [c for c, _ in self.context_factor]
        factors = [f for _, f in self.context_factor]
        return base * interpolate(contexts, factors, min(context, contexts[-1]))

    def survival(self, kind: str | None, temperature: float = 0.0) -> tuple[float, ...]:
        """Survival of a traffic kind; an unknown one (a user's name, say) is the default kind."""
        curves = self.sampled if self.sampled and temperature > 0 else self.traffic
        return curves.get(kind or "", curves[self.default_traffic])

    def verified_by_block(self) -> Truth:
        """The same world where sampled tokens are verified by block: `traffic` is what standard gives.

        At temperature 0 the two accept alike.
        """
        curves = {kind: block_survival(curve, self.outright_share) for kind, curve in self.traffic.items()}
        return replace(self, sampled=curves)


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Linear in between, constant below the first point, the last segment continued above it."""
    if x <= xs[0] or len(xs) == 1:
        return float(ys[0])
    i = min(bisect_right(xs, x), len(xs) - 1)
    return float(ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]))


def read_truth(text: str | None) -> Truth:
    """Read ENV_SIM: JSON, `@file` with JSON, or nothing for the built-in world.

    What is not given comes from the built-in world, but the cost table (`depths`, `batches`,
    `step_time_ms`) is given whole or not at all. Raises TruthError.
    """
    text = (text or "").strip()
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except OSError as e:
            raise TruthError(f"cannot read {text[1:]}: {e.strerror}") from None
    try:
        given = json.loads(text or "{}")
    except ValueError as e:
        raise TruthError(f"not JSON: {e}") from None
    if not isinstance(given, dict):
        raise TruthError("not a JSON object")
    return _truth(given)


def _truth(given: dict[str, Any]) -> Truth:
    known = set(DEFAULT_TRUTH) | {"fail", "context_factor", "default_traffic"}
    if unknown := sorted(set(given) - known - WORLD_KEYS):
        raise TruthError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    table = {"depths", "batches", "step_time_ms"} & set(given)
    if table and len(table) < 3:
        raise TruthError("depths, batches and step_time_ms belong together: give all three or none")
    doc = {**DEFAULT_TRUTH, **given}
    depths, batches = _axis(doc["depths"], "depths", 0), _axis(doc["batches"], "batches", 1)
    traffic = _traffic(doc["traffic"], depths[-1])
    default = doc.get("default_traffic", next(iter(traffic)))
    if default not in traffic:
        raise TruthError(f"default_traffic {default!r} is not one of {', '.join(traffic)}")
    scale = _positive(doc["time_scale"], "time_scale")
    factor = doc.get("context_factor") or {}
    if not isinstance(factor, dict):
        raise TruthError("context_factor must map contexts to factors")
    return Truth(
        depths=depths,
        batches=batches,
        step_seconds_table=_table(doc["step_time_ms"], len(depths), len(batches), 1e3 * scale),
        traffic=traffic,
        default_traffic=default,
        context_factor=tuple(
            sorted((float(c), _positive(f, f"context_factor[{c}]")) for c, f in factor.items())
        ),
        prefill_seconds_per_token=_number(doc, "prefill_ms_per_token") / (1e3 * scale),
        startup_seconds=_number(doc, "startup_seconds") / scale,
        grace_seconds=_number(doc, "grace_seconds"),
        step_noise=_number(doc, "step_noise"),
        schedule_overhead=_overhead(doc["schedule_overhead"]),
        outright_share=_share(doc, "outright_share"),
        seed=int(_number(doc, "seed")),
        fail=_failures(doc.get("fail") or {}),
    )


def _axis(values: Any, name: str, least: int) -> tuple[int, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(v, int) for v in values):
        raise TruthError(f"{name} must be a list of whole numbers")
    if values[0] < least or values != sorted(set(values)):
        raise TruthError(f"{name} must rise and start at {least} or above")
    return tuple(values)


def _table(rows: Any, depths: int, batches: int, unit: float) -> tuple[tuple[float, ...], ...]:
    if (
        not isinstance(rows, list)
        or len(rows) != depths
        or any(not isinstance(r, list) or len(r) != batches for r in rows)
    ):
        raise TruthError(f"step_time_ms must have {depths} rows (depths) of {batches} numbers (batches)")
    return tuple(tuple(_positive(v, "step_time_ms") / unit for v in row) for row in rows)


def _traffic(kinds: Any, depth: int) -> dict[str, tuple[float, ...]]:
    if not isinstance(kinds, dict) or not kinds:
        raise TruthError("traffic must map at least one kind to its survival")
    curves: dict[str, tuple[float, ...]] = {}
    for kind, body in kinds.items():
        curve = body.get("survival") if isinstance(body, dict) else None
        if not isinstance(curve, list) or not all(isinstance(s, int | float) for s in curve):
            raise TruthError(f'traffic {kind!r} must be {{"survival": [probability per draft slot]}}')
        if any(not 0 <= s <= 1 for s in curve) or curve != sorted(curve, reverse=True):
            raise TruthError(f"survival of {kind!r} must fall from slot to slot, between 1 and 0")
        if len(curve) < depth:
            raise TruthError(f"survival of {kind!r} has {len(curve)} slots, but depths go to {depth}")
        curves[kind] = tuple(float(s) for s in curve)
    return curves


def _failures(body: Any) -> Failures:
    known: dict[str, tuple[type, ...]] = {
        "start": (bool,),
        "never_ready": (bool,),
        "without_drafter": (bool,),
    }
    known |= {"live": (str,), "crash_after": (int, float)}
    if not isinstance(body, dict) or any(type(v) not in known.get(k, ()) for k, v in body.items()):
        raise TruthError(
            'fail takes "start": true, "live": "reason", "crash_after": seconds, "never_ready": true,'
            ' "without_drafter": true'
        )
    return Failures(**body)


def _number(doc: dict[str, Any], name: str) -> float:
    value = doc[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise TruthError(f"{name} must be a number that is not negative, not {value!r}")
    return value


def _overhead(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -0.9 <= value <= 10:
        raise TruthError(f"schedule_overhead must be a number from -0.9 to 10, not {value!r}")
    return float(value)


def _share(doc: dict[str, Any], name: str) -> float:
    if (value := _number(doc, name)) > 1:
        raise TruthError(f"{name} must be a number from 0 to 1, not {value!r}")
    return value


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise TruthError(f"{name} must be a number above 0, not {value!r}")
    return float(value)
