"""The serving pod: what a stock image needs to run restricted, and how it starts and stops."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan import names
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.labels import label_value
from specpilot.plan.problems import problems
from specpilot.plan.profiling import profile_request
from specpilot.plan.render import render
from specpilot_engine.protocol import Schedule, Step

OPERATOR = OperatorFacts("specpilot:1")
SCHEDULE = Schedule(1, (Step(8, 1),))
GPU = {"spec": {"containers": [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}}


def deployment(name: str = "one", uid: str = "u", **spec: Any) -> SpeculativeDeployment:
    body = {"model": {"name": "m"}, "speculation": {"method": "MTP"}, **spec}
    body["engine"] = {"image": "vllm:v0.33.0", **body.get("engine", {})}
    return SpeculativeDeployment.parse(
        {"metadata": {"name": name, "namespace": "ns", "uid": uid}, "spec": body}
    )


def rendered(
    sd: SpeculativeDeployment, where: ProfileIn = ProfileIn.NOWHERE, **inputs: Any
) -> dict[str, Any]:
    """Objects by kind; ConfigMaps are not told apart, there is one."""
    request = profile_request(sd.spec, where) if where is not ProfileIn.NOWHERE else None
    profiling = Profiling(where, request, inputs.pop("hold", False))
    return {o["kind"]: o for o in render(sd, Inputs(SCHEDULE, OPERATOR, profiling, **inputs))}


def pod(sd: SpeculativeDeployment, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(sd, **more)["Deployment"]["spec"]["template"]["spec"]
    return spec


def engine(sd: SpeculativeDeployment, **more: Any) -> dict[str, Any]:
    return next(c for c in pod(sd, **more)["containers"] if c["name"] == "vllm")


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


def test_every_container_is_fit_for_restricted_pod_security() -> None:
    spec = pod(deployment(), where=ProfileIn.POD)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    containers = [*spec["initContainers"], *spec["containers"]]
    assert len(containers) == 4
    for container in containers:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False


def test_every_folder_that_vllm_writes_lies_on_a_volume() -> None:
    container = engine(deployment())
    mounts = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
    env = environment(container)
    for variable in ("HOME", "HF_HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert any(env[variable].startswith(mount) for mount in mounts), variable
    assert env["USER"]  # getpass knows no name for a user that the image lacks
    assert "/dev/shm" in mounts


def test_the_token_is_never_on_the_command_line() -> None:
    container = engine(deployment(model={"name": "m", "tokenSecret": {"name": "vault", "key": "entry"}}))
    assert environment(container)["HF_TOKEN"] == {"secretKeyRef": {"name": "vault", "key": "entry"}}
    assert not any(word in item for item in container["args"] for word in ("vault", "entry", "hf-token"))


@pytest.mark.parametrize("place", ["engine", "podTemplate"])
def test_a_python_path_of_the_users_own_comes_after_ours(place: str) -> None:
    entry = {"name": "PYTHONPATH", "value": "/opt/plugins"}
    template = {"spec": {"containers": [{"name": "vllm", "env": [entry]}]}}
    sd = deployment(engine={"env": [entry]}) if place == "engine" else deployment(podTemplate=template)
    assert environment(engine(sd))["PYTHONPATH"] == "/specpilot/engine:/opt/plugins"


def test_what_users_may_not_set_stays_ours_and_is_named() -> None:
    sd = deployment(
        engine={"env": [{"name": "SPECPILOT_PORT", "value": "1"}, {"name": "SPECPILOT_SIM", "value": "{}"}]},
        podTemplate={"spec": {"containers": [{"name": "vllm", "command": ["sh"]}]}},
    )
    env = environment(engine(sd))
    assert (env["SPECPILOT_PORT"], env["SPECPILOT_SIM"]) == ("9101", "{}")
    assert engine(sd)["command"][0] == "python3"
    found = {p.field: p for p in problems(sd)}
    assert set(found) == {"spec.engine.env[0]", "spec.podTemplate.spec.containers[0].command"}
    assert "SPECPILOT_PORT" in found["spec.engine.env[0]"].message


def test_too_few_devices_for_the_parallelism_are_told() -> None:
    assert problems(deployment(podTemplate=GPU, parallelism={"tensor": 4})) == []
    [problem] = problems(deployment(podTemplate=GPU, parallelism={"tensor": 4, "pipeline": 2}))
    assert problem.field == "spec.parallelism"
    assert "8 devices" in problem.message
    assert "4 nvidia.com/gpu" in problem.message


def test_without_a_drafter_nothing_of_ours_is_in_the_pod() -> None:
    objects = rendered(deployment(speculation={"method": "None"}))
    spec = objects["Deployment"]["spec"]["template"]["spec"]
    assert "ConfigMap" not in objects
    assert "initContainers" not in spec
    assert not any(
        "SPECPILOT" in e["name"] or e["name"] == "PYTHONPATH" for e in spec["containers"][0]["env"]
    )


def test_the_import_is_proven_in_the_users_image_with_the_engines_path() -> None:
    sd = deployment(engine={"env": [{"name": "PYTHONPATH", "value": "/p"}]})
    copy, prove = pod(sd, where=ProfileIn.POD)["initContainers"]
    assert copy["image"] == "specpilot:1"
    assert prove["image"] == "vllm:v0.33.0"
    assert environment(prove)["PYTHONPATH"] == environment(engine(sd))["PYTHONPATH"]
    assert prove["command"][-1] == "import specpilot_engine.scheduler, specpilot_engine.profiler.__main__"


@pytest.mark.parametrize("args", [[], ["--shutdown_timeout=900"]])
def test_the_pod_outlives_its_draining(args: list[str]) -> None:
    spec = pod(deployment(engine={"args": args}))
    container = spec["containers"][0]
    drain = 900 if args else int(container["args"][container["args"].index("--shutdown-timeout") + 1])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > drain + pause


def test_a_slow_start_is_neither_killed_nor_called_stuck() -> None:
    objects = rendered(deployment(profiling={"deadline": "1h"}), where=ProfileIn.POD)
    probe = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    startup = probe["periodSeconds"] * probe["failureThreshold"]
    assert startup >= 3600
    assert objects["Deployment"]["spec"]["progressDeadlineSeconds"] >= startup + 3600


def test_a_rollout_needs_no_room_for_one_more_pod_unless_there_is_some() -> None:
    strategy = rendered(deployment())["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}
    spare = rendered(deployment(), surge=True)["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert spare == {"maxSurge": 1, "maxUnavailable": 0}


def test_serving_waits_for_a_profile_only_where_it_is_told_to() -> None:
    sd = deployment(replicas=3)
    assert rendered(sd, where=ProfileIn.JOB)["Deployment"]["spec"]["replicas"] == 3
    assert rendered(sd, where=ProfileIn.JOB, hold=True)["Deployment"]["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        (None, {"emptyDir": {}}),
        ({"persistentVolumeClaim": "pvc"}, {"persistentVolumeClaim": {"claimName": "pvc"}}),
        ({"hostPath": "/srv"}, {"hostPath": {"path": "/srv", "type": "Directory"}}),
    ],
)
def test_the_model_cache_is_where_the_user_says(cache: dict[str, str] | None, volume: dict[str, Any]) -> None:
    model = {"name": "m", **({"cache": cache} if cache else {})}
    volumes = {x["name"]: x for x in pod(deployment(model=model))["volumes"]}
    assert volumes["specpilot-models"] == {"name": "specpilot-models", **volume}


def test_the_schedule_volume_may_be_missing_and_is_a_whole_folder() -> None:
    spec = pod(deployment())
    [volume] = [x for x in spec["volumes"] if "configMap" in x]
    assert volume["configMap"] == {"name": "one-schedule", "optional": True}
    [mount] = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == volume["name"]]
    assert "subPath" not in mount


def test_resources_of_our_containers_can_be_set_and_make_none_where_there_is_none() -> None:
    """A namespace's quota may demand limits of every container."""
    limits = {"resources": {"limits": {"memory": "1Gi"}}}
    template = {
        "containers": [{"name": "specpilot-profiler", **limits}],
        "initContainers": [{"name": name, **limits} for name in ("specpilot-engine", "specpilot-import")],
    }
    measured = pod(deployment(podTemplate={"spec": template}), where=ProfileIn.POD)
    for container in (measured["containers"][1], *measured["initContainers"]):
        assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert [c["name"] for c in measured["initContainers"]] == ["specpilot-engine", "specpilot-import"]
    plain = pod(deployment(podTemplate={"spec": template}, speculation={"method": "None"}))
    assert [c["name"] for c in plain["containers"]] == ["vllm"]
    assert not plain.get("initContainers")


