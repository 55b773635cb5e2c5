"""What the tuner knows, and its small JSON form that survives a restart of the operator."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specpilot.decide.stored import UNREADABLE, clamped, finite, load_of, modest
from specpilot.estimate import constants as c
from specpilot.estimate.cost import CellMemory, CostMemory
from specpilot.estimate.dispersion import Dispersion
from specpilot.estimate.load import LoadMemory
from specpilot.estimate.survival import SurvivalMemory, believe
from specpilot_engine.protocol import MAX_TOKENS, Exploration, ModelShape, Step, parse_shape

VERSION = 1


@dataclass(frozen=True, slots=True)
class Tried:
    """The trial of schedule `generation`: since when, and the log gain that was predicted where the two schedules
    differ (None: unknown).

    `pairs` have been seen, `lasted` seconds with traffic have gone by, `waited` of them without a new pair;
    a restart forgets these three.
    """

    generation: int
    at: float
    predicted: float | None = None
    pairs: float = 0.0
    lasted: float = 0.0
    waited: float = 0.0

    def after(self, pairs: float, seconds: float) -> Tried:
        """The same `seconds` with traffic later, with so many pairs by now."""
        waited = 0.0 if pairs > self.pairs else self.waited + seconds
        return replace(self, pairs=pairs, lasted=self.lasted + seconds, waited=waited)

    def stalled(self, interval: float) -> bool:
        """Whether no end is to be waited for: a replica without traffic goes on for ever, one that hardly has any for
        hours."""
        return self.waited > max(c.TRIAL_STALLED, 4 * interval) or self.lasted > c.TRIAL_LONGEST


@dataclass(frozen=True, slots=True)
class Undone:
    """A change that a trial did not bear out: depth `new` instead of `old` at about `batch` requests.

    With what was believed of it: logs of accepted length and step time, new over old.
    """

    batch: float
    old: int
    new: int
    length: float
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Evidence, and when things last happened (epoch seconds, 0 never).

    `fresh` counts ticks with evidence in this process. It is not persisted, so that the schedule holds after a restart
    until it has been seen to run; nor are the newest windows of survival and the progress of a trial, which come again.
    `note` says why the memory is empty when it is.
    """

    survival: SurvivalMemory = field(default_factory=SurvivalMemory)
    cost: CostMemory = field(default_factory=CostMemory)
    load: LoadMemory = field(default_factory=LoadMemory)
    steps: tuple[Step, ...] = ()  # the schedule seen in force
    exploration: Exploration = field(default_factory=Exploration)
    changed_at: float = 0.0
    left: tuple[Step, ...] = ()  # the schedule before that
    explored_at: float = 0.0  # when the exploration in force was first seen
    shifted_at: float = 0.0
    shift: str = ""  # "survival" or "cost"
    load_then: LoadMemory = field(default_factory=LoadMemory)  # at the last change
    trial: Tried | None = None  # of the schedule in force
    undone: tuple[Undone, ...] = ()
    shape: ModelShape | None = None  # of the model that engines run, as they last told
    fresh: int = 0
    note: str = ""

    def to_json(self) -> str:
        """Canonical JSON, a few kilobytes at most."""
        s, x = self.survival, self.exploration
        return json.dumps(
            {
                "version": VERSION,
                "survival": {
                    "drafted": _short(s.drafted),
                    "accepted": _short(s.accepted),
                    "prior": _short(s.prior),
                    "weight": _short(s.weight),
                    "dispersion": _short((s.dispersion.value, s.dispersion.windows)),
                },
                "cost": {
                    "cells": [
                        [*key, *_short((m.steps, m.seconds, m.requests, m.context, m.weighted))]
                        for key, m in self.cost.cells.items()
                    ],
                    "precision": [
                        [float(f"{v:.9g}") for v in row[: i + 1]] for i, row in enumerate(self.cost.precision)
                    ],
                    "dispersion": _short((self.cost.dispersion.value, self.cost.dispersion.windows)),
                },
                "load": _load_json(self.load),
                "loadThen": _load_json(self.load_then),
                "schedule": [[step.up_to, step.tokens] for step in self.steps],
                "left": [[step.up_to, step.tokens] for step in self.left],
                "exploration": [x.price, x.tokens, x.cost, x.max_batch],
                "changedAt": self.changed_at,
                "exploredAt": self.explored_at,
                "shiftedAt": self.shifted_at,
                "shift": self.shift,
                "trial": [self.trial.generation, self.trial.at, self.trial.predicted] if self.trial else None,
                "undone": [[u.batch, u.old, u.new, u.length, u.seconds, u.at] for u in self.undone],
                "shape": self.shape.labels() if self.shape else None,
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Memory:
        """Read back. Never raises: what cannot be read gives an empty memory whose `note` says why."""
        try:
            doc = json.loads(text)
            if not isinstance(doc, dict) or doc.get("version") != VERSION:
                version = doc.get("version") if isinstance(doc, dict) else None
                return cls(note=f"the tuner's memory has version {version}, not {VERSION}: it starts afresh")
            return cls._read(doc)
        except UNREADABLE as e:
            return cls(note=f"the tuner's memory cannot be read ({e!r}): it starts afresh")

    @classmethod
    def _read(cls, doc: dict[str, Any]) -> Memory:
        s, x = doc["survival"], doc["exploration"]
        survival = SurvivalMemory(
            _numbers(s["drafted"]),
            _numbers(s["accepted"]),
            _numbers(s["prior"], 1e-4, 1 - 1e-4),
            _numbers(s["weight"]),
            _dispersion(s["dispersion"], *c.DISPERSION_RANGE),
        )
        price, tokens, stated, widest = _numbers(x)
        return cls(
            survival,
            _cost(doc["cost"]),
            _load(doc["load"]),
            _steps(doc["schedule"]),
            Exploration(price, int(tokens), stated, int(widest)),
            clamped(doc["changedAt"]),
            _steps(doc["left"]),
            clamped(doc["exploredAt"]),
            clamped(doc["shiftedAt"]),
            str(doc["shift"]),
            _load(doc["loadThen"]),
            _tried(doc.get("trial")),
            _undone(doc.get("undone", [])),
            _shape(doc.get("shape")),
        )


def materially_differs(a: Memory, b: Memory) -> bool:
    """Whether a restart with `a` instead of `b` would lose something that matters.

    Under constant traffic the estimates only tremble, and this stays False: nothing is written. The one
    that has seen less is taken for the saved one: evidence that faded is not worth a write.
    """
    a, b = sorted((a, b), key=lambda m: m.fresh)
    if _dated(a) != _dated(b):
        return True
    depth = max(len(a.survival.drafted), len(b.survival.drafted))
    one, other = believe(a.survival, depth), believe(b.survival, depth)
    if np.any(np.abs(np.log(one.lengths() / other.lengths())) > c.MATERIAL_LENGTH):
        return True
    if any(_grew(x, y) for x, y in zip(one.evidence, other.evidence, strict=True)):
        return True
    for key in a.cost.cells.keys() | b.cost.cells.keys():
        old, new = a.cost.cells.get(key), b.cost.cells.get(key)
        if _grew(old.steps if old else 0.0, new.steps if new else 0.0):
            return True
        if (
            old
            and new
            and abs(math.log(old.mean / new.mean)) > c.MATERIAL_COST
            and new.steps > c.MATERIAL_COUNT
        ):
            return True
    return False


def _dated(memory: Memory) -> tuple[object, ...]:
    tried = memory.trial and (memory.trial.generation, memory.trial.at)
    return memory.steps, memory.left, memory.changed_at, memory.shifted_at, tried, memory.undone, memory.shape


def _grew(old: float, new: float) -> bool:
    """By a factor that matters, from an amount that does; losing evidence is never worth a write."""
    return new > c.MATERIAL_COUNT and new > c.MATERIAL_EVIDENCE * max(old, 1.0)


def _steps(rows: Iterable[Any]) -> tuple[Step, ...]:
    steps = tuple(Step(int(up_to), int(k)) for up_to, k in rows)
    if not all(0 <= step.tokens <= MAX_TOKENS for step in steps):
        raise ValueError("a depth that no drafter has")
    return steps


def _tried(row: Any) -> Tried | None:
    """Older memories know of no trials."""
    if row is None:
        return None
    generation, at, predicted = row
    return Tried(int(generation), clamped(at), None if predicted is None else finite(predicted))


def _undone(rows: Iterable[Any]) -> tuple[Undone, ...]:
    return tuple(
        Undone(clamped(batch, 1.0), int(old), int(new), finite(length), finite(seconds), clamped(at))
        for batch, old, new, length, seconds, at in rows
    )


def _shape(labels: Any) -> ModelShape | None:
    """Older memories know of none; one that is not understood comes again from the engines."""
    return parse_shape(labels) if isinstance(labels, dict) else None


def _short(values: Iterable[float]) -> list[float]:
    return [float(f"{v:.6g}") for v in values]


def _numbers(values: Iterable[Any], *bounds: float) -> tuple[float, ...]:
    return tuple(clamped(v, *bounds) for v in values)


def _cost(doc: Mapping[str, Any]) -> CostMemory:
    cells = {}
    for k, edge, *values, weighted in doc["cells"]:
        steps, seconds, requests, context = _numbers(values)
        cell = CellMemory(steps, seconds, requests, context, modest(weighted))
        if not (0 <= k <= MAX_TOKENS and edge >= 1 and steps >= 1e-15):
            raise ValueError("a cell is of no depth or batch size, or has no steps")
        if not (1e-6 <= cell.mean <= 1e6 and 1 <= cell.batch <= 1e6):
            raise ValueError("a cell is of steps that cannot be")
        cells[int(k), int(edge)] = cell
    lower = [[modest(v) for v in row] for row in doc["precision"]]
    if [len(row) for row in lower] != list(range(1, len(cells) + 1)):
        raise ValueError("the precision does not match the cells")
    count = range(len(lower))
    precision = tuple(tuple(lower[max(i, j)][min(i, j)] for j in count) for i in count)
    return CostMemory(cells, precision, _dispersion(doc["dispersion"], *c.COST_DISPERSION_RANGE))


def _dispersion(row: Iterable[Any], low: float, high: float) -> Dispersion:
    value, windows = row
    return Dispersion(clamped(value, low, high), clamped(windows, 0.0, c.DISPERSION_WINDOWS))


def _load_json(load: LoadMemory) -> dict[str, Any]:
    rows = [[edge, *_short((s, load.batch[edge]))] for edge, s in sorted(load.seconds.items())]
    return {"buckets": rows, "context": None if load.context is None else _short([load.context])[0]}


def _load(doc: Mapping[str, Any]) -> LoadMemory:
    context = doc["context"]
    return replace(load_of(doc["buckets"]), context=None if context is None else clamped(context))
