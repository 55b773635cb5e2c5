"""A rendered pod template as processes on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpilot.api.objects import SpeculativeDeployment
from specpilot.local.pod import Machine, Ports, local_pod
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.profiling import profile_request
from specpilot.plan.render import render
from specpilot_engine.protocol import Schedule, Step, parse_profile_request

PORTS = Ports(8001, 9001, 9002)
MACHINE = Machine(
    "sim", "/usr/bin/python3", "127.0.0.1", Path("/state"), {"PATH": "/bin", "HOME": "/home/me"}
)


def template(profile: bool = False, **spec: Any) -> dict[str, Any]:
    sd = SpeculativeDeployment.parse(
        {
            "metadata": {"name": "flash", "namespace": "llm"},
            "spec": {
                "model": {"name": "org/model"},
                "engine": {"image": "vllm/vllm-openai:v0.33.0", "args": ["--max-num-seqs", "16"]},
                "speculation": {"method": "MTP", "maxTokens": 3},
                **spec,
            },
        }
    )
    request = profile_request(sd.spec, ProfileIn.POD) if profile else None
    where = ProfileIn.POD if profile else ProfileIn.NOWHERE
    inputs = Inputs(Schedule(1, (Step(16, 1),)), OperatorFacts("image"), Profiling(where, request))
    found: dict[str, Any] = next(o for o in render(sd, inputs) if o["kind"] == "Deployment")["spec"][
        "template"
    ]
    return found


def option(command: tuple[str, ...], name: str) -> str:
    """The value that counts: the last."""
    return command[len(command) - 1 - command[::-1].index(name) + 1]


def test_vllm_becomes_the_simulated_engine_with_the_same_arguments() -> None:
    pod = local_pod("flash-0", template(), 0, PORTS, MACHINE)
    (launch,) = pod.launches
    assert launch.command[:3] == ("/usr/bin/python3", "-m", "specpilot_engine.sim")
    assert option(launch.command, "--model") == "org/model"
    assert option(launch.command, "--max-num-seqs") == "16"
    assert json.loads(option(launch.command, "--speculative-config"))["num_speculative_tokens"] == 3
    assert option(launch.command, "--port") == "8001"
    assert option(launch.command, "--host") == "127.0.0.1"


def test_the_real_vllm_is_started_with_the_python_that_has_it() -> None:
    machine = replace(MACHINE, kind="vllm", python="/opt/vllm/bin/python")
    (launch,) = local_pod("flash-0", template(), 0, PORTS, machine).launches
    assert launch.command[:3] == ("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server")


def test_volumes_become_folders_and_paths_below_mounts_follow() -> None:
    pod = local_pod("flash-1", template(), 1, PORTS, MACHINE)
    env = pod.launches[0].env
    assert env["SPECPILOT_SCHEDULE_FILE"] == "/state/flash-schedule/schedule.json", "all replicas share it"
    assert env["SPECPILOT_OVERRIDE_FILE"] == "/state/flash-1/specpilot-run/override.json", "one each"
    assert env["PYTHONPATH"] == "/state/engine"
    assert (env["SPECPILOT_HOST"], env["SPECPILOT_PORT"]) == ("127.0.0.1", "9001")
    assert Path("/state/flash-1/specpilot-run") in pod.folders
    assert Path("/state/flash-schedule") in pod.folders


def test_home_and_caches_of_the_pod_give_way_to_the_persons_own() -> None:
    env = local_pod("flash-0", template(), 0, PORTS, MACHINE).launches[0].env
    assert env["HOME"] == "/home/me"
    assert env["PATH"] == "/bin"
    assert not {"USER", "HF_HOME", "VLLM_CACHE_ROOT"} & env.keys()


def test_a_model_on_the_host_is_found_where_it_is() -> None:
    model = {"name": "/models/tiny", "cache": {"hostPath": "/data/weights"}}
    launch = local_pod("flash-0", template(model=model), 0, PORTS, MACHINE).launches[0]
    assert option(launch.command, "--model") == "/data/weights/tiny"
    assert launch.env["HF_HOME"] == "/data/weights"


def test_a_path_that_only_looks_like_a_mount_stays() -> None:
    engine = {
        "image": "vllm/vllm-openai:v0.33.0",
        "env": [{"name": "A", "value": "/data/etc/specpilot"}, {"name": "B", "value": "/etc/specpilots"}],
    }
    env = local_pod("flash-0", template(engine=engine), 0, PORTS, MACHINE).launches[0].env
    assert (env["A"], env["B"]) == ("/data/etc/specpilot", "/etc/specpilots")


def test_the_profiler_is_a_process_of_its_own_beside_its_engine() -> None:
    pod = local_pod("flash-0", template(profile=True), 0, PORTS, MACHINE)
    engine, profiler = sorted(pod.launches, key=lambda launch: launch.name != "vllm")
    assert profiler.command == ("/usr/bin/python3", "-m", "specpilot_engine.profiler")
    assert profiler.env["SPECPILOT_PROFILER_PORT"] == "9002"
    assert profiler.env["SPECPILOT_ENGINE_URL"] == "http://127.0.0.1:8001"
    assert profiler.env["SPECPILOT_OVERRIDE_FILE"] == engine.env["SPECPILOT_OVERRIDE_FILE"]
    assert profiler.env["SPECPILOT_PROFILE_FILE"] == "/state/flash-0/specpilot-run/profile.jsonl"
    assert parse_profile_request(profiler.env["SPECPILOT_PROFILE"]).tokens == (0, 1, 3)


def test_a_secret_comes_from_the_shell_or_is_asked_for() -> None:
    model = {"name": "org/model", "tokenSecret": {"name": "hub", "key": "token"}}
    pod = local_pod("flash-0", template(model=model), 0, PORTS, MACHINE)
    assert pod.notices == ("HF_TOKEN comes from the cluster: set it in this shell if the engine needs it",)
    with_token = replace(MACHINE, environ={**MACHINE.environ, "HF_TOKEN": "secret"})
    pod = local_pod("flash-0", template(model=model), 0, PORTS, with_token)
    assert pod.notices == ()
    assert pod.launches[0].env["HF_TOKEN"] == "secret"


@pytest.mark.parametrize(
    ("visible", "replica", "expected"),
    [("", 0, "0,1"), ("", 1, "2,3"), ("4,5,6,7", 1, "6,7")],
)
def test_replicas_share_no_gpu(visible: str, replica: int, expected: str) -> None:
    limits = {"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    environ = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    machine = replace(MACHINE, kind="vllm", environ=environ)
    pod = local_pod(
        "flash-0", template(podTemplate={"spec": {"containers": [limits]}}), replica, PORTS, machine
    )
    assert pod.launches[0].env["CUDA_VISIBLE_DEVICES"] == expected


def test_a_container_with_its_images_own_command_is_left_out() -> None:
    side = {"name": "side", "image": "envoy"}
    pod = local_pod("flash-0", template(podTemplate={"spec": {"containers": [side]}}), 0, PORTS, MACHINE)
    assert [launch.name for launch in pod.launches] == ["vllm"]
    assert pod.notices == ("the container side is left out: what its image runs is not on this machine",)
