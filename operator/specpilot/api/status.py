"""What the operator reports: status of a SpeculativeDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specpilot.api.base import Model


class Condition(Model):
    """A Kubernetes condition; reasons are those of specpilot.api.vocabulary.Reason."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""


Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class ScheduleStep(Model):
    """Draft `tokens` while at most `upTo` requests run."""

    up_to: int = Field(ge=1)
    tokens: int = Field(ge=0)


class DesiredSpeculation(Model):
    """The schedule the operator wants."""

    generation: int = 0
    schedule: list[ScheduleStep] = []
    adaptive: bool = False


class EffectiveSpeculation(Model):
    """The schedule that ready pods say they run; older ones are left out and counted in `pods`."""

    generation: int = 0
    schedule: list[ScheduleStep] = []
    adaptive: bool = False
    acknowledged: int = 0
    pods: str = Field("", description="Pods that run the desired generation, of the ready ones.")


class SpeculationStatus(Model):
    desired: DesiredSpeculation | None = None
    effective: EffectiveSpeculation | None = None
    summary: str | None = Field(None, description="Depths of the schedule in force by rising load.")


class ProfileStatus(Model):
    name: str = ""
    fingerprint: str = ""
    measured_at: str | None = None
    progress: str | None = None


class LastDecision(Model):
    time: str
    reason: str
    message: str = ""
    predicted_gain: str | None = None
    measured_gain: str | None = None


class SpeculativeDeploymentStatus(Model):
    """Written only when something that a person would care about changes."""

    observed_generation: int | None = None
    conditions: Conditions = []
    replicas: int | None = None
    ready_replicas: int | None = None
    ready: str | None = Field(None, description="Ready pods of wanted pods.")
    selector: str | None = None
    speculation: SpeculationStatus | None = None
    profile: ProfileStatus | None = None
    last_decision: LastDecision | None = None
