"""What `specpilot explain NAMESPACE/NAME` makes of clusters that are not as it would have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.setup.answering import answering

from specpilot.cluster import client
from specpilot.explain.sources import from_cluster
from specpilot.local.errors import LocalError
from specpilot_engine.protocol import SCHEDULE_KEY, Schedule, Step

Body = dict[str, Any]
SCHEDULE = Schedule(5, (Step(8, 3),))
SPEC = {
    "model": {"name": "demo"},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "speculation": {"method": "MTP", "maxTokens": 7},
}


@pytest.fixture
async def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Body | int]]:
    """What an API server answers, by the end of the path: an object, or a status; what is absent is not there."""
    answers: dict[str, Body | int] = {}

    async def answer(request: web.Request) -> web.Response:
        found = answers.get("/".join(request.path.split("/")[-2:]), 404)
        if isinstance(found, int):
            return web.json_response({"message": f"{request.path} is forbidden"}, status=found)
        return web.json_response(found)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with answering(app) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "clusters": [{"name": "one", "cluster": {"server": url}}],
            "users": [{"name": "one", "user": {}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        monkeypatch.setattr(client, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        answers["speculativedeployments/flash"] = {
            "apiVersion": "specpilot.io/v1alpha1",
            "kind": "SpeculativeDeployment",
            "metadata": {"name": "flash", "namespace": "llm"},
            "spec": deepcopy(SPEC),
        }
        data = {SCHEDULE_KEY: SCHEDULE.dump()}
        answers["configmaps/flash-schedule"] = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        yield answers


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"speculation": "later versions say this otherwise"},
        {"novel": {"part": 1}, "lastDecision": {"time": "x", "reason": "Novel", "message": "m", "more": 1}},
    ],
    ids=["of an older version", "of a newer one", "with more in it"],
)
async def test_a_status_of_another_version_is_no_reason_to_explain_nothing(
    objects: dict[str, Body], status: Body
) -> None:
    objects["speculativedeployments/flash"]["status"] = status
    subject = await from_cluster("llm", "flash")
    assert subject.schedule == SCHEDULE
    assert subject.depths[-1] == 7


async def test_a_spec_of_a_newer_version_is_one_sentence_with_the_field(objects: dict[str, Body]) -> None:
    objects["speculativedeployments/flash"]["spec"]["speculation"]["method"] = "Clairvoyance"
    with pytest.raises(LocalError, match=r"^llm/flash cannot .*speculation.method .*: update specpilot"):
        await from_cluster("llm", "flash")


@pytest.mark.parametrize("what", ["speculativedeployments/flash", "configmaps/flash-tuner"])
async def test_what_may_not_be_read_is_told_with_the_rights_to_ask_for(
    objects: dict[str, Body | int], what: str
) -> None:
    objects[what] = 403
    with pytest.raises(
        LocalError, match=f"{what} is forbidden: .*ask for a role that may get them in namespace"
    ):
        await from_cluster("llm", "flash")
