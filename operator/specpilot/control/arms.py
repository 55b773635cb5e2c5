"""Arms of one deployment: what is observed of them → facts for the decision; what was decided → status. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specpilot.api import status as api
from specpilot.api.base import seconds
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Finding
from specpilot.control.live import Live
from specpilot.control.read import text_in
from specpilot.control.rollout import Rollout, broken, rollout_of, startup_seconds
from specpilot.control.status import last_decision
from specpilot.control.step import Taken
from specpilot.decide import arms_worth
from specpilot.decide.arm import SCHEDULE, Arm, Kind
from specpilot.decide.arms import Situation, Turn, decide
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.settings import Settings
from specpilot.plan import adaptive
from specpilot.plan.arguments import base_arm, live_support
from specpilot.plan.arms import arms
from specpilot.plan.limits import limits
from specpilot.plan.revision import recorded_arm, spec_hash
from specpilot_engine.protocol import Schedule, Step

Body = dict[str, Any]

KEY = "arms.json"  # in the tuner's ConfigMap
LOOK = 4.0  # intervals between two looks where nothing but a recommendation can come of them


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one deployment as observed: their arm, and the pods that serve or are to."""

    arm: Arm
    rollout: Rollout
    deployment: Body | None
    pods: Sequence[Body]


def engines(sd: SpeculativeDeployment, deployment: Body | None, pods: Sequence[Body]) -> Engines:
    """Of pods that serve or are to, and the Deployment they belong to."""
    rollout = rollout_of(sd.spec.replicas, deployment, pods)
    return Engines(recorded_arm(deployment, sd), rollout, deployment, pods)


def memory_in(config_map: Body | None) -> ArmMemory:
    """What a ConfigMap remembers of arms; an empty memory where it cannot be read."""
    text = text_in(config_map, KEY)
    return ArmMemory() if text is None else ArmMemory.from_json(text)


def wanted(sd: SpeculativeDeployment, memory: ArmMemory) -> Arm | None:
    """Where engines are to be restarted to. What was decided for another spec, or with leave that is withdrawn
    since, may still be in memory: its first look comes after the first reconcile, of this operator as of the next."""
    if memory.next is None or memory.spec != spec_hash(sd) or not (memory.back or leave(sd)):
        return None
    return memory.next[0]


def leave(sd: SpeculativeDeployment) -> bool:
    """Whether the user lets the operator restart engines for another arm."""
    return sd.spec.tuning.mode == "Apply" and sd.spec.tuning.actuator == "Restart"


def mixed(memory: ArmMemory, rollout: Rollout) -> bool:
    """Whether pods of two arms serve: nothing may be learnt of either, nor said of engines as a whole."""
    return not rollout.complete and memory.reason not in ("", Reason.ARM_RECOMMENDED)


def tuned(sd: SpeculativeDeployment, memory: ArmMemory, arm: Arm, rollout: Rollout) -> bool:
    """Whether the tuner of depths has the word; of engines that only lack the means it still learns."""
    stock = arm == base_arm(sd.spec) and arm.kind is not Kind.ADAPTIVE
    return (arm.scheduled or stock) and not mixed(memory, rollout)


def due(sd: SpeculativeDeployment, live: Live, arm: Arm, now: float) -> bool:
    """Whether arms are worth a look at this tick; `now` is monotonic."""
    tuning, memory = sd.spec.tuning, live.arms
    if arm != base_arm(sd.spec) or memory.next is not None or memory.going is not None:
        return True
    if memory.told is not None and (tuning.mode == "Observe" or tuning.actuator == "Live"):
        return True
    if not base_arm(sd.spec).scheduled or tuning.mode == "Observe" or tuning.actuator == "Live":
        return False
    return leave(sd) or now >= live.arms_due


def look(
    sd: SpeculativeDeployment,
    live: Live,
    seen: Engines,
    taken: Taken,
    to: Settings,
    now: float,
) -> tuple[ArmMemory, Turn | None]:
    """The arms' part of one tick."""
    evidence, choice, tuning = taken.evidence.memory, live.choice, sd.spec.tuning
    arm, rollout = seen.arm, seen.rollout
    facts = Situation(
        spec=spec_hash(sd),
        in_force=arm,
        allowed=arms(sd.spec, evidence.load.context),
        restart=leave(sd),
        tell=tuning.mode != "Observe" and tuning.actuator != "Live",
        needed=math.log1p(tuning.minimum_gain),
        dwell=seconds(tuning.dwell),
        startup=startup_seconds(seen.pods),
        complete=rollout.complete and rollout.ready >= rollout.wanted,
        ready=rollout.ready,
        broken=broken(seen.pods, seen.deployment),
        # A plan that is refused already is refused for something else.
        settled=not alternates(arm, to.in_force)
        and choice is not None
        and not (choice.active or live.refused),
        still=rollout.paused or not rollout.wanted,
        refused=live.refused.trouble.message if live.refused else "",
    )
    view = None
    if evidence.load.seconds:
        graphs = limits(sd.spec).capture_cap > 0
        view = arms_worth.view(evidence, choice.points if choice else (), to, arm, graphs)
    return decide(live.arms, facts, view, list(taken.windows.values()), now)


