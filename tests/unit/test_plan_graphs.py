"""Which steps run in a captured graph, and the sizes that make all of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.plan.graphs import MAX_GRAPHS, captured, plan_captures

CAP = 512


def request_counts(most: int) -> list[int]:
    """vLLM 0.33's own request counts to capture at one query length."""
    counts = [n for n in (1, 2, 4) if n <= most] + [*range(8, min(most + 1, 256), 8)]
    return sorted({*counts, *range(256, most + 1, 16), most})


def default_sizes(widest: dict[int, int]) -> list[int]:
    """vLLM 0.33's default sizes, given the widest batch that runs at each query length."""
    tokens = {1, 2, 4, *range(8, 256, 8), *range(256, CAP + 1, 16)}
    return sorted(
        tokens | {n * q for q, most in widest.items() for n in request_counts(most) if n * q <= CAP}
    )


def missed(sizes: list[int], depths: tuple[int, ...], seqs: int) -> dict[int, int]:
    """Depth → batches of at most CAP tokens without a FULL graph."""
    graphs = captured(sizes, depths, seqs, max(depths))
    fits = {k: [b for b in range(1, seqs + 1) if b * (k + 1) <= CAP] for k in depths}
    return {k: sum(not graphs.hit(k, b) for b in batches) for k, batches in fits.items()}


def test_default_sizes_lose_graphs_where_query_lengths_do_not_divide_each_other() -> None:
    sizes = default_sizes({4: 252, 1: 253, 2: 254, 6: 255, 8: 256})
    lost = missed(sizes, (0, 1, 3, 5, 7), 256)
    assert (lost[0], lost[1], lost[5]) == (61, 47, 31)
    assert captured(sizes, (0, 1, 3, 5, 7), 256, 7).total == 240


def test_powers_of_two_need_few_graphs_and_lose_none() -> None:
    sizes = plan_captures((0, 1, 3, 7), (256,), CAP)
    graphs = captured(sizes, (0, 1, 3, 7), 256, 7)
    assert missed(list(sizes), (0, 1, 3, 7), 256) == {0: 0, 1: 0, 3: 0, 7: 0}
    assert graphs.total == 182
    assert [k for k in (7, 3, 1) if graphs.hit(k, CAP // (k + 1) + 1)] == []


def test_one_fixed_depth_is_captured_as_vllm_does_by_default() -> None:
    assert captured(plan_captures((7,), (256,), CAP), (7,), 256, 7).total == 48


def test_a_graph_of_another_query_length_does_not_serve() -> None:
    graphs = captured([3, 4], (1, 2), 8, 2)
    assert graphs.counts == (3, 4)
    assert not graphs.hit(1, 1)  # two tokens: the next count, three, is of query length 3 alone
    assert graphs.hit(2, 1)
    assert captured([2, 3, 4], (1, 2), 8, 2).hit(1, 1)


def test_no_graphs_where_nothing_is_captured() -> None:
    assert plan_captures((0, 1, 3, 7), (256,), 0) == ()
    assert captured((), (0, 1), 256, 1).total == 0


def test_steps_with_a_little_prefill_keep_a_piecewise_graph() -> None:
    assert max(plan_captures((0, 7), (4,), CAP)) == 64  # twice the widest decode, as vLLM's default


depth_sets = st.sets(st.sampled_from([1, 2, 3, 4, 5, 7, 9, 11, 15]), min_size=1, max_size=3)


@given(depth_sets, st.integers(1, 300), st.sampled_from([256, 512, 1024]))
def test_planned_sizes_cover_every_batch_below_the_cap(chosen: set[int], seqs: int, cap: int) -> None:
    depths = tuple(sorted({0, *chosen}))
    graphs = captured(plan_captures(depths, (seqs,), cap), depths, seqs, depths[-1])
    lost = [(k, b) for k in depths for b in range(1, seqs + 1) if b * (k + 1) <= cap and not graphs.hit(k, b)]
    assert not lost or graphs.total >= MAX_GRAPHS


@given(st.sets(st.integers(0, 16), min_size=1, max_size=12), st.integers(1, 64))
def test_small_batches_keep_their_graphs_when_there_are_too_many(chosen: set[int], seqs: int) -> None:
    depths = tuple(sorted(chosen))
    sizes = plan_captures(depths, (seqs,), CAP)
    graphs = captured(sizes, depths, seqs, depths[-1])
    assert graphs.total <= MAX_GRAPHS + len(depths) or len(depths) > 8
    assert all(graphs.hit(k, 1) for k in depths)
    assert all(0 < size <= CAP for size in sizes)


@settings(max_examples=25)
@given(depth_sets, st.sampled_from([(256, 1024), (128, 256), (100, 1000)]))
def test_one_plan_holds_for_every_limit_the_engine_may_have(
    chosen: set[int], admitted: tuple[int, ...]
) -> None:
    depths = tuple(sorted({0, *chosen}))
    sizes = plan_captures(depths, admitted, CAP)
    maps = [captured(sizes, depths, seqs, depths[-1]) for seqs in admitted]
    if max(graphs.total for graphs in maps) < MAX_GRAPHS:
        for seqs in admitted:
            assert set(missed(list(sizes), depths, seqs).values()) == {0}
