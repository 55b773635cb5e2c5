"""SpeculativeDeployments of the simulated engine, and looking at what the operator makes of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

from specpilot.local.load import Load, hold

Body = dict[str, Any]
CHILD_KINDS = "deployment,service,serviceaccount,poddisruptionbudget,configmap,job"
SMALL_GRID = {"tokens": [0, 1, 3], "batchSizes": [1, 8], "contextLengths": [64]}


def simulated(name: str, image: str, sim: Body | None = None, **spec: Any) -> Body:
    """A deployment that starts at once, is retuned each second and does not profile unless told to."""
    world = {"startup_seconds": 0.1, "grace_seconds": 0.1, **(sim or {})}
    return {
        "apiVersion": "specpilot.io/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "simulated/model", "servedName": "sim"},
            "engine": {
                "image": image,
                "args": ["--max-num-seqs", "64"],
                "env": [{"name": "SPECPILOT_SIM", "value": json.dumps(world)}],
            },
            "speculation": {"method": "MTP", "maxTokens": 7},
            "tuning": {"interval": "1s", "dwell": "2s"},
            "profiling": {"policy": "Never"},
            **spec,
        },
    }


class Watched:
    """One SpeculativeDeployment in a cluster."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def apply(self, body: Body) -> None:
        self.cluster.apply(body, namespace=self.namespace)

    def patch(self, **spec: Any) -> None:
        """JSON merge patch of its spec."""
        patch = json.dumps({"spec": spec})
        where = ("--namespace", self.namespace, "--type=merge", "--patch", patch)
        self.cluster.kubectl("patch", "specdep", self.name, *where)

    def body(self) -> Body:
        found: Body = self.cluster.get("specdep", self.name, self.namespace)
        assert found, f"{self.name} is gone"
        return found

    def status(self) -> Body:
        return dict(self.body().get("status") or {})

    def condition(self, type_: str) -> Body:
        conditions = self.status().get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), {"status": "", "reason": ""})

    def wait(self, type_: str, reason: str, seconds: float = 60) -> Body:
        """Until a condition has this reason."""

        def there() -> Body | None:
            condition = self.condition(type_)
            return condition if condition["reason"] == reason else None

        return eventually(there, seconds, f"{self.name}: {type_} {reason}, now {self.condition(type_)}")

    def serving(self, seconds: float = 60) -> None:
        """Until this very spec serves and every ready pod has acknowledged."""

        def settled() -> bool:
            body = self.body()
            status = body.get("status") or {}
            ready: Body = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
            fresh = ready.get("observedGeneration") == body["metadata"]["generation"]
            effective = (status.get("speculation") or {}).get("effective") or {}
            wanted = body["spec"]["replicas"]
            return fresh and ready["status"] == "True" and effective.get("pods") == f"{wanted}/{wanted}"

        eventually(settled, seconds, f"{self.name} serves: {self.status()}")

    def generation(self) -> int:
        """Of the schedule in its ConfigMap."""
        return int(self.schedule()["generation"])

    def schedule(self) -> Body:
        config_map = self.cluster.get("configmap", f"{self.name}-schedule", self.namespace)
        return dict(json.loads(config_map["data"]["schedule.json"]))

    def children(self) -> dict[tuple[str, str], Body]:
        bodies = self.cluster.get(CHILD_KINDS, "", self.namespace, f"app.kubernetes.io/instance={self.name}")
        return {(body["kind"], body["metadata"]["name"]): body for body in bodies}

    def versions(self) -> dict[tuple[str, str], str]:
        """Resource versions of its children."""
        return {name: body["metadata"]["resourceVersion"] for name, body in self.children().items()}

    def pods(self) -> list[Body]:
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=serving"
        pods: list[Body] = self.cluster.get("pods", "", self.namespace, selector)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def pod_lives(self) -> set[tuple[str, int, str]]:
        """Uid, restarts and start of each serving pod's engine: a restart of any kind changes it."""
        return {
            (pod["metadata"]["uid"], status["restartCount"], status["state"]["running"]["startedAt"])
            for pod in self.pods()
            for status in pod["status"]["containerStatuses"]
            if status["name"] == "vllm"
        }

    def urls(self) -> list[str]:
        return [f"http://{pod['status']['podIP']}:8000" for pod in self.pods()]

    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of the operator's events about it."""
        found = self.cluster.get("events", "", self.namespace)
        return [
            (event["reason"], event["message"])
            for event in found
            if event["involvedObject"]["name"] == self.name and event.get("reportingComponent") == "specpilot"
        ]


@contextmanager
def load(
    urls: Sequence[str], clients: int, traffic: str = "mixed", temperature: float = 0.0
) -> Iterator[Load]:
    """So many requests at a time until the block ends; change the yielded Load as you like."""
    asked = Load(list(urls), clients, traffic, max_tokens=64, temperature=temperature)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(hold(asked, stop),))
    thread.start()
    try:
        yield asked
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
