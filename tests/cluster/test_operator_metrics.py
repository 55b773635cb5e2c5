"""Prometheus in every state it can be in: the depth stays, the status says so, and all comes back by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import Watched, load, simulated
from tests.cluster.prometheus_proxy import MODES, Proxy, prometheus
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually


@pytest.fixture(scope="module")
def proxy(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with prometheus(cluster, tmp_path_factory.mktemp("prometheus")) as front:
        yield front


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, operator_image: str, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    endpoint = {"name": "main", "url": proxy.url, "timeout": "1s", "window": "15s"}
    folder = tmp_path_factory.mktemp("operator")
    with running(cluster, folder, engineImage=operator_image, prometheus=[endpoint]) as process:
        yield process


@pytest.fixture(scope="module")
def flash(cluster: Cluster, sim_image: str, operator: OperatorProcess) -> Iterator[Watched]:
    """One that goes by Prometheus alone, under load."""
    assert operator.alive()
    metrics = {"source": "Prometheus", "prometheus": "main"}
    with operator.identity.place() as where:
        watched = Watched(cluster, where, "flash")
        watched.apply(simulated("flash", sim_image, metrics=metrics))
        watched.serving()
        with load(watched.urls(), clients=2, traffic="code"):
            watched.wait("MetricsAvailable", "Prometheus")
            watched.wait("Tuned", "Holding")
            yield watched


@pytest.mark.parametrize("mode", MODES)
def test_without_an_answer_of_prometheus_the_depth_stays_and_the_status_says_why(
    flash: Watched, proxy: Proxy, mode: str
) -> None:
    schedule = flash.schedule()
    proxy.mode = mode
    try:
        lost = flash.wait("MetricsAvailable", "MetricsUnavailable", 30)
        assert lost["status"] == "False"
        assert lost["message"]
        time.sleep(2)  # a few more ticks
        assert flash.schedule() == schedule
        assert flash.condition("Ready")["status"] == "True"
    finally:
        proxy.mode = "pass"
    assert flash.wait("MetricsAvailable", "Prometheus", 30)["status"] == "True"
    reasons = [reason for reason, _ in flash.events()]
    assert {"MetricsUnavailable", "Prometheus"} <= set(reasons)


def test_auto_scrapes_the_pods_meanwhile_and_goes_on_tuning(flash: Watched, proxy: Proxy) -> None:
    flash.patch(metrics={"source": "Auto"})
    proxy.mode = "gone"
    try:
        fallen = flash.wait("MetricsAvailable", "FallbackScraping", 30)
        assert fallen["status"] == "True"
        assert "main" in fallen["message"]
        generation = flash.generation()
        with load(flash.urls(), clients=24, traffic="prose"):
            eventually(lambda: flash.generation() > generation, 90, "a schedule from scraped metrics")
    finally:
        proxy.mode = "pass"
    flash.wait("MetricsAvailable", "Prometheus", 30)


def test_an_endpoint_that_the_operator_does_not_know_is_named(flash: Watched) -> None:
    flash.patch(metrics={"source": "Prometheus", "prometheus": "other"})
    unknown = flash.wait("MetricsAvailable", "UnknownEndpoint", 30)
    assert "names other" in unknown["message"]
    flash.patch(metrics={"prometheus": "main"})
    flash.wait("MetricsAvailable", "Prometheus", 30)
