"""The vLLM command line, the start-up schedule in it, and what the engine can do with it."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.owned import owner_of
from specpilot.plan.arguments import (
    SCHEDULER,
    Usable,
    arguments,
    captured_depths,
    live_support,
    safe_depth,
    speculative_config,
    startup_schedule,
)
from specpilot.plan.limits import limits

IMAGE = "vllm/vllm-openai:v0.33.0"


def spec(
    speculation: dict[str, Any] | None = None, args: tuple[str, ...] = (), image: str = IMAGE, **more: Any
) -> SpeculativeDeploymentSpec:
    engine = {"image": image, "args": list(args), **more.pop("engine", {})}
    body = {"model": {"name": "m"}, "engine": engine, "speculation": speculation or {"method": "MTP"}, **more}
    return SpeculativeDeploymentSpec.model_validate(body)


def value(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_without_a_method_nothing_of_ours_is_on_the_line() -> None:
    line = arguments(spec({"method": "None"}), 60)
    assert line == ["--model", "m", "--host", "0.0.0.0", "--port", "8000", "--served-model-name", "m",
                    "--shutdown-timeout", "60"]  # fmt: skip


def test_users_arguments_come_last_and_win_where_they_may() -> None:
    line = arguments(spec({"method": "None"}, ("--shutdown_timeout=5", "--dtype", "half")), 60)
    assert line[-3:] == ["--shutdown_timeout=5", "--dtype", "half"]
    assert "--shutdown-timeout" not in line


def test_only_sizes_above_one_are_said() -> None:
    line = arguments(spec(parallelism={"tensor": 4, "data": 1, "pipeline": 2}), 60)
    assert value(line, "--tensor-parallel-size") == "4"
    assert value(line, "--pipeline-parallel-size") == "2"
    assert "--data-parallel-size" not in line


def test_the_draft_model_and_its_verification_are_in_the_configuration() -> None:
    config = speculative_config(
        spec(
            {
                "method": "Eagle3",
                "draftModel": {"name": "head", "revision": "v2"},
                "maxTokens": 2,
                "verification": {
                    "method": "Synthetic",
                    "syntheticAcceptance": [0.8, 0.5],
                    "draftSampling": "Greedy",
                },
            },
            ("--max-num-seqs", "8"),
        )
    )
    assert config == {
        "method": "eagle3",
        "model": "head",
        "revision": "v2",
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 6, 1], [7, 7, 2], [8, 8, 0]],
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.8, 0.5],
        "draft_sample_method": "greedy",
    }


def test_the_deepest_start_up_depth_is_max_tokens_even_if_no_candidate() -> None:
    config = speculative_config(spec({"method": "DSpark", "maxTokens": 7, "candidates": [0, 1, 3]}))
    assert config["num_speculative_tokens"] == 7
    assert captured_depths(spec({"method": "DSpark", "maxTokens": 7, "candidates": [0, 1, 3]})) == (0, 1, 3)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"parallelism": {"data": 2}}, "data"),
        (
            {"engine": {"env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}},
            "VLLM_USE_V2_MODEL_RUNNER",
        ),
        (
            {
                "podTemplate": {
                    "spec": {
                        "containers": [
                            {"name": "vllm", "env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}
                        ]
                    }
                }
            },
            "VLLM_USE_V2_MODEL_RUNNER",
        ),
        ({"speculation": {"method": "None"}}, "method"),
    ],
)
def test_what_cannot_be_tuned_live_says_why_and_gets_no_schedule(more: dict[str, Any], fault: str) -> None:
    speculation = more.pop("speculation", {"method": "DSpark", "maxTokens": 7})
    stuck = spec(speculation, **more)
    live, reason = live_support(stuck)
    assert not live
    assert fault in reason
    if speculation["method"] != "None":
        assert "num_speculative_tokens_per_batch_size" not in speculative_config(stuck)
        assert captured_depths(stuck) == (7,)
        assert SCHEDULER in arguments(stuck, 60)  # it measures, and exports why it does not tune


def test_the_safe_depth_is_the_shallowest_that_drafts() -> None:
    assert safe_depth(spec({"method": "MTP"}).speculation) == 1
    assert safe_depth(spec({"method": "MTP", "candidates": [0, 7, 3]}).speculation) == 3
    assert safe_depth(spec({"method": "MTP", "candidates": [0]}).speculation) == 0


def test_where_the_limit_is_unknown_the_rows_lie_within_the_least_it_can_be() -> None:
    one = spec({"method": "MTP", "maxTokens": 3})
    assert startup_schedule(one.speculation, limits(one)) == [
        (1, 254, 1),
        (255, 255, 3),
        (256, 256, 0),
        (257, 1024, 1),
    ]


@given(
    st.sets(st.integers(0, 32), min_size=1, max_size=12),
    st.integers(1, 600),
    st.sampled_from(["MTP", "NGram"]),
)
def test_the_start_up_schedule_is_whole_and_holds_every_candidate(
    candidates: set[int], seqs: int, method: str
) -> None:
    chosen = spec(
        {"method": method, "maxTokens": 32, "candidates": sorted(candidates)}, ("--max-num-seqs", str(seqs))
    )
    rows = startup_schedule(chosen.speculation, limits(chosen))
    assert rows[0][0] == 1
    assert rows[-1][1] == seqs
    assert all(first <= last for first, last, _ in rows)
    assert all(later[0] == earlier[1] + 1 for earlier, later in itertools.pairwise(rows))
    depths = chosen.speculation.depths
    assert {k for _, _, k in rows} <= set(depths)
    assert len(rows) == min(len(depths), seqs)
    assert rows[0][2] == safe_depth(chosen.speculation)


@given(st.sampled_from(["DSpark", "MTP", "NGram"]), st.integers(1, 8), st.booleans())
def test_each_flag_of_ours_is_one_that_users_may_not_set(method: str, tokens: int, eager: bool) -> None:
    args = ("--enforce-eager",) if eager else ()
    line = arguments(spec({"method": method, "maxTokens": tokens}, args), 60)
    ours = [item for item in line if item.startswith("--") and item not in args]
    assert [flag for flag in ours if flag != "--shutdown-timeout" and owner_of(flag) is None] == []
    assert ("--cudagraph-capture-sizes" in line) is not eager
    json.loads(value(line, "--speculative-config"))


def test_steps_beyond_the_token_budget_or_without_a_graph_are_not_usable() -> None:
    usable = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--max-num-seqs", "256")))
    assert usable(7, 64)
    assert not usable(7, 65)  # 520 tokens: above the largest captured batch
    assert usable(0, 256)
    tight = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--max-num-batched-tokens", "100")))
    assert tight(7, 12)
    assert not tight(7, 13)


def test_without_graphs_only_the_token_budget_counts() -> None:
    eager = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--enforce-eager",)))
    assert eager(7, 256)
    assert not eager(7, 257)  # 2,048 tokens a step is the least that vLLM allows by default


def test_a_graph_is_full_where_one_request_more_takes_a_larger_one() -> None:
    usable = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--max-num-seqs", "256")))
    for depth in (0, 1, 3, 7):
        edges = [b for b in range(1, 65) if usable.full(depth, b)]
        counts = usable.graphs[0][1].counts
        assert edges == [
            b for b in range(1, 65) if any(b * (depth + 1) <= n < (b + 1) * (depth + 1) for n in counts)
        ]
        assert 8 <= len(edges) < 64 or depth == 7
    eager = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--enforce-eager",)))
    assert not any(eager.full(3, b) for b in range(1, 65))


def test_a_larger_cap_is_planned_for_data_center_blackwell() -> None:
    template = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-B200"}}}
    usable = Usable(spec({"method": "MTP", "maxTokens": 7}, ("--max-num-seqs", "256"), podTemplate=template))
    assert usable(7, 128)
    assert not usable(7, 129)
