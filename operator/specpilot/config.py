"""The operator's own configuration: a YAML file, and what the pod's environment says about it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from specpilot.api.base import seconds
from specpilot.api.documents import documents
from specpilot.metrics.http import HEADER_NAME, HEADER_VALUE

ENV_CONFIG = "SPECPILOT_CONFIG"
ENV_NAMESPACE = "POD_NAMESPACE"
ENV_POD = "POD_NAME"
DEFAULT_NAMESPACE = "specpilot-system"
_OWN_HEADERS = frozenset({"authorization", "host", "content-type", "content-length", "transfer-encoding"})


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds one sentence each that says what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Section(BaseModel):
    # Unlike the API's models: a typing error in an operator's file must not be ignored in silence.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


def _duration(value: Any) -> Any:
    return seconds(value) if isinstance(value, str) else value


class PrometheusEndpoint(_Section):
    """A Prometheus that SpeculativeDeployments may name; its token goes to its URL and nowhere else."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")]
    token_file: Path | None = None
    headers: dict[str, str] = Field({}, description="Sent with each query; a tenant's name.", repr=False)
    header_files: dict[str, Path] = Field({}, description="The same, values read from files each time.")
    ca_file: Path | None = None
    insecure_skip_verify: bool = False
    timeout: Annotated[float, Field(gt=0)] = 10
    window: Annotated[int, Field(ge=2)] = Field(
        120, description="How old a sample may be: more than two scrape intervals."
    )

    _read = field_validator("timeout", "window", mode="before")(_duration)

    @field_validator("headers", "header_files")
    @classmethod
    def _headers_can_be_set(cls, headers: dict[str, Any]) -> dict[str, Any]:
        for name, value in headers.items():
            if not HEADER_NAME.fullmatch(name):
                raise ValueError(f"holds {name!r}, which is no name of a header: correct it")
            if name.lower() in _OWN_HEADERS:
                instead = "use tokenFile" if name.lower() == "authorization" else "remove it"
                raise ValueError(f"holds {name}, which the operator sets itself: {instead}")
            if isinstance(value, str) and not HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"has a value for {name} that is not one line of printable ASCII: correct it"
                )
        return headers

    @model_validator(mode="after")
    def _headers_are_said_once(self) -> PrometheusEndpoint:
        names = [name.lower() for name in (*self.headers, *self.header_files)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"sets the header {twice[0]} twice: remove one")
        return self


class Lease(_Section):
    """Leader election, in seconds or as a duration such as 15s."""

    enabled: bool = True
    name: Annotated[str, Field(min_length=1, max_length=63)] = "specpilot"
    duration: Annotated[float, Field(ge=2)] = 15
    renew_deadline: Annotated[float, Field(ge=1)] = 10
    retry_period: Annotated[float, Field(ge=0.2)] = 2

    _read = field_validator("duration", "renew_deadline", "retry_period", mode="before")(_duration)


class Ports(_Section):
    """0 takes a free port."""

    metrics: Annotated[int, Field(ge=0, le=65535)] = 8080
    health: Annotated[int, Field(ge=0, le=65535)] = 8081


class Acknowledgement(_Section):
    """How a new schedule is followed until the engines say that they use it; seconds or durations."""

    timeout: Annotated[float, Field(gt=0)] = 20
    poll: Annotated[float, Field(gt=0)] = 0.1
    nudge: Annotated[float, Field(gt=0)] = 1.0

    _read = field_validator("timeout", "poll", "nudge", mode="before")(_duration)


