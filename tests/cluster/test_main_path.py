"""One file applied: a real vLLM with a real drafter serves, is measured, and is retuned while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.demo.tiny import LONGEST, NAME, tiny
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import Watched, load
from tests.cluster.places import namespace_of
from tests.setup import prometheus
from tests.setup.cluster import Cluster
from tests.setup.diagnosis import explained
from tests.setup.models import TinyModels
from tests.setup.prometheus import Prometheus
from tests.setup.waiting import eventually

INTERVAL = 4  # seconds between scrapes, and between looks: what a slow engine needs to show something
SCRAPES = 3  # with evidence of a shift, until the schedule follows
ENGINE_UP = 180.0  # seconds: a minute on an idle machine, profile included
SETTLING = 90.0
STEADY = 4  # intervals of one load before its traffic changes
FEW, CROWD = 2, 16  # clients; powers of two, by which the engine counts its steps
# With this target and draft, on two processors: depth 3 doubles the goodput of one client, adds a third to that of
# two, and costs sixteen a third of theirs. Where nothing is accepted it costs two clients a third.
DAMPING, DEPTHS = 0.07, [0, 3]


@pytest.fixture
def metrics(cluster: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    with prometheus.running(cluster, tmp_path, f"{INTERVAL}s") as server:
        yield server


@pytest.fixture
def operator(
    cluster: Cluster, operator_image: str, metrics: Prometheus, tmp_path: Path
) -> Iterator[OperatorProcess]:
    endpoint = {"name": "main", "url": metrics.url}
    # A vLLM that starts takes the whole machine for a while: no time for a short Lease.
    lease = {"duration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}
    config = {"engineImage": operator_image, "prometheus": [endpoint], "lease": lease}
    with running(cluster, tmp_path, places=0, **config) as process:
        yield process


@pytest.fixture
def subject(cluster: Cluster) -> Iterator[Watched]:
    with namespace_of(cluster, "main") as where:
        yield Watched(cluster, where, NAME)


def depth_at(schedule: dict[str, Any], batch: int) -> int:
    steps = schedule["schedule"]
    return int(next((s["tokens"] for s in steps if batch <= s["upTo"]), steps[-1]["tokens"]))


@pytest.mark.alone
@pytest.mark.measures
def test_one_file_serves_is_measured_and_follows_load_and_traffic(
    cluster: Cluster,
    operator: OperatorProcess,
    metrics: Prometheus,
    subject: Watched,
    vllm_image: str,
    vllm_volumes: Callable[[str], dict[str, Any]],
    tiny_models: Callable[..., TinyModels],
    tmp_path: Path,
) -> None:
    pair = tiny_models(damping=DAMPING)
    file = tmp_path / "tiny.yaml"
    body = tiny(vllm_image, pair.target, pair.draft, vllm_volumes(subject.namespace), INTERVAL)
    body["spec"]["speculation"] |= {"maxTokens": max(DEPTHS), "candidates": DEPTHS}
    body["spec"]["profiling"]["grid"]["tokens"] = DEPTHS
    file.write_text(yaml.safe_dump(body))
    with explained(cluster, subject.namespace):
        first = serve(subject, file)
        lives = subject.pod_lives()
        with load(subject.urls(), 1) as greedy:
            greedy.max_tokens = LONGEST
            subject.wait("Speculating", "Drafting", SETTLING)
            drafts_at(subject, metrics, 1)
            greedy.clients = CROWD
            eventually(
                lambda: depth_at(subject.schedule(), 1) > depth_at(subject.schedule(), CROWD),
                SETTLING,
                "another depth for many clients than for one",
            )
            drafts_at(subject, metrics, CROWD)
            assert subject.generation() > first["generation"]
            greedy.clients = FEW
            eventually(lambda: depth_at(subject.schedule(), FEW) > 0, SETTLING, "drafts for a few clients")
            drafts_at(subject, metrics, FEW)
            time.sleep(STEADY * INTERVAL)  # so that what changes is the traffic only
        before, changed_at = subject.schedule(), time.time()
        # At this temperature the model's next token is anybody's guess.
        with load(subject.urls(), FEW, temperature=1.0) as guessing:
            guessing.max_tokens = LONGEST
            reason = followed(subject, operator, metrics, before, changed_at)
            drafts_at(subject, metrics, FEW)
        assert greedy.errors == guessing.errors == 0
        assert subject.pod_lives() == lives
        told_to_people(subject, reason)
    times = [row["seconds"] for row in operator.logged() if row["message"] == "acknowledged"]
    print(f"schedule → acknowledged by vLLM: {', '.join(f'{t:.2f}' for t in sorted(times))} s")


def serve(subject: Watched, file: Path) -> dict[str, Any]:
    """Apply the file and wait for what it promises; the schedule before any traffic."""
    applied = time.monotonic()
    subject.cluster.kubectl("apply", "--namespace", subject.namespace, "-f", str(file))
    subject.wait("Ready", "Serving", ENGINE_UP)
    print(f"\napply → Ready: {time.monotonic() - applied:.0f} s")
    # A busy machine measures less in the same time, and says so.
    measured = ("Measured", "ProfileIncomplete")
    eventually(lambda: subject.condition("Profiled")["reason"] in measured, 20, "a profile")
    subject.serving()
    name = subject.status()["profile"]["name"]
    points = subject.cluster.get("costprofile", name, subject.namespace)["spec"]["points"]
    assert {point["tokens"] for point in points if point["batchSize"] == 1} == set(DEPTHS)
    return subject.schedule()


def drafts_at(subject: Watched, metrics: Prometheus, batch: int) -> None:
    """Until the engine's newest steps at a batch are of the depth that its schedule asks for."""

    def newest() -> bool:
        where = f'{{namespace="{subject.namespace}",batch="{batch}"}}'
        rows = metrics.query(f"increase(specpilot_steps_total{where}[{3 * INTERVAL}s]) > 4")
        depths = {int(row["metric"]["k"]): float(row["value"][1]) for row in rows}
        # Exploring adds a few steps of another depth.
        return bool(depths) and max(depths, key=lambda k: depths[k]) == depth_at(subject.schedule(), batch)

    eventually(newest, SETTLING, f"steps of {batch} requests at the scheduled depth", every=1)


