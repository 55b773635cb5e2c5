"""Step time from the shape of a model: a roofline, for where nothing was measured yet.

Each group of work takes as long as its reading or its computing, whichever is longer (Williams, Waterman, Patterson,
"Roofline: an insightful visual performance model", CACM 2009), and the groups follow one another. Left out: the
drafter's own attention, and what a drafter costs at depth 0. Step times seen live correct the scale at the first look;
what this gives is how depths, batch sizes and contexts compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.devices import Device, device
from specpilot_engine.protocol import ModelShape

Floats = NDArray[np.float64]
Batch: TypeAlias = Floats | float


def step_time(shape: ModelShape, depth: float, batch: Batch, context: float | None) -> Batch:
    """C_k(B) in seconds at `context` tokens a request; a typical one where that is None.

    Never falls with depth, batch or context.
    """
    on, larger = device(shape.device, shape.device_name), _larger(batch)
    tokens = c.TYPICAL_CONTEXT if context is None else context
    rows = batch * (1 + depth)
    seconds = on.step + shape.layers * _layer(shape, on) + (on.row + shape.exchanged / on.link) * rows
    seconds = seconds + larger(shape.weights / on.bandwidth, shape.weight_flops * rows / on.compute)
    if shape.experts:
        read = shape.expert_weights * touched(shape, rows)
        seconds = seconds + larger(read / on.bandwidth, shape.expert_flops * rows / on.grouped)
    seconds = seconds + batch * attention(shape, depth, tokens, on)
    return seconds + drafting(shape, depth, batch, on)


def touched(shape: ModelShape, rows: Batch) -> Batch:
    """Share of the routed experts that the rows of a step need: 1 - (1 - r/N)^Q.

    The expectation where each of Q rows picks r of N experts by itself; rows of data-parallel ranks meet.
    """
    missed: Batch = (1 - shape.routed / shape.experts) ** (shape.ranks * rows)
    return 1 - missed


def attention(shape: ModelShape, depth: float, context: float, on: Device) -> float:
    """Seconds a request.

    Full attention reads a request's context once for all its 1 + k rows, which compute with all of it each: at first
    rows cost next to nothing, beyond the device's balance they cost in proportion. A sliding window of w tokens is w
    + k for 1 + k rows. Sparse attention reads and computes what each row selects. Linear attention reads and writes
    a state of one size.
    """
    rows = 1 + depth
    seconds = _roofline(shape.full_bytes * context, shape.full_flops * context * rows, on)
    if shape.window:
        window = min(shape.window + depth, context)
        each = min(shape.window, context)
        seconds += _roofline(shape.window_bytes * window, shape.window_flops * each * rows, on)
    if shape.selected:
        chosen = min(shape.selected, context) * rows
        seconds += _roofline(shape.selected_bytes * chosen, shape.selected_flops * chosen, on)
    return seconds + shape.state_bytes / on.bandwidth


def drafting(shape: ModelShape, depth: float, batch: Batch, on: Device) -> Batch:
    """Seconds of drafting: nothing at depth 0 and for n-grams, one pass over all slots for block drafters, one pass
    a slot for autoregressive ones."""
    if depth <= 0 or shape.draft == "none":
        return 0 * batch
    passes, rows = (1.0, batch * (1 + depth)) if shape.draft == "block" else (depth, batch)
    larger = _larger(batch)
    read = shape.draft_weights + 0 * rows
    if shape.experts and shape.draft_expert_weights:
        read = read + shape.draft_expert_weights * touched(shape, rows)
    one = larger(read / on.bandwidth, shape.draft_flops * rows / on.compute)
    return passes * (on.draft + shape.draft_layers * _layer(shape, on) + one)


def _layer(shape: ModelShape, on: Device) -> float:
    """Starting a layer's kernels; devices that share it add two exchanges, routed experts their sorting."""
    shared = c.EXCHANGE if shape.devices > 1 else 0.0
    return on.layer + shared + (c.ROUTING if shape.experts and shape.device != "cpu" else 0.0)


def _roofline(read: float, computed: float, on: Device) -> float:
    return max(read / on.bandwidth, computed / on.compute)


def _larger(batch: Batch) -> Callable[[Batch, Batch], Batch]:
    """numpy costs twenty times as much on single numbers."""
    return np.maximum if isinstance(batch, np.ndarray) else max
