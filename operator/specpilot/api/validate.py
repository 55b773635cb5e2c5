"""Whether an object can be served: what admission checks, and what needs the engine's version besides.

`problems` takes a whole object as a file holds it and says everything the API server would refuse;
`validate` takes a spec that already has the right shape, perhaps stored before there was a rule. Nothing here
needs a cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from packaging.version import Version
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specpilot.api import policies
from specpilot.api.base import API_VERSION, Policy
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.schema import Schema, structural, unknown_fields
from specpilot.api.versions import ADAPTIVE_SINCE, OLDEST, engine_version
from specpilot.api.vocabulary import Reason

T = TypeVar("T")
KIND = "SpeculativeDeployment"
_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_SHOWN = 80  # characters of a value that is wrong


class Severity(StrEnum):
    ERROR = "Error"  # is not served
    WARNING = "Warning"  # is served, but not quite as written


@dataclass(frozen=True, slots=True)
class Problem:
    """`field` is the path a person sees; `message` one sentence that names it and the fix."""

    field: str
    message: str
    reason: Reason = Reason.INVALID_SPEC
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Versioned:
    """What the versioned policies look at."""

    spec: SpeculativeDeploymentSpec
    version: Version | None


def _asks_for_block(v: Versioned) -> bool:
    return v.spec.speculation.method != "None" and v.spec.speculation.verification.method == "Block"


# The API server sees to it by itself.
NAMESPACE: tuple[Policy[str], ...] = (
    Policy(
        "metadata.namespace",
        "metadata.namespace must be at most 63 characters of a-z, 0-9 and - and neither begin nor end with -:"
        " correct it",
        "",
        lambda name: len(name) > 63 or not re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name),
    ),
)
# What the API server cannot see; `cel` is empty, the outcome a condition or a warning.
VERSIONED: tuple[tuple[Policy[Versioned], Severity], ...] = (
    (
        Policy(
            "spec.engine.vllmVersion",
            "spec.engine.image has a tag that does not tell vLLM's version: set spec.engine.vllmVersion",
            "",
            lambda v: v.version is None,
        ),
        Severity.ERROR,
    ),
    (
        Policy(
            "spec.engine.image",
            f"spec.engine.image holds a vLLM older than {OLDEST}, which is not supported: use a newer image",
            "",
            lambda v: v.version is not None and v.version.release < OLDEST.release,
            reason=Reason.NOT_SUPPORTED,
        ),
        Severity.ERROR,
    ),
    (
        Policy(
            "spec.speculation.verification.adaptive",
            "spec.speculation.verification.adaptive: Always needs vLLM"
            f" {ADAPTIVE_SINCE} or newer: use a newer image or set adaptive to Auto",
            "",
            lambda v: (
                v.spec.speculation.verification.adaptive == "Always"
                and v.version is not None
                and v.version.release < ADAPTIVE_SINCE.release
            ),
            reason=Reason.NOT_SUPPORTED,
        ),
        Severity.ERROR,
    ),
    (
        Policy(
            "spec.speculation.verification.method",
            "spec.speculation.verification.method Block works only on GPUs with vLLM's V2 model runner and is"
            " ignored elsewhere: use Standard unless the engine's log says that it is in use",
            "",
            _asks_for_block,
            reason=Reason.NOT_SUPPORTED,
        ),
        Severity.WARNING,
    ),
)


def validate(spec: SpeculativeDeploymentSpec) -> list[Problem]:
    """Everything wrong with a spec of the right shape, errors before warnings."""
    spoken = (_problem(p, Severity.WARNING if p.younger else Severity.ERROR) for p in _broken(spec))
    found = [*spoken, *_versioned(spec)]
    return sorted(found, key=lambda problem: problem.severity != Severity.ERROR)


def errors(spec: SpeculativeDeploymentSpec) -> list[Problem]:
    """The problems that keep a spec from being served."""
    return [p for p in validate(spec) if p.severity == Severity.ERROR]


def problems(body: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a whole object as read from a file: shape, unknown fields, name and rules."""
    if body.get("apiVersion") != API_VERSION or body.get("kind") != KIND:
        return [Problem("kind", f"apiVersion and kind must be {API_VERSION} and {KIND}: correct them")]
    unknown = sorted(str(key) for key in body.keys() - _TOP)
    unknown += unknown_fields(_schema(), body.get("spec"), "spec")
    if unknown:
        return [Problem(f, f"{f} is not a field of this API: remove it or correct its name") for f in unknown]
    try:
        # JSON in strict mode takes what the API server takes: no text for a number, no number for text.
        parsed = SpeculativeDeployment.model_validate_json(json.dumps(body, allow_nan=False), strict=True)
    except ValidationError as e:
        return [_shape(error) for error in e.errors()]
    except RecursionError:
        return [Problem("", "the object is nested too deep: no field of this API needs that, correct it")]
    except (TypeError, ValueError) as e:
        return [
            Problem("", f"the object cannot be written as JSON ({e}): quote dates and other special values")
        ]
    refused = [
        *_check(policies.NAME, parsed.metadata.name),
        *_check(NAMESPACE, parsed.metadata.namespace),
        *_broken(parsed.spec),
    ]
    return [*(_problem(policy) for policy in refused), *_versioned(parsed.spec)]