def followed(
    subject: Watched,
    operator: OperatorProcess,
    metrics: Prometheus,
    before: dict[str, Any],
    changed_at: float,
) -> str:
    """See a lower depth within as many scrapes as it may take; the reason given."""

    def lower() -> dict[str, Any] | None:
        now = subject.schedule()
        return now if depth_at(now, FEW) < depth_at(before, FEW) else None

    after = eventually(lower, SETTLING, "a lower depth")
    decided = next(row for row in operator.logged() if row.get("generation") == after["generation"])
    at = datetime.fromisoformat(decided["timestamp"]).timestamp()
    acceptance = first_slot(subject, metrics, int(time.time() - changed_at) + 30)
    usual = max(rate for scrape, rate in acceptance.items() if scrape < changed_at)
    shown = [scrape for scrape, rate in acceptance.items() if changed_at < scrape < at and rate < usual / 2]
    print(f"shift → schedule: {at - changed_at:.1f} s, of which {len(shown)} scrapes showed it")
    assert len(shown) <= SCRAPES, acceptance
    return str(decided["reason"])


def first_slot(subject: Watched, metrics: Prometheus, seconds: int) -> dict[float, float]:
    """Time of each scrape → share of first draft slots accepted since the one before."""
    where = f'{{namespace="{subject.namespace}",position="0"}}'
    drafted, accepted = (
        metrics.samples(f"specpilot_{what}_tokens_total{where}", seconds) for what in ("drafted", "accepted")
    )
    return {
        b: (accepted[b] - accepted[a]) / (drafted[b] - drafted[a])
        for a, b in pairwise(scrape for scrape in drafted if scrape in accepted)
        if drafted[b] - drafted[a] > 0
    }


def told_to_people(subject: Watched, reason: str) -> None:
    """`kubectl get specdep` shows what runs, lastDecision and an event say why."""
    status = subject.status()
    where = ("--namespace", subject.namespace)
    header, row = subject.cluster.kubectl("get", "specdep", NAME, *where).splitlines()
    starts = {name: header.index(name) for name in header.split()}
    shown = {name: row[start:].split(" ")[0] for name, start in starts.items()}
    print(f"{header}\n{row}\n{status['lastDecision']}")
    assert shown["MODE"] == "Apply"
    assert shown["K"] == status["speculation"]["summary"]
    assert shown["PROFILE"] == status["profile"]["name"]
    assert shown["READY"] == "1/1"
    assert shown["GAIN"] == status["lastDecision"]["gain"]
    assert "goodput" in status["lastDecision"]["message"]
    told = dict(subject.events())
    assert "more goodput" in told[reason]
    assert status["speculation"]["effective"]["pods"] == "1/1"
    assert subject.condition("MetricsAvailable")["reason"] == "Prometheus"
