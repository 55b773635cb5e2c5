"""CostProfile: what a step costs on one kind of hardware, measured once and used by many deployments."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from specpilot.api import policies
from specpilot.api.base import Model, rules
from specpilot.api.status import Conditions

MAX_POINTS = 512  # 8 depths x 16 batch sizes x 4 contexts; the growth rule's cost is quadratic in it


class Fingerprint(Model):
    """What must be equal for a profile to hold. Digest and GPU come from running pods."""

    model: str = Field(max_length=253)
    model_revision: str = Field("", max_length=253)
    draft_model: str = Field("", max_length=253)
    draft_revision: str = Field("", max_length=253)
    method: str = Field(max_length=32)
    image_digest: str = Field("", max_length=512)
    gpu: str = Field("", max_length=253)
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    arguments: str = Field("", max_length=4096, description="The engine arguments that change a step's cost.")


class Point(Model):
    """One measured step time."""

    tokens: int = Field(ge=0, le=32)
    batch_size: int = Field(ge=1)
    context_length: int = Field(ge=0)
    seconds: float = Field(gt=0)
    spread: float = Field(0.0, ge=0, description="Interquartile range over the median.")
    steps: int = Field(0, ge=0, description="How many clean steps it is the median of.")


class CostProfileSpec(Model):
    """A CostProfile's content: C_k(B, ctx) points under one fingerprint."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.ONLY_GROWS))

    key: str = Field(max_length=64, description="Hash of the fingerprint.")
    fingerprint: Fingerprint
    total: int = Field(0, ge=0, description="How many points the measurement plans.")
    measured_on: str = Field("", max_length=512, description="The pod that was measured, and how.")
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


class CostProfileStatus(Model):
    """Progress, for people."""

    conditions: Conditions = []
    progress: str | None = Field(None, description="Points measured of points planned.")
    measured_at: str | None = None
