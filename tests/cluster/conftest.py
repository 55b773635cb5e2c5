"""A real cluster, namespaces in it, and images loaded into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from deploy.console import TroubleError
from tests.cluster import places as namespaces
from tests.cluster.operator_process import OperatorProcess, running
from tests.setup import cluster as clusters
from tests.setup import debian, images, vllm_pods
from tests.setup.cluster import Cluster
from tests.setup.locks import alone
from tests.setup.vllm import Vllm


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster that all tests of this run share."""
    try:
        with alone("cluster"):
            running, started = clusters.start()
    except TroubleError as error:
        pytest.fail(str(error), pytrace=False)
    shared = getattr(request.config, "workeroutput", None)  # a worker's: others may need the cluster still
    if shared is not None:
        shared[clusters.STARTED] = started
    yield running
    if started and shared is None:
        clusters.stop()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Makes namespaces under restricted pod security, removed after the test: namespace() → its name."""
    made: list[str] = []

    def make(prefix: str = "t", **labels: str) -> str:
        name = f"{prefix}-{uuid4().hex[:8]}"
        cluster.apply(namespaces.namespace(name, **labels))
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.remove_namespace(name)


def _loaded(cluster: Cluster, name: str) -> str:
    try:
        debian.provide(debian.CLUSTER)
        with alone("images"):
            image = images.provide(name)
            cluster.load(image.archive)
    except TroubleError as error:
        pytest.fail(str(error), pytrace=False)
    return image.name


@pytest.fixture(scope="session")
def operator_image(cluster: Cluster) -> str:
    """Name of the operator's image, which is in the cluster."""
    return _loaded(cluster, "operator")


@pytest.fixture(scope="session")
def sim_image(cluster: Cluster) -> str:
    """Name of the simulated engine's image, which is in the cluster; a vLLM 0.33.0 by its tag."""
    return _loaded(cluster, "sim")


@pytest.fixture(scope="session")
def vllm_image(cluster: Cluster) -> str:
    """Name of the image for a real vLLM 0.32.0, to be used with `vllm_volumes`."""
    return _loaded(cluster, "vllm-cpu")


@pytest.fixture(scope="module")
def operator(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    operator_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """An operator for a module's tests, which may say in PLACES how many namespaces they need."""
    places = getattr(request.module, "PLACES", 3)
    folder = tmp_path_factory.mktemp("operator")
    with running(cluster, folder, places=places, engineImage=operator_image) as process:
        yield process


@pytest.fixture(scope="module")
def where(operator: OperatorProcess) -> Iterator[str]:
    """One namespace for the module, which its operator looks after."""
    assert operator.alive()
    with operator.identity.place() as name:
        yield name


@pytest.fixture
def vllm_volumes(cluster: Cluster, vllm_cpu: Vllm) -> Iterator[Callable[[str], dict[str, Any]]]:
    """vllm_volumes(namespace) → the podTemplate that brings the real vLLM and the tiny models into it.

    The models keep their paths on this machine: tiny_models().target is the model's name.
    """
    used: list[str] = []

    def make(namespace: str) -> dict[str, Any]:
        used.append(namespace)
        return vllm_pods.pod_template(cluster, namespace, vllm_cpu)

    yield make
    for name in used:
        vllm_pods.remove(cluster, name)