def test_the_profiler_holds_its_pod_back_once_and_by_no_port() -> None:
    profiler = pod(deployment(), where=ProfileIn.POD)["containers"][1]
    assert "readinessProbe" not in profiler
    [entry] = [e for e in profiler["env"] if e["name"] == "SPECPILOT_READY_FILE"]
    command = profiler["startupProbe"]["exec"]["command"]
    assert command[0] == profiler["command"][0]
    assert entry["value"] in command[-1]
    assert any(entry["value"].startswith(m["mountPath"] + "/") for m in profiler["volumeMounts"])


def test_the_profiler_knows_the_users_key_for_the_engine() -> None:
    entry = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "k", "key": "k"}}}
    template = {"spec": {"containers": [{"name": "vllm", "env": [entry]}]}}
    for sd in (deployment(engine={"env": [entry]}), deployment(podTemplate=template)):
        assert entry in pod(sd, where=ProfileIn.POD)["containers"][1]["env"]
    sources = [{"secretRef": {"name": "engine"}}]
    template = {"spec": {"containers": [{"name": "vllm", "envFrom": sources}]}}
    assert pod(deployment(podTemplate=template), where=ProfileIn.POD)["containers"][1]["envFrom"] == sources
    assert "envFrom" not in pod(deployment(), where=ProfileIn.POD)["containers"][1]


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True))
def test_every_derived_name_fits_for_every_name_admitted(name: str) -> None:
    objects = render(
        deployment(name),
        Inputs(
            SCHEDULE, OPERATOR, Profiling(ProfileIn.JOB, profile_request(deployment().spec, ProfileIn.JOB))
        ),
    )
    derived = [o["metadata"]["name"] for o in objects]
    derived += [names.tuner_config_map(name), names.cost_profile(name, "0123456789abcdef")]
    assert all(len(x) <= 63 for x in derived)
    assert len(set(derived)) == 5  # Deployment, Service, ServiceAccount and budget share the object's own


@given(st.text(max_size=80))
def test_any_version_makes_a_label_value(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63
    assert value == "" or (value[0].isalnum() and value[-1].isalnum() and value.isascii())


def test_without_a_cluster_there_is_no_owner() -> None:
    assert "ownerReferences" not in rendered(deployment(uid=""))["Deployment"]["metadata"]
    [owner] = rendered(deployment())["Deployment"]["metadata"]["ownerReferences"]
    assert owner["controller"] is True
    assert owner["uid"] == "u"
