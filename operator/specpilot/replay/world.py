"""A world: what is true, so that policies can be compared on it. The format is docs/worlds.md."""

from __future__ import annotations

import difflib
import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from specpilot_engine.protocol import MAX_TOKENS

CONTEXT = 8192  # of a phase that names none
OUTPUT_TOKENS = 256.0  # of a request in a closed loop, where its length only tells how long its kind stays
MOST_REQUESTS = 65536  # bounds what a mistyped number can ask for

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Batch = Annotated[int, Field(ge=1, le=MOST_REQUESTS)]


class WorldError(ValueError):
    """A world that cannot be played: one sentence that names the field and the fix."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Traffic(_Part):
    """One kind of request: `survival` of slot j (0-based) is the probability that its draft is emitted."""

    survival: tuple[Probability, ...]

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if any(b > a for a, b in pairwise(self.survival)):
            raise ValueError(
                "has a survival that rises: it is the probability that a slot and all before it are"
                " emitted, so give values that never rise"
            )
        return self


class Phase(_Part):
    """`seconds` of one kind of load: `requests` running, or `rate` arriving each second."""

    seconds: Positive
    requests: Annotated[int, Field(ge=0, le=MOST_REQUESTS)] | None = None
    rate: NotNegative | None = None
    output_tokens: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    traffic: dict[str, NotNegative]
    traffic_per_request: bool = False
    context: Positive = CONTEXT

    @model_validator(mode="after")
    def _one_load(self) -> Self:
        if (self.requests is None) == (self.rate is None):
            both = "both" if self.rate is not None else "neither"
            raise ValueError(f"has {both} requests and rate: give exactly one of the two")
        if self.rate is not None and self.output_tokens is None:
            raise ValueError("has a rate without output_tokens: add the mean length of an answer")
        total = sum(self.traffic.values())
        if abs(total - 1) > 0.015:
            raise ValueError(f"has traffic that adds up to {total:g}: make the shares add up to 1")
        return self

    @property
    def mix(self) -> dict[str, float]:
        """Shares of the traffic kinds; they add up to 1."""
        total = sum(self.traffic.values())
        return {kind: share / total for kind, share in self.traffic.items()}


class Profiled(_Part):
    """What a policy is told before the start: step times at `context`, each off by a relative `error`."""

    context: Positive = CONTEXT
    error: NotNegative = 0.0


class World(_Part):
    """See docs/worlds.md. `step_time_ms[i][j]` is true at `depths[i]` and `batches[j]`."""

    name: str
    source: str = ""
    depths: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_TOKENS)], ...], Field(min_length=1)]
    batches: Annotated[tuple[Batch, ...], Field(min_length=1)]
    step_time_ms: tuple[tuple[Positive, ...], ...]
    context_factor: dict[str, Positive] = Field(default_factory=dict)
    traffic: dict[str, Traffic]
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    profile: Profiled | None = None
    scrape_seconds: Positive = 15.0
    step_noise: NotNegative = 0.05
    window_noise: NotNegative = 0.01

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in ("depths", "batches"):
            values = getattr(self, name)
            if any(b <= a for a, b in pairwise(values)):
                raise ValueError(f"{name} must rise from one to the next, not {list(values)}: sort them")
        rows, columns = len(self.depths), len(self.batches)
        if len(self.step_time_ms) != rows:
            raise ValueError(
                f"step_time_ms has {len(self.step_time_ms)} rows for {rows} depths: give one row a depth"
            )
        for i, row in enumerate(self.step_time_ms):
            if len(row) != columns:
                raise ValueError(
                    f"step_time_ms[{i}] has {len(row)} times for {columns} batches: give one time a batch"
                )
        for context in self.context_factor:
            if not context.replace(".", "", 1).isdecimal():
                raise ValueError(
                    f"context_factor has the key {context!r}: name a context length in tokens, such as 8192"
                )
        self._kinds()
        return self

    def _kinds(self) -> None:
        for kind, traffic in self.traffic.items():
            if len(traffic.survival) < self.depths[-1]:
                raise ValueError(
                    f"traffic.{kind}.survival has {len(traffic.survival)} slots but depths go to"
                    f" {self.depths[-1]}: give one value a slot"
                )
        for i, phase in enumerate(self.phases):
            for kind in phase.traffic:
                if kind not in self.traffic:
                    known = ", ".join(self.traffic) or "none"
                    raise ValueError(
                        f"phases[{i}].traffic names {kind!r}, which traffic does not describe (known: {known}):"
                        " add its survival or correct the name"
                    )

    @property
    def max_batch(self) -> int:
        """The most requests that run at once: the largest batch measured, or held by a phase."""
        return max(self.batches[-1], *(phase.requests or 1 for phase in self.phases))

    @property
    def seconds(self) -> float:
        """Of all phases."""
        return sum(phase.seconds for phase in self.phases)


def read_world(path: Path) -> World:
    """Raises WorldError, which names the file too."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise WorldError(f"{path} cannot be read ({e.strerror}): name a world's JSON file") from None
    except UnicodeDecodeError:
        raise WorldError(f"{path} is not text: name a world's JSON file") from None
    try:
        return parse_world(text)
    except WorldError as e:
        raise WorldError(f"{path}: {e}") from None


def parse_world(text: str) -> World:
    """Raises WorldError."""
    try:
        json.loads(text)
    except ValueError as e:
        raise WorldError(f"it is not JSON ({e}): correct it there") from None
    try:
        return World.model_validate_json(text)
    except ValidationError as e:
        raise WorldError(_sentence(e.errors(include_url=False)[0])) from None


def _sentence(error: ErrorDetails) -> str:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    if error["type"] == "value_error":
        return f"{path} {error['ctx']['error']}".strip()
    if error["type"] == "missing":
        return f"{path} is missing: add it"
    if error["type"] == "too_short":
        return f"{path} is empty: give at least one"
    if error["type"] == "extra_forbidden":
        known = {name for part in (World, Phase, Profiled, Traffic) for name in part.model_fields}
        near = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
        hint = f", perhaps to {near[0]}" if near else ""
        return f"{path} is not a field of a world: correct its name{hint}, or take it out"
    message = error["msg"].removeprefix("Input ")
    given = json.dumps(error["input"], default=str)
    return f"{path or 'a world'} {message}, not {given if len(given) < 60 else given[:57] + '…'}: correct it"