def _broken(spec: SpeculativeDeploymentSpec) -> Iterator[Policy[Any]]:
    """The rules that the CRD carries and `spec` breaks, in the order of its fields."""
    if spec.model.cache is not None:
        yield from _check(policies.CACHE, spec.model.cache)
    yield from _check(policies.ARGS, spec.engine.args)
    yield from _check(policies.ENV, spec.engine.env)
    yield from _check(policies.PARALLELISM, spec.parallelism)
    if spec.pod_template is not None:
        yield from _check(policies.POD_TEMPLATE, spec.pod_template)
    yield from _check(policies.VERIFICATION, spec.speculation.verification)
    yield from _check(policies.CANDIDATES, spec.speculation.candidates or [])
    yield from _check(policies.SPECULATION, spec.speculation)
    yield from _check(policies.OBJECTIVE, spec.tuning.objective)
    yield from _check(policies.INTERVAL, spec.tuning.interval)
    yield from _check(policies.PROFILING, spec.profiling)
    yield from _check(policies.METRICS, spec.metrics)
    yield from _check(policies.SPEC, spec)


def _versioned(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    seen = Versioned(spec, engine_version(spec.engine.image, spec.engine.vllm_version))
    for policy, severity in VERSIONED:
        if policy.violated(seen):
            yield _problem(policy, severity)


def _check(table: Iterable[Policy[T]], value: T) -> Iterator[Policy[T]]:
    return (policy for policy in table if policy.violated(value))


def _problem(policy: Policy[Any], severity: Severity = Severity.ERROR) -> Problem:
    return Problem(policy.field, policy.message, policy.reason, severity)


@cache
def _schema() -> Schema:
    return structural(SpeculativeDeploymentSpec)


def _shape(error: ErrorDetails) -> Problem:
    """A pydantic error in the words of the API."""
    field = ""
    for part in error["loc"]:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
    return Problem(field, f"{field} {_complaint(error)}")


def _complaint(error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return "is required: set it"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case "string_pattern_mismatch":
            pattern = str(error.get("ctx", {}).get("pattern"))
            like = "be a duration such as 30s, 2m or 40ms" if "h)?" in pattern else f"match {pattern}"
            return f"must {like}, not {_shown(error)}: correct it"
        case "too_short":
            return "needs at least one item: add one or remove the field"
        case "too_long":
            return f"has more than {error.get('ctx', {}).get('max_length')} items: remove some"
    text = error["msg"].removeprefix("Input ")
    return f"{text[0].lower()}{text[1:]}, not {_shown(error)}: correct it"


def _shown(error: ErrorDetails) -> str:
    text = repr(error["input"])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
