"""Run by vLLM's own Python: which drafts vLLM's own verification accepts, its kernels interpreted on the CPU.

Standard input is a JSON list of {target, draft, drafted} (one distribution a slot, the target's one more),
standard output by method {"emitted": tokens of each case, "uniforms": what was drawn for its slots}.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
import vllm.triton_utils as utils


@triton.jit
def log1p(x):  # type: ignore[no-untyped-def]
    # The interpreter has none of a GPU's library functions.
    return tl.log(1.0 + x)


# On a CPU vLLM leaves triton out; this is its own code all the same.
utils.triton, utils.tl, utils.tldevice = triton, tl, SimpleNamespace(log1p=log1p)

from vllm.v1.worker.gpu.sample.gumbel import spec_step_seed, tl_rand32  # noqa: E402
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample  # noqa: E402


@triton.jit
def draw(out, seeds, positions, SLOTS: tl.constexpr, BY_SLOT: tl.constexpr):  # type: ignore[no-untyped-def]
    """The uniforms that the rejection kernel draws."""
    request = tl.program_id(0)
    seed = tl.load(seeds + request)
    for i in range(SLOTS):
        position = tl.load(positions + request * (SLOTS + 1) + i)
        of_slot = spec_step_seed(seed, i) if BY_SLOT else seed
        tl.store(out + request * SLOTS + i, tl_rand32(of_slot, position, includes_zero=False))


def verified(cases: list[dict[str, Any]], block: bool) -> dict[str, Any]:
    count, slots = len(cases), len(cases[0]["drafted"])
    rows = count * (slots + 1)
    target = torch.tensor([c["target"] for c in cases]).log().reshape(rows, -1).contiguous()
    draft = torch.tensor([c["draft"] for c in cases]).log().contiguous()
    # The token at each row is the one before it: the first is not a draft.
    tokens = torch.tensor([[0, *c["drafted"]] for c in cases]).reshape(rows)
    requests = torch.arange(count, dtype=torch.int32)
    slot = torch.arange(slots + 1, dtype=torch.int32).repeat(count)
    positions = 100 + slot.to(torch.int64)
    seeds = torch.arange(count, dtype=torch.int64) * 7919 + 1
    emitted, lengths = rejection_sample(
        target,
        draft,
        tokens,
        torch.arange(0, rows + 1, slots + 1, dtype=torch.int32),
        positions,
        requests,
        requests.repeat_interleave(slots + 1),
        slot,
        torch.ones(count),
        seeds,
        slots,
        use_block_verification=block,
    )
    uniforms = torch.zeros(count, slots)
    draw[(count,)](uniforms, seeds, positions, SLOTS=slots, BY_SLOT=block)
    return {
        "emitted": [row[:n].tolist() for row, n in zip(emitted, lengths.tolist(), strict=True)],
        "uniforms": uniforms.tolist(),
    }


def main() -> None:
    cases = json.load(sys.stdin)
    print(json.dumps({"standard": verified(cases, False), "block": verified(cases, True)}))


main()
