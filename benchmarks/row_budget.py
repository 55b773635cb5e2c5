"""The row budget on a real vLLM in a hopeless phase: `python -m benchmarks.row_budget`.

All clients sample at temperature 1, where the tiny target's tokens are nearly random and no draft
survives. First the tuner starts at depth 5 and decides as in production; then what it chose, depth 0, depth
5 with every draft verified and depth 5 with the budget alternate in slices on one engine, while the same
clients go on. Slices of one round are compared with each other, so that a machine that is busy at times is
busy for all. `--out FILE` keeps the rounds; running it again adds to them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from benchmarks.budget_scheduler import STEPS_FILE
from benchmarks.engine_overhead import interval
from tests.engine.server import MAX_SEQS, MAX_TOKENS, Server, prompt, serving
from tests.setup import models

from specpilot.control.step import Evidence, step
from specpilot.decide.settings import Settings
from specpilot.metrics.parse import parse_text, to_counters
from specpilot_engine import protocol
from specpilot_engine.protocol import Budget, Exploration, Schedule, Step
from specpilot_engine.trim import FIRST_DRAFTS

PRICE = 0.005  # explorationPrice's default
BUDGET = Budget(PRICE)
TICK = 3.0  # seconds between the tuner's looks
FIRST_SECONDS = 90.0  # at most, before slices begin
SETTLE = 1.0  # seconds of a slice before it is measured
GOALS = (("budget", "none", 0.70), ("budget", "whole", 2.3), ("tuned", "none", 0.95))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=MAX_SEQS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=7.0, help="seconds measured of each")
    parser.add_argument(
        "--tuning",
        type=float,
        default=36.0,
        help="seconds that the tuner is given",
    )
    parser.add_argument("--out", type=Path, help="a file that keeps the rounds")
    args = parser.parse_args()
    rounds = []
    if args.out and args.out.exists():
        rounds = [json.loads(line) for line in args.out.read_text().splitlines()]
    print(f"load average {os.getloadavg()[0]:.1f} before; starting vLLM …", flush=True)
    with tempfile.TemporaryDirectory() as name:
        os.environ[STEPS_FILE] = f"{name}/steps"
        path = f"serving{os.pathsep}."
        with serving(Path(name), "benchmarks.budget_scheduler.factory", path, models.Shape()) as server:
            asyncio.run(measure(server, args, rounds))
    report([r for r in rounds if r["clients"] == args.clients])


async def measure(server: Server, args: argparse.Namespace, rounds: list[dict[str, Any]]) -> None:
    """Add rounds of one slice an arm, under the load of `args.clients`."""
    clients = [asyncio.create_task(client(server, number)) for number in range(args.clients)]
    try:
        chosen = await tuned(server, args.tuning)
        print(f"the tuner chose {chosen.as_vllm()}, exploring {chosen.exploration}", flush=True)
        arms = {
            "none": ((Step(MAX_SEQS, 0),), Exploration(), Budget()),
            "whole": ((Step(MAX_SEQS, MAX_TOKENS),), Exploration(), Budget()),
            "budget": ((Step(MAX_SEQS, MAX_TOKENS),), Exploration(), BUDGET),
            "tuned": (chosen.steps, chosen.exploration, BUDGET),
        }
        generation = chosen.generation + 1
        await asyncio.to_thread(use, server, Schedule(generation, *arms["budget"]))
        await first_looks(server, args.clients)
        for number in range(args.rounds + 1):  # the first one warms up
            order = list(arms)
            random.Random(number).shuffle(order)
            found: dict[str, Any] = {"clients": args.clients}
            for name in order:
                generation += 1
                schedule = Schedule(generation, *arms[name])
                found[name] = await slice_of(server, schedule, args.clients, args.slice)
            told = (f"{n} {found[n]['goodput']:.0f} ({found[n]['undisturbed']:.0f})" for n in arms)
            print(f"{' '.join(told)} tokens a second (undisturbed)", flush=True)
            if number:
                rounds.append(found)
                if args.out:
                    with args.out.open("a") as out:
                        out.write(json.dumps(found) + "\n")
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def client(server: Server, number: int) -> None:
    """One request after the other."""
    source = random.Random(number)
    async with httpx.AsyncClient(trust_env=False, timeout=300) as http:
        while True:
            body = {"model": "m", "prompt": prompt(source.randrange(1 << 30)), "temperature": 1.0}
            body |= {"max_tokens": source.randint(300, 900), "ignore_eos": True}
            await http.post(server.url + "/v1/completions", json=body)


async def tuned(server: Server, seconds: float) -> Schedule:
    """What the tuner has come to after `seconds`, from depth 5."""
    in_force = Schedule(1, (Step(MAX_SEQS, MAX_TOKENS),), budget=BUDGET)
    await asyncio.to_thread(use, server, in_force)
    depths = (0, 1, 2, 3, MAX_TOKENS)
    evidence, end = Evidence(), time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(TICK)
        text = await asyncio.to_thread(scrape, server)
        counters = to_counters("one", time.time(), parse_text(text))
        assert counters is not None
        to = Settings(depths, MAX_SEQS, in_force, dwell=10.0, interval=TICK, exploration_price=PRICE)
        taken = step(evidence, {("", "one"): counters}, (), to, True, time.time())
        evidence = taken.evidence
        if taken.schedule is not None:
            s = taken.schedule
            in_force = Schedule(s.generation, s.steps, s.exploration, BUDGET)
            await asyncio.to_thread(use, server, in_force)
    return in_force


async def first_looks(server: Server, clients: int) -> None:
    """Wait until the budget's first looks, which are many, are over."""
    end = time.monotonic() + FIRST_SECONDS
    while clients * (await asyncio.to_thread(totals, server))[protocol.M_PROBES] < FIRST_DRAFTS:
        if time.monotonic() > end:
            print("the first looks are not over: the machine is slow", flush=True)
            return
        await asyncio.sleep(1.0)


