"""One tick of tuning: windows in, a better memory and a decision out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import exploration, trying, undone
from specpilot.decide.decision import Decision
from specpilot.decide.goodput import Landscape
from specpilot.decide.known import known, prior_of
from specpilot.decide.memory import Memory, Tried
from specpilot.decide.objective import admissible, scores
from specpilot.decide.schedule import aligned, depth_indices, shorten
from specpilot.decide.settings import Settings
from specpilot.decide.verdict import Verdict, judge, shifted_lately
from specpilot.estimate import constants as c
from specpilot.estimate import cost, load, survival
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import ProfilePoint, Step

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def initial_schedule(profile: Sequence[ProfilePoint], settings: Settings) -> tuple[Step, ...]:
    """The schedule of a deployment that has had no traffic.

    With a profile, what pays at the survival of no traffic in particular; without, the smallest depth
    above 0, which costs little where it is wrong.
    """
    prior = prior_of(profile)
    land = _landscape(Memory(), prior, settings)
    reference = np.zeros(settings.max_batch, np.intp)
    if prior.measured:
        may = admissible(land, settings.max_inter_token_latency)
    else:
        may = land.allowed.copy()
        may[2:] = False
    score = scores(land, reference, may)
    if not prior.measured and len(settings.depths) > 1:
        score[0] = np.where(may[1], -1.0, score[0])
    steps = shorten(score, settings.depths, _all_sizes(settings.max_batch))
    return aligned(steps, score, settings.depths, settings.full)


def tune(
    memory: Memory,
    windows: Sequence[Window],
    profile: Sequence[ProfilePoint],
    settings: Settings,
    now: float,
    counts: Sequence[TrialCount] = (),
) -> tuple[Memory, Decision]:
    """Learn from the windows of one tick (all replicas') and decide.

    The decision holds the schedule in force unless another beats it by minimumGain beyond what is
    uncertain, and dwell has passed since it last changed or traffic has just shifted. While that schedule is
    on trial, `counts` (all replicas') decide what becomes of it, and nothing else is proposed unless traffic
    shifts.
    """
    memory = _note_in_force(trying.note(memory, settings, now), settings, now)
    windows = [w for w in windows if w.cells]
    prior = prior_of(profile, memory.shape)
    if not windows:
        text = "no decoding was seen since the last look, so the schedule holds"
        return memory, _hold(settings, Reason.WAITING_FOR_EVIDENCE, text)
    memory = _learn(memory, windows, prior, now)
    land = _landscape(memory, prior, settings)
    memory = undone.still(memory, land)
    if settings.in_force.trial is not None:
        return _on_trial(memory, land, settings, counts, windows, now)
    decision = _decide(memory, land, settings, now)
    if decision.trial is not None and decision.predicted_gain is not None:
        generation, predicted = settings.in_force.generation + 1, math.log1p(decision.predicted_gain)
        memory = replace(memory, trial=Tried(generation, now, predicted))
    return memory, decision


def _on_trial(
    memory: Memory,
    land: Landscape,
    settings: Settings,
    counts: Sequence[TrialCount],
    windows: Sequence[Window],
    now: float,
) -> tuple[Memory, Decision]:
    trial = trying.follow(memory, land, settings, counts, windows, now)
    memory = trial.memory
    if trial.settled is not None:
        return memory, trial.settled
    if trial.released and settings.prove:
        decision = _decide(memory, land, settings, now)
        if decision.steps_changed and _moves(memory, settings, decision.steps):
            return memory, replace(decision, settled=True)
    if trial.given_up is not None:
        return memory, trial.given_up
    return memory, _hold(settings, Reason.VERIFYING, trying.ALTERNATING)


def _note_in_force(memory: Memory, settings: Settings, now: float) -> Memory:
    """Dwell counts from when another depth was first seen in force at the load, whoever put it there.

    A change at batch sizes that do not run costs nothing and starts no dwell.
    """
    steps, x = settings.in_force.steps, settings.in_force.exploration
    if memory.steps != steps:
        if memory.steps and _moves(memory, settings, memory.steps):
            memory = replace(memory, changed_at=now, left=memory.steps, load_then=memory.load)
        memory = replace(memory, steps=steps)
    if memory.exploration != x:
        memory = replace(memory, exploration=x, explored_at=now)
    return memory


def _moves(memory: Memory, settings: Settings, steps: tuple[Step, ...]) -> bool:
    """Whether `steps` and the schedule in force differ at the load."""
    before, after = (
        depth_indices(schedule, settings.depths, settings.max_batch)
        for schedule in (steps, settings.in_force.steps)
    )
    weights = memory.load.weights(settings.max_batch)
    return bool(weights[before != after].sum() > c.MOVED_SHARE or not weights.any())


def _learn(memory: Memory, windows: Sequence[Window], prior: CostPrior, now: float) -> Memory:
    acceptance, traffic = survival.learn(memory.survival, windows)
    step_times, slower = cost.learn(memory.cost, windows, prior)
    shift = "survival" if traffic else "cost" if slower else ""
    return replace(
        memory,
        survival=acceptance,
        cost=step_times,
        load=load.learn(memory.load, windows),
        shift=shift or memory.shift,
        shifted_at=now if shift else memory.shifted_at,
        fresh=memory.fresh + 1,
        note="",
    )


def _landscape(memory: Memory, prior: CostPrior, settings: Settings) -> Landscape:
    return known(memory, prior, settings.depths, settings.max_batch, settings.allowed)


def _all_sizes(max_batch: int) -> Floats:
    """Weights of batch sizes nothing is known of: each doubling counts alike."""
    weights = 1 / np.arange(1, max_batch + 1)
    return np.asarray(weights / weights.sum())


def _decide(memory: Memory, land: Landscape, settings: Settings, now: float) -> Decision:
    depths, in_force = settings.depths, settings.in_force
    may = admissible(land, settings.max_inter_token_latency)
    old = depth_indices(in_force.steps, depths, settings.max_batch)
    weights = memory.load.weights(settings.max_batch)
    score = undone.bar(memory, land, old, scores(land, old, may))
    steps, new, verdict = _propose(memory, land, settings, score, score, now)
    if not verdict.passed:
        # What is better elsewhere need not wait for what is not yet sure at the load.
        held = np.where(_near(weights), _only(old, score), score)
        if held.max() >= c.IDLE_GAIN:
            elsewhere = _propose(memory, land, settings, held, score, now)
            if elsewhere[2].passed:
                steps, new, verdict = elsewhere
    chosen = new if verdict.passed else old
    explored, trial = exploration.beside(memory, land, chosen, settings, now), None
    gain = verdict.gain
    if verdict.passed and may[old, np.arange(len(old))][weights > 0].all():
        trial = trying.begin(land, settings, old, new, weights)
        if trial is not None:
            explored = in_force.exploration  # it pauses meanwhile
            gain, _ = trying.believed(land, old, new, weights)  # where it will be measured
    rested = now - memory.explored_at >= c.EXPLORATION_DWELL or in_force.exploration.price == 0
    if not (verdict.passed or rested or shifted_lately(memory, settings, now)):
        explored = in_force.exploration
    return Decision(
        change=verdict.passed or explored != in_force.exploration,
        steps=steps if verdict.passed else in_force.steps,
        exploration=explored,
        reason=verdict.reason,
        message=verdict.message,
        predicted_gain=math.expm1(gain),
        steps_changed=verdict.passed,
        trial=trial,
    )


def _propose(
    memory: Memory, land: Landscape, settings: Settings, table: Floats, score: Floats, now: float
) -> tuple[tuple[Step, ...], Indices, Verdict]:
    """The schedule that scores best by `table`, its depth indices, and whether it may replace the old one."""
    weights, sizes = memory.load.weights(settings.max_batch), _all_sizes(settings.max_batch)
    mixed = c.LOAD_WEIGHT * weights + (1 - c.LOAD_WEIGHT) * sizes
    kept = [s.up_to for s in settings.in_force.steps]
    steps = shorten(table, settings.depths, mixed, kept, weights > 0)
    steps = aligned(steps, table, settings.depths, settings.full, kept)
    new = depth_indices(steps, settings.depths, settings.max_batch)
    old = depth_indices(settings.in_force.steps, settings.depths, settings.max_batch)
    return steps, new, judge(memory, land, settings, old, new, score, weights, now)


def _near(weights: Floats) -> NDArray[np.bool_]:
    """Batches that the load is at or may wander to."""
    batches = np.arange(1, len(weights) + 1)
    at = batches[weights > 0]
    ratio = batches[None, :] / at[:, None]
    return np.asarray((np.maximum(ratio, 1 / ratio) <= c.NEAR_LOAD).any(axis=0))


def _only(old: Indices, score: Floats) -> Floats:
    """Scores that leave only depth index old[B], where that may be chosen at all."""
    kept = np.where(np.arange(len(score))[:, None] == old, score, -np.inf)
    return np.where(np.isfinite(kept).any(axis=0), kept, score)


def _hold(settings: Settings, reason: Reason, message: str) -> Decision:
    return Decision(False, settings.in_force.steps, settings.in_force.exploration, reason, message)
