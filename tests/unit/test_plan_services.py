"""The objects around the pods."""

from typing import Any

from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan.inputs import Inputs, OperatorFacts
from specpilot.plan.labels import selector, selector_text
from specpilot.plan.render import render
from specpilot_engine.protocol import Schedule, Step, parse_schedule

SD = SpeculativeDeployment.parse(
    {
        "metadata": {"name": "one", "namespace": "ns", "uid": "u"},
        "spec": {
            "model": {"name": "m"},
            "engine": {"image": "vllm:v0.33.0"},
            "speculation": {"method": "MTP"},
        },
    }
)
SCHEDULE = Schedule(3, (Step(16, 7), Step(256, 1)))
SERVING = {"app.kubernetes.io/instance": "one", "app.kubernetes.io/component": "serving"}


def objects(**operator: Any) -> dict[str, dict[str, Any]]:
    facts = OperatorFacts("specpilot:1", operator_namespace="ops", **operator)
    return {o["kind"]: o for o in render(SD, Inputs(SCHEDULE, facts))}


def allows(policy: dict[str, Any], port: int, namespace: str, protocol: str = "TCP") -> bool:
    """Whether a NetworkPolicy lets a pod of `namespace` in, as its API defines it."""
    for rule in policy["spec"]["ingress"]:
        fits = any(
            p["protocol"] == protocol and p["port"] <= port <= p.get("endPort", p["port"])
            for p in rule["ports"]
        )
        sources = [
            s["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for s in rule.get("from", ())
        ]
        if fits and (not sources or namespace in sources):
            return True
    return False


def test_optional_objects_are_there_only_when_asked_for() -> None:
    assert set(objects()) == {"ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "Deployment"}
    assert {"NetworkPolicy", "PodMonitor"} <= set(objects(network_policy=True, pod_monitor=True))


def test_the_policy_closes_our_ports_and_no_other() -> None:
    policy = objects(network_policy=True, scrape_namespaces=("monitoring",))["NetworkPolicy"]
    for port in (8000, 22, 1, 9100, 9103, 65535):
        assert allows(policy, port, "anywhere"), port
    for port in (9101, 9102):
        assert not allows(policy, port, "anywhere"), port
        assert allows(policy, port, "ops")
        assert allows(policy, port, "monitoring")
    assert allows(policy, 53, "anywhere", "UDP")
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_the_policy_closes_the_port_of_every_data_parallel_engine() -> None:
    parallel = SD.model_copy(
        update={
            "spec": SD.spec.model_copy(
                update={"parallelism": SD.spec.parallelism.model_copy(update={"data": 4})}
            )
        }
    )
    facts = OperatorFacts("specpilot:1", operator_namespace="ops", network_policy=True)
    (policy,) = (o for o in render(parallel, Inputs(SCHEDULE, facts)) if o["kind"] == "NetworkPolicy")
    for port in (9101, 9102, 9103, 9104):
        assert not allows(policy, port, "anywhere"), port
        assert allows(policy, port, "ops")
    assert allows(policy, 9105, "anywhere")


def test_the_schedule_in_the_config_map_is_what_the_engine_reads() -> None:
    text = objects()["ConfigMap"]["data"]["schedule.json"]
    assert parse_schedule(text) == SCHEDULE


def test_service_budget_and_deployment_select_the_same_pods() -> None:
    made = objects()
    chosen = made["Service"]["spec"]["selector"]
    assert chosen == selector(SD)
    assert chosen == made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    assert chosen == made["Deployment"]["spec"]["selector"]["matchLabels"]
    assert SERVING.items() <= chosen.items()
    assert dict(pair.split("=") for pair in selector_text(SD).split(",")) == chosen


def test_a_drain_takes_one_pod_at_a_time_and_never_waits_for_a_broken_one() -> None:
    spec = objects()["PodDisruptionBudget"]["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_prometheus_finds_both_ports_by_name() -> None:
    made = objects(pod_monitor=True)
    ports = {p["name"] for p in made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {e["port"] for e in made["PodMonitor"]["spec"]["podMetricsEndpoints"]} == ports


def test_every_object_carries_the_six_recommended_labels() -> None:
    for obj in objects(network_policy=True, pod_monitor=True).values():
        names = {
            f"app.kubernetes.io/{x}"
            for x in ("name", "instance", "version", "component", "part-of", "managed-by")
        }
        assert set(obj["metadata"]["labels"]) == names
        assert obj["metadata"]["labels"]["app.kubernetes.io/version"] == "0.33.0"
