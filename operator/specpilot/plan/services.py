"""The small objects around the pods: Service, ServiceAccount, budget, schedule, policy, monitor."""

from __future__ import annotations

from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan import names
from specpilot.plan.inputs import OperatorFacts
from specpilot.plan.labels import selector
from specpilot_engine.protocol import (
    METRICS_PATH,
    PORT,
    PROFILED_KEY,
    PROFILER_PORT,
    SCHEDULE_KEY,
    ProfileRequest,
    Schedule,
    profiled_document,
)

_LAST_PORT = 65535


def service(sd: SpeculativeDeployment) -> dict[str, Any]:
    """The OpenAI API of all ready pods."""
    port = {
        "name": names.PORT_NAME_HTTP,
        "port": v.PORT_HTTP,
        "targetPort": names.PORT_NAME_HTTP,
        "protocol": "TCP",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": sd.metadata.name},
        "spec": {"type": "ClusterIP", "selector": selector(sd), "ports": [port]},
    }


def service_account(sd: SpeculativeDeployment) -> dict[str, Any]:
    """An identity with no rights: nothing in the pods talks to Kubernetes."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": sd.metadata.name},
        "automountServiceAccountToken": False,
    }


def disruption_budget(sd: SpeculativeDeployment) -> dict[str, Any]:
    """One pod at a time; a pod that does not serve anyway never holds up a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": sd.metadata.name},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(sd)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def schedule_config_map(sd: SpeculativeDeployment, schedule: Schedule) -> dict[str, Any]:
    """The file that the engine watches."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.schedule_config_map(sd.metadata.name)},
        "data": {SCHEDULE_KEY: schedule.dump()},
    }


def profiled_config_map(sd: SpeculativeDeployment, request: ProfileRequest) -> dict[str, Any]:
    """Keeps the profilers of pods that come later from measuring what is known."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.profiled_config_map(sd.metadata.name)},
        "data": {PROFILED_KEY: profiled_document(request.key)},
    }


def network_policy(sd: SpeculativeDeployment, operator: OperatorFacts) -> dict[str, Any]:
    """Closes our ports to all but the operator and whoever scrapes. A policy that selects a pod denies
    whatever it does not allow, so every other port, of the user's own containers too, is allowed again."""
    # The profiler's port follows the engine's; data-parallel engines of a pod have one each.
    first, last = PORT, max(PROFILER_PORT, PORT + sd.spec.parallelism.data - 1)
    others: list[dict[str, Any]] = [
        {"protocol": "TCP", "port": 1, "endPort": first - 1},
        {"protocol": "TCP", "port": last + 1, "endPort": _LAST_PORT},
        {"protocol": "UDP", "port": 1, "endPort": _LAST_PORT},
        {"protocol": "SCTP", "port": 1, "endPort": _LAST_PORT},
    ]
    friends = sorted({operator.operator_namespace, *operator.scrape_namespaces})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": sd.metadata.name},
        "spec": {
            "podSelector": {"matchLabels": {v.LABEL_INSTANCE: sd.metadata.name, v.LABEL_PART_OF: v.MANAGER}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": others},
                {
                    "ports": [{"protocol": "TCP", "port": first, "endPort": last}],
                    "from": [
                        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
                        for namespace in friends
                    ],
                },
            ],
        },
    }


def pod_monitor(sd: SpeculativeDeployment, speculates: bool) -> dict[str, Any]:
    """For the Prometheus operator: vLLM's own series and the engine package's."""
    ports = [names.PORT_NAME_HTTP, *([names.PORT_NAME_SPECPILOT] if speculates else [])]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": sd.metadata.name},
        "spec": {
            "selector": {"matchLabels": selector(sd)},
            "podMetricsEndpoints": [{"port": port, "path": METRICS_PATH} for port in ports],
        },
    }
