"""Whole objects as they come from the API server: metadata that matters here, spec, status."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from specpilot.api.base import API_VERSION, Model
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.profile import CostProfileSpec, CostProfileStatus
from specpilot.api.status import SpeculativeDeploymentStatus


class Metadata(Model):
    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class SpeculativeDeployment(Model):
    api_version: str = API_VERSION
    kind: str = "SpeculativeDeployment"
    metadata: Metadata
    spec: SpeculativeDeploymentSpec
    status: SpeculativeDeploymentStatus = Field(default_factory=SpeculativeDeploymentStatus)

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """Raises pydantic.ValidationError, whose locations are the user's field names."""
        return cls.model_validate(body)

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name


class CostProfile(Model):
    api_version: str = API_VERSION
    kind: str = "CostProfile"
    metadata: Metadata
    spec: CostProfileSpec
    status: CostProfileStatus = Field(default_factory=CostProfileStatus)
