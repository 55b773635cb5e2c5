"""Caps on depth under vLLM's adaptive verification: the part of a tick that tries them, and what is said. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.control import arms
from specpilot.control.conditions import Finding
from specpilot.control.live import Live
from specpilot.control.read import text_in
from specpilot.control.rollout import Rollout
from specpilot.control.step import Evidence, Pod, Taken, comparing, heard, watch
from specpilot.decide import arms_worth, caps
from specpilot.decide.arm import Arm
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.settings import Settings
from specpilot.decide.trying import ALTERNATING
from specpilot.estimate.counters import Counters
from specpilot.plan.revision import spec_hash
from specpilot_engine.protocol import ProfilePoint, Schedule

Body = dict[str, Any]

KEY = "caps.json"  # in the tuner's ConfigMap


def tick(
    sd: SpeculativeDeployment,
    live: Live,
    arm: Arm,
    rollout: Rollout,
    before: Evidence,
    counters: Mapping[Pod, Counters],
    points: Sequence[ProfilePoint],
    to: Settings,
    now: float,
) -> tuple[Taken, CapMemory]:
    """Watch engines that verify adaptively, and see to their caps: with what is remembered of them, which is
    `live.caps` before.

    The schedule that comes of it has the tuner's own depths unchanged: they wait for the arm that goes by them.
    """
    taken = watch(before, counters, to, False)
    memory = taken.evidence.memory
    able, counts = comparing(before, heard(before, counters))
    facts = caps.Situation(
        of=f"{spec_hash(sd)}/{arm}",
        tokens=arm.tokens,
        able=able,
        settled=rollout.complete and live.arms.next is None and not (live.choice and live.choice.active),
    )

    @cache
    def expected() -> arms_worth.View:
        return arms_worth.view(memory, points, to, arm, True)

    def hint(depth: int, batch: int) -> float:
        land = expected().land
        at = max(bisect_right(land.depths, depth) - 1, 0)
        return float(land.log_goodput[at, min(batch, to.max_batch) - 1])

    known, turn = caps.decide(
        live.caps,
        facts,
        to,
        memory.load,
        list(taken.windows.values()),
        counts,
        now,
        hint if memory.cost.cells else None,
    )
    return replace(taken, decision=turn.decision, schedule=turn.schedule), known


def in_force(arm: Arm, schedule: Schedule, counters: Mapping[Pod, Counters]) -> str:
    """One sentence of what engines of an adaptive arm do, as far as `counters` tell."""
    stock = next((c for c in counters.values() if c.live is False), None)
    if stock is not None:
        why = f" ({stock.live_reason})" if stock.live_reason else ""
        return f"vLLM sizes what is verified of {arm.tokens} drafts; engines cannot cap them live{why}"
    said = caps.in_words(caps.steps_of(schedule, arm.tokens))
    return f"vLLM sizes what is verified, of {said}"


def finding(
    sd: SpeculativeDeployment,
    live: Live,
    memory: ArmMemory,
    arm: Arm,
    schedule: Schedule,
    counters: Mapping[Pod, Counters],
) -> Finding:
    """The word on Tuned: what engines of an adaptive arm do. `memory` is of arms."""
    if arms.alternates(arm, schedule):
        return Finding(Reason.VERIFYING, ALTERNATING)
    last = live.tuning if live.arms_spoke else None
    unheard = all(c.live is None for c in counters.values())
    if unheard and last is not None and last.reason is Reason.HOLDING:
        return last
    return arms.finding(sd, memory, arm, caps=in_force(arm, schedule, counters))


def memory_in(config_map: Body | None) -> CapMemory:
    """What a ConfigMap remembers of caps; an empty memory where it cannot be read."""
    text = text_in(config_map, KEY)
    return CapMemory() if text is None else CapMemory.from_json(text)


def data(memory: CapMemory) -> Mapping[str, str]:
    """For the tuner's ConfigMap; nothing where nothing is to be remembered."""
    return {} if memory == CapMemory() else {KEY: memory.to_json()}
