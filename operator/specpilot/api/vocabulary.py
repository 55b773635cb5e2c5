"""Names that people see and other parts rely on: labels, condition types and their reasons."""

from __future__ import annotations

from enum import StrEnum

MANAGER = "specpilot"  # field manager of server-side apply, and the managed-by label
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_VERSION = "app.kubernetes.io/version"

# Annotations of ours on children and pods.
ANNOTATION_HASH = "specpilot.io/desired-hash"  # of what we last applied: equal means no request
ANNOTATION_NUDGE = "specpilot.io/schedule"  # on pods: a change makes the kubelet sync the ConfigMap at once
ANNOTATION_REVISION = "specpilot.io/render-revision"  # which rendering code made this child
ANNOTATION_SPEC_HASH = "specpilot.io/spec-hash"  # of the user's spec it was rendered from
ANNOTATION_ARM = "specpilot.io/arm"  # the engine configuration it was rendered with, where not the spec's own
ANNOTATION_UPGRADE = "specpilot.io/upgrade-render"  # a value not used before opts in to a newer rendering

ENGINE_CONTAINER = "vllm"
PROFILER_CONTAINER = "specpilot-profiler"
INIT_CONTAINER = "specpilot-engine"
PORT_HTTP = 8000


class Condition(StrEnum):
    """Condition types of a SpeculativeDeployment; Succeeded is a CostProfile's."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SPECULATING = "Speculating"
    PROFILED = "Profiled"
    TUNED = "Tuned"
    METRICS_AVAILABLE = "MetricsAvailable"
    SUCCEEDED = "Succeeded"


class Reason(StrEnum):
    """Why a condition is as it is, and why a decision or an event was made."""

    # Ready, Progressing
    SERVING = "Serving"  # every wanted pod of this generation serves
    PODS_NOT_READY = "PodsNotReady"  # some wanted pods do not serve yet or any more
    ROLLING_OUT = "RollingOut"  # pods of an earlier generation are being replaced
    ROLLED_OUT = "RolledOut"  # all pods are of this generation
    SCALED_TO_ZERO = "ScaledToZero"
    WAITING_FOR_PROFILE = "WaitingForProfile"  # blockServing: profiling comes first
    DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    # Degraded
    AS_EXPECTED = "AsExpected"
    INVALID_SPEC = "InvalidSpec"  # what admission cannot see: version, cluster
    NOT_SUPPORTED = "NotSupported"  # valid, but not by this engine version or this operator yet
    INVALID_POD_TEMPLATE = "InvalidPodTemplate"  # the dry run refused the merged pod template
    PODS_REFUSED = "PodsRefused"  # the template is taken, its pods are not: a quota, pod security, a webhook
    APPLY_FAILED = "ApplyFailed"
    INTERNAL_ERROR = "InternalError"  # a bug of the operator; also of Tuned
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOPING = "CrashLooping"
    UNSCHEDULABLE = "Unschedulable"
    # Speculating
    DRAFTING = "Drafting"  # drafts are counted
    DEPTH_ZERO = "DepthZero"  # the schedule in force drafts nothing, on purpose
    NO_DRAFTS = "NoDrafts"  # depth above 0 and traffic, but nothing is drafted
    NO_TRAFFIC = "NoTraffic"
    LIVE_TUNING_OFF = "LiveTuningOff"  # the engine package runs as stock vLLM; message says why
    # Profiled
    MEASURED = "Measured"
    REUSED = "Reused"  # a profile with the same fingerprint
    PROFILING = "Profiling"
    PROFILING_DISABLED = "ProfilingDisabled"
    PROFILE_INCOMPLETE = "ProfileIncomplete"  # budget or deadline spent; tuning goes on with what there is
    PROFILE_FAILED = "ProfileFailed"
    PROFILE_MISMATCH = "ProfileMismatch"  # the named profile is of something else; message names the field
    PROFILE_NOT_FOUND = "ProfileNotFound"
    # Tuned, decisions
    HOLDING = "Holding"  # the schedule in force is the best known
    WAITING_FOR_EVIDENCE = "WaitingForEvidence"
    BELOW_MINIMUM_GAIN = "BelowMinimumGain"
    DWELLING = "Dwelling"
    LOAD_SHIFT = "LoadShift"
    TRAFFIC_SHIFT = "TrafficShift"  # survival changed
    COST_SHIFT = "CostShift"  # step times changed
    BETTER_SCHEDULE = "BetterSchedule"
    VERIFYING = "Verifying"  # the schedule in force alternates with the one before, to measure its gain
    GAIN_CONFIRMED = "GainConfirmed"  # the trial measured a gain: the change is kept
    CHANGE_UNDONE = "ChangeUndone"  # the trial measured a loss: the schedule before is back
    GAIN_INCONCLUSIVE = "GainInconclusive"  # the trial could not tell the two apart
    OBSERVING = "Observing"  # mode Observe: nothing is decided
    RECOMMENDED = "Recommended"  # mode Recommend: a change is shown, not made
    AWAITING_ACKNOWLEDGEMENT = "AwaitingAcknowledgement"
    INITIAL = "Initial"
    # Arms: configurations that a restart leads to
    ARM_CHANGED = "ArmChanged"  # pods are replaced by ones with another arm
    ARM_KEPT = "ArmKept"  # what was measured of it bears it out
    ARM_UNDONE = "ArmUndone"  # what was measured of it does not: pods go back
    ARM_FAILED = "ArmFailed"  # its pods did not start: pods go back
    ARM_RECOMMENDED = "ArmRecommended"  # another arm is better, and the spec does not let pods restart for it
    ARM_FIXED = "ArmFixed"  # the user has chosen it
    # MetricsAvailable
    PROMETHEUS = "Prometheus"
    SCRAPING = "Scraping"  # no Prometheus is configured
    FALLBACK_SCRAPING = "FallbackScraping"  # Prometheus does not answer, pods are scraped instead
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    UNKNOWN_ENDPOINT = "UnknownEndpoint"  # spec.metrics.prometheus is not in the operator's configuration
