"""Every object of one deployment per method, as files: SPECPILOT_SNAPSHOTS=write regenerates them.

They are the render revision r1 as well: once released, a difference here rolls every user's pods, and
belongs into a new revision.
"""

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.validate import errors
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.profiling import profile_request, where_to_profile
from specpilot.plan.render import render
from specpilot_engine.protocol import Schedule, Step

FOLDER = Path(__file__).parent / "snapshots"
CASES = sorted(path.name.removesuffix(".in.yaml") for path in FOLDER.glob("*.in.yaml"))
KUBERNETES = "1.37"


def deployment(case: str) -> SpeculativeDeployment:
    return SpeculativeDeployment.parse(yaml.safe_load((FOLDER / f"{case}.in.yaml").read_text()))


def rendered(case: str) -> list[dict[str, object]]:
    sd = deployment(case)
    where = where_to_profile(sd.spec, room=True)
    request = profile_request(sd.spec, where) if where is not ProfileIn.NOWHERE else None
    operator = OperatorFacts("ghcr.io/specpilot/specpilot:0.1.0", network_policy=True, pod_monitor=True)
    schedule, profiling = Schedule(1, (Step(256, 1),)), Profiling(where, request)
    return render(sd, Inputs(schedule, operator, profiling, revision="r1"))


def check(file: Path, objects: list[dict[str, object]]) -> None:
    text = yaml.safe_dump_all(objects, sort_keys=False, width=110, default_flow_style=None)
    if os.environ.get("SPECPILOT_SNAPSHOTS") == "write":
        file.write_text(text)
    assert file.read_text() == text


@pytest.mark.parametrize("case", CASES)
def test_deployments_are_what_they_were(case: str) -> None:
    check(FOLDER / f"{case}.yaml", [o for o in rendered(case) if o["kind"] == "Deployment"])


def test_profiling_jobs_are_what_they_were() -> None:
    check(FOLDER / "draft-model-profile.yaml", [o for o in rendered("draft-model") if o["kind"] == "Job"])


def test_the_objects_around_them_are_what_they_were() -> None:
    check(
        FOLDER / "dspark-around.yaml",
        [o for o in rendered("dspark") if o["kind"] not in ("Deployment", "Job")],
    )


@pytest.mark.parametrize("case", CASES)
def test_every_object_satisfies_its_own_api(case: str) -> None:
    for obj in rendered(case):
        if obj["kind"] != "PodMonitor":  # not Kubernetes' own
            kubernetes_validate.validate(obj, KUBERNETES, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_what_admission_lets_through(case: str) -> None:
    assert errors(deployment(case).spec) == []
