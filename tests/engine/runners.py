"""Both of vLLM's model runners, without model and GPU: their own code between what is scheduled and what is sampled.

Runs in the vLLM environment, with Triton's interpreter. The runners were never constructed; they have the
attributes that this code reads. The model is a function of position and token, so that a wrong input of
either kind shows in what comes out.
"""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise
from types import SimpleNamespace as State
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
import vllm.triton_utils as utils

# On a CPU vLLM leaves triton out; this is its own code all the same.
utils.triton, utils.tl = triton, tl
for name in ("vllm.v1.spec_decode.utils", "vllm.v1.worker.gpu.input_batch"):
    if name in sys.modules:
        importlib.reload(sys.modules[name])

from vllm.v1.spec_decode import utils as v1_drafts  # noqa: E402
from vllm.v1.utils import CpuGpuBuffer  # noqa: E402
from vllm.v1.worker import gpu_model_runner as v1  # noqa: E402
from vllm.v1.worker.gpu import input_batch as v2  # noqa: E402
from vllm.v1.worker.gpu.model_runner import GPUModelRunner as SecondRunner  # noqa: E402
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import gather_draft_sampled  # noqa: E402
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator import (  # noqa: E402
    prepare_prefill_inputs,
)
from vllm.v1.worker.gpu_input_batch import InputBatch  # noqa: E402

REQUESTS, LENGTH, ROWS = 16, 2048, 4096
CPU = torch.device("cpu")


def target(position: int, token: int) -> int:
    """What the model says after `token` at `position`."""
    return 100 + (7919 * position + 104729 * token + 17) % 900


def guesses(position: int, token: int, depth: int) -> list[int]:
    """A draft after `token` at `position`: right in its first few places, as both runners' must be."""
    draft = []
    for place in range(depth):
        right = target(position + place, token)
        token = right if (13 * position + 7 * token + place) % 10 < 7 else right + 1
        draft.append(token)
    return draft


def accepted(drafts: list[int], said: list[int]) -> list[int]:
    """Greedy verification of a request's drafts, `said` after each input row."""
    out = [said[0]]
    for draft, after in zip(drafts, said[1:], strict=True):
        if draft != out[-1]:
            break
        out.append(after)
    return out


def rows(positions: torch.Tensor, tokens: torch.Tensor) -> list[int]:
    """The model's output of some input rows."""
    return [target(p, t) for p, t in zip(positions.tolist(), tokens.tolist(), strict=True)]


