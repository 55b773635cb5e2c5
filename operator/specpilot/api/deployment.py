"""SpeculativeDeployment.spec: what a user writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specpilot.api.base import Duration, Free, Model, rule, rules
from specpilot.api.owned import cel_pattern

Name = Annotated[str, Field(min_length=1, max_length=253)]
DEFAULT_CANDIDATES = (0, 1, 3, 7)  # k+1 a power of two keeps CUDA graphs whole
Method = Literal["DSpark", "MTP", "Eagle", "Eagle3", "DFlash", "DraftModel", "NGram", "None"]
NEEDS_DRAFT_MODEL = ("Eagle", "Eagle3", "DraftModel")


class Cache(Model):
    """Where model weights are kept between pods; neither: an emptyDir."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.persistentVolumeClaim) && has(self.hostPath))",
                "spec.model.cache takes persistentVolumeClaim or hostPath, not both: remove one",
            )
        )
    )

    persistent_volume_claim: Name | None = None
    host_path: Annotated[str, Field(pattern="^/", max_length=4096)] | None = None


class SecretKey(Model):
    name: Name
    key: Name


class ModelSource(Model):
    """The target model."""

    name: Annotated[str, Field(min_length=1, max_length=512, description="A hub name or a path in the pod.")]
    revision: Name | None = None
    served_name: Name | None = None
    cache: Cache | None = None
    token_secret: SecretKey | None = Field(None, description="Hub token; passed as environment only.")


class Engine(Model):
    """The user's own vLLM image and its arguments."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    vllm_version: (
        Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?([.a-z0-9+-]*)?$", max_length=64)] | None
    ) = Field(None, description="Where the image's tag does not tell.")
    args: Annotated[
        list[Annotated[str, Field(max_length=2048)]],
        Field(
            max_length=128,
            json_schema_extra=rules(
                rule(
                    f"self.all(a, !a.matches('{cel_pattern()}'))",
                    "spec.engine.args sets an argument that the operator owns (in some spelling): remove it and"
                    " use spec.model, spec.parallelism or spec.speculation instead",
                )
            ),
        ),
    ] = []
    env: Annotated[list[Free], Field(max_length=128)] = []
    runtime_class_name: Name | None = None


class Parallelism(Model):
    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("self.nodes == 1", "spec.parallelism.nodes above 1 is not supported yet: set it to 1")
        )
    )

    tensor: Annotated[int, Field(ge=1, le=1024)] = 1
    pipeline: Annotated[int, Field(ge=1, le=1024)] = 1
    data: Annotated[int, Field(ge=1, le=1024)] = 1
    nodes: Annotated[int, Field(ge=1, le=1024)] = 1


class DraftModel(Model):
    name: Annotated[str, Field(min_length=1, max_length=512)]
    revision: Name | None = None


class Verification(Model):
    """How drafts are checked against the target."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.method == 'Synthetic' ? has(self.syntheticAcceptance) : !has(self.syntheticAcceptance)",
                "spec.speculation.verification.syntheticAcceptance goes with method Synthetic, one rate per token:"
                " set both or neither",
            ),
            rule(
                "self.adaptive != 'Always'",
                "spec.speculation.verification.adaptive: Always is not supported yet: use Auto or Never",
            ),
        )
    )

    method: Literal["Block", "Standard", "Synthetic"] = "Standard"
    draft_sampling: Literal["Probabilistic", "Greedy"] | None = None
    adaptive: Literal["Auto", "Always", "Never"] = "Auto"
    synthetic_acceptance: (
        Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, max_length=32)] | None
    ) = None


