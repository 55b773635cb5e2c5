"""What a step of a model and its drafter reads and computes: the numbers from which step times are estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["DRAFTS", "ModelShape", "parse_shape"]

DRAFTS = ("none", "block", "autoregressive")
_MOST = 1e18  # of any of these numbers
_LONGEST = 128  # characters of a device's name


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Bytes and FLOPs are those of one device: weights and heads that several share are divided already.

    A row is one token of one request in a step: B(1 + k) of them with k drafts each. `weights` are bytes that every
    step reads whatever its rows, `weight_flops` what they cost a row. Routed experts: `experts` of them in a layer,
    `routed` a row, `expert_weights` bytes of all that lie on this device, `expert_flops` a row; the rows of `ranks`
    data-parallel engines meet there. `exchanged` bytes a row go from this device to the others.

    Attention by kind; each layer adds to its own. `full_bytes` a token of context and request, whatever its rows,
    `full_flops` a token of context and row. Of a sliding `window` the same. Sparse attention reads `selected` tokens
    of context for each row anew: `selected_bytes` and `selected_flops` a row and such token. `state_bytes` a request:
    what linear attention reads and writes.

    `draft` is one of DRAFTS: nothing is computed (n-gram), one pass however deep, or one pass a slot. A pass reads
    `draft_weights`, of its routed experts those that its rows touch.
    """

    weights: float
    weight_flops: float
    layers: int
    devices: int = 1  # that share each layer
    exchanged: float = 0.0
    device: str = ""  # kind, as vLLM has it: cuda, cpu, …
    device_name: str = ""
    experts: int = 0
    routed: int = 0
    ranks: int = 1
    expert_weights: float = 0.0
    expert_flops: float = 0.0
    full_bytes: float = 0.0
    full_flops: float = 0.0
    window: int = 0
    window_bytes: float = 0.0
    window_flops: float = 0.0
    selected: int = 0
    selected_bytes: float = 0.0
    selected_flops: float = 0.0
    state_bytes: float = 0.0
    draft: str = "none"
    draft_layers: int = 0
    draft_weights: float = 0.0
    draft_flops: float = 0.0
    draft_expert_weights: float = 0.0

    def labels(self) -> dict[str, str]:
        """As labels of M_SHAPE; what is as by default is left out, and numbers have four digits."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                found[field.name] = f"{value:.4g}" if isinstance(value, float) else str(value)
        return found


def parse_shape(labels: Mapping[str, str]) -> ModelShape | None:
    """Read `ModelShape.labels` back; other labels beside them mean nothing. None where they make no shape."""
    values: dict[str, str | int | float] = {}
    for field in fields(ModelShape):
        text = labels.get(field.name, "")
        if not text:
            continue
        if not isinstance(text, str):
            return None
        if field.type == "str":
            values[field.name] = text[:_LONGEST]
            continue
        try:
            number = float(text)
        except ValueError:
            return None
        if not 0 <= number < _MOST:
            return None
        values[field.name] = int(number) if field.type == "int" else number
    try:
        shape = ModelShape(**values)  # type: ignore[arg-type]
    except TypeError:  # one that has no default is not there
        return None
    return shape if _possible(shape) else None


def _possible(shape: ModelShape) -> bool:
    experts = shape.experts == 0 or 0 < shape.routed <= shape.experts
    least = min(shape.weights, shape.weight_flops, shape.layers, shape.devices, shape.ranks)
    return least > 0 and experts and shape.draft in DRAFTS
