"""What the engine package adds to a step of a real vLLM: `python -m benchmarks.engine_overhead`.

Two answers, printed side by side. First the ratio of step times, live scheduler to vLLM's own, on one
engine that alternates between them every few dozen steps while the same requests run: pairs of
neighbouring blocks are compared, so that a machine that is busy at times is busy for both. Second, free
of that noise, the time spent in our own code, as a share of the step. Then the same code alone on
batches that this machine cannot run. The goal is at most 1%.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

from benchmarks.overhead_scheduler import RESULTS
from tests.engine.server import MAX_SEQS, Server, serving

from specpilot_engine.live import LiveHooks, Lookups
from specpilot_engine.protocol import Exploration, Schedule, Step
from specpilot_engine.record import Recorder
from specpilot_engine.timing import StepClock
from specpilot_engine.watch import ScheduleWatcher

GOAL = 0.01
DEPTH = 3
RESAMPLES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0, help="per batch on the real engine")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, MAX_SEQS])
    args = parser.parse_args()
    print("starting vLLM …", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[RESULTS] = str(folder / "blocks")
        with serving(folder, "benchmarks.overhead_scheduler.factory", f"serving{os.pathsep}.") as server:
            for batch in args.batches:
                report(batch, asyncio.run(blocks(server, folder / "blocks", batch, args.seconds)))
    for batch in (1, 16, 64, 256):
        print(f"{batch:4d} requests, our code alone: {1e6 * alone(batch):6.1f} µs a step")


async def blocks(server: Server, file: Path, batch: int, seconds: float) -> list[dict[str, Any]]:
    """Blocks of steps with exactly `batch` requests, measured for `seconds`."""
    schedule = Schedule(batch, (Step(MAX_SEQS, DEPTH),))
    server.put(schedule)
    server.acknowledged(schedule)
    begin = len(file.read_text().splitlines())
    print(f"running {batch} requests for {seconds:.0f} s …", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, end - time.monotonic())):
                await server.crowd(batch, 1500)
    rows = [json.loads(line) for line in file.read_text().splitlines()[begin:]]
    return [row for row in rows if row["batch"] == batch]


def report(batch: int, rows: list[dict[str, Any]]) -> None:
    """Print both answers for one batch."""
    pairs = [
        (median(a["seconds"]), median(b["seconds"]))
        if a["live"]
        else (median(b["seconds"]), median(a["seconds"]))
        for a, b in pairwise(rows)
        if a["live"] != b["live"]
    ]
    if len(pairs) < 4:
        print(f"{batch:4d} requests: only {len(pairs)} pairs of blocks; measure for longer with --seconds")
        return
    ratios = [live / stock - 1 for live, stock in pairs]
    low, high = interval(ratios)
    step = median(stock for _, stock in pairs)
    inside = [row["inside"] for row in rows if row["live"]]
    share = median(inside) / step
    q1, _, q3 = quantiles(inside, n=4)
    print(
        f"{batch:4d} requests, depth {DEPTH}, {1e3 * step:.2f} ms a step: live against stock "
        f"{100 * median(ratios):+.2f}% (95% interval {100 * low:+.2f}% to {100 * high:+.2f}%, "
        f"{len(pairs)} pairs)\n"
        f"{batch:4d} requests, in our code: {1e6 * median(inside):.1f} µs a step "
        f"(quartiles {1e6 * q1:.1f} to {1e6 * q3:.1f}), {100 * share:.2f}% of it: "
        f"{'within' if share <= GOAL else 'ABOVE'} the goal of {100 * GOAL:.0f}%",
        flush=True,
    )


def interval(values: list[float]) -> tuple[float, float]:
    """Bootstrap 95% interval of the median."""
    random = Random(0)
    medians = sorted(median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def alone(batch: int, steps: int = 2000) -> float:
    """Seconds per step that the hooks take for `batch` requests, on objects of vLLM's shapes."""
    names = [f"cmpl-{i:032x}" for i in range(batch)]
    request = SimpleNamespace(is_finished=lambda: False, use_structured_output=False)
    size = max(batch, 2) + 1
    scheduler = SimpleNamespace(
        running=[request] * batch,
        requests=dict.fromkeys(names, request),
        dynamic_sd_lookup=[DEPTH] * size,
        kv_cache_manager=SimpleNamespace(usage=0.1),
    )
    lookups = Lookups([DEPTH] * size, [7] * size, Exploration(0.005, 7, 0.5, batch))
    watcher = ScheduleWatcher(Schedule(1, (Step(batch, DEPTH),)), 7, lambda _schedule: lookups)
    hooks = LiveHooks(scheduler, Recorder(7), StepClock(pipelined=False), watcher)
    random = Random(0)
    tokens = [[[1] * (1 + random.randrange(1 + DEPTH)) for _ in names] for _ in range(16)]
    index = {name: i for i, name in enumerate(names)}
    spent = 0.0
    for n in range(steps):
        sampled = SimpleNamespace(sampled_token_ids=tokens[n % 16], req_id_to_index=index)
        one = [SimpleNamespace(new_token_ids=t) for t in tokens[n % 16]]
        results = {0: SimpleNamespace(outputs=one)}
        output = SimpleNamespace(
            total_num_scheduled_tokens=batch * (1 + DEPTH),
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=list(names), num_computed_tokens=[1000 + n] * batch, resumed_req_ids=set()
            ),
            num_spec_tokens_to_schedule=DEPTH,
            scheduled_new_reqs=[],
            preempted_req_ids=set(),
            pending_structured_output_tokens=False,
            scheduled_spec_decode_tokens={name: [1] * DEPTH for name in names},
            num_invalid_spec_tokens=None,
        )
        began = time.perf_counter()
        hooks.before_schedule()
        hooks.after_schedule(output, 0.02 * n)
        hooks.before_update(output, sampled)
        hooks.after_update(output, results, 0.02 * n + 0.019)
        spent += time.perf_counter() - began
    return spent / steps


if __name__ == "__main__":
    main()
