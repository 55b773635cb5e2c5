"""What the operator reports: status of a SpeculativeDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specpilot.api.base import Model


class Condition(Model):
    """A Kubernetes condition."""

    type: str
    """Ready, Progressing, Degraded, Speculating, Profiled, Tuned, MetricsAvailable, or Succeeded of a profile."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """One word, of the list in the documentation of conditions."""
    message: str = ""
    """One sentence for people."""
    observed_generation: int = 0
    """The generation of the object that this was said of."""
    last_transition_time: str = ""
    """When status changed last."""


Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class ScheduleStep(Model):
    """Draft `tokens` while at most `upTo` requests run."""

    up_to: int = Field(ge=1)
    """Running requests."""
    tokens: int = Field(ge=0)
    """Draft depth."""


class DesiredSpeculation(Model):
    """The schedule the operator wants."""

    generation: int = 0
    """Rises by one with every change."""
    schedule: list[ScheduleStep] = []
    """Depth by rising load; beyond the last step its depth holds. With `adaptive` a cap on what is drafted."""
    adaptive: bool = False
    """Whether vLLM is to size the verification budget itself."""


class EffectiveSpeculation(Model):
    """The newest schedule that ready pods say they run; how many run the desired one is in `pods`."""

    generation: int = 0
    """The newest generation that a ready pod runs."""
    schedule: list[ScheduleStep] = []
    """Depth by rising load, as that pod reads it."""
    adaptive: bool = False
    """Whether vLLM sizes the verification budget itself."""
    acknowledged: int = 0
    """Ready pods that run the desired generation."""
    pods: str = ""
    """Pods that run the desired generation, of the ready ones."""


class SpeculationStatus(Model):
    """Desired and effective speculation side by side."""

    desired: DesiredSpeculation | None = None
    effective: EffectiveSpeculation | None = None
    summary: str | None = None
    """Depths of the schedule in force by rising load."""


class ProfileStatus(Model):
    """The CostProfile in use."""

    name: str = ""
    """Of the CostProfile, in the same namespace."""
    fingerprint: str = ""
    """Hash of what was measured: model, image, devices and arguments."""
    measured_at: str | None = None
    """When the last point was measured."""
    progress: str | None = None
    """Points measured of points planned."""


class LastDecision(Model):
    """What was decided last, and why."""

    time: str
    """When."""
    reason: str
    """One word, as in conditions."""
    message: str = ""
    """One sentence for people."""
    predicted_gain: str | None = None
    """In goodput, as a share, against the schedule before; while the two alternate, where they differ."""
    measured_gain: str | None = None
    """The same, as measured while the two schedules alternated after the change."""
    measured_interval: str | None = None
    """What the true gain lies between, with 95% confidence."""
    gain: str | None = None
    """The measured gain where there is one, else the predicted."""


class ArmStatus(Model):
    """The engine configuration in force, where there is more to say of it than that it is the usual one: a
    schedule of depths that is tuned live."""

    in_force: str
    """schedule, static-K (depth K without a schedule), adaptive-K or adaptive-K@C (vLLM's adaptive verification,
    timed at C tokens of context) or none."""
    better: str | None = None
    """One that is predicted to be better, which a restart would lead to."""
    reason: str = ""
    """One word, as in conditions."""
    message: str = ""
    """One sentence for people: why this one is in force, or what the better one would give."""


class SpeculativeDeploymentStatus(Model):
    """Written only when something that a person would care about changes."""

    observed_generation: int | None = None
    """The generation that this status is of."""
    conditions: Conditions = []
    """What holds and what does not, each with its reason."""
    replicas: int | None = None
    """Pods there are."""
    ready_replicas: int | None = None
    """Pods that serve."""
    ready: str | None = None
    """Ready pods of wanted pods."""
    selector: str | None = None
    """Label selector of the serving pods, for autoscalers."""
    speculation: SpeculationStatus | None = None
    arm: ArmStatus | None = None
    profile: ProfileStatus | None = None
    last_decision: LastDecision | None = None
