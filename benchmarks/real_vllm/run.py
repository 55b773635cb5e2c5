"""Plays what is missing of a run, one engine for each draft of a repeat."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.real_vllm.arms import Tuned, fixed
from benchmarks.real_vllm.engine import Engine
from benchmarks.real_vllm.kept import Kept, Segment
from benchmarks.real_vllm.scenario import DRAFTS, FIXED, PRODUCT, Key, Plan, phase
from deploy.console import say
from tests.engine.server import ROOT, serving
from tests.setup import models

from specpilot.control.step import settings
from specpilot.decide.settings import Settings
from specpilot.local.up import read_file
from specpilot.plan.inputs import ProfileIn
from specpilot.plan.profiling import profile_request
from specpilot_engine.protocol import Schedule, StepSample

SAMPLE = ROOT / "deploy" / "samples" / "cpu-tiny.yaml"
FACTORY = "specpilot_engine.scheduler.factory"
DWELL = 4  # intervals, as in the defaults of a deployment
OVERHEAD = 1.5  # seconds of a segment beyond warm-up and measurement
START = 90.0  # of an engine, with its share of the profile


def tuner_settings(plan: Plan) -> Settings:
    """Those of the sample deployment, at the pace of the scenario."""
    spec = read_file(SAMPLE).spec
    return replace(
        settings(spec, Schedule(0, ())),
        interval=plan.interval,
        dwell=max(DWELL * plan.interval, 1.0),
        exploration_price=plan.exploration,
    )


def expected_seconds(kept: Kept) -> float:
    """About how long what is missing will take."""
    plan = kept.plan
    left = [key for key in plan.all_segments() if key not in kept.segments]
    engines = len({(key.repeat, key.draft) for key in left})
    return len(left) * (plan.seconds + plan.warmup + OVERHEAD) + engines * START


def play(kept: Kept) -> None:
    """Add every segment that is missing. Raises TroubleError; what is finished stays in the file."""
    plan, to = kept.plan, tuner_settings(kept.plan)
    for repeat in range(plan.repeats):
        for draft in plan.drafts:
            if not kept.missing(repeat, draft):
                continue
            say(f"starting vLLM for repeat {repeat + 1}, {draft} draft")
            shape = models.Shape(damping=DRAFTS[draft])
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                with serving(folder, FACTORY, shape=shape, sequences=to.max_batch) as server:
                    asyncio.run(_scenario(kept, Engine(server, folder), to, repeat, draft))


async def _scenario(kept: Kept, engine: Engine, to: Settings, repeat: int, draft: str) -> None:
    try:
        if kept.plan.profile and draft not in kept.profiles:
            # The whole grid, as the profiling Job measures it: not what a serving pod has time for as it starts.
            request = replace(profile_request(read_file(SAMPLE).spec, ProfileIn.JOB), then="serve")
            say(f"measuring step times, at most {request.budget / 60:.0f} min")
            kept.add_profile(draft, await engine.profile(request))
            say(f"{len(kept.profiles[draft])} step times are known")
        tuned = Tuned(to, kept.profiles.get(draft, ()), time.time())
        if state := kept.tuner(repeat, draft):
            tuned.resume(state)
        for key in kept.missing(repeat, draft):
            kept.add(await _segment(engine, kept.plan, key, tuned, to.max_batch))
            _tell(kept, key)
    finally:
        await engine.close()


async def _segment(engine: Engine, plan: Plan, key: Key, tuned: Tuned, max_batch: int) -> Segment:
    mine = key.arm == PRODUCT
    await engine.use(tuned.schedule if mine else fixed(FIXED[key.arm], max_batch))
    if mine:
        tuned.begin(await engine.counters())  # as in production, it sees the load come
    async with engine.loaded(phase(plan.phases[key.phase]), plan.prompts(key)):
        await asyncio.sleep(plan.warmup)
        before, seen = await engine.counters(), await engine.last_step()
        end = time.monotonic() + plan.seconds
        changes = await _watch(engine, tuned if mine else None, plan, end)
        await asyncio.sleep(max(end - time.monotonic(), 0))
        after, steps = await engine.counters(), await engine.steps(seen)
        (tuned.end if mine else tuned.saw)(after)
    return Segment(
        key,
        (after.generated or 0.0) - (before.generated or 0.0),
        after.at - before.at,
        os.getloadavg()[0],
        depth_shares(steps),
        tuned.state() if mine else None,
        changes,
        tuned.discarded if mine else {},
    )


async def _watch(engine: Engine, tuned: Tuned | None, plan: Plan, end: float) -> list[dict[str, Any]]:
    """Look at every interval until `end`; the changes that specpilot made.

    Engines whose depth is fixed are looked at as often: they are monitored too.
    """
    begun, changes = time.monotonic(), []
    looks = int((end - begun - 0.1) / plan.interval)  # none at the very end, whose effect nobody would see
    for number in range(1, looks + 1):
        await asyncio.sleep(max(begun + number * plan.interval - time.monotonic(), 0))
        counters = await engine.counters()
        if tuned is not None and (change := tuned.look(counters)) is not None:
            await engine.use(tuned.schedule)
            changes.append({"after": round(time.monotonic() - begun, 2), **change})
    return changes


def depth_shares(steps: Sequence[StepSample]) -> dict[str, float]:
    """Share of the time of clean steps by depth; {} without any."""
    spent: dict[int, float] = {}
    for step in steps:
        spent[step.tokens] = spent.get(step.tokens, 0.0) + step.seconds
    total = sum(spent.values())
    return {str(depth): round(seconds / total, 4) for depth, seconds in sorted(spent.items())}


def _tell(kept: Kept, key: Key) -> None:
    """One line on the segment that was finished, and how long the rest will take."""
    plan, segment = kept.plan, kept.segments[key]
    total, minutes = sum(1 for _ in plan.all_segments()), expected_seconds(kept) / 60
    depths = ", ".join(f"{depth}: {share:.0%}" for depth, share in segment.depths.items())
    say(
        f"{len(kept.segments)} of {total}, {minutes:.0f} min left: repeat {key.repeat + 1}, {key.draft} draft,"
        f" phase {plan.phases[key.phase]}, {key.arm}: {segment.goodput:.1f} tok/s (time by depth {depths})"
    )
    if segment.discarded:
        looks = ", ".join(f"{count} {reason}" for reason, count in segment.discarded.items())
        say(f"    looks that taught nothing: {looks}")
    for change in segment.changes:
        if change["moved"] or change["settled"]:
            say(
                f"    after {change['after']} s: {change['schedule']} ({change['reason']}: {change['message']})"
            )
