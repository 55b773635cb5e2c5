"""Which arm the engines should be restarted with, and whether the one restarted to stays. Pure.

In steady traffic it holds. It leaves an arm only where another's gain, less what is not known of it, is
asked for by minimumGain and repays two restarts within HORIZON; the new arm is then on probation for as long
as an arm is kept at least, and what was measured decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.api.vocabulary import Reason
from specpilot.decide import arms_constants as a
from specpilot.decide.arm import SCHEDULE, Arm, Kind
from specpilot.decide.arms_memory import ArmMemory, Barred, Going
from specpilot.decide.arms_worth import View, gain, learn
from specpilot.estimate.windows import Window


@dataclass(frozen=True, slots=True)
class Situation:
    """Facts of one tick. `allowed`: arms that the engines can run; `restart`: whether the user lets the
    operator restart them; `tell`: whether a better arm is to be recommended otherwise. `startup`: seconds
    from a pod's start until it serves, None where no pod tells. `complete`: every pod runs the arm in force
    and serves, `ready`: so many do; `broken`: why a pod made since the last change of arm does not start. `settled`: nothing
    else is under way (a trial of depths, a measurement of step times). `still`: no pod is to start, since
    none is wanted or somebody has paused the rollout."""

    spec: str
    in_force: Arm
    allowed: tuple[Arm, ...]
    restart: bool
    tell: bool
    needed: float  # log gain
    dwell: float
    startup: float | None = None
    complete: bool = True
    ready: int = 0
    broken: str = ""
    settled: bool = True
    still: bool = False
    refused: str = ""  # why the API server does not take the plan with `next` in it


@dataclass(frozen=True, slots=True)
class Turn:
    """What is new at this tick: a reason with a sentence for an event, and the gains that go with it."""

    reason: Reason
    message: str
    predicted: float | None = None
    measured: tuple[float, float] | None = None  # log gain and its deviation


def decide(
    memory: ArmMemory, facts: Situation, view: View | None, windows: Sequence[Window], now: float
) -> tuple[ArmMemory, Turn | None]:
    """`memory.next` is where engines are to be restarted to, until it is in force. `view` is None while
    nothing is known of the traffic."""
    memory = _noted(memory, facts, now)
    if facts.startup is not None and memory.going is None:
        memory = replace(memory, startup=facts.startup)
    if memory.next is not None and facts.refused and not memory.back:
        return _given_up(memory, facts)
    if memory.going is not None and not memory.going.ready_at:
        memory, turn = _rolling(memory, facts, now)
        if turn is not None or (memory.going is not None and not memory.going.ready_at):
            return memory, turn
    if not facts.complete or view is None or not windows or not view.weights.any():
        return memory, None
    fresh = [w for w in windows if w.start >= _since(memory)]
    seen, told = learn(memory.seen, facts.in_force, view, fresh)
    if memory.going is not None or facts.in_force.kind is not Kind.ADAPTIVE:
        # Later what it does better or worse cannot be told from what traffic has become.
        memory = replace(memory, seen=seen)
    memory = replace(memory, looks=memory.looks + told)
    if memory.going is not None and told:
        lasted = memory.going.lasted + max(w.seconds for w in windows)
        memory = replace(memory, going=replace(memory.going, lasted=lasted))
        return _probation(memory, facts, view)
    if memory.going is not None or memory.next is not None:
        return memory, None
    return _choose(memory, facts, view, now)


def _since(memory: ArmMemory) -> float:
    """Windows that begin earlier may be of engines that were still warming up, or of another arm."""
    return memory.going.ready_at if memory.going is not None else memory.since


def _noted(memory: ArmMemory, facts: Situation, now: float) -> ArmMemory:
    """Memory that knows which arm is in force, whoever put it there, and forgets what another spec taught."""
    if memory.spec != facts.spec:
        return ArmMemory(spec=facts.spec, in_force=facts.in_force, since=now)
    if memory.in_force == facts.in_force:
        # A change that is not made yet is only wanted as long as the user lets it be made.
        if memory.next is not None and not memory.back and not facts.restart:
            memory = replace(memory, next=None)
        if memory.told is not None and not facts.tell:
            memory = replace(memory, told=None, reason="", why="")
        return memory
    going = None
    if not memory.back:
        going = Going(memory.in_force, now, memory.next[1] if memory.next else 0.0)
    return replace(
        memory, in_force=facts.in_force, since=now, looks=0, next=None, back=False, going=going, told=None
    )


def _rolling(memory: ArmMemory, facts: Situation, now: float) -> tuple[ArmMemory, Turn | None]:
    going = memory.going
    assert going is not None
    if facts.ready > going.ready:
        going = replace(going, ready=facts.ready, moved_at=now)
        memory = replace(memory, going=going)
    if facts.still:  # the clock stands, and pods that nobody asked for prove nothing
        going = replace(going, moved_at=now)
        memory = replace(memory, going=going)
    limit = a.START_FACTOR * memory.startup + a.START_MARGIN if memory.startup else a.START_UNKNOWN
    late = now - max(going.at, going.moved_at) > limit
    why = facts.broken or (f"none became ready within {limit:.0f} s" if late else "")
    if facts.complete and not (facts.broken or facts.still):
        return replace(memory, going=replace(going, ready_at=now)), None
    if not why:
        return memory, None
    barred = Barred(facts.in_force, failed=True)
    text = f"pods with {facts.in_force.words} do not start ({why}): back to {going.before.words}"
    return _returning(memory, going.before, barred, Reason.ARM_FAILED, text), Turn(Reason.ARM_FAILED, text)


def _given_up(memory: ArmMemory, facts: Situation) -> tuple[ArmMemory, Turn]:
    assert memory.next is not None
    arm = memory.next[0]
    text = f"{arm.words} cannot be rolled out ({facts.refused}): {facts.in_force.words} stays"
    barred = (*(b for b in memory.barred if b.arm != arm), Barred(arm, failed=True))
    after = replace(memory, next=None, barred=barred, reason=Reason.ARM_FAILED, why=text)
    return after, Turn(Reason.ARM_FAILED, text)


def _returning(memory: ArmMemory, to: Arm, barred: Barred, reason: Reason, why: str) -> ArmMemory:
    others = tuple(b for b in memory.barred if b.arm != barred.arm)
    return replace(
        memory, next=(to, 0.0), back=True, going=None, barred=(*others, barred), reason=reason, why=why
    )


def _probation(memory: ArmMemory, facts: Situation, view: View) -> tuple[ArmMemory, Turn | None]:
    going, arm = memory.going, facts.in_force
    assert going is not None
    mean, deviation = gain(view, memory.seen, arm, going.before)
    over = going.lasted >= a.DWELLS * facts.dwell
    clear = memory.looks >= a.CLEAR_LOOKS and mean + a.CLEAR_Z * deviation < 0
    if not over and not clear:
        return memory, None
    numbers = f"{math.expm1(mean):+.1%} ± {_percent(deviation)} goodput against {going.before.words}"
    loses = -mean * a.HORIZON > memory.startup
    if loses and facts.restart:
        barred = Barred(arm, view.load, view.length)
        text = f"{arm.words} measured {numbers}: back to it"
        after = _returning(memory, going.before, barred, Reason.ARM_UNDONE, text)
        return after, Turn(Reason.ARM_UNDONE, text, going.predicted, (mean, deviation))
    text = f"{arm.words} measured {numbers}: it stays"
    if loses:
        text = f"{arm.words} measured {numbers}; going back needs spec.tuning.actuator Restart"
    elif not over:
        return memory, None
    after = replace(memory, going=None, reason=Reason.ARM_KEPT, why=text)
    return after, Turn(Reason.ARM_KEPT, text, going.predicted, (mean, deviation))


def _choose(memory: ArmMemory, facts: Situation, view: View, now: float) -> tuple[ArmMemory, Turn | None]:
    enough = memory.looks >= a.LEAST_LOOKS
    waited = now - memory.since >= a.DWELLS * facts.dwell
    if not (enough and waited and facts.settled) or facts.still or facts.startup is None:
        return memory, None
    if facts.in_force.blind and facts.restart and SCHEDULE in facts.allowed:
        unseen = now - memory.since
        if unseen >= max(a.BLIND, a.BLIND_RESTARTS * facts.startup):
            text = f"what drafts are worth was not seen for {unseen / 3600:.0f} hours: {SCHEDULE.words} looks again"
            again = replace(memory, next=(SCHEDULE, 0.0), told=None, reason=Reason.ARM_CHANGED, why=text)
            return again, Turn(Reason.ARM_CHANGED, text)
    barred = {b.arm for b in memory.barred if _holds(b, view)}
    found = [
        (mean - a.GATE_Z * deviation, mean, deviation, arm)
        for arm in facts.allowed
        if arm != facts.in_force and arm not in barred
        for mean, deviation in (gain(view, memory.seen, arm, facts.in_force),)
    ]
    sure, mean, deviation, best = max(found, key=lambda row: row[0], default=(-math.inf, 0.0, 0.0, SCHEDULE))
    asked = max(facts.needed, math.log1p(a.REPAY * facts.startup / a.HORIZON))
    if sure < asked:
        if memory.told is not None and (best != memory.told or sure < a.FORGET * asked):
            return replace(memory, told=None, reason="", why=""), None
        return memory, None
    numbers = f"{_percent(mean)} ± {_percent(deviation)} more goodput at the present load than"
    text = f"{best.words}: {numbers} {facts.in_force.words}, for a restart of {facts.startup:.0f} s a pod"
    if facts.restart:
        after = replace(memory, next=(best, mean), told=None, reason=Reason.ARM_CHANGED, why=text)
        return after, Turn(Reason.ARM_CHANGED, text, mean)
    if not facts.tell or memory.told == best:
        return memory, None
    text += "; with spec.tuning.actuator Restart and mode Apply it would be made"
    return replace(memory, told=best, reason=Reason.ARM_RECOMMENDED, why=text), Turn(
        Reason.ARM_RECOMMENDED, text, mean
    )


def _holds(barred: Barred, view: View) -> bool:
    """Whether what was true when an arm was undone still is."""
    if barred.failed:
        return True
    moved = view.load.moved(barred.load) >= a.BARRED_LOAD
    return not moved and abs(view.length - barred.length) < a.BARRED_LENGTH


def _percent(log: float) -> str:
    return f"{math.expm1(log):.1%}"
