"""The chart on a real cluster: installed, serving, upgraded, uninstalled, as Helm does it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart, Config
from tests.setup.cluster import PROJECT, Cluster
from tests.setup.waiting import eventually

Namespace = Callable[..., str]
Body = dict[str, Any]
CHART = PROJECT / "charts/specpilot"
DEFINITIONS = ("speculativedeployments.specpilot.io", "costprofiles.specpilot.io")
TEMPLATE = f"templates/crds/specpilot.io_{DEFINITIONS[0].partition('.')[0]}.yaml"


@dataclass(frozen=True)
class Release:
    """The operator, installed by the chart in a namespace of its own."""

    cluster: Cluster
    helm: Config
    namespace: str
    values: Body

    def upgrade(self, **values: Any) -> None:
        with Chart.load(CHART) as chart:
            self.helm.upgrade(chart, "specpilot", {**self.values, **values}, timeout=120)
        self.rolled_out()

    def rolled_out(self) -> None:
        where = ("--namespace", self.namespace, "--timeout=120s")
        try:
            self.cluster.kubectl("rollout", "status", "deployment/specpilot", *where)
        except AssertionError as error:
            pods = self.cluster.get("pods", namespace=self.namespace)
            states = [pod["status"].get("containerStatuses") for pod in pods]
            raise AssertionError(f"{error}\n{states}\n{self.log()}") from None

    def columns(self) -> list[str]:
        [version] = self.cluster.get("crd", DEFINITIONS[0])["spec"]["versions"]
        return [column["name"] for column in version["additionalPrinterColumns"]]

    def log(self, *options: str, check: bool = True) -> str:
        selector = "--selector=app.kubernetes.io/name=specpilot-operator"
        where = ("--namespace", self.namespace, selector, "--tail=-1")
        return self.cluster.kubectl("logs", *where, *options, check=check)


def remove_definitions(cluster: Cluster) -> None:
    cluster.kubectl("delete", "crd", *DEFINITIONS, "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def release(cluster: Cluster, namespace: Namespace, operator_image: str, tmp_path: Path) -> Iterator[Release]:
    """Installed from a chart whose CRD still lacks a column and a field of the status, with two replicas."""
    remove_definitions(cluster)  # other tests bring them without Helm, which would not take them over
    older = tmp_path / "specpilot"
    shutil.copytree(CHART, older)
    text = (older / TEMPLATE).read_text()
    column = "    - name: GAIN\n      type: string\n      jsonPath: .status.lastDecision.gain\n"
    ready = "              ready:\n                description: Ready pods of wanted pods.\n                type: string\n"
    assert (text.count(column), text.count(ready)) == (1, 1)
    (older / TEMPLATE).write_text(text.replace(column, "").replace(ready, ""))
    repository, _, tag = operator_image.rpartition(":")
    values: Body = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "replicas": 2,
        "config": {"tick": "1s"},
    }
    where = namespace("specpilot")
    with Config(kubeconfig_path=cluster.kubeconfig, namespace=where) as helm, Chart.load(older) as chart:
        helm.install(chart, "specpilot", values, timeout=120)
        installed = Release(cluster, helm, where, values)
        installed.rolled_out()
        yield installed
        helm.uninstall("specpilot", ignore_not_found=True, timeout=60)
        remove_definitions(cluster)


def degraded(cluster: Cluster, namespace: str) -> str:
    """What an object that is well has to say."""
    conditions = cluster.get("specdep", "sim", namespace)["status"]["conditions"]
    return str(next(c["message"] for c in conditions if c["reason"] == "AsExpected"))


@pytest.mark.alone
def test_the_chart_installs_serves_upgrades_and_leaves_what_serves(
    release: Release, cluster: Cluster, namespace: Namespace, sim_image: str
) -> None:
    lease = eventually(
        lambda: cluster.get("lease", "specpilot", release.namespace)["spec"]["holderIdentity"],
        30,
        "a leader",
    )
    assert lease.startswith("specpilot-")

    where = namespace()
    sample = yaml.safe_load((PROJECT / "deploy/samples/sim-two-replicas.yaml").read_text())
    sample["spec"]["engine"]["image"] = sim_image
    cluster.apply(sample, namespace=where)
    cluster.kubectl("wait", "--for=condition=Ready", "specdep/sim", "--namespace", where, "--timeout=180s")
    pods = {pod["metadata"]["uid"] for pod in cluster.get("pods", namespace=where)}
    assert "forbidden" not in release.log()

    eventually(
        lambda: "has no status.ready: install" in degraded(cluster, where), 60, "the CRD is said to be old"
    )

    assert "GAIN" not in release.columns()
    release.upgrade(config={"tick": "2s"})
    assert "GAIN" in release.columns()
    eventually(
        lambda: cluster.get("specdep", "sim", where)["status"].get("ready") == "2/2", 60, "all is said"
    )
    eventually(lambda: degraded(cluster, where) == "", 60, "the CRD is no longer old")

    cluster.kubectl("delete", "crd", DEFINITIONS[1], "--timeout=60s")
    last = eventually(lambda: release.log("--previous", check=False), 90, "the operator starts again")
    assert "install the CRDs with" in last
    release.upgrade()
    assert {pod["metadata"]["uid"] for pod in cluster.get("pods", namespace=where)} == pods

    release.helm.uninstall("specpilot", timeout=60)
    assert cluster.get("specdep", "sim", where) is not None
    assert {pod["metadata"]["uid"] for pod in cluster.get("pods", namespace=where)} == pods
    cluster.kubectl("delete", "specdep/sim", "--namespace", where, "--timeout=60s")
