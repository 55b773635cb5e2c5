"""How long one decision takes: 256 batch sizes, 8 depths, a profile, an hour of memory, an engine with CUDA graphs.

Run: python -m benchmarks.decision [REPEATS]. Prints the median, 95th percentile and worst time of one
tick (learning from a window, and deciding) in CPU time of the process, held on one core.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from specpilot.control.step import settings as settings_of
from specpilot.decide.memory import Memory, materially_differs
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import initial_schedule, tune
from specpilot.estimate.counters import Cell
from specpilot.estimate.windows import Window
from specpilot.local.up import read_file
from specpilot_engine.protocol import ProfilePoint, Schedule, bucket

SAMPLE = Path(__file__).parents[1] / "deploy" / "samples" / "dspark.yaml"
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7)
BATCHES = (1, 8, 32, 128, 256)
CONTEXTS = (2048, 8192, 32768)
SURVIVAL = np.cumprod([0.82, 0.80, 0.78, 0.76, 0.75, 0.74, 0.73])


def step_time(k: int, batch: float, context: float) -> float:
    return 0.010 * (1 + 0.006 * batch * (1 + k) * (1 + context / 65536) + 0.05 * k)


def window(rng: np.random.Generator, now: float) -> Window:
    """Fifteen seconds of a load that wanders over all buckets, with some exploring."""
    cells = {}
    for batch in {int(b) for b in rng.integers(1, 257, 4)}:
        for k, steps in ((int(rng.choice(DEPTHS)), 200), (7, 8)):
            seconds = step_time(k, batch, 4096) * float(np.exp(rng.normal(0, 0.02)))
            tokens = steps * batch * (1 + SURVIVAL[:k].sum())
            cells[k, bucket(batch)] = Cell(
                steps, steps * seconds, steps * batch, tokens, steps * batch * 4096.0
            )
    drafted = tuple(float(d) for d in 5000.0 * np.array([1, 1, 1, 0.5, 0.1, 0.1, 0.1]))
    accepted = tuple(float(rng.binomial(int(d), s)) for d, s in zip(drafted, SURVIVAL, strict=True))
    return Window("pod-1", now - 15, now, cells, drafted, accepted, 4096.0)


def tuner_settings() -> Settings:
    """Those of the sample deployment of DSpark on a GPU, with every depth a candidate."""
    spec = read_file(SAMPLE).spec
    speculation = spec.speculation.model_copy(update={"candidates": DEPTHS})
    found = settings_of(spec.model_copy(update={"speculation": speculation}), Schedule(0, ()))
    assert (found.depths, found.max_batch) == (DEPTHS, 256)
    return found


def main(repeats: int) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    profile = [
        ProfilePoint(k, b, x, step_time(k, b, x), 0.02, 16) for x in CONTEXTS for k in DEPTHS for b in BATCHES
    ]
    settings = tuner_settings()
    settings = replace(settings, in_force=Schedule(1, initial_schedule(profile, settings)))
    memory, now, taken, written = Memory(), 1e6, [], 0
    saved = memory
    for tick in range(240 + repeats):
        now += 15
        seen = window(rng, now)
        begun = time.process_time()
        memory, decision = tune(memory, [seen], profile, settings, now)
        if tick >= 240:  # an hour of memory first
            taken.append(time.process_time() - begun)
        if decision.change:
            generation = settings.in_force.generation + 1
            settings = replace(settings, in_force=Schedule(generation, decision.steps, decision.exploration))
        if materially_differs(saved, memory):
            saved, written = memory, written + 1
    ms = np.array(taken) * 1e3
    print(
        f"one decision: median {np.median(ms):.2f} ms, p95 {np.percentile(ms, 95):.2f} ms, worst {ms.max():.2f} ms"
        f" ({repeats} repeats; {len(memory.cost.cells)} cells, {len(memory.to_json())} bytes of memory,"
        f" {written} writes of it)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repeats", metavar="REPEATS", type=int, nargs="?", default=400, help="400 by default")
    main(parser.parse_args().repeats)
