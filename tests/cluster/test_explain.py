"""`specpilot explain NAMESPACE/NAME` on a real API server, with what the operator would have left there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.setup.cluster import Cluster

from specpilot.api.crd import crds
from specpilot.control.keep import MEMORY_KEY
from specpilot.decide.memory import Memory
from specpilot.estimate.survival import SurvivalMemory
from specpilot_engine.protocol import SCHEDULE_KEY, Schedule, Step

DEPLOYMENT = """
apiVersion: specpilot.io/v1alpha1
kind: SpeculativeDeployment
metadata: {name: flash}
spec:
  model: {name: demo}
  engine: {image: "vllm/vllm-openai:v0.33.0", args: [--max-num-seqs, "8"]}
  speculation: {method: MTP, maxTokens: 3, candidates: [0, 1, 3]}
---
apiVersion: specpilot.io/v1alpha1
kind: CostProfile
metadata: {name: flash-01234567}
spec:
  key: 0123456789abcdef
  fingerprint: {model: demo, method: MTP}
  total: 6
  points:
    - {tokens: 0, batchSize: 1, contextLength: 512, seconds: 0.010}
    - {tokens: 0, batchSize: 8, contextLength: 512, seconds: 0.012}
    - {tokens: 1, batchSize: 1, contextLength: 512, seconds: 0.011}
    - {tokens: 1, batchSize: 8, contextLength: 512, seconds: 0.016}
    - {tokens: 3, batchSize: 1, contextLength: 512, seconds: 0.013}
    - {tokens: 3, batchSize: 8, contextLength: 512, seconds: 0.030}
"""
STATUS = {
    "profile": {"name": "flash-01234567"},
    "speculation": {"desired": {"generation": 5}, "effective": {"generation": 4, "pods": "1/2"}},
    "lastDecision": {
        "time": "2026-11-30T03:10:00Z",
        "reason": "TrafficShift",
        "message": "depth 1 instead of 3",
        "predictedGain": "+8.0%",
    },
    "conditions": [
        {
            "type": "MetricsAvailable",
            "status": "False",
            "reason": "Unreachable",
            "message": "no answer",
            "lastTransitionTime": "2026-11-30T03:10:00Z",
        }
    ],
}
SEEN = SurvivalMemory((1e6,) * 3, (8e5, 6e5, 4e5), (0.8, 0.75, 0.67), (1, 1, 1))


def explain(cluster: Cluster, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specpilot.cli", "explain", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig),
            "PYTHONPATH": "operator:serving",
            "COLUMNS": "100",
        },
    )


@pytest.fixture
def deployed(cluster: Cluster, namespace: Callable[..., str]) -> str:
    """A namespace with a deployment that was profiled and tuned; no operator runs."""
    cluster.apply(*crds())
    for crd in crds():
        name = crd["metadata"]["name"]
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    where = namespace()
    schedule = Schedule(5, (Step(4, 3), Step(8, 1)))
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        for name, data in (
            ("flash-schedule", {SCHEDULE_KEY: schedule.dump()}),
            ("flash-tuner", {MEMORY_KEY: Memory(SEEN).to_json()}),
        )
    ]
    cluster.apply(*yaml.safe_load_all(DEPLOYMENT), *maps, namespace=where)
    patch = json.dumps({"status": STATUS})
    target = ("specdep", "flash", "--namespace", where)
    cluster.kubectl("patch", *target, "--subresource=status", "--type=merge", "--patch", patch)
    return where


def test_a_deployment_is_explained_from_the_cluster(cluster: Cluster, deployed: str, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    done = explain(cluster, f"{deployed}/flash", "--batch", "1", "--batch", "8", "--html", page)
    assert done.returncode == 0, done.stderr
    assert f"{deployed}/flash   generation 5   6 measured step times" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    at_8 = next(i for i, row in enumerate(rows) if row[:2] == ["8", "0"])
    depth_1, depth_3 = rows[at_8 + 1], rows[at_8 + 2]
    assert depth_1[:3] == ["1", "1.80", "16.0"]
    assert depth_1[-2:] == ["in", "force"]
    assert depth_3[:3] == ["3", "2.80", "30.0"]
    assert depth_3[-3].startswith("-17.")
    said = " ".join(done.stdout.split())
    for words in (
        "in force depth 3 up to 4 requests, then 1 (generation 5)",
        "last decision 2026-11-30T03:10:00Z TrafficShift: depth 1 instead of 3 (predicted +8.0%)",
        "acknowledged 1/2 ready pods run generation 5",
        "MetricsAvailable is False (Unreachable): no answer",
        "block verification worth nothing here: of greedy drafts",
    ):
        assert words in said
    html = page.read_text()
    assert f"Why this depth? {deployed}/flash" in html
    assert "TrafficShift: depth 1 instead of 3" in html


def test_a_profile_is_explained_by_its_own_name(cluster: Cluster, deployed: str) -> None:
    done = explain(cluster, f"{deployed}/flash-01234567", "--batch", "8")
    assert done.returncode == 0, done.stderr
    assert "no traffic has been seen" in done.stdout


def test_what_is_not_there_is_one_sentence(cluster: Cluster, deployed: str) -> None:
    done = explain(cluster, f"{deployed}/nothing")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"specpilot: there is no SpeculativeDeployment and no CostProfile {deployed}/nothing:"
        " see kubectl get specdep,costprofiles -A"
    )