class Speculation(Model):
    """The drafter and how deep it may draft."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.candidates) || self.candidates.all(c, c <= self.maxTokens)",
                "spec.speculation.candidates has a depth above spec.speculation.maxTokens: lower it or raise maxTokens",
            ),
            rule(
                "self.method == 'None' || self.maxTokens >= 1",
                "spec.speculation.maxTokens must be at least 1: for no speculation use method None",
            ),
            rule(
                f"!(self.method in {list(NEEDS_DRAFT_MODEL)}) || has(self.draftModel)",
                "spec.speculation.draftModel is required by method Eagle, Eagle3 and DraftModel: set its name",
            ),
            rule(
                f"!has(self.draftModel) || self.method in {[*NEEDS_DRAFT_MODEL, 'DSpark', 'DFlash', 'MTP']}",
                "spec.speculation.draftModel is not used by this method: remove it",
            ),
            rule(
                "!has(self.verification.syntheticAcceptance) ||"
                " self.verification.syntheticAcceptance.size() == self.maxTokens",
                "spec.speculation.verification.syntheticAcceptance needs one rate for each of maxTokens",
            ),
        )
    )

    method: Method = "None"
    draft_model: DraftModel | None = None
    max_tokens: Annotated[int, Field(ge=0, le=32)] = 7
    candidates: (
        Annotated[
            list[Annotated[int, Field(ge=0, le=32)]],
            Field(
                min_length=1,
                max_length=16,
                json_schema_extra=rules(
                    rule(
                        "self.all(c, self.exists_one(d, d == c))",
                        "spec.speculation.candidates has a depth twice: remove one",
                    )
                ),
            ),
        ]
        | None
    ) = Field(None, description="Depths to choose from; default 0, 1, 3, 7 up to maxTokens.")
    verification: Verification = Verification()

    @property
    def depths(self) -> tuple[int, ...]:
        """Candidate depths, ascending, always with 0 and (unless the user chose otherwise) maxTokens in them."""
        if self.method == "None":
            return (0,)
        chosen = self.candidates or [
            *(c for c in DEFAULT_CANDIDATES if c <= self.max_tokens),
            self.max_tokens,
        ]
        return tuple(sorted({0, *chosen}))


class Objective(Model):
    goal: Literal["Goodput"] = "Goodput"
    max_inter_token_latency: Duration | None = None


class Tuning(Model):
    """How the depth is retuned."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.actuator != 'Restart'",
                "spec.tuning.actuator: Restart is not supported yet: use Auto or Live",
            )
        )
    )

    mode: Literal["Observe", "Recommend", "Apply"] = "Apply"
    actuator: Literal["Auto", "Live", "Restart"] = "Auto"
    objective: Objective = Objective()
    interval: Duration = "30s"
    minimum_gain: Annotated[float, Field(ge=0, le=10)] = 0.03
    dwell: Duration = "2m"
    exploration_price: Annotated[float, Field(ge=0, le=0.2)] = Field(
        0.005, description="The share of goodput that exploring may cost."
    )


class Grid(Model):
    """What the profile measures; an axis left out is chosen from the candidates and the engine's limits."""

    tokens: Annotated[list[Annotated[int, Field(ge=0, le=32)]], Field(min_length=1, max_length=8)] | None = (
        None
    )
    batch_sizes: (
        Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=16)] | None
    ) = None
    context_lengths: (
        Annotated[list[Annotated[int, Field(ge=1, le=4194304)]], Field(min_length=1, max_length=4)] | None
    ) = None


class ProfileRef(Model):
    name: Name


class Profiling(Model):
    policy: Literal["OnChange", "Never"] = "OnChange"
    where: Literal["Auto", "Job", "Pod"] = "Auto"
    profile_ref: ProfileRef | None = None
    grid: Grid = Grid()
    deadline: Duration = "30m"
    block_serving: bool = False


class Metrics(Model):
    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.source != 'Prometheus' || has(self.prometheus)",
                "spec.metrics.prometheus is required by source Prometheus: name an endpoint of the operator's"
                " configuration",
            )
        )
    )

    source: Literal["Auto", "Prometheus", "Scrape"] = "Auto"
    prometheus: Name | None = Field(
        None, description="An endpoint that the operator's own configuration lists."
    )
    labels: Annotated[dict[str, str], Field(max_length=32)] = {}


class SpeculativeDeploymentSpec(Model):
    """One vLLM service whose speculation the operator keeps at what pays."""

    model: ModelSource
    engine: Engine
    replicas: Annotated[int, Field(ge=0, le=4096)] = 1
    parallelism: Parallelism = Parallelism()
    pod_template: Free | None = Field(
        None, description="Merged over the operator's pod template by list-map keys; what it owns stays."
    )
    speculation: Speculation = Speculation()
    tuning: Tuning = Tuning()
    profiling: Profiling = Profiling()
    metrics: Metrics = Metrics()
