"""What every other cluster test takes for granted of the cluster it runs on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.setup.cluster import LOCALKUBE, Cluster
from tests.setup.pods import restricted_pod
from tests.setup.waiting import eventually

Namespace = Callable[..., str]
SERVE = ("python3", "-m", "http.server", "8000", "--directory")


def phase(cluster: Cluster, name: str, namespace: str) -> str:
    pod = cluster.get("pod", name, namespace)
    return str(pod["status"]["phase"]) if pod else "absent"


def finished(cluster: Cluster, name: str, namespace: str, seconds: float = 60) -> str:
    """The phase in which a pod ended."""
    ended = ("Succeeded", "Failed")
    return eventually(
        lambda: (p := phase(cluster, name, namespace)) in ended and p, seconds, f"the end of pod {name}"
    )


def address(cluster: Cluster, name: str, namespace: str) -> str:
    """Where a pod that serves can be reached from here."""

    def answers() -> str:
        ip = cluster.get("pod", name, namespace)["status"]["podIP"]
        httpx.get(f"http://{ip}:8000/", timeout=2).raise_for_status()
        return f"http://{ip}:8000"

    return eventually(answers, 60, f"an answer of pod {name}")


def test_a_pod_without_privileges_runs_to_its_end(
    cluster: Cluster, namespace: Namespace, operator_image: str
) -> None:
    where = namespace()
    code = "import os; print('user', os.getuid())"
    cluster.apply(restricted_pod("hello", operator_image, ["python3", "-c", code]), namespace=where)
    assert finished(cluster, "hello", where) == "Succeeded"
    assert cluster.kubectl("logs", "hello", "--namespace", where) == "user 65532\n"


def test_restricted_namespaces_refuse_privileges(
    cluster: Cluster, namespace: Namespace, operator_image: str
) -> None:
    where = namespace()
    pod = restricted_pod("root", operator_image, ["id"], container={"securityContext": {"privileged": True}})
    with pytest.raises(AssertionError, match=r'violates PodSecurity "restricted:latest": privileged'):
        cluster.apply(pod, namespace=where)


def test_a_config_map_reaches_the_container_soon_after_an_annotation_changes(
    cluster: Cluster, namespace: Namespace, operator_image: str
) -> None:
    where = namespace()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "schedule"}}
    cluster.apply({**config, "data": {"depth": "5"}}, namespace=where)
    pod = restricted_pod(
        "reader",
        operator_image,
        [*SERVE, "/config"],
        container={"volumeMounts": [{"name": "config", "mountPath": "/config"}]},
        volumes=[{"name": "config", "configMap": {"name": "schedule"}}],
    )
    cluster.apply(pod, namespace=where)
    url = address(cluster, "reader", where)
    assert httpx.get(f"{url}/depth").text == "5"
    cluster.apply({**config, "data": {"depth": "2"}}, namespace=where)
    cluster.kubectl("annotate", "pod", "reader", "nudge=1", "--namespace", where)
    # Left alone, the kubelet takes about a minute.
    eventually(lambda: httpx.get(f"{url}/depth").text == "2", 5, "the new value", every=0.05)


def test_a_service_is_found_by_its_name(cluster: Cluster, namespace: Namespace, operator_image: str) -> None:
    where = namespace()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    cluster.apply(
        service, restricted_pod("server", operator_image, [*SERVE, "/opt/specpilot"]), namespace=where
    )
    address(cluster, "server", where)
    code = f"import urllib.request as u; print(u.urlopen('http://web.{where}.svc.cluster.local/').status)"
    client = restricted_pod("client", operator_image, ["python3", "-c", code], restartPolicy="OnFailure")
    cluster.apply(client, namespace=where)
    assert finished(cluster, "client", where) == "Succeeded"
    assert cluster.kubectl("logs", "client", "--namespace", where) == "200\n"


def test_devices_are_scheduled_by_what_the_node_claims(
    cluster: Cluster, namespace: Namespace, operator_image: str
) -> None:
    where = namespace()
    for name, gpus in (("fits", 8), ("too-big", 9)):
        limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
        pod = restricted_pod(name, operator_image, ["true"], container=limits)
        cluster.apply(pod, namespace=where)
    assert finished(cluster, "fits", where) == "Succeeded"

    def refusal() -> str:
        conditions: list[dict[str, Any]] = cluster.get("pod", "too-big", where)["status"]["conditions"]
        return next(c["message"] for c in conditions if c["type"] == "PodScheduled")

    assert "Insufficient nvidia.com/gpu" in eventually(refusal, 20, "the scheduler's word")


def test_the_audit_log_tells_who_wrote_what(cluster: Cluster, namespace: Namespace) -> None:
    if cluster.audit_log is None:
        pytest.skip("this cluster gives no audit log to read")
    where = namespace()
    log, before = cluster.audit_log, cluster.audit_log.position()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {}}
    cluster.apply(config, namespace=where)
    cluster.kubectl("get", "configmap", "seen", "--namespace", where)
    cluster.kubectl("delete", "configmap", "seen", "--namespace", where)

    def ours() -> list[tuple[str, str, int]]:
        found = log.writes(before)
        return [(w.user, w.verb, w.code) for w in found if (w.namespace, w.name) == (where, "seen")]

    eventually(lambda: len(ours()) >= 2, 5, "both writes in the log")
    assert ours() == [("admin", "patch", 201), ("admin", "delete", 200)]


def test_a_node_that_is_up_stays_as_it_is_and_alone(cluster: Cluster, tmp_path: Path) -> None:
    if cluster.kubeconfig.parent.name != "pki":
        pytest.skip("this cluster is not localkube")
    again = subprocess.run([*LOCALKUBE, "up", "--audit-log"], capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == (f"{cluster.kubeconfig}\n", "localkube: already up\n")
    elsewhere = {**os.environ, "LOCALKUBE_DIR": str(tmp_path)}
    for command in ("up", "down"):
        other = subprocess.run([*LOCALKUBE, command], capture_output=True, text=True, env=elsewhere)
        assert other.returncode == 1
        assert other.stderr.startswith(
            f"localkube: Another localkube runs from {cluster.kubeconfig.parents[1]}:"
        )
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"


def test_the_real_vllm_imports_in_a_restricted_pod(
    cluster: Cluster,
    namespace: Namespace,
    vllm_image: str,
    vllm_volumes: Callable[[str], dict[str, Any]],
    tiny_models: Callable[..., Any],
) -> None:
    models = tiny_models()
    where = namespace()
    template = vllm_volumes(where)["spec"]
    code = f"import vllm, os; print(vllm.__version__, sorted(os.listdir({str(models.target.parent)!r})))"
    pod = restricted_pod(
        "vllm",
        vllm_image,
        ["python3", "-c", code],
        container={
            "volumeMounts": [
                *template["containers"][0]["volumeMounts"],
                {"name": "scratch", "mountPath": "/tmp"},
            ],
            "env": [{"name": "USER", "value": "specpilot"}],
        },
        volumes=[*template["volumes"], {"name": "scratch", "emptyDir": {}}],
    )
    cluster.apply(pod, namespace=where)
    ended = finished(cluster, "vllm", where, seconds=120)
    logs = cluster.kubectl("logs", "vllm", "--namespace", where)
    assert (ended, logs.splitlines()[-1]) == ("Succeeded", "0.32.0 ['draft', 'target']")
