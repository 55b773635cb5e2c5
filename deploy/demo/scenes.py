"""Traffic that changes, and what the operator makes of it, told as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.demo.monitoring import Prometheus
from deploy.demo.tiny import LONGEST, NAME
from tests.setup.cluster import Cluster
from tests.setup.pods import restricted_pod

from specpilot.control.read import schedule_in
from specpilot.plan.names import schedule_config_map

LOOK = 2.0  # seconds between two looks
TELL = 8.0  # seconds between two lines where nothing changed
GENERATE = """
import asyncio, sys
from specpilot.local.load import Load, hold
url, clients, temperature, longest = sys.argv[1:]
load = Load([url], int(clients), max_tokens=int(longest), temperature=float(temperature))
asyncio.run(hold(load, asyncio.Event()))
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """Constant traffic for a while. At temperature 0 the drafter of the tiny model is often right, at 1 never."""

    title: str
    clients: int
    temperature: float
    seconds: float


SCENES = (
    Scene("one client, text that the drafter predicts well", 1, 0.0, 45),
    Scene("16 clients, the same kind of text", 16, 0.0, 75),
    Scene("16 clients, text that nothing predicts", 16, 1.0, 60),
    Scene("one client, predictable text again", 1, 0.0, 75),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scene ended."""

    scene: Scene
    depth: int  # in force at this number of clients
    tokens: float | None  # per second, lately
    accepted: float | None  # share of first draft slots, lately
    generation: int


class Theatre:
    """One SpeculativeDeployment in `namespace`, with traffic from pods beside it; `tell` takes each line."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        image: str,
        prometheus: Prometheus,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster, self._namespace, self._image = cluster, namespace, image
        self._prometheus, self._tell = prometheus, tell
        self._told = ""

    def play(self, scene: Scene) -> Outcome:
        """Run one scene to its end."""
        self._tell(f"— {scene.title} —")
        self._traffic(scene)
        begun = last = time.monotonic()
        outcome = self._look(scene)
        while time.monotonic() - begun < scene.seconds:
            time.sleep(LOOK)
            news = self._news()
            outcome = self._look(scene)
            if news:
                self._tell(f"   {news}")
            if news or time.monotonic() - last >= TELL:
                last = time.monotonic()
                self._tell(line(outcome))
        return outcome

    def stop(self) -> None:
        """End the traffic."""
        where = ("--namespace", self._namespace, "--grace-period=1", "--ignore-not-found")
        self._cluster.kubectl("delete", "pod", "traffic", *where)

    def engine(self) -> tuple[str, int]:
        """When the engine's container started, and how often it was restarted."""
        selector = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=serving"
        [pod] = self._cluster.get("pods", "", self._namespace, selector)
        status = next(c for c in pod["status"]["containerStatuses"] if c["name"] == "vllm")
        return status["state"]["running"]["startedAt"], status["restartCount"]

    def _traffic(self, scene: Scene) -> None:
        self.stop()
        url = f"http://{NAME}.{self._namespace}:8000"
        words = (url, str(scene.clients), str(scene.temperature), str(LONGEST))
        pod = restricted_pod("traffic", self._image, ["python3", "-c", GENERATE, *words])
        self._cluster.apply(pod, namespace=self._namespace)

    def _look(self, scene: Scene) -> Outcome:
        schedule = schedule_in(self._cluster.get("configmap", schedule_config_map(NAME), self._namespace))
        assert schedule is not None, "the operator wrote a schedule before any pod was ready"
        where = f'namespace="{self._namespace}"'
        first = f'{where},position="0"'
        return Outcome(
            scene,
            schedule.tokens_at(scene.clients),
            self._prometheus.ask(f"sum(rate(vllm:generation_tokens_total{{{where}}}[12s]))"),
            self._prometheus.ask(
                f"sum(increase(specpilot_accepted_tokens_total{{{first}}}[12s]))"
                f" / sum(increase(specpilot_drafted_tokens_total{{{first}}}[12s]))"
            ),
            schedule.generation,
        )

    def _news(self) -> str:
        """The newest decision, once."""
        found: dict[str, Any] = self._cluster.get("specdep", NAME, self._namespace)
        decision = found.get("status", {}).get("lastDecision") or {}
        told = json.dumps(decision)
        if not decision or told == self._told:
            return ""
        self._told = told
        return f"{decision['reason']}: {decision['message']}"


def line(now: Outcome) -> str:
    """One line of what is going on."""
    tokens = "  …" if now.tokens is None else f"{now.tokens:3.0f}"
    accepted = "nothing drafted" if now.accepted is None else f"{now.accepted:.0%} of first drafts accepted"
    return f"   depth {now.depth}, {tokens} tokens/s, {accepted} (generation {now.generation})"


def table(outcomes: list[Outcome]) -> str:
    """All scenes on one page."""
    rows = [f"{'traffic':50} {'depth':>5} {'tokens/s':>8}"]
    for o in outcomes:
        rows.append(f"{o.scene.title:50} {o.depth:5} {o.tokens or 0:8.0f}")
    return "\n".join(rows)
