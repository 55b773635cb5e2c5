"""Where an explanation comes from: a deployment's spec and status, and a cluster that may not be there."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from specpilot.api.objects import SpeculativeDeployment
from specpilot.decide.memory import Memory
from specpilot.explain import status
from specpilot.explain.block import Drafts, Verification
from specpilot.explain.sources import of_deployment
from specpilot.explain.subject import explain
from specpilot_engine.protocol import Schedule, Step


def deployment(speculation: dict[str, Any] | None = None, **more: Any) -> SpeculativeDeployment:
    spec = {
        "model": {"name": "demo"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0", "args": ["--max-num-seqs", "256"]},
        "speculation": {"method": "MTP", "maxTokens": 7, **(speculation or {})},
        **more.pop("spec", {}),
    }
    return SpeculativeDeployment.parse(
        {"metadata": {"name": "flash", "namespace": "llm"}, "spec": spec, **more}
    )


STATUS = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Serving"},
        {"type": "Degraded", "status": "False", "reason": "AsExpected"},
        {"type": "Progressing", "status": "False", "reason": "RolledOut"},
        {"type": "MetricsAvailable", "status": "False", "reason": "Unreachable", "message": "no answer"},
        {"type": "Tuned", "status": "Unknown", "reason": "WaitingForEvidence"},
    ],
    "speculation": {
        "desired": {"generation": 5, "schedule": [{"upTo": 256, "tokens": 3}]},
        "effective": {"generation": 4, "pods": "1/2"},
    },
    "profile": {"name": "flash-01234567", "progress": "20/20", "measuredAt": "2026-11-30T03:00:00Z"},
    "lastDecision": {
        "time": "2026-11-30T03:10:00Z",
        "reason": "TrafficShift",
        "message": "depth 3 instead of 7",
        "predictedGain": "+8.0%",
        "measuredGain": "+7.0% ± 2.0%",
    },
}


def test_what_the_status_says_of_the_depth_stands_in_the_head() -> None:
    assert dict(status.facts(deployment(status=STATUS))) == {
        "acknowledged": "1/2 ready pods run generation 5",
        "profile": "flash-01234567, 20/20 points, measured 2026-11-30T03:00:00Z",
        "last decision": "2026-11-30T03:10:00Z TrafficShift: depth 3 instead of 7"
        " (predicted +8.0%, measured +7.0% ± 2.0%)",
    }
    assert status.facts(deployment()) == ()


def test_under_adaptive_verification_the_head_says_what_is_drafted_at_most() -> None:
    depths = [{"upTo": 128, "tokens": 7}, {"upTo": 256, "tokens": 0}]
    wanted = {"generation": 7, "schedule": depths, "adaptive": True}
    runs = {"generation": 6, "schedule": [{"upTo": 256, "tokens": 7}], "adaptive": True}
    either = ({"desired": wanted}, {"desired": wanted, "effective": runs})
    said = [dict(status.facts(deployment(status={"speculation": s})))["drafts"] for s in either]
    assert [text.partition(";")[0] for text in said] == [
        "vLLM sizes what is verified, of at most 7 drafts up to 128 requests, then 0",
        "vLLM sizes what is verified, of at most 7 drafts at any load",
    ]


def test_the_arm_that_engines_run_stands_in_the_head() -> None:
    arm = {"inForce": "schedule", "better": "none", "reason": "ArmRecommended", "message": "+13%"}
    said = "schedule; none is predicted to be better (+13%)"
    assert dict(status.facts(deployment(status={"arm": arm}))) == {"arm": said}


def test_conditions_that_are_not_well_and_pods_behind_are_notes() -> None:
    assert status.troubles(deployment(status=STATUS)) == (
        "MetricsAvailable is False (Unreachable): no answer",
        "Tuned is Unknown (WaitingForEvidence)",
        "the pods run generation 4, generation 5 is wanted: not acknowledged yet",
    )


@pytest.mark.parametrize(
    ("mode", "said"), [("Apply", None), ("Observe", "Observe: nothing is decided or changed")]
)
def test_a_mode_that_changes_nothing_is_said(mode: str, said: str | None) -> None:
    sd = deployment(spec={"tuning": {"mode": mode}})
    assert dict(status.facts(sd)).get("mode") == said


@pytest.mark.parametrize(
    ("speculation", "found"),
    [
        ({}, Verification(False, Drafts.GREEDY)),
        ({"verification": {"draftSampling": "Probabilistic"}}, Verification(False, Drafts.SAMPLED)),
        (
            {"verification": {"method": "Block", "draftSampling": "Probabilistic"}},
            Verification(True, Drafts.SAMPLED),
        ),
        ({"verification": {"method": "Block"}}, Verification(True, Drafts.GREEDY)),
        (
            {"method": "NGram", "verification": {"draftSampling": "Probabilistic"}},
            Verification(False, Drafts.NGRAM),
        ),
    ],
)
def test_how_drafts_are_verified_is_read_from_the_spec(
    speculation: dict[str, Any], found: Verification
) -> None:
    assert status.verification(deployment(speculation).spec) == found


def test_synthetic_acceptance_says_nothing_of_block() -> None:
    rates = {"method": "Synthetic", "syntheticAcceptance": [0.5] * 7}
    assert status.verification(deployment({"verification": rates}).spec).synthetic


def test_why_a_depth_is_out_is_told_apart() -> None:
    spec = deployment(spec={"speculation": {"method": "MTP", "maxTokens": 15}}).spec
    why = status.why_not(spec)
    assert why(7, 256) == "no graph"  # 2,048 tokens fit into a step, and are above the largest graph
    assert why(15, 256) == "no room"


def test_the_rules_of_the_spec_are_those_of_the_explanation() -> None:
    tuning = {"minimumGain": 0.05, "objective": {"maxInterTokenLatency": "5s"}}
    schedule = Schedule(5, (Step(64, 3), Step(256, 1)))
    subject = of_deployment(deployment(spec={"tuning": tuning}), (), Memory(), schedule)
    assert (subject.ceiling, subject.minimum_gain) == (5.0, 0.05)
    it = explain(subject, (256,))
    assert [it.may_run(row) for row in it.at(256)] == [True, True, False, False]


def explained(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specpilot.cli", "explain", "llm/flash"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": "operator:serving"},
    )


def naming(**cluster: str) -> str:
    """A kubeconfig of one cluster."""
    return json.dumps(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:9", **cluster}}],
            "users": [{"name": "x", "user": {}}],
        }
    )


@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [
        (None, "{path} does not exist): set KUBECONFIG"),
        ("a: [b", "{path} is no kubeconfig): correct it"),
        ("words", "{path} is no kubeconfig): correct it"),
        (naming(server="127.0.0.1:6443"), "{path} names the server 127.0.0.1:6443, which is no URL): let"),
        (
            naming(**{"certificate-authority-data": base64.b64encode(b"none").decode()}),
            "the certificates that {path} names cannot be read: ",
        ),
    ],
)
def test_without_a_cluster_there_is_our_sentence_alone(
    tmp_path: Path, kubeconfig: str | None, said: str
) -> None:
    path = tmp_path / "config"
    if kubeconfig is not None:
        path.write_text(kubeconfig)
    done = explained(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("specpilot: No cluster to talk to (" + said.format(path=path))
    assert len(done.stderr.splitlines()) == 1


READ = "read of SpeculativeDeployment flash"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            404,
            "the cluster of your kubeconfig has no specpilot: install the chart (charts/specpilot), or set",
        ),
        (
            403,
            f"{READ}: the API server answered 403: what is explained stands in SpeculativeDeployments, ",
        ),
        (None, f"{READ}: the API server does not answer (Cannot connect to host 127.0.0.1:"),
    ],
)
def test_a_cluster_that_has_no_answer_is_told_with_what_to_do(
    tmp_path: Path, answer: int | None, said: str
) -> None:
    class Always(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(answer or 500)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Always) as server:
        (tmp_path / "config").write_text(naming(server=f"http://127.0.0.1:{server.server_port}"))
        if answer is not None:
            threading.Thread(target=server.serve_forever).start()
            done = explained(tmp_path / "config")
            server.shutdown()
    if answer is None:  # the port is closed by now
        done = explained(tmp_path / "config")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"specpilot: {said}")
    assert len(done.stderr.splitlines()) == 1
