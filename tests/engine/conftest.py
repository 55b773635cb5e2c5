"""What the tests of this tier share, for a start of vLLM takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from tests.engine.server import OWN_CODE, Server, serving
from tests.engine.warm import Warm, warm


@pytest.fixture(scope="session")
def code() -> Iterator[Callable[[str], Warm]]:
    """code(version) → vLLM's own code of vllm.VERSION or vllm.NEWEST, to run scripts with."""
    with ExitStack() as stack:
        yield cache(lambda version: stack.enter_context(warm(version)))


@pytest.fixture(scope="session")
def timed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The live scheduler, to which a step takes the time that it takes on the CPU."""
    folder = tmp_path_factory.mktemp("timed")
    with serving(folder, "cpu_clock.factory", OWN_CODE, light=True) as server:
        yield server


@pytest.fixture(scope="session")
def stock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """vLLM's own scheduler, because this vLLM lacks something that the live one needs."""
    folder = tmp_path_factory.mktemp("stock")
    with serving(folder, "other_version.factory", OWN_CODE, light=True) as server:
        yield server
