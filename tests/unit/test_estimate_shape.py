"""Step times from a model's shape: how they grow with depth, batch and context, and what each kind of work costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.shapes import DENSE, LAB_SHAPE, MOE, SPARSE, V4_PRO
from tests.unit.test_decide_tuner import FIGURE_3, LAB_CPU
from tests.unit.tuner_world import World

from specpilot.estimate import constants as c
from specpilot.estimate.devices import device
from specpilot.estimate.profile import CostPrior, generic
from specpilot.estimate.shape import attention, drafting, step_time, touched
from specpilot_engine.protocol import ModelShape, ProfilePoint

H100 = device("cuda", "NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("rows", "percent", "digits"),
    [
        (1, 1.6, 1), (4, 6.1, 1), (8, 11.8, 1), (16, 22.3, 1), (32, 39.6, 1), (64, 63.5, 1), (96, 77.9, 1),
        (128, 86.7, 1), (192, 95.1, 1), (256, 98.2, 1), (384, 99.8, 1), (512, 99.97, 2),
    ],
)  # fmt: skip
def test_of_384_experts_with_6_a_row_a_step_touches(rows: int, percent: float, digits: int) -> None:
    shape = replace(MOE, experts=384, routed=6)
    assert round(100 * float(touched(shape, float(rows))), digits) == percent


kinds = st.sampled_from(["", "NVIDIA H100 80GB HBM3", "NVIDIA B300", "NVIDIA L4"])
sizes = st.floats(0, 1e11)
shapes = st.builds(
    ModelShape,
    weights=st.floats(1e6, 1e12), weight_flops=st.floats(1e6, 1e12), layers=st.integers(1, 100),
    devices=st.integers(1, 8), exchanged=st.floats(0, 1e7), device=st.sampled_from(["cuda", "cpu", "xpu"]),
    device_name=kinds, experts=st.just(256), routed=st.integers(1, 256), ranks=st.integers(1, 8),
    expert_weights=sizes, expert_flops=sizes, full_bytes=st.floats(0, 1e6), full_flops=st.floats(0, 1e8),
    window=st.sampled_from([0, 128, 4096]), window_bytes=st.floats(0, 1e6), window_flops=st.floats(0, 1e8),
    selected=st.sampled_from([0, 512, 2048]), selected_bytes=st.floats(0, 1e6),
    selected_flops=st.floats(0, 1e8), state_bytes=st.floats(0, 1e8),
    draft=st.sampled_from(["none", "block", "autoregressive"]), draft_layers=st.integers(0, 30),
    draft_weights=sizes, draft_flops=sizes, draft_expert_weights=sizes,
)  # fmt: skip


@given(shapes, st.integers(0, 15), st.floats(1, 1024), st.floats(1, 2e5), st.floats(1, 4))
def test_no_step_is_quicker_with_a_deeper_draft_more_requests_or_a_longer_context(
    shape: ModelShape, depth: int, batch: float, context: float, factor: float
) -> None:
    seconds = float(step_time(shape, depth, batch, context))
    assert 0 < seconds < math.inf
    nearly = seconds * (1 - 1e-12)
    assert step_time(shape, depth + 1, batch, context) >= nearly
    assert step_time(shape, depth, batch * factor, context) >= nearly
    assert step_time(shape, depth, batch, context * factor) >= nearly


@given(shapes, st.integers(0, 15), st.sampled_from([None, 500.0]))
def test_many_batches_at_once_are_as_each_alone(shape: ModelShape, depth: int, context: float | None) -> None:
    sizes = np.array([1.0, 7, 256])
    at_once = step_time(shape, depth, sizes, context)
    assert list(np.asarray(at_once)) == pytest.approx(
        [step_time(shape, depth, float(b), context) for b in sizes]
    )


@pytest.mark.parametrize("draft", ["none", "block", "autoregressive"])
def test_depth_0_drafts_nothing_a_block_is_one_pass_and_others_pay_a_pass_a_slot(draft: str) -> None:
    shape = replace(DENSE, draft=draft)
    cost = [float(drafting(shape, k, 1.0, H100)) for k in (0, 1, 3, 7)]
    one = c.GPU_DRAFT + shape.draft_layers * c.GPU_LAYER + shape.draft_weights / H100.bandwidth
    passes = {"none": (0, 0, 0), "block": (1, 1, 1), "autoregressive": (1, 3, 7)}[draft]
    assert cost[0] == 0
    assert cost[1:] == pytest.approx([one * p for p in passes])


def extra(shape: ModelShape, batch: float, context: float = 1.0) -> float:
    """What three drafts a request more cost to verify, as a share of the step without."""
    shape = replace(shape, draft="none")
    return float(step_time(shape, 3, batch, context) / step_time(shape, 0, batch, context)) - 1


def test_few_rows_cost_a_mixture_of_experts_what_they_do_not_cost_a_dense_model() -> None:
    assert extra(DENSE, 1) < 0.01
    assert extra(MOE, 8) > 0.5
    assert extra(DENSE, 8) < 0.02


def test_with_every_expert_touched_already_rows_are_as_cheap_as_those_of_a_dense_model() -> None:
    busy = replace(MOE, expert_flops=0.0, weight_flops=1.0)  # short of computing
    assert float(touched(busy, 512.0)) > 0.999
    assert extra(busy, 8) > 0.5
    assert extra(busy, 512) < 0.25


def test_a_dense_model_is_bound_by_computing_beyond_the_balance_of_its_device() -> None:
    """Two bytes a weight and two FLOPs: as many rows as the device has FLOPs for a byte."""
    rows = H100.compute / H100.bandwidth  # FLOPs that take as long as reading one byte
    assert rows == pytest.approx(127, abs=1)
    assert extra(DENSE, rows / 8) < 0.05
    assert extra(DENSE, 4 * rows) > 1.5


def test_full_attention_reads_the_context_once_for_all_rows_and_computes_it_for_each() -> None:
    light = replace(DENSE, full_flops=1.0)
    assert attention(light, 7, 1e5, H100) == attention(light, 0, 1e5, H100)
    heavy = replace(DENSE, full_bytes=1.0, full_flops=1e6)
    assert attention(heavy, 7, 1e5, H100) == pytest.approx(8 * attention(heavy, 0, 1e5, H100))


def test_a_sliding_window_reads_no_more_than_itself_and_the_drafts() -> None:
    windowed = replace(DENSE, full_bytes=0.0, full_flops=0.0, window=128, window_bytes=1e5, window_flops=1.0)
    at = [attention(windowed, k, x, H100) * H100.bandwidth / 1e5 for k, x in ((0, 64), (0, 1e5), (3, 1e5))]
    assert at == pytest.approx([64, 128, 131])


def test_sparse_attention_reads_its_selection_for_every_row() -> None:
    chosen = replace(SPARSE, full_bytes=0.0, full_flops=0.0)
    at = [attention(chosen, k, x, H100) for k, x in ((0, 1000), (0, 1e4), (0, 1e5), (3, 1e5))]
    assert at == pytest.approx([at[0] * factor for factor in (1, 2.048, 2.048, 8.192)])
    indexed = [attention(SPARSE, k, 1e5, H100) - attention(chosen, k, 1e5, H100) for k in (0, 3)]
    assert indexed[0] == pytest.approx(SPARSE.full_flops * 1e5 / H100.compute, rel=0.1)
    assert indexed[1] == pytest.approx(4 * SPARSE.full_flops * 1e5 / H100.compute)


def test_a_linear_attentions_state_does_not_grow_with_the_context() -> None:
    linear = replace(DENSE, full_bytes=0.0, full_flops=0.0, state_bytes=1e7)
    assert attention(linear, 7, 1e6, H100) == attention(linear, 0, 1.0, H100) == 1e7 / H100.bandwidth


def errors(world: World, shape: ModelShape | None) -> np.ndarray:
    """Log of what is estimated over what was measured, without what all have in common."""
    prior = CostPrior([], shape)
    estimated = [prior.seconds(k, np.array(world.batches, float), 8192) for k in world.depths]
    logs = np.log(np.array(estimated) / np.array(world.step_time))
    return np.asarray(logs - logs.mean())


@pytest.mark.parametrize(
    ("world", "shape", "error"), [(FIGURE_3, V4_PRO, 0.13), (LAB_CPU, LAB_SHAPE, 0.15)], ids=["figure", "lab"]
)
def test_published_and_measured_step_times_are_met_far_better_than_by_the_generic_shape(
    world: World, shape: ModelShape, error: float
) -> None:
    assert errors(world, shape).std() < error
    assert errors(world, shape).std() < errors(world, None).std() / 1.9
    within = errors(world, shape) - errors(world, shape).mean(axis=0)  # depths at the same batch
    assert within.std() < 0.12


def test_a_shape_fills_in_where_a_profile_has_one_depth_only() -> None:
    prior = CostPrior([ProfilePoint(1, 8, 8192, 0.020, 0.02, 16)], MOE)
    for depth, batch in ((1, 64.0), (5, 8.0)):
        ratio = float(step_time(MOE, depth, batch, 8192) / step_time(MOE, 1, 8.0, 8192))
        assert prior.second(depth, batch, 8192) == pytest.approx(0.020 * ratio)
    assert prior.second(1, 8, 8192) == pytest.approx(0.020)
    assert (prior.sigma, CostPrior([], MOE).sigma) == (c.SIGMA_PROFILED, c.SIGMA_SHAPED)
    assert CostPrior([]).sigma == c.SIGMA_GENERIC
    assert CostPrior([]).second(3, 16.0, None) == float(generic(3, 16.0))
