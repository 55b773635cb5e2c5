"""What the plan needs besides the user's spec: the decision, and facts about the cluster and operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from specpilot.decide.arm import Arm
from specpilot_engine.protocol import ProfileRequest, Schedule


class ProfileIn(StrEnum):
    """Where the profiler runs in this plan."""

    NOWHERE = "Nowhere"
    JOB = "Job"  # a pod of its own, on a device of its own
    POD = "Pod"  # beside the engine of each serving pod, before it turns Ready


@dataclass(frozen=True, slots=True)
class Profiling:
    where: ProfileIn = ProfileIn.NOWHERE
    request: ProfileRequest | None = None
    hold_serving: bool = False  # blockServing: no serving pod until the profile is there
    done: bool = False  # nothing is left to measure, or nothing may be
    kept: ProfileRequest | None = None  # what the profiler of pods already there was made with


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What this operator's installation provides."""

    engine_image: str  # holds the engine package at /opt/specpilot/engine; the init container copies it
    operator_namespace: str = "specpilot-system"
    pod_monitor: bool = False  # the PodMonitor kind exists
    network_policy: bool = False  # opt-in: restrict the engine package's port to the operator's namespace
    pull_policy: str = "IfNotPresent"
    scrape_namespaces: tuple[str, ...] = ()  # with network_policy: may reach the port too, for Prometheus


@dataclass(frozen=True, slots=True)
class Inputs:
    schedule: Schedule
    operator: OperatorFacts
    profiling: Profiling = Profiling()
    revision: str = ""  # the render revision to use; "" the newest
    surge: bool = False  # one pod more than wanted would fit
    arm: Arm | None = None  # to restart engines with; None: the one they have, at first the spec's own
    annotations: dict[str, str] = field(default_factory=dict)
