"""CostProfile: what a step costs on one kind of hardware, measured once and used by many deployments."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from specpilot.api import growth
from specpilot.api.base import Model, rules
from specpilot.api.status import Conditions

MAX_POINTS = 512  # 8 depths x 16 batch sizes x 4 contexts; the rules' cost grows with its square


class Fingerprint(Model):
    """What must be equal for a profile to hold. Digest and GPU come from running pods."""

    model: str = Field(max_length=512)
    """The target model."""
    model_revision: str = Field("", max_length=253)
    """Its revision, as asked for."""
    draft_model: str = Field("", max_length=512)
    """The drafter, where it is a model of its own."""
    draft_revision: str = Field("", max_length=253)
    """Its revision, as asked for."""
    method: str = Field(max_length=32)
    """What drafts."""
    image_digest: str = Field("", max_length=512)
    """The engine's image as the node pulled it."""
    gpu: str = Field("", max_length=253)
    """The device, as its node's labels name it; empty where they do not, and then not compared."""
    tensor: int = 1
    """Tensor-parallel size."""
    pipeline: int = 1
    """Pipeline-parallel size."""
    data: int = 1
    """Data-parallel size."""
    arguments: str = Field("", max_length=4096)
    """The engine arguments and environment variables that may change a step's cost."""


class Point(Model):
    """One measured step time."""

    model_config = ConfigDict(json_schema_extra=rules(*growth.POINT))

    tokens: int = Field(ge=0, le=32)
    """Draft depth k."""
    batch_size: int = Field(ge=1, le=growth.MAX_BATCH)
    """Running requests."""
    context_length: int = Field(ge=0, le=growth.MAX_CONTEXT)
    """Tokens of context per request."""
    seconds: float = Field(gt=0)
    """Median time of a decode step."""
    spread: float = Field(0.0, ge=0)
    """Interquartile range over the median."""
    steps: int = Field(0, ge=0)
    """How many clean steps it is the median of."""


class CostProfileSpec(Model):
    """A CostProfile's content: C_k(B, ctx) points under one fingerprint."""

    model_config = ConfigDict(json_schema_extra=rules(*growth.PROFILE))

    key: str = Field(max_length=64)
    """Hash of the fingerprint."""
    fingerprint: Fingerprint
    total: int = Field(0, ge=0)
    """How many points the measurement plans."""
    measured_on: str = Field("", max_length=512)
    """The pod, or with `specpilot up` the machine, that was measured."""
    points: Annotated[
        list[Point],
        Field(
            max_length=MAX_POINTS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["tokens", "batchSize", "contextLength"],
            },
        ),
    ] = []
    """What was measured; points may be added and never change."""


class CostProfileStatus(Model):
    """Progress, for people."""

    conditions: Conditions = []
    """Succeeded, once all points are measured."""
    progress: str | None = None
    """Points measured of points planned."""
    measured_at: str | None = None
    """When the last point was measured."""
