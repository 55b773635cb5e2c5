"""Cost: a prior corrected by what is seen, as far as errors are believed alike, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specpilot.estimate import constants as c
from specpilot.estimate.cost import CostMemory, Costs, learn
from specpilot.estimate.counters import Cell
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import ProfilePoint, bucket

DEPTHS = (0, 1, 3, 7)
BATCHES = (1, 16, 64, 256)


def truth(k: int, batch: float) -> float:
    return 0.010 * (1 + 0.01 * batch * (1 + k) + 0.1 * k)


def profile(factor: float = 1.0, **of_depth: float) -> CostPrior:
    return CostPrior(
        [
            ProfilePoint(k, b, 8192, truth(k, b) * factor * of_depth.get(f"k{k}", 1.0), 0.02, 16)
            for k in DEPTHS
            for b in BATCHES
        ]
    )


def window(*cells: tuple[int, int, float], slow: float = 1.0, at: float = 0.0) -> Window:
    """Cells of (depth, batch, steps) at their true step times, all `slow` times slower."""
    return Window(
        "pod-1",
        at,
        at + 15,
        {(k, bucket(b)): Cell(n, n * truth(k, b) * slow, n * b, n * b) for k, b, n in cells},
    )


def after(prior: CostPrior, *windows: Window) -> CostMemory:
    memory = CostMemory()
    for w in windows:
        memory, _ = learn(memory, [w], prior)
    return memory


def error(memory: CostMemory, prior: CostPrior, k: int, batch: int) -> float:
    costs = Costs(memory, prior, DEPTHS, 256, None)
    return float(costs.log_seconds[DEPTHS.index(k), batch - 1]) - math.log(truth(k, batch))


def test_without_traffic_the_profile_stands() -> None:
    costs = Costs(CostMemory(), profile(), DEPTHS, 256, None)
    expected = [[truth(k, b) for b in range(1, 257)] for k in DEPTHS]
    assert np.exp(costs.log_seconds) == pytest.approx(np.array(expected))
    assert costs.differences()[1, 2] == pytest.approx(costs.differences()[1, 2, 0])


def test_a_profile_at_the_wrong_context_heals_everywhere_from_one_cell() -> None:
    prior = profile(factor=1.3)
    memory = after(prior, *[window((3, 16, 500))] * 20)
    for k in DEPTHS:
        for b in BATCHES:
            assert abs(error(memory, prior, k, b)) < 0.03


def test_one_wrong_depth_heals_at_that_depth_and_moves_the_others_by_a_fraction() -> None:
    prior = profile(k7=0.75)
    memory = after(prior, *[window((3, 16, 500), (7, 16, 40))] * 20)
    assert error(CostMemory(), prior, 7, 16) == pytest.approx(math.log(0.75))
    assert abs(error(memory, prior, 7, 16)) < 0.02
    assert abs(error(memory, prior, 7, 64)) < 0.12
    assert abs(error(memory, prior, 3, 16)) < 0.01
    assert abs(error(memory, prior, 1, 16)) < abs(math.log(0.75)) / 4


def test_seeing_a_depth_makes_its_difference_surer_most_of_all_where_it_was_seen() -> None:
    prior = profile()
    memory = after(prior, *[window((3, 16, 500), (7, 16, 40))] * 10)
    before = Costs(CostMemory(), prior, DEPTHS, 256, None).differences()[2, 3]
    now = Costs(memory, prior, DEPTHS, 256, None).differences()[2, 3]
    assert now[15] < before[15] / 4
    assert now[15] < now[255] < before[255]
    assert np.all(now <= before + 1e-12)


def test_what_slows_a_whole_window_does_not_blur_the_difference_of_its_depths() -> None:
    prior = profile()
    rng = np.random.default_rng(0)
    noisy = [window((1, 16, 1e5), (3, 16, 1e5), slow=float(np.exp(rng.normal(0, 0.05)))) for _ in range(20)]
    costs = Costs(after(prior, *noisy), prior, DEPTHS, 256, None)
    difference = costs.log_seconds[1, 15] - costs.log_seconds[2, 15]
    assert difference == pytest.approx(math.log(truth(1, 16) / truth(3, 16)), abs=1e-3)


def test_a_slower_engine_is_a_shift_and_what_is_known_of_differences_survives_it() -> None:
    prior = profile(k7=0.8)
    memory = after(prior, *[window((3, 16, 500), (7, 16, 40))] * 20)
    memory, shift = learn(memory, [window((3, 16, 500), slow=1.4)], prior)
    assert shift is not None
    assert shift.log == pytest.approx(math.log(1.4), abs=0.05)
    costs = Costs(memory, prior, DEPTHS, 256, None)
    difference = float(costs.log_seconds[3, 15] - costs.log_seconds[2, 15])
    assert difference == pytest.approx(math.log(truth(7, 16) / truth(3, 16)), abs=0.03)
    assert float(costs.log_seconds[2, 15]) == pytest.approx(math.log(truth(3, 16) * 1.4), abs=0.04)


def test_depths_that_move_against_each_other_are_a_shift_and_are_learnt_anew() -> None:
    prior = profile()
    memory = after(prior, *[window((3, 16, 500), (7, 16, 100))] * 20)
    changed = window((3, 16, 500), (7, 16, 100))
    cells = {**changed.cells, (7, 16): Cell(100, 130 * truth(7, 16), 1600, 1600)}
    changed = Window("pod-1", 0, 15, cells)
    memory, shift = learn(memory, [changed], prior)
    assert shift is not None
    for _ in range(5):
        memory, _ = learn(memory, [changed], prior)
    costs = Costs(memory, prior, DEPTHS, 256, None)
    difference = float(costs.log_seconds[3, 15] - costs.log_seconds[2, 15])
    assert difference == pytest.approx(math.log(1.3 * truth(7, 16) / truth(3, 16)), abs=0.05)


def test_noise_alone_is_no_shift() -> None:
    prior, memory, shifts = profile(), CostMemory(), 0
    rng = np.random.default_rng(2)
    for _ in range(300):
        common = float(np.exp(rng.normal(0, 0.03)))
        cells = {}
        for k, steps in ((3, 500), (7, 16)):
            mean = truth(k, 16) * common * (1 + rng.normal(0, c.STEP_NOISE / math.sqrt(steps)))
            cells[k, 16] = Cell(steps, steps * mean, steps * 16, steps)
        memory, shift = learn(memory, [Window("pod-1", 0, 15, cells)], prior)
        shifts += shift is not None
    assert shifts <= 1
    assert 0.5 < memory.dispersion.value < 2


def test_without_a_profile_the_first_cell_sets_the_scale() -> None:
    prior = CostPrior([])
    memory = after(prior, *[window((1, 16, 500))] * 5)
    assert abs(error(memory, prior, 1, 16)) < 0.05
    assert Costs(memory, prior, DEPTHS, 256, None).differences()[1, 3, 15] > 0.05


def test_the_context_of_each_cell_is_taken_into_account() -> None:
    points = [
        ProfilePoint(k, 16, x, truth(k, 16) * f, 0, 16) for k in DEPTHS for x, f in ((1000, 1.0), (9000, 2.0))
    ]
    prior = CostPrior(points)
    cells = {(3, 16): Cell(500, 500 * truth(3, 16) * 2, 8000, 8000, 8000 * 9000)}
    memory = after(prior, *[Window("pod-1", 0, 15, cells)] * 10)
    costs = Costs(memory, prior, DEPTHS, 16, 1000.0)
    assert float(costs.log_seconds[2, 15]) == pytest.approx(math.log(truth(3, 16)), abs=0.02)


def test_replicas_are_pooled() -> None:
    prior, w = profile(), window((3, 16, 500))
    pooled, _ = learn(CostMemory(), [w, w], prior)
    assert pooled == after(prior, window((3, 16, 1000)))


def test_forgetting_a_cell_leaves_what_the_others_say_as_it_was() -> None:
    prior = profile(k7=0.8)
    many = [window((3, 16, 500), (7, 16, 40), (1, 16, 20)), window((3, 64, 500), (7, 64, 40))]
    memory = after(prior, *many * 10)
    at_16 = Costs(memory, prior, DEPTHS, 256, None).log_seconds[:, 15]
    few = {key: m for key, m in memory.cells.items() if key != (3, 64)}
    assert len(few) == 4
    lost = CostMemory({**memory.cells, (3, 64): replace(memory.cells[3, 64], steps=0.4)}, memory.precision)
    after_one_more, _ = learn(lost, [window((3, 16, 500))], prior)
    assert set(after_one_more.cells) == set(few)
    costs = Costs(after_one_more, prior, DEPTHS, 256, None)
    assert costs.log_seconds[:, 15] == pytest.approx(at_16, abs=0.02)
    difference = float(costs.log_seconds[3, 15] - costs.log_seconds[2, 15])
    assert difference == pytest.approx(math.log(truth(7, 16) / truth(3, 16)), abs=0.01)


def test_the_number_of_cells_is_bounded() -> None:
    prior, memory = profile(), CostMemory()
    for i in range(300):
        memory, _ = learn(memory, [window((DEPTHS[i % 4], 2 ** (i // 4 % 9), 50), (7, 16, 5))], prior)
    assert len(memory.cells) <= c.MOST_CELLS


def test_a_batch_that_moves_within_its_bucket_biases_nothing() -> None:
    # Windows with depth 1 at 60 requests and depth 3 at 36, and the reverse: one bucket, other step times.
    windows = [window((1, 60, 90), (3, 36, 110)), window((1, 36, 90), (3, 60, 110)), window((3, 36, 200))]
    memory = after(profile(), *windows * 20)
    for k, batch in ((1, 40), (1, 60), (3, 40), (3, 60)):
        assert error(memory, profile(), k, batch) == pytest.approx(0.0, abs=0.005)


def test_a_profile_that_comes_later_keeps_what_was_seen() -> None:
    memory = after(CostPrior(()), *[window((3, 16, 400), (1, 16, 100))] * 10)
    assert error(memory, profile(), 3, 16) == pytest.approx(0.0, abs=0.01)
    assert error(after(profile(), window((3, 16, 400))), profile(), 3, 16) == pytest.approx(0.0, abs=0.01)


def test_a_profile_that_contradicts_itself_is_doubted_depth_by_depth() -> None:
    # Depth 7 measured below depth 3 at every batch: one of the two is 40% wrong, and seeing 3 says little of 7.
    sound, contrary = profile(), profile(k7=0.3)
    assert contrary.disorder > 0.2 > 0.01 > sound.disorder
    known = window((3, 16, 600))
    doubt = [
        Costs(after(p, known), p, DEPTHS, 256, None).differences()[2, 3, 15] ** 0.5 for p in (sound, contrary)
    ]
    assert doubt[0] < 0.09
    assert doubt[1] > contrary.disorder
