"""What becomes of an object whose plan the API server does not take: it is told, and tried again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.test_control_arms import sd

from specpilot.cluster.errors import from_status
from specpilot.cluster.events import Events
from specpilot.cluster.nodes import Nodes
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.faults import PASSING
from specpilot.control.queue import Refusal, Retry
from specpilot.control.reconcile import REFUSED_SECONDS, Reconciler
from specpilot.control.store import Store
from specpilot.control.telemetry import Telemetry
from specpilot.plan.inputs import OperatorFacts

Body = dict[str, Any]
KEY = ("ns", "one")


def _nothing(_: Any) -> None:
    return


class World:
    """One object, and an API server that answers `status` to writes of one kind of its children while that is set."""

    def __init__(self, kind: str, status: int, message: str) -> None:
        self.kind, self.status, self.message = kind, status, message
        self.missing: Mapping[str, Any] = {}
        self.written, self.tries = dict[str, Body](), 0
        self.store = Store()
        document: Body = {"metadata": {"name": "one", "namespace": "ns"}, "spec": sd().spec.to_json()}
        document["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
        api: Body = {"apiVersion": "specpilot.io/v1alpha1", "kind": "SpeculativeDeployment"}
        self.store.put({**api, **document})
        itself: Any = self
        self.reconciler = Reconciler(
            itself, self.store, Events(itself, "me"), Nodes(itself), OperatorFacts("operator:1"), Telemetry()
        )
        unheard: Any = SimpleNamespace(
            changed=_nothing, follow=_nothing, overdue=_nothing, status=lambda _: Acknowledged(0, 0, ())
        )
        self.reconciler.acknowledgements = unheard

    async def get(self, *_: Any) -> None:
        return None

    async def list(self, *_: Any, **__: Any) -> Any:
        return [], "1"

    async def create(self, _: Body) -> None:
        return

    async def apply(self, body: Body, subresource: str = "", dry_run: bool = False, **_: Any) -> Body:
        name, kind = body["metadata"]["name"], body["kind"]
        if kind == self.kind:
            self.tries += 1
            if self.status:
                raise from_status(
                    self.status, json.dumps({"message": self.message}), f"apply of {kind} {name}"
                )
        present = self.store.main(KEY) if subresource else None
        written = {
            **(present or {}),
            **body,
            "metadata": {**(present or body)["metadata"], **body["metadata"]},
        }
        written["metadata"]["resourceVersion"] = str(10 + len(self.written))
        if not dry_run:
            self.written[kind] = written
        return written

    async def retry(self) -> Retry | None:
        try:
            await self.reconciler.reconcile(KEY)
        except Retry as e:
            return e
        return None

    def degraded(self) -> tuple[str, str] | None:
        """Reason and message."""
        status = self.written.get("SpeculativeDeployment", {}).get("status", {})
        found = [
            (c["reason"], c.get("message", ""))
            for c in status.get("conditions", [])
            if c["type"] == "Degraded"
        ]
        return found[0] if found else None


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("Deployment", 422, "InvalidPodTemplate"),
        ("Deployment", 403, "ApplyFailed"),
        ("Service", 400, "ApplyFailed"),
    ],
)
async def test_whatever_was_refused_is_told_and_tried_again_after_its_rest_and_not_before(
    kind: str, status: int, reason: str
) -> None:
    world = World(kind, status, "the policy says no")
    for _ in range(3):
        retry = await world.retry()
        assert isinstance(retry, Refusal)
        assert retry.rest == pytest.approx(REFUSED_SECONDS, abs=30)
    assert world.tries == 1
    assert world.degraded() == (reason, f"apply of {kind} one: the policy says no")
    live = world.reconciler.lives[KEY]
    assert live.refused is not None
    live.refused, world.status = replace(live.refused, until=time.monotonic()), 0
    assert await world.retry() is None
    assert world.tries > 1
    assert world.degraded() == ("AsExpected", "")


async def test_a_failure_that_may_pass_is_not_told_and_one_that_lasts_is_while_it_is_tried_on() -> None:
    world = World("Service", 500, 'failed calling webhook "w"')
    for attempt in range(1, PASSING + 4):
        retry = await world.retry()
        assert retry is not None
        assert not isinstance(retry, Refusal)
        assert world.tries == attempt
        told = ("ApplyFailed", 'apply of Service one: failed calling webhook "w"')
        assert world.degraded() == (told if attempt > PASSING else None)
    world.status = 0
    assert await world.retry() is None
    assert world.degraded() == ("AsExpected", "")
