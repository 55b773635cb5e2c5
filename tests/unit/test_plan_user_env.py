"""Variables that the user gives the engine, read as the pod has them."""

from __future__ import annotations

from typing import Any

import pytest

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import user_env
from specpilot.plan.cost_env import cost_variables

CPU = {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}


def spec(containers: Any, *env: dict[str, Any]) -> SpeculativeDeploymentSpec:
    return SpeculativeDeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm:v0.33.0", "env": list(env)},
            "speculation": {"method": "MTP"},
            "podTemplate": {"spec": {"containers": containers}},
        }
    )


def test_the_engines_container_wins_over_the_specs_own_variables() -> None:
    of = spec([{"name": "vllm", "env": [{"name": "A", "value": "2"}]}], {"name": "A", "value": "1"}, CPU)
    assert user_env.value(of, "A") == "2"
    assert user_env.value(of, CPU["name"]) == "1"
    assert user_env.value(of, "B") is None


@pytest.mark.parametrize(
    "containers",
    [
        [{"name": "vllm", "env": [CPU, {"value": "nameless"}]}],
        [{"name": "vllm", "env": [CPU, "text"]}],
        [{"name": "vllm", "env": [{"name": "SPECPILOT_PORT", "value": "1"}]}],
        None,
    ],
)
def test_what_the_engine_never_gets_is_read_by_nobody(containers: Any) -> None:
    of = spec(containers)
    assert user_env.variables(of) == {}
    assert cost_variables(of) == []
