"""Where the subject of an explanation comes from: files on this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpilot.api.documents import documents
from specpilot.api.objects import CostProfile, SpeculativeDeployment
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import Forbidden, Unavailable
from specpilot.cluster.kinds import CONFIG_MAP, COST_PROFILE, SPECULATIVE_DEPLOYMENT
from specpilot.control import read
from specpilot.control.keep import memory_in
from specpilot.control.profile_choice import points_of
from specpilot.control.step import settings
from specpilot.decide.memory import Memory
from specpilot.explain import status
from specpilot.explain.subject import Subject
from specpilot.local.errors import LocalError
from specpilot.local.state import State, default_folder
from specpilot.local.up import read_file
from specpilot.plan import names
from specpilot.plan.fingerprint import request_key
from specpilot_engine.protocol import ProfilePoint, Schedule

_NO_TRAFFIC = "no traffic has been seen: survival is what one expects before any"
_NO_PROFILE = "there is no profile: step times have the shape of no engine in particular"
_SHAPE = "there is no profile: step times are estimated from the model's shape"


def from_file(file: Path, state: Path | None = None) -> Subject:
    """A CostProfile, or a SpeculativeDeployment with what `specpilot up` has learnt of it.

    Raises LocalError.
    """
    try:
        docs = [d for d in documents(file.read_text()) if isinstance(d, dict)]
    except OSError as e:
        raise LocalError(f"{file} cannot be read ({e.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise LocalError(f"{file} is not text: name a YAML or JSON file") from None
    except ValueError as e:
        raise LocalError(f"{file} is not YAML or JSON ({e}): correct it there") from None
    profile = next((d for d in docs if d.get("kind") == "CostProfile"), None)
    if profile is not None:
        return of_profile(_profile(profile, str(file)))
    sd = read_file(file)
    folder = (state or default_folder(sd)).absolute()
    if not folder.is_dir():
        raise LocalError(
            f"{sd.metadata.name} has not run with its state in {folder}: start it with specpilot up {file} (add --engine sim"
            " where there is no vLLM), or name another --state"
        )
    kept = State(folder, sd, request_key(sd.spec))
    return of_deployment(sd, kept.points()[0], kept.memory(), kept.schedule())


async def from_cluster(namespace: str, name: str) -> Subject:
    """A SpeculativeDeployment or a CostProfile of the kubeconfig's cluster. Raises LocalError, ClusterError."""
    cluster = await Cluster.connect()
    try:
        body = await cluster.get(SPECULATIVE_DEPLOYMENT, namespace, name)
        if body is None:
            profile = await cluster.get(COST_PROFILE, namespace, name)
            if profile is None and not await cluster.exists(SPECULATIVE_DEPLOYMENT):
                raise LocalError(
                    "the cluster of your kubeconfig has no specpilot: install the chart (charts/specpilot), or set"
                    " KUBECONFIG to another"
                )
            if profile is None:
                raise LocalError(
                    f"there is no SpeculativeDeployment and no CostProfile {namespace}/{name}: see kubectl get"
                    " specdep,costprofiles -A"
                )
            return of_profile(_profile(profile, f"CostProfile {namespace}/{name}"))
        # Its status may be of another version of the operator, whose words need not be ours.
        sd = SpeculativeDeployment.parse({k: v for k, v in body.items() if k != "status"})
        sd = sd.model_copy(update={"status": read.status(body)})
        used = sd.status.profile.name if sd.status.profile else ""
        found = await cluster.get(COST_PROFILE, namespace, used) if used else None
        points = points_of(_profile(found, f"CostProfile {namespace}/{used}")) if found else ()
        tuner = await cluster.get(CONFIG_MAP, namespace, names.tuner_config_map(name))
        schedule = await cluster.get(CONFIG_MAP, namespace, names.schedule_config_map(name))
        return of_deployment(sd, points, memory_in(tuner), read.schedule_in(schedule))
    except ValidationError as e:
        raise LocalError(
            f"{namespace}/{name} cannot be understood ({_first(e)}): update specpilot, or correct it"
        ) from e
    except Forbidden as e:
        raise LocalError(
            f"{e.message}: what is explained stands in SpeculativeDeployments, CostProfiles and ConfigMaps, so"
            f" ask for a role that may get them in namespace {namespace}"
        ) from e
    except Unavailable as e:
        raise LocalError(f"{e}: check that it runs and that KUBECONFIG names it") from None
    finally:
        await cluster.aclose()


def of_profile(profile: CostProfile) -> Subject:
    """A profile alone: its own depths and sizes, and survival as before any traffic."""
    points = points_of(profile)
    if not points:
        raise LocalError(f"{profile.metadata.name} has no measured points yet: wait for its profiling")
    depths = tuple(sorted({0, *(p.tokens for p in points)}))
    return Subject(
        profile.metadata.name,
        depths,
        max(p.batch for p in points),
        points,
        notes=(_NO_TRAFFIC + " (a profile alone)",),
    )


def of_deployment(
    sd: SpeculativeDeployment, points: tuple[ProfilePoint, ...], memory: Memory, schedule: Schedule | None
) -> Subject:
    """A deployment with whatever is known of it. Raises LocalError for one that never speculates."""
    name = f"{sd.metadata.namespace}/{sd.metadata.name}"
    if sd.spec.speculation.method == "None":
        raise LocalError(f"{name} has speculation.method None: there is no depth to explain")
    to = settings(sd.spec, schedule or Schedule(0, ()))
    notes = [] if memory.load.seconds else [_NO_TRAFFIC]
    notes += [] if points else [_SHAPE if memory.shape else _NO_PROFILE]
    notes += [memory.note] if memory.note else []
    return Subject(
        name,
        to.depths,
        to.max_batch,
        points,
        memory,
        schedule,
        to.allowed,
        (*status.troubles(sd), *notes),
        status.facts(sd),
        status.why_not(sd.spec),
        to.max_inter_token_latency,
        to.minimum_gain,
        status.verification(sd.spec),
    )


def _profile(body: Mapping[str, Any], where: str) -> CostProfile:
    try:
        return CostProfile.model_validate(body)
    except ValidationError as e:
        raise LocalError(f"{where} is no CostProfile: {_first(e)}; correct it") from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} {first['msg'].lower()}"
