"""SpeculativeDeployment.spec: what a user writes. Field docstrings become the CRD's descriptions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specpilot.api import growth, policies
from specpilot.api.base import Duration, Model, rules, seconds
from specpilot.api.policies import NEEDS_DRAFT_MODEL as NEEDS_DRAFT_MODEL
from specpilot.api.shapes import EnvVar, PodTemplate

Name = Annotated[str, Field(min_length=1, max_length=253)]
DEFAULT_CANDIDATES = (0, 1, 3, 7)  # k+1 a power of two keeps CUDA graphs whole
Method = Literal["DSpark", "MTP", "Eagle", "Eagle3", "DFlash", "DraftModel", "NGram", "None"]
Depth = Annotated[int, Field(ge=0, le=32)]


class Cache(Model):
    """Where model weights are kept between pods: mounted at /models, which is HF_HOME too. Pods write it as user and
    group 1000. Without it: an emptyDir, loaded again by each pod."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.CACHE))

    persistent_volume_claim: Name | None = None
    """A claim in the same namespace; ReadWriteMany when pods run on several nodes."""
    host_path: Annotated[str, Field(pattern="^/", max_length=4096)] | None = None
    """A folder that exists on each node."""


class SecretKey(Model):
    """One key of a Secret in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: Name
    """The Secret."""
    key: Name
    """The key in it."""


class ModelSource(Model):
    """The target model."""

    name: Annotated[str, Field(min_length=1, max_length=512)]
    """A name on the hub, or a path in the pod."""
    revision: Name | None = None
    """Branch, tag or commit on the hub."""
    served_name: Name | None = None
    """What clients write into `model`; the name when absent."""
    cache: Cache | None = None
    token_secret: SecretKey | None = None
    """The hub's token; handed to the engine as environment only."""


class Engine(Model):
    """The user's own vLLM image and its arguments."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """An image that holds vLLM; the operator adds its engine package at start."""
    vllm_version: (
        Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?([.a-z0-9+-]*)?$", max_length=64)] | None
    ) = None
    """vLLM's version in the image, needed where the image's tag does not tell."""
    args: Annotated[
        list[Annotated[str, Field(max_length=2048)]],
        Field(max_length=128, json_schema_extra=rules(*policies.ARGS)),
    ] = []
    """More vLLM arguments, one item per word; those that other fields stand for are refused."""
    env: Annotated[
        list[EnvVar],
        Field(
            max_length=128,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                **rules(*policies.ENV),
            },
        ),
    ] = []
    """More environment, as in a container. SPECPILOT_SIM is what is true of a simulated engine."""
    runtime_class_name: Name | None = None
    """The RuntimeClass of the pods."""


class Parallelism(Model):
    """How one replica is split over devices."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.PARALLELISM))

    tensor: Annotated[int, Field(ge=1, le=1024)] = 1
    """Tensor-parallel size."""
    pipeline: Annotated[int, Field(ge=1, le=1024)] = 1
    """Pipeline-parallel size."""
    data: Annotated[int, Field(ge=1, le=1024)] = 1
    """Data-parallel size; above 1 the engine always drafts maxTokens deep, and nothing is tuned."""
    nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Nodes per replica. Above 1 is not supported yet."""


class DraftModel(Model):
    """The model that drafts."""

    name: Annotated[str, Field(min_length=1, max_length=512)]
    """A name on the hub, or a path in the pod."""
    revision: Name | None = None
    """Branch, tag or commit on the hub."""


class Verification(Model):
    """How drafts are checked against the target."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.VERIFICATION))

    method: Literal["Block", "Standard", "Synthetic"] = "Standard"
    """Token by token (Standard), the block at once (Block), or made up for benchmarks (Synthetic)."""
    draft_sampling: Literal["Probabilistic", "Greedy"] | None = None
    """How the drafter picks its tokens; vLLM's default when absent."""
    adaptive: Literal["Auto", "Always", "Never"] = "Auto"
    """Whether drafts may be verified in part, as many rows as pay. Auto: by engines without CUDA graphs, while
    tuning applies; with DSpark on engines with graphs vLLM's own adaptive verification may be restarted to.
    Always: vLLM's own, under caps on depth (DSpark, CUDA graphs, vLLM 0.32). Never: every draft whole."""
    synthetic_acceptance: (
        Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, max_length=32)] | None
    ) = None
    """For Synthetic: the chance, by position, that all tokens up to it are accepted."""


class Speculation(Model):
    """The drafter and how deep it may draft."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.SPECULATION))

    method: Method = "None"
    """What drafts; None serves without speculation."""
    draft_model: DraftModel | None = None
    max_tokens: Depth = 7
    """The deepest draft the engine is started for."""
    candidates: (
        Annotated[
            list[Depth], Field(min_length=1, max_length=16, json_schema_extra=rules(*policies.CANDIDATES))
        ]
        | None
    ) = None
    """Depths to choose from; 0, 1, 3, 7 up to maxTokens, and maxTokens, when absent. 0 is always one."""
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
    """What the depth is chosen for."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.OBJECTIVE))

    goal: Literal["Goodput"] = "Goodput"
    """Goodput: accepted tokens per second."""
    max_inter_token_latency: Duration | None = None
    """A ceiling on the mean time between two tokens of one request."""