async def slice_of(server: Server, schedule: Schedule, clients: int, seconds: float) -> dict[str, float]:
    """Goodput under `schedule`: tokens a second as they came, and of undisturbed steps; and what was counted.

    A step that another process interrupted is no step of this engine. So each kind of step, by its rows,
    counts with its median time, and as often as it came.
    """
    await asyncio.to_thread(use, server, schedule)
    await asyncio.sleep(SETTLE)
    before, began = await asyncio.to_thread(totals, server), time.time()
    await asyncio.sleep(seconds)
    after, ended = await asyncio.to_thread(totals, server), time.time()
    grown = {name: after[name] - before[name] for name in after}
    grown["goodput"] = grown["vllm:generation_tokens_total"] / (ended - began)
    lines = Path(os.environ[STEPS_FILE]).read_text().splitlines()
    steps = [step for step in map(json.loads, lines) if began <= step[0] <= ended]
    kinds: dict[int, list[float]] = {}
    tokens = 0.0
    for (earlier, *_), (now, requests, rows, emitted) in pairwise(steps):
        if requests == clients and rows <= clients * (1 + MAX_TOKENS):  # nobody's prompt
            kinds.setdefault(rows, []).append(now - earlier)
            tokens += emitted
    grown["undisturbed"] = tokens / sum(len(times) * median(times) for times in kinds.values())
    return grown


def use(server: Server, schedule: Schedule) -> None:
    server.put(schedule)
    end = time.monotonic() + 30
    while server.state()["generation"] != schedule.generation:
        assert time.monotonic() < end, server.state()
        time.sleep(0.02)


def scrape(server: Server) -> str:
    return server.http.get(server.url + "/metrics").text + server.http.get(server.own + "/metrics").text


def totals(server: Server) -> dict[str, float]:
    series = server.series(server.url) | server.series(server.own)
    names = ("vllm:generation_tokens_total", protocol.M_ALL_STEPS, protocol.M_EXPLORED_STEPS)
    names += (protocol.M_ROWS_VERIFIED, protocol.M_ROWS_TRIMMED, protocol.M_PROBES)
    return {name: sum(v for key, v in series.items() if key[0] == name) for name in names}


def report(rounds: list[dict[str, Any]]) -> None:
    """Ratios of goodput within rounds, with their spread."""
    for one, other, goal in GOALS:
        for unit, what in (("goodput", "as it came"), ("undisturbed", "undisturbed")):
            ratios = [r[one][unit] / r[other][unit] for r in rounds]
            low, high = interval(ratios)
            print(
                f"{one:>6} / {other:<5} {median(ratios):.3f} (95% {low:.3f} to {high:.3f}; {min(ratios):.3f} to "
                f"{max(ratios):.3f}; {len(ratios)} rounds) {what}; goal {goal}"
            )
    for arm, name, what in (
        ("budget", protocol.M_PROBES, "whole"),
        ("tuned", protocol.M_EXPLORED_STEPS, "deeper"),
    ):
        share = sum(r[arm][name] for r in rounds) / sum(r[arm][protocol.M_ALL_STEPS] for r in rounds)
        print(f"{arm:>6}: {share:.1%} of its steps were {what}, to see whether drafts pay again")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
