"""The live scheduler, with a line of STEPS_FILE for every step: named by --scheduler-cls in row_budget.py.

Runs inside vLLM. A line is [when results came, requests, rows, tokens emitted].
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from specpilot_engine import scheduler

STEPS_FILE = "SPECPILOT_BENCHMARK_STEPS"


def factory(**kwargs: Any) -> Any:
    """The engine's scheduler, noting its steps."""
    live = scheduler.factory(**kwargs)
    out = open(os.environ[STEPS_FILE], "a", buffering=1)  # noqa: SIM115
    update = live.update_from_output

    def noting(output: Any, results: Any) -> Any:
        now, done = time.time(), update(output, results)
        emitted = sum(len(one.new_token_ids) for client in done.values() for one in client.outputs)
        step = [now, len(output.num_scheduled_tokens), output.total_num_scheduled_tokens, emitted]
        out.write(json.dumps(step) + "\n")
        return done

    live.update_from_output = noting
    return live
