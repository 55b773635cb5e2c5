"""What more than one tier needs: a real vLLM, models small enough for it, and how tests share a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.setup import cluster, models, vllm

STARTED = pytest.StashKey[bool]()
# Groups that take a worker more than half a minute, the longest first.
LONG = (
    "test_install",
    "vllm",
    "vllm-code",
    "test_operator_refusals",
    "test_operator_restart",
    "test_operator_remeasure",
    "test_operator_lifecycle",
    "test_operator_steady",
    "test_operator_arms",
    "test_operator_retune",
    "test_operator_metrics",
    "test_operator_api",
    "test_operator_leader",
    "test_operator_profiling",
    "test_operator_bugs",
    "test_admission",
    "test_localkube",
    "test_local_up",
    "test_decide_arms",
    "test_sim_process",
    "test_sim_profile",
    "test_control_leader",
    "test_make_sentences",
    "test_cli_output",
    "test_explain_sources",
)

# How long an example takes says nothing on a machine that does other things as well.
hypothesis.settings.register_profile(
    "untimed",
    hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)  # before the group is read
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers a file goes to one of them, and those of a group all to the same.

    What takes longest is begun first, so that they end at about the same time.
    """
    groups = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        groups[item] = mark.args[0] if mark else item.path.stem
        if not mark:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONG.index(groups[item]) if groups[item] in LONG else len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker may have started the cluster that all share, and cannot know when the others have done."""
    if getattr(node, "workeroutput", {}).get(cluster.STARTED):
        node.config.stash[STARTED] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whoever gives workers their work stops what one of them started, and never a cluster of somebody else."""
    if session.config.stash.get(STARTED, False):
        cluster.stop()


@pytest.fixture(scope="session")
def vllm_cpu() -> vllm.Vllm:
    """A virtual environment with a real vLLM that serves on the CPU (vllm.ENVIRONMENT set)."""
    return vllm.provide()


@pytest.fixture(scope="session")
def vllm_newest() -> Path:
    """Folder with the newest vLLM's Python code, to put on the path in front of vllm_cpu's."""
    return vllm.provide_newest()


@pytest.fixture(scope="session")
def tiny_models() -> Callable[..., models.TinyModels]:
    """Makes a target and a draft, e.g. tiny_models(damping=0.15): see models.Shape."""

    def make(**sizes: float) -> models.TinyModels:
        return models.provide(models.Shape(**sizes))  # type: ignore[arg-type]

    return make
