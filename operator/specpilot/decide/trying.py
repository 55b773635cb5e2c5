"""The trial of a change, from its begin to what becomes of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import exploration, undone
from specpilot.decide.decision import Decision
from specpilot.decide.goodput import Landscape
from specpilot.decide.memory import Memory, Tried
from specpilot.decide.proof import Answer, Proof, borne_out, extent, favour, refuted, weigh
from specpilot.decide.schedule import depth_indices
from specpilot.decide.settings import Settings
from specpilot.decide.verdict import can_be_tried, depths_named, shifted_lately
from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Trial

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

ALTERNATING = "the schedule in force alternates with the one before, until their goodput is told apart"


def note(memory: Memory, settings: Settings, now: float) -> Memory:
    """What is in force decides whether there is a trial: it may have been begun by an operator that died
    before it could write that down, or have been written down and never come into force."""
    generation, tried = settings.in_force.generation, memory.trial
    if settings.in_force.trial is None:
        return memory if tried is None else replace(memory, trial=None)
    if tried is None or tried.generation != generation:
        memory = replace(memory, trial=Tried(generation, now))
    return memory


def begin(land: Landscape, settings: Settings, old: Indices, new: Indices, weights: Floats) -> Trial | None:
    """The trial with which a change from depth indices old[B] to new[B] begins; None where little or nothing
    of the load is at batch sizes that change, and so little to measure."""
    if not can_be_tried(settings, old, new, weights):
        return None
    share = np.where(old != new, weights, 0.0)
    batch = float(share @ np.arange(1, len(share) + 1) / share.sum())
    at = min(round(batch), len(share)) - 1
    seconds = float(np.exp(land.log_seconds[[old[at], new[at]], at]).mean())
    noise = c.STEP_NOISE * math.sqrt(land.noise)
    gain, deviation = believed(land, old, new, weights)
    ratio = favour(gain, deviation)
    steps, pairs = extent(batch, gain, ratio, seconds, noise)
    return Trial(settings.in_force.steps, steps, pairs, ratio)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands. `settled` ends it; otherwise `released`: the tuner may decide as if there were
    none, and if it then has nothing to change, `given_up` ends it with the new schedule."""

    memory: Memory
    settled: Decision | None = None
    released: bool = False
    given_up: Decision | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trial: whether the new schedule stays, and whether what was measured or believed `told` so."""

    kept: bool
    told: bool
    reason: Reason
    message: str


def follow(
    memory: Memory,
    land: Landscape,
    settings: Settings,
    counts: Sequence[TrialCount],
    windows: Sequence[Window],
    now: float,
) -> Progress:
    """One look at the trial of the schedule in force. `windows` are those of this tick, none without cells."""
    trial, tried = settings.in_force.trial, memory.trial
    assert trial is not None
    assert tried is not None
    old, new = (
        depth_indices(steps, settings.depths, settings.max_batch)
        for steps in (trial.against, settings.in_force.steps)
    )
    weights = memory.load.weights(settings.max_batch)
    proof = weigh([count for count in counts if count.generation == settings.in_force.generation])
    tried = tried.after(proof.pairs.count, max(window.seconds for window in windows))
    memory = replace(memory, trial=tried)
    outcome = _outcome(proof, tried, believed(land, old, new, weights), _away(windows, old, new), settings)
    if outcome is None:
        another_load = memory.load_then.moved(memory.load) >= c.LOAD_SHIFT
        return Progress(memory, released=another_load or shifted_lately(memory, settings, now))
    if outcome.told and not outcome.kept:
        memory = undone.remember(memory, land, old, new, weights, now)
    there = _told_apart(old, new, weights)
    what = f"{depths_named(land, new, there)} instead of {depths_named(land, old, there)}"
    decision = Decision(
        change=True,
        steps=settings.in_force.steps if outcome.kept else trial.against,
        # What explored before, and at which cost, was another schedule's.
        exploration=exploration.beside(memory, land, new if outcome.kept else old, settings, now),
        reason=outcome.reason,
        message=f"{what}: {outcome.message}",
        predicted_gain=None if tried.predicted is None else math.expm1(tried.predicted),
        steps_changed=not outcome.kept,
        settled=True,
        measured=proof.measured if outcome.told else None,
    )
    if outcome.told:
        return Progress(memory, settled=decision)
    return Progress(memory, released=True, given_up=decision)


def _outcome(
    proof: Proof, tried: Tried, belief: tuple[float, float], away: bool, settings: Settings
) -> Outcome | None:
    """What a trial has come to, None while it goes on. `belief`: log gain and deviation as estimated by now, where the
    two schedules differ; `away`: their load is gone."""
    answer, measured = proof.answer, proof.measured
    if answer is Answer.KEEP:
        return Outcome(True, True, Reason.GAIN_CONFIRMED, f"{measured}")
    if borne_out(proof, *belief):
        text = f"{measured}; not clear alone, but together with what is estimated of the two"
        return Outcome(True, True, Reason.GAIN_CONFIRMED, text)
    if answer is Answer.UNDO:
        return Outcome(False, True, Reason.CHANGE_UNDONE, f"{measured}, undone")
    if away:
        text = "the load at which the two differ is gone, so it is kept as estimated, unproved"
        return Outcome(True, False, Reason.LOAD_SHIFT, text)
    fell = tried.predicted is not None and tried.predicted - belief[0] >= c.SURE_GAIN
    if fell and refuted(proof, *belief, settings.needed):
        text = f"{measured}, with what is known of the two besides too little, so undone"
        return Outcome(False, True, Reason.CHANGE_UNDONE, text)
    stalled = tried.stalled(settings.interval)
    if answer is Answer.INCONCLUSIVE or (stalled and proof.pairs.count >= c.TRIAL_ENOUGH):
        return Outcome(False, True, Reason.GAIN_INCONCLUSIVE, f"{measured}, not told from none, so undone")
    if stalled or answer is Answer.UNMEASURED:
        text = "too few steps could be compared, so it is kept as estimated, unproved"
        return Outcome(True, False, Reason.GAIN_INCONCLUSIVE, text)
    return None


def believed(land: Landscape, old: Indices, new: Indices, weights: Floats) -> tuple[float, float]:
    """Log gain of depth indices new[B] over old[B] where the two differ, which is where a trial compares them, and
    its deviation."""
    share = np.where(old != new, weights, 0.0)
    share /= max(share.sum(), 1e-9)
    batches = np.arange(len(old))
    gain = float((land.log_goodput[new, batches] - land.log_goodput[old, batches]) @ share)
    return gain, land.total_deviation(new, old, share)


def _told_apart(old: Indices, new: Indices, weights: Floats) -> Floats:
    """Weights of the batch sizes by which to name the two: where they differ at the load, else where they differ."""
    differ = old != new
    ones = np.ones(len(old))
    for share in (np.where(differ, weights, 0.0), np.where(differ, ones, 0.0)):
        if share.any():
            return share
    return ones


def _away(windows: Sequence[Window], old: Indices, new: Indices) -> bool:
    """Whether hardly any time of this tick went by at batch sizes where the two differ."""
    total = there = 0.0
    for window in windows:
        for cell in window.cells.values():
            batch = min(max(round(cell.requests / cell.steps), 1), len(old))
            total += cell.seconds
            there += cell.seconds * float(old[batch - 1] != new[batch - 1])
    return there < c.TRIAL_GONE * total
