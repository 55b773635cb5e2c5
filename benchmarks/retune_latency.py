"""From a new schedule in the ConfigMap to engines that run it: `python -m benchmarks.retune_latency`.

On a real cluster, with requests running, a schedule of the next generation is written again and again; the
operator sees it, nudges the pods, and asks their engines. Two times are taken, both from the moment the
write is sent: until every ready engine says that its next step uses the schedule, and until status says
so. The goal is a 95th percentile of at most 2 s for the first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from deploy.console import say
from deploy.demo.tiny import AGREEMENT, tiny
from kubernetes import client, config
from tests.cluster.operator_process import running
from tests.cluster.operator_world import Watched, load, simulated
from tests.setup import cluster as clusters
from tests.setup import images, models, vllm, vllm_pods
from tests.setup.cluster import Cluster

from specpilot.plan.names import schedule_config_map
from specpilot_engine.protocol import PORT, SCHEDULE_KEY, STATE_PATH, Schedule, Step, parse_schedule

GOAL = 2.0  # seconds, 95th percentile
POLL = 0.01
PATIENCE = 30.0  # seconds after which one is given up
CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds since a schedule's write was sent."""

    engines: float  # until the last ready engine had it in force
    status: float  # until the SpeculativeDeployment's status said so
    pods: str  # acknowledged/ready, as status has it


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("sim", "vllm"), default="sim")
    parser.add_argument("--replicas", type=int, default=3, help="of the simulated engine")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the result here as well")
    args = parser.parse_args()
    cluster, started = clusters.start()
    try:
        took = measure(cluster, args.engine, args.replicas, args.repetitions)
    finally:
        if started:
            clusters.stop()
    result = summary(args.engine, took)
    print(table(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["engines"]["p95"] <= GOAL else 1


def measure(cluster: Cluster, engine: str, replicas: int, repetitions: int) -> list[Took]:
    """Bring up operator and engines, and take the times."""
    operator = _loaded(cluster, "operator")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process = stack.enter_context(running(cluster, folder, places=1, engineImage=operator))
        where = stack.enter_context(process.identity.place())
        body = _simulated(cluster, replicas) if engine == "sim" else _real(cluster, where, stack)
        # What is written here must not be overruled, and need not be.
        body["spec"]["tuning"]["mode"] = "Observe"
        subject = Watched(cluster, where, body["metadata"]["name"])
        subject.apply(body)
        say(f"waiting for {body['spec'].get('replicas', 1)} pods")
        subject.serving(300)
        stack.enter_context(load(subject.urls(), CLIENTS * len(subject.urls())))
        api = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
        chance = random.Random(0)
        took = []
        for number in range(repetitions):
            time.sleep(chance.uniform(0.5, 1.5))  # so that no period of anybody's is hit each time
            took.append(once(api, subject))
            say(f"{number + 1} of {repetitions}: {took[-1].engines:.3f} s, status {took[-1].status:.3f} s")
    return took


def once(api: client.CoreV1Api, subject: Watched) -> Took:
    """Write one schedule of the next generation and wait until it is in force and said to be."""
    urls = [f"{url.rpartition(':')[0]}:{PORT}{STATE_PATH}" for url in subject.urls()]
    present = parse_schedule(json.dumps(subject.schedule()))
    depth = 1 if present.steps[0].tokens != 1 else 3
    wanted = Schedule(present.generation + 1, (Step(1, depth), *present.steps[-1:]))
    data = {"data": {SCHEDULE_KEY: wanted.dump()}}
    begun = time.monotonic()
    api.patch_namespaced_config_map(schedule_config_map(subject.name), subject.namespace, data)
    with httpx.Client(trust_env=False, timeout=5) as http:
        engines = _until(lambda: all(http.get(url).json()["hash"] == wanted.hash for url in urls), begun)
    status = _until(lambda: _told(subject) == wanted.generation, begun)
    return Took(engines, status, subject.status()["speculation"]["effective"]["pods"])


def _told(subject: Watched) -> int:
    return int(subject.status()["speculation"]["effective"]["generation"])


def _until(done: Callable[[], bool], begun: float) -> float:
    while not done():
        if time.monotonic() - begun > PATIENCE:
            sys.exit(f"specpilot: no acknowledgement within {PATIENCE:.0f} s: see the operator's log.")
        time.sleep(POLL)
    return time.monotonic() - begun


def summary(engine: str, took: list[Took]) -> dict[str, Any]:
    """Spread of each time over the repetitions."""
    rows = {name: _spread([getattr(one, name) for one in took]) for name in ("engines", "status")}
    pods = sorted({one.pods for one in took})
    return {
        "engine": engine,
        "repetitions": len(took),
        "pods": pods,
        **rows,
        "each": [asdict(o) for o in took],
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=20, method="inclusive")
    named = {"p50": median(seconds), "p95": cuts[18], "max": max(seconds), "min": min(seconds)}
    return {name: round(value, 3) for name, value in named.items()}


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{result['repetitions']} schedules, {result['engine']} engine, acknowledged by {', '.join(result['pods'])}"
    ]
    lines.append(f"{'seconds until':24}{'min':>8}{'p50':>8}{'p95':>8}{'max':>8}")
    for name, what in (("engines", "every engine runs it"), ("status", "status says so")):
        lines.append(f"{what:24}" + "".join(f"{result[name][c]:8.3f}" for c in ("min", "p50", "p95", "max")))
    return "\n".join(lines)


def _simulated(cluster: Cluster, replicas: int) -> dict[str, Any]:
    return simulated("latency", _loaded(cluster, "sim"), replicas=replicas)


def _real(cluster: Cluster, namespace: str, stack: ExitStack) -> dict[str, Any]:
    pair = models.provide(models.Shape(damping=AGREEMENT))
    template = vllm_pods.pod_template(cluster, namespace, vllm.provide())
    stack.callback(vllm_pods.remove, cluster, namespace)
    return tiny(_loaded(cluster, "vllm-cpu"), pair.target, pair.draft, template, interval=2)


def _loaded(cluster: Cluster, name: str) -> str:
    image = images.provide(name)
    cluster.load(image.archive)
    return image.name


if __name__ == "__main__":
    sys.exit(main())