def drafted(arm: Arm, schedule: Schedule) -> Schedule:
    """What engines of an arm draft; where it is not the schedule, that waits meanwhile."""
    if arm.scheduled:
        return schedule
    if arm.capped:
        return schedule.under_adaptive(arm.tokens)
    return Schedule(schedule.generation, (Step(schedule.steps[-1].up_to, arm.tokens),))


def alternates(arm: Arm, schedule: Schedule) -> bool:
    """Whether engines of an arm compare two depths. The file may hold the trial of another arm, begun before the spec
    changed: that waits, for ever perhaps, and nothing may wait for it."""
    return drafted(arm, schedule).trial is not None


def spoken(arm: Arm, schedule: Schedule, acknowledged: Acknowledged) -> tuple[Schedule, Acknowledged]:
    """What is wanted and what engines said, of whatever arm: those that cannot change depths have nothing to
    acknowledge, but say at which depth they started."""
    if arm.scheduled:
        return schedule, acknowledged
    wanted = drafted(arm, schedule)
    depths = {s.tokens for s in wanted.steps}
    runs = [
        a.hash == schedule.hash if a.live else {s.tokens for s in a.schedule} == depths
        for a in acknowledged.answers
    ]
    answers = tuple(
        replace(a, generation=schedule.generation) if does else a
        for a, does in zip(acknowledged.answers, runs, strict=True)
    )
    said = Acknowledged(acknowledged.ready, sum(runs), answers)
    return wanted, said


def finding(
    sd: SpeculativeDeployment, memory: ArmMemory, arm: Arm, rolling: bool = False, caps: str = ""
) -> Finding:
    """The word on Tuned while depths are not tuned live; `rolling`: pods of two arms serve; `caps`: what an
    adaptive arm's engines do."""
    if rolling or (memory.going is not None and not memory.going.ready_at):
        return Finding(Reason.VERIFYING, f"pods are replaced one by one: {arm.words}")
    if memory.going is not None:
        text = f"what {arm.words} is worth is measured, against {memory.going.before.words}"
        return Finding(Reason.VERIFYING, text)
    if adaptive.fixed(sd.spec):
        return Finding(Reason.HOLDING, caps or live_support(sd.spec)[1])
    return Finding(Reason.HOLDING, f"engines run with {arm.words}: {caps or 'see status.arm'}")


def decision(turn: Turn, now: str) -> api.LastDecision:
    """The last decision that a change of arm, or its outcome, is; `now` in RFC 3339."""
    predicted = None if turn.predicted is None else math.expm1(turn.predicted)
    measured: tuple[float, float, float] | None = None
    if turn.measured is not None:
        mean, deviation = turn.measured
        low, middle, high = (math.expm1(mean + sign * 2 * deviation) for sign in (-1, 0, 1))
        measured = low, middle, high
    return last_decision(turn.reason, turn.message, predicted, measured, now)


def arm_status(sd: SpeculativeDeployment, memory: ArmMemory, arm: Arm) -> api.ArmStatus | None:
    """None where a schedule is in force and there is nothing to say of other arms."""
    base = base_arm(sd.spec)
    if memory.spec != spec_hash(sd):
        memory = ArmMemory()  # of another spec, and not looked at since
    if base.kind is Kind.ADAPTIVE:
        text = "spec.speculation.verification.adaptive is Always"
        return api.ArmStatus(in_force=str(arm), reason=Reason.ARM_FIXED, message=text)
    if not base.scheduled or (arm == SCHEDULE and not memory.reason):
        return None
    better = str(memory.told) if memory.told else None
    return api.ArmStatus(in_force=str(arm), better=better, reason=memory.reason, message=memory.why)


def data(memory: ArmMemory) -> Mapping[str, str]:
    """For the tuner's ConfigMap; nothing where nothing is to be remembered."""
    return {} if memory.empty else {KEY: memory.to_json()}