def padded(sampled: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([out + [-1] * (width - len(out)) for out in sampled], dtype=torch.int32)


class First:
    """vLLM's first model runner (v1/worker/gpu_model_runner.py) with asynchronous scheduling."""

    def __init__(self, depth: int) -> None:
        v1.get_pp_group = lambda: State(is_last_rank=True)  # type: ignore[assignment]
        runner: Any = object.__new__(v1.GPUModelRunner)
        batch = InputBatch(REQUESTS, LENGTH, ROWS, CPU, 1000, [16], [LENGTH // 16], num_spec_tokens=depth)
        batch.block_table.compute_slot_mapping = lambda *_: None  # follows from positions
        runner.__dict__.update(
            device=CPU,
            requests={},
            num_prompt_logprobs={},
            encoder_cache={},
            late_interaction_runner=State(
                on_requests_finished=lambda _: None, register_request=lambda *_: None
            ),
            speculative_config=State(use_ngram_gpu=lambda: False),
            kv_cache_config=State(kv_cache_groups=[]),
            cache_config=State(mamba_cache_mode="none"),
            is_pooling_model=False,
            uses_mrope=False,
            enable_prompt_embeds=False,
            lora_config=None,
            max_model_len=LENGTH,
            use_async_scheduling=True,
            use_async_spec_decode=True,
            input_batch=batch,
            arange_np=np.arange(ROWS),
            _arange_scratch=np.zeros(ROWS, np.int64),
            positions=torch.zeros(ROWS, dtype=torch.int64),
            num_computed_tokens=torch.zeros(REQUESTS, dtype=torch.int32),
            seq_lens=torch.zeros(REQUESTS, dtype=torch.int32),
            optimistic_seq_lens_cpu=torch.zeros(REQUESTS, dtype=torch.int32),
            num_accepted_tokens_event=None,
            valid_sampled_token_count_event=State(synchronize=lambda: None),
            valid_sampled_token_count_cpu=torch.zeros(REQUESTS, dtype=torch.int32),
            valid_sampled_token_count_gpu=None,
            _draft_token_ids=None,
            _pp_recv_work=None,
            prev_num_spec_tokens=depth,
        )
        for name, size, kind in (
            ("input_ids", ROWS, torch.int32),
            ("query_start_loc", REQUESTS + 1, torch.int32),
            ("query_pos", ROWS, torch.int64),
            ("req_indices", ROWS, torch.int64),
            ("prev_positions", REQUESTS, torch.int64),
            ("prev_num_draft_tokens", REQUESTS, torch.int32),
            ("num_scheduled_tokens", REQUESTS, torch.int32),
            ("num_accepted_tokens", REQUESTS, torch.int32),
            ("num_decode_draft_tokens", REQUESTS, torch.int32),
            ("discard_request_mask", REQUESTS, torch.bool),
        ):
            setattr(runner, name, CpuGpuBuffer(size, dtype=kind, device=CPU))
        self.runner, self.batch = runner, batch

    def step(self, output: Any) -> dict[str, list[int]]:
        """Tokens sampled by request; drafts for the next step as deep as asked."""
        runner, batch = self.runner, self.batch
        correct = runner._update_states(output)
        names = list(batch.req_ids)
        counts = np.array([output.num_scheduled_tokens[name] for name in names], dtype=np.int32)
        _, found, _ = runner._prepare_inputs(output, counts)
        if correct is not None:
            correct()
        said = rows(runner.positions[found.logits_indices], runner.input_ids.gpu[found.logits_indices])
        drafts, sampled = found.draft_token_ids.tolist(), []
        for n in found.num_draft_tokens:
            sampled.append(accepted(drafts[:n], said[: n + 1]))
            drafts, said = drafts[n:], said[n + 1 :]
        tokens = padded(sampled, 1 + max(found.num_draft_tokens))
        self._draft(output, found, tokens)
        runner._bookkeeping_sync(
            output, State(sampled_token_ids=tokens, logprobs_tensors=None), None, tokens, int(counts.sum())
        )
        done = zip(names, sampled, runner.discard_request_mask.np[: len(names)], strict=True)
        return {name: [] if void else out for name, out, void in done}

    def _draft(self, output: Any, found: Any, tokens: torch.Tensor) -> None:
        """As `sample_tokens` and `propose_draft_token_ids` do, with the drafters' own two kernels."""
        runner, (n, width) = self.runner, tokens.shape
        follow, valid, last, rejected = (torch.zeros(n, dtype=torch.int32) for _ in range(4))
        v1_drafts.eagle_prepare_next_token_padded_kernel[(n,)](
            tokens,
            runner.discard_request_mask.gpu,
            torch.zeros(n, dtype=torch.int32),
            follow,
            valid,
            2000,
            width,
            n,
            tokens.stride(0),
            BLOCK_SIZE_TOKENS=1 << (width - 1).bit_length(),
        )
        starts = runner.query_start_loc.gpu
        v1_drafts.eagle_prepare_inputs_padded_kernel[(n,)](
            found.cu_num_draft_tokens, valid, starts, last, rejected, n
        )
        asked = output.num_spec_tokens_to_schedule
        at = runner.positions[last.long()].tolist()
        proposed = [guesses(p + 1, t, asked) for p, t in zip(at, follow.tolist(), strict=True)]
        runner._draft_token_ids = torch.tensor(proposed, dtype=torch.int64).reshape(n, asked)
        runner.prev_num_spec_tokens = asked
        runner.valid_sampled_token_count_gpu = valid
        runner.valid_sampled_token_count_cpu[:n] = valid
        self.batch.prev_sampled_token_ids = follow.unsqueeze(1)


class Second:
    """vLLM's second model runner (v1/worker/gpu)."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

        def both(kind: torch.dtype) -> Any:
            values = torch.zeros(REQUESTS, dtype=kind)
            return State(gpu=values, np=values.numpy())

        self.states = State(
            req_id_to_index={},
            prompt_len=both(torch.int32),
            prefill_len=both(torch.int32),
            total_len=both(torch.int32),
            num_computed_tokens=both(torch.int32),
            num_computed_tokens_np=np.zeros(REQUESTS, np.int32),
            num_computed_prefill_tokens=np.zeros(REQUESTS, np.int32),
            all_token_ids=State(gpu=torch.zeros(REQUESTS, LENGTH, dtype=torch.int32)),
            last_sampled_tokens=torch.zeros(REQUESTS, 1, dtype=torch.int64),
            draft_tokens=torch.zeros(REQUESTS, depth, dtype=torch.int64),
            next_prefill_tokens=torch.zeros(1, REQUESTS, dtype=torch.int32),
        )
        runner: Any = object.__new__(SecondRunner)
        runner.__dict__.update(
            device=CPU,
            req_states=self.states,
            block_tables=State(append_block_ids=lambda *_, **__: None),
            input_buffers=v2.InputBuffers(REQUESTS, ROWS, CPU),
            model_state=State(num_new_sampled_tokens_per_step=1),
            model_config=State(rswa_window=None),
            max_num_reqs=REQUESTS,
            decode_query_len=1 + depth,
            use_pp=False,
            adaptive_verification=None,
            pcp_manager=None,
            fast_prefill=None,
        )
        self.runner, self.draft_buffers = runner, v2.InputBuffers(REQUESTS, ROWS, CPU)

    def step(self, output: Any) -> dict[str, list[int]]:
        runner, states = self.runner, self.states
        self._admit(output)
        runner.update_requests(output)
        gathered, _ = runner.gather_batch_req_state(output, False)
        batch = runner.prepare_inputs(
            output, gathered, State(num_tokens=gathered.num_tokens, num_reqs=None), 0
        )
        seen, at = gather_draft_sampled(
            batch.input_ids,
            batch.positions,
            batch.logits_indices,
            batch.expanded_idx_mapping,
            batch.expanded_local_pos,
            states.prefill_len.gpu,
        )
        said, bounds = rows(at, batch.input_ids[batch.logits_indices]), batch.cu_num_logits.tolist()
        sampled = [accepted(seen[lo + 1 : hi].tolist(), said[lo:hi]) for lo, hi in pairwise(bounds)]
        tokens = padded(sampled, 1 + self.depth)
        count, rejected = v2.get_num_sampled_and_rejected(
            torch.tensor([len(out) for out in sampled], dtype=torch.int32),
            batch.seq_lens,
            batch.cu_num_logits,
            batch.idx_mapping,
            states.prefill_len.gpu,
        )
        v2.post_update(
            batch.idx_mapping,
            states.num_computed_tokens.gpu,
            states.last_sampled_tokens,
            None,
            tokens,
            count,
            rejected,
            batch.query_start_loc,
            states.all_token_ids.gpu,
            states.total_len.gpu,
        )
        self._draft(output, batch, count, rejected)
        kept = zip(batch.req_ids, sampled, count.tolist(), strict=True)
        return {name: out[:n] for name, out, n in kept}

    def _admit(self, output: Any) -> None:
        """As `finish_requests` and `RequestState.add_request` do."""
        states = self.states
        for name in output.finished_req_ids:
            states.req_id_to_index.pop(name, None)
        for new in output.scheduled_new_reqs:
            i = min(set(range(REQUESTS)) - set(states.req_id_to_index.values()))
            states.req_id_to_index[new.req_id] = i
            prompt = torch.tensor(new.prompt_token_ids, dtype=torch.int32)
            for length in (states.prompt_len, states.prefill_len, states.total_len):
                length.np[i] = len(prompt)
            states.all_token_ids.gpu[i, : len(prompt)] = prompt
            for computed in (states.num_computed_tokens.np, states.num_computed_tokens_np):
                computed[i] = new.num_computed_tokens

    def _draft(self, output: Any, batch: Any, count: torch.Tensor, rejected: torch.Tensor) -> None:
        states, buffers, asked = self.states, self.draft_buffers, output.num_spec_tokens_to_schedule
        last = torch.zeros(REQUESTS, dtype=torch.int64)
        prepare_prefill_inputs(
            last,
            torch.tensor(0),
            buffers,
            batch,
            count,
            rejected,
            states.last_sampled_tokens,
            states.next_prefill_tokens,
            REQUESTS,
        )
        last = last[: batch.num_reqs]
        inputs = zip(buffers.positions[last].tolist(), buffers.input_ids[last].tolist(), strict=True)
        proposed = [guesses(p + 1, t, asked) + [-1] * (self.depth - asked) for p, t in inputs]
        states.draft_tokens[batch.idx_mapping] = torch.tensor(proposed, dtype=torch.int64)