class Config(_Section):
    """What an installation of the operator decides; see docs/configuration.md."""

    watch_namespaces: list[str] = Field([], description="Empty: the whole cluster.")
    engine_image: Annotated[str, Field(min_length=1)] = "ghcr.io/specpilot/specpilot:latest"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    network_policy: bool = False
    scrape_namespaces: list[str] = Field(
        [], description="With networkPolicy: whence the engine package's port may be scraped too."
    )
    prometheus: list[PrometheusEndpoint] = []
    tick: Annotated[float, Field(gt=0)] = Field(5, description="How often due deployments are looked for.")
    missed_ticks: Annotated[int, Field(ge=1)] = Field(
        2, description="Measurements in a row that fail before MetricsAvailable turns False."
    )
    resync: Annotated[float, Field(gt=0)] = Field(
        300, description="How often the caches are compared with full lists."
    )
    persist: Annotated[float, Field(gt=0)] = Field(
        300,
        description="How often evidence is kept that changed no schedule; what changed one is kept at once.",
    )
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    acknowledgement: Acknowledgement = Acknowledgement()
    lease: Lease = Lease()
    ports: Ports = Ports()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    namespace: str = Field(DEFAULT_NAMESPACE, description="The operator's own.")
    identity: str = Field("", description="Who holds the Lease: the pod's name, unless given.")

    _read = field_validator("tick", "resync", "persist", mode="before")(_duration)

    @field_validator("prometheus")
    @classmethod
    def _names_differ(cls, endpoints: list[PrometheusEndpoint]) -> list[PrometheusEndpoint]:
        names = [e.name for e in endpoints]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"has two endpoints of one name ({', '.join(twice)}): rename one")
        return endpoints

    @field_validator("lease")
    @classmethod
    def _lease_can_be_kept(cls, lease: Lease) -> Lease:
        if not lease.retry_period < lease.renew_deadline < lease.duration:
            raise ValueError("needs retryPeriod < renewDeadline < duration: change one of them")
        return lease


def load(environ: Mapping[str, str] | None = None, path: Path | None = None) -> Config:
    """The configuration from `path` or $SPECPILOT_CONFIG; all defaults when neither is given.

    Raises ConfigError with one sentence per problem.
    """
    environ = os.environ if environ is None else environ
    source = path or (Path(environ[ENV_CONFIG]) if environ.get(ENV_CONFIG) else None)
    doc = _document(source) if source else {}
    doc.setdefault("namespace", environ.get(ENV_NAMESPACE) or DEFAULT_NAMESPACE)
    # Nobody holds a Lease that says "".
    doc["identity"] = doc.get("identity") or environ.get(ENV_POD) or f"{socket.gethostname()}-{os.getpid()}"
    try:
        config = Config.model_validate(doc)
    except ValidationError as e:
        raise ConfigError([_sentence(source, error) for error in e.errors()]) from None
    missing = [
        f"{source}: prometheus {e.name} names {kind} {file}, which cannot be read: mount it or correct the path."
        for e in config.prometheus
        for kind, file in (
            ("tokenFile", e.token_file),
            ("caFile", e.ca_file),
            *((f"headerFiles.{name}", file) for name, file in e.header_files.items()),
        )
        if file is not None and not os.access(file, os.R_OK)
    ]
    if missing:
        raise ConfigError(missing)
    return config


def _document(source: Path) -> dict[str, Any]:
    try:
        found = documents(source.read_text())
    except OSError as e:
        raise ConfigError(
            [f"The configuration file {source} cannot be read ({e.strerror}): check ${ENV_CONFIG}."]
        ) from None
    except UnicodeDecodeError:
        raise ConfigError([f"The configuration file {source} is not text: check ${ENV_CONFIG}."]) from None
    except ValueError as e:
        raise ConfigError([f"The configuration file {source} is not YAML ({e}): correct it."]) from None
    if not found:
        return {}
    doc = found[0]
    if len(found) > 1 or not isinstance(doc, dict) or not all(isinstance(key, str) for key in doc):
        raise ConfigError(
            [
                f"The configuration file {source} must hold one mapping of fields such as engineImage: correct it."
            ]
        )
    return doc


def _sentence(source: Path | None, error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{source}: {where} is not a field of the configuration: remove it or correct its name."
    message = error["msg"].removeprefix("Value error, ")
    return f"{source or 'environment'}: {where}: {message[0].lower()}{message[1:].rstrip('.')}."
