"""What is remembered of the engines that run, when another image is asked for."""

from __future__ import annotations

from typing import Any

from tests.unit.test_control_profile_choice import deployment, profile

from specpilot.api.objects import SpeculativeDeployment
from specpilot.control.live import Live
from specpilot.control.measuring import Gathered, Measuring
from specpilot.control.profile_choice import Choice, Identity
from specpilot.control.store import Store

OLD, NEW = "vllm:v0.33.0", "vllm:v0.34.0"


class OneDevice:
    async def device(self, *_: Any) -> str:
        return "H200"

    async def room(self, _: Any) -> int:
        return 0


def runs(image: str, digest: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "llm"},
        "spec": {"nodeName": "n", "containers": [{"name": "vllm", "image": image}]},
        "status": {"containerStatuses": [{"name": "vllm", "imageID": f"vllm@sha256:{digest}"}]},
    }


async def chosen(live: Live, sd: SpeculativeDeployment, *pods: dict[str, Any]) -> Choice:
    store, nodes = Store(), OneDevice()
    known = profile(deployment(), Identity("sha256:aa", "H200"))
    store.put({"kind": "CostProfile", **known})
    unused: Any = nodes
    gathered = Gathered(("llm", "flash"), {}, sd, live, {}, list(pods))
    return await Measuring(store, unused).choose(gathered)


async def test_a_roll_back_takes_the_profile_that_is_known_of_its_image() -> None:
    live, old = Live("u"), deployment()
    new = deployment(engine={"image": NEW})
    assert (await chosen(live, old, runs(OLD, "aa"))).profiling.done
    assert not (await chosen(live, new, runs(NEW, "bb"))).profiling.done
    back = await chosen(live, old, runs(NEW, "bb"))  # none of its own pods runs yet
    assert (back.profiling.done, back.active, live.identity) == (True, False, None)


async def test_while_the_same_image_is_asked_for_what_its_pods_told_outlives_them() -> None:
    live = Live("u")
    await chosen(live, deployment(), runs(OLD, "aa"))
    await chosen(live, deployment())
    assert live.identity == Identity("sha256:aa", "H200", OLD)