class Tuning(Model):
    """How the depth is retuned."""

    mode: Literal["Observe", "Recommend", "Apply"] = "Apply"
    """Observe decides nothing, Recommend only shows its decision, Apply makes the change. Only Apply explores."""
    actuator: Literal["Auto", "Live", "Restart"] = "Auto"
    """How a change reaches the engine. Live: without a restart. Restart: besides, pods are replaced, one at a
    time, where another configuration of the engine (one depth without a schedule, no speculation, vLLM's
    adaptive verification) is worth it. Auto: as Live, and such a configuration is recommended in status."""
    objective: Objective = Objective()
    interval: Annotated[Duration, Field(json_schema_extra=rules(*policies.INTERVAL))] = "30s"
    """How often evidence is read and a decision is made; 1s to 5m, on a cluster no oftener than the operator's tick
    (5 s)."""
    minimum_gain: Annotated[float, Field(ge=0, le=10)] = 0.03
    """The predicted gain in goodput, as a share, that a change needs."""
    dwell: Duration = "2m"
    """How long a schedule is kept at least; waived after a shift of acceptance or step times, and where the depth
    in force is wrong beyond doubt."""
    exploration_price: Annotated[float, Field(ge=0, le=0.2)] = 0.005
    """The share of goodput that exploring other depths may cost. At 0 drafts are verified whole, too, and no caps
    are tried under adaptive verification."""

    @property
    def period(self) -> float:
        """The interval in seconds: one that was stored before there was an upper bound is not taken at its word."""
        return min(seconds(self.interval), policies.LONGEST_INTERVAL)


class Grid(Model):
    """What the profile measures; an axis left out is chosen from the candidates and the engine's limits."""

    tokens: Annotated[list[Depth], Field(min_length=1, max_length=8)] | None = None
    """Depths."""
    batch_sizes: (
        Annotated[list[Annotated[int, Field(ge=1, le=growth.MAX_BATCH)]], Field(min_length=1, max_length=16)]
        | None
    ) = None
    """Running requests."""
    context_lengths: (
        Annotated[list[Annotated[int, Field(ge=1, le=growth.MAX_CONTEXT)]], Field(min_length=1, max_length=4)]
        | None
    ) = None
    """Tokens of context per request."""


class ProfileRef(Model):
    """A CostProfile in the same namespace."""

    name: Name
    """Its name."""


class Profiling(Model):
    """How a step's cost is measured."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.PROFILING))

    policy: Literal["OnChange", "Never"] = "OnChange"
    """OnChange measures whatever has no CostProfile yet; Never learns from traffic alone."""
    where: Literal["Auto", "Job", "Pod"] = "Auto"
    """Job: on devices of its own. Pod: in each pod before it turns Ready. Auto: a Job where the pods ask for devices
    and enough are free (or blockServing waits for them), else Pod."""
    profile_ref: ProfileRef | None = None
    """Use this CostProfile instead of measuring; refused when it is of another engine."""
    grid: Grid = Grid()
    deadline: Duration = "30m"
    """When measuring stops with what it has; a Job's counts from its begin, loading the model included. Pods that
    serve without waiting (blockServing false) measure for 30s at most."""
    block_serving: bool = False
    """Whether pods wait for the profile, where none serve yet. Otherwise a Job measures beside pods that serve at a
    safe depth, and a pod that measures itself joins after half a minute at most."""


class Metrics(Model):
    """Where evidence is read from."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.METRICS))

    source: Literal["Auto", "Prometheus", "Scrape"] = "Auto"
    """Prometheus, the pods themselves (Scrape), or Prometheus with the pods as fallback (Auto; without any endpoint
    the pods alone)."""
    prometheus: Name | None = None
    """An endpoint that the operator's own configuration lists; its first, where absent."""
    labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    """Labels that pick this deployment's series in Prometheus, beside namespace and pod."""


class SpeculativeDeploymentSpec(Model):
    """One vLLM service whose speculation the operator keeps at what pays. A change of model, engine, parallelism,
    podTemplate or speculation may replace pods; one of replicas, tuning, profiling or metrics replaces none by
    itself."""

    model_config = ConfigDict(json_schema_extra=rules(*policies.SPEC))

    model: ModelSource
    engine: Engine
    replicas: Annotated[int, Field(ge=0, le=4096)] = 1
    """Pods that serve; an autoscaler may own it through the scale subresource."""
    parallelism: Parallelism = Parallelism()
    pod_template: PodTemplate | None = None
    """Merged over the operator's pod template by list-map keys. The engine's container is vllm: devices are asked
    for there, the operator adds none. What is the operator's own is left out, and Degraded names it: in containers the
    ports 8000, 9101 and 9102 and the port names http, specpilot and profiler; mounts in vllm at /models, /tmp,
    /dev/shm, /home/specpilot, /run/specpilot, /etc/specpilot, /etc/specpilot-profiled and /specpilot/engine; the
    operator's volumes (specpilot-…), labels and annotations; and all but resources of the containers
    specpilot-profiler, specpilot-engine and specpilot-import."""
    speculation: Speculation = Speculation()
    tuning: Tuning = Tuning()
    profiling: Profiling = Profiling()
    metrics: Metrics = Metrics()
