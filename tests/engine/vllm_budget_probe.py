"""Run by vLLM's own Python: cost tables and budgets, by vLLM's own adaptive verification.

Standard input is a JSON list of cases, standard output the answers. `get_num_tokens` runs on a manager that
was never constructed (that needs a GPU), with the attributes that it reads.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace as State
from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as av


def budget(case: dict[str, Any], tables: Any) -> int:
    requests = [f"r{i}" for i in range(len(case["confidence"]))]
    confidence = np.array(case["confidence"], dtype=np.float32)
    manager = object.__new__(av.AdaptiveVerificationManager)
    manager.cost_tables, manager.num_speculative_steps = tables, confidence.shape[1]
    manager.num_bonus_tokens, manager._max_total_logits = 1, 1 << 20
    manager._stale_idx, manager._stale_confidences = 0, [State(np=confidence)]
    manager.req_states = State(
        req_id_to_index={r: i for i, r in enumerate(requests)},
        num_computed_tokens_np=np.full(len(requests), 10),
        prefill_len=State(np=np.full(len(requests), 5)),
    )
    scheduled = {r: 1 + n for r, n in zip(requests, case["lengths"], strict=True)}
    drafts = {r: [0] * n for r, n in zip(requests, case["lengths"], strict=True)}
    return int(manager.get_num_tokens(scheduled, drafts)) - len(requests)


def assigned(case: dict[str, Any], rows: int) -> list[int]:
    confidence = torch.tensor(case["confidence"], dtype=torch.float64)
    capacities = torch.tensor(case["lengths"], dtype=torch.int32)
    if rows < int(capacities.sum()):  # vLLM calls it only then
        every = torch.arange(len(capacities))
        av._assign_draft_token_budget(confidence, every, capacities, rows, confidence.shape[1])
    return [int(n) for n in capacities]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    draft, verify = ([tuple(point) for point in case[name]] for name in ("draft_curve", "verify_curve"))
    tables = av.build_cost_tables_from_curves(draft, verify, case["requests"], case["rows"], case["limit"])
    rows = budget(case, tables)
    return {
        "draft_table": tables[0].tolist(),
        "verify_table": tables[1].tolist(),
        "budget": rows,
        "assigned": assigned(case, rows),
        "half": assigned(case, sum(case["lengths"]) // 2),
    }


print(json.dumps([answer(case) for case in json.load(sys.stdin)]))
