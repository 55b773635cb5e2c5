"""What more than one tier needs: a real vLLM, models small enough for it, and how tests share a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.setup import cluster, models, vllm

FOUND_UP = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)  # before the group is read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers a file goes to one of them, and those of a group all to the same."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers share a cluster, which none of them may stop: whoever gives them work does."""
    if session.config.getoption("numprocesses", None):
        session.config.stash[FOUND_UP] = cluster.is_up()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.stash.get(FOUND_UP, True) and cluster.is_up():
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
