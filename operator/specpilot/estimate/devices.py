"""How fast devices read and compute: what of a data sheet a decode step reaches, and what a step costs beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from specpilot.estimate import constants as c


@dataclass(frozen=True, slots=True)
class Device:
    """What one device reaches in decode steps, and its fixed costs, in seconds.

    `step` is that of a step, `layer` of one layer in it, `row` of a row (sampling, bookkeeping), `draft` of a pass
    of a drafter beside its layers.
    """

    bandwidth: float  # bytes a second
    compute: float  # FLOPs a second, at 16 bits
    grouped: float  # the same over many experts, each of which gets few rows
    link: float  # bytes a second to other devices
    step: float
    layer: float
    row: float
    draft: float


# Makers' data sheets: GB/s of memory, TFLOP/s dense at 16 bits, GB/s to other devices. The first row counts whose name
# is part of what vLLM calls the device.
_SHEETS = (
    ("GB300", 8000, 2500, 900),
    ("GB200", 8000, 2500, 900),
    ("B300", 8000, 2250, 900),
    ("B200", 8000, 2250, 900),
    ("GH200", 4900, 990, 450),
    ("H200", 4800, 990, 450),
    ("H100 NVL", 3900, 835, 300),
    ("H100 PCIe", 2000, 756, 50),
    ("H100", 3350, 990, 450),
    ("H20", 4000, 148, 450),
    ("A100", 2000, 312, 300),
    ("A10G", 600, 70, 25),
    ("A10", 600, 125, 25),
    ("L40", 864, 362, 25),
    ("L4", 300, 121, 25),
    ("RTX PRO 6000", 1792, 500, 25),
    ("RTX 5090", 1792, 210, 25),
    ("RTX 4090", 1008, 165, 25),
    ("MI355X", 8000, 2500, 450),
    ("MI350X", 8000, 2300, 450),
    ("MI325X", 6000, 1300, 450),
    ("MI300X", 5300, 1300, 450),
)
_UNNAMED = (2000, 400, 50)  # an accelerator that none of them names


@lru_cache(maxsize=64)
def device(kind: str, name: str) -> Device:
    """By vLLM's kind of device and its name, where that is known.

    Of CPUs only the balance of a few cores is known: the scale is learnt at the first look.
    """
    if kind == "cpu":
        speeds = (c.CPU_BANDWIDTH, c.CPU_COMPUTE, c.CPU_COMPUTE, c.CPU_BANDWIDTH)
        return Device(*speeds, c.CPU_STEP, c.CPU_LAYER, c.CPU_ROW, c.CPU_DRAFT)
    read, computed, sent = next((sheet for known, *sheet in _SHEETS if known in name), _UNNAMED)
    return Device(
        read * 1e9 * c.BANDWIDTH_REACHED,
        computed * 1e12 * c.COMPUTE_REACHED,
        computed * 1e12 * c.GROUPED_REACHED,
        sent * 1e9 * c.LINK_REACHED,
        c.GPU_STEP,
        c.GPU_LAYER,
        c.GPU_ROW,
        c.GPU_DRAFT,
    )
