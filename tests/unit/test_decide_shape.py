"""What a model's shape is worth without a profile, and that what was learnt survives its coming and going."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.shapes import DENSE, LAB_SHAPE, MOE, V4_PRO
from tests.unit.test_control_step import POD, TO, counters
from tests.unit.test_decide_tuner import AGREEING, CHAT, CODE, FIGURE_3, LAB_CPU, depth_share
from tests.unit.test_estimate_cost import after, error, window
from tests.unit.test_explain_sources import deployment
from tests.unit.tuner_world import Phase, Run, World, play

from specpilot.control.step import Evidence, step
from specpilot.decide.memory import Memory, materially_differs
from specpilot.estimate.cost import learn
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.shape import step_time
from specpilot.explain.sources import of_deployment
from specpilot.explain.subject import explain
from specpilot_engine.protocol import ModelShape, parse_shape

FIGURE_BATCHES = np.array([1.0, 16, 100, 256])
DEPTHS, BATCHES = (0, 1, 3, 5, 7), (1, 4, 16, 64, 128, 256)
# Better kernels and a slower drafter than the constants have it.
_TRUE = replace(DENSE, weight_flops=DENSE.weight_flops / 1.5, draft_weights=2e9, full_flops=1e6)
DENSE_GPU = World(
    DEPTHS, BATCHES, [[float(step_time(_TRUE, k, float(b), 6000.0)) for b in BATCHES] for k in DEPTHS]
)


def told(shape: ModelShape) -> ModelShape:
    """As it comes from the engine: with four digits."""
    found = parse_shape(shape.labels())
    assert found is not None
    return found


def share(
    world: World, loads: tuple[int, ...], survival: tuple[float, ...], shape: ModelShape | None
) -> float:
    """Of the oracle's tokens, over five minutes of each load and three seeds, nothing measured before."""
    phases, runs = [Phase(300, n, survival) for n in loads], []
    for seed in range(3):
        memory = Memory(shape=shape)
        runs.append(play(world, phases, seed=seed, minimum_gain=0.0, resume=Run(memory=memory)))
    return sum(sum(run.shares) for run in runs) / len(loads) / len(runs)


@pytest.mark.parametrize(
    ("world", "loads", "survival", "shape", "least", "more"),
    [
        (FIGURE_3, (1, 16, 64), CODE, V4_PRO, 0.98, 0.015),
        (LAB_CPU, (1, 16, 4, 32), AGREEING, LAB_SHAPE, 0.965, 0.005),
        (DENSE_GPU, (1, 16, 64), CHAT, DENSE, 0.985, 0.005),
    ],
    ids=["mixture of experts", "dense on a CPU", "dense"],
)
def test_without_a_profile_the_models_shape_tunes_better_than_the_generic_one(
    world: World,
    loads: tuple[int, ...],
    survival: tuple[float, ...],
    shape: ModelShape,
    least: float,
    more: float,
) -> None:
    shaped = share(world, loads, survival, shape)
    assert shaped >= least
    assert shaped >= share(world, loads, survival, None) + more


@pytest.mark.parametrize("shape", [DENSE, MOE], ids=["dense", "mixture of experts"])
@pytest.mark.parametrize("clients", [1, 4, 16])
def test_a_shape_that_is_quite_wrong_heals_within_ten_minutes(clients: int, shape: ModelShape) -> None:
    """That of a GPU, for what really is a small model on two CPU cores."""
    phase = Phase(900, clients, AGREEING)
    run = play(LAB_CPU, [phase], minimum_gain=0.0, resume=Run(memory=Memory(shape=shape)))
    assert depth_share(LAB_CPU, run, phase, 600, 900) >= 0.99


@pytest.mark.parametrize("shapes", [(None, MOE), (MOE, None), (DENSE, MOE)], ids=["comes", "goes", "changes"])
def test_what_was_learnt_survives_a_shape_that_comes_goes_or_changes(
    shapes: tuple[ModelShape | None, ModelShape | None],
) -> None:
    before, now = (CostPrior([], shape) for shape in shapes)
    memory = after(before, *[window((3, 16, 400), (1, 16, 100))] * 10)
    for k in (1, 3):
        assert error(memory, now, k, 16) == pytest.approx(error(memory, before, k, 16), abs=0.01)
    memory, shift = learn(memory, [window((3, 16, 400), (1, 16, 100))], now)
    assert shift is None
    for k in (1, 3):
        assert error(memory, now, k, 16) == pytest.approx(0.0, abs=0.01)


def test_a_profile_counts_for_all_that_it_has_measured_whatever_the_shape() -> None:
    points = FIGURE_3.profile()
    assert CostPrior(points, MOE).seconds(3, FIGURE_BATCHES, 8192) == pytest.approx(
        CostPrior(points).seconds(3, FIGURE_BATCHES, 8192)
    )


def test_the_memory_keeps_the_shape_and_its_coming_is_worth_a_write() -> None:
    memory = Memory(shape=told(V4_PRO))
    assert Memory.from_json(memory.to_json()).shape == memory.shape
    assert materially_differs(memory, Memory())
    older = memory.to_json().replace('"shape":', '"of another version":')
    assert Memory.from_json(older).shape is None
    assert Memory.from_json(older).note == ""


def known(evidence: Evidence, tick: int, **pods: ModelShape | None) -> Evidence:
    """Evidence after a tick in which these pods said what the shape of their model is."""
    now = {(POD[0], pod): replace(counters(tick), shape=shape) for pod, shape in pods.items()}
    return step(evidence, now, (), TO, True, 1e6 + 15 * tick).evidence


def test_the_shape_that_engines_told_stays_until_none_of_them_has_it_any_more() -> None:
    evidence = known(Evidence(), 1, a=None)
    assert evidence.memory.shape is None
    evidence = known(evidence, 2, a=DENSE)
    assert evidence.memory.shape == DENSE
    evidence = known(evidence, 3, a=None)  # an engine package of an earlier version
    assert evidence.memory.shape == DENSE
    evidence = known(evidence, 4, a=MOE, b=DENSE)  # pods are being replaced
    assert evidence.memory.shape == DENSE
    evidence = known(evidence, 5, a=MOE, b=MOE)
    assert evidence.memory.shape == MOE


def test_an_explanation_without_a_profile_says_where_step_times_are_from() -> None:
    said = "there is no profile: step times are estimated from the model's shape"
    subject = of_deployment(deployment(), (), Memory(shape=MOE), None)
    assert said in subject.notes
    assert said not in of_deployment(deployment(), (), Memory(), None).notes
    shown = {row.tokens: row.seconds for row in explain(subject, [16]).at(16)}
    for depth, seconds in shown.items():
        assert math.log(seconds) == pytest.approx(math.log(float(step_time(MOE, depth, 16.0, None))))
