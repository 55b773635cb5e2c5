"""One tick of one deployment, without I/O: what the counters became → windows → tuner → next schedule.

The operator and `specpilot up` both take exactly this step; they differ in how they read counters and
where they put a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specpilot.api.base import seconds
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.vocabulary import Reason
from specpilot.decide.decision import Decision
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import initial_schedule, tune
from specpilot.estimate import load, survival
from specpilot.estimate.constants import LONGEST_WINDOW
from specpilot.estimate.counters import Counters, TrialCount
from specpilot.estimate.discards import Discard, Discarded
from specpilot.estimate.windows import Window, between, remember, waiting
from specpilot.plan.arguments import Usable
from specpilot.plan.limits import limits
from specpilot_engine.protocol import Budget, Exploration, ModelShape, ProfilePoint, Schedule

Pod = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is carried from tick to tick: the tuner's memory, and each pod's counters at the last one."""

    memory: Memory = field(default_factory=Memory)
    before: Mapping[Pod, Counters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken:
    """A step's outcome. `schedule` is a new generation, or None where the one in force stays."""

    evidence: Evidence
    decision: Decision
    schedule: Schedule | None
    windows: Mapping[Pod, Window]
    discarded: Mapping[Pod, Discarded]


def settings(spec: SpeculativeDeploymentSpec, in_force: Schedule) -> Settings:
    """The tuner's settings. The graph map takes a moment: make them once per spec, then `replace` in_force."""
    tuning, usable = spec.tuning, Usable(spec)
    ceiling = tuning.objective.max_inter_token_latency
    return Settings(
        depths=spec.speculation.depths,
        max_batch=limits(spec).max_num_seqs,
        in_force=in_force,
        minimum_gain=tuning.minimum_gain,
        dwell=seconds(tuning.dwell),
        interval=tuning.period,
        # Exploring costs goodput, which only a schedule that may change can earn back.
        exploration_price=tuning.exploration_price if tuning.mode == "Apply" else 0.0,
        max_inter_token_latency=seconds(ceiling) if ceiling else None,
        allowed=usable,
        full=usable.full,
        prove=tuning.mode == "Apply",
        budget=_budget(spec),
    )


def _budget(spec: SpeculativeDeploymentSpec) -> Budget:
    """Leave to cut drafts before they are verified: where no graph is lost by it, and only to apply."""
    tuning = spec.tuning
    wanted = tuning.mode == "Apply" and spec.speculation.verification.adaptive != "Never"
    return Budget(tuning.exploration_price) if wanted and not limits(spec).capture_cap else Budget()


def without_leave(schedule: Schedule, to: Settings) -> Schedule | None:
    """`schedule` as a new generation without row budget and exploration, as far as the spec gives no leave for
    them any more: engines refuse a file that explores deeper than they were started for.

    Leave that is given later waits for the next generation.
    """
    explores = to.exploration_price > 0 and schedule.exploration.tokens in to.depths
    cut = replace(
        schedule,
        budget=schedule.budget if to.budget.price > 0 else Budget(),
        exploration=schedule.exploration if explores else Exploration(),
    )
    return None if cut == schedule else replace(cut, generation=schedule.generation + 1)


def first_schedule(points: Sequence[ProfilePoint], to: Settings, generation: int = 1) -> Schedule:
    """What a deployment without any traffic yet begins with."""
    return Schedule(generation, initial_schedule(points, to), Exploration(), to.budget)


def watch(evidence: Evidence, counters: Mapping[Pod, Counters], to: Settings, drafts: bool | None) -> Taken:
    """The tick of engines that do not run the schedule: it holds, and only what is true of traffic whatever
    engines run is learnt: the load and, where whole `drafts` are verified, their survival. None: nothing is.

    Step times are those of other arguments.
    """
    windows, discarded, before = _windows(evidence, heard(evidence, counters))
    memory, seen = evidence.memory, [w for w in windows.values() if w.cells]
    if seen and drafts is not None:
        memory = replace(memory, load=load.learn(memory.load, seen))
    if seen and drafts:
        memory = replace(memory, survival=survival.learn(memory.survival, seen)[0])
    held, idle = to.in_force.steps, to.in_force.exploration
    decision = Decision(False, held, idle, Reason.HOLDING, "engines run without the schedule")
    return Taken(Evidence(memory, before), decision, None, windows, discarded)


def step(
    evidence: Evidence,
    counters: Mapping[Pod, Counters],
    points: Sequence[ProfilePoint],
    to: Settings,
    publish: bool,
    now: float,
) -> Taken:
    """Learn from what `counters` became since the last tick and decide.

    `to.in_force` is the schedule that the engines run. With `publish` a change gets the generation
    after it; without (Observe, Recommend) the decision is only told, unless it ends a trial that was begun
    before. A change is proved where every engine can compare schedules. Pods that have no counters this
    time keep their earlier ones, so that their next window spans the gap.
    """
    counters = heard(evidence, counters)
    windows, discarded, before = _windows(evidence, counters)
    able, counts = comparing(evidence, counters)
    to = replace(to, prove=to.prove and publish and able)
    known = replace(evidence.memory, shape=_shape(evidence.memory.shape, counters))
    memory, decision = tune(known, list(windows.values()), points, to, now, counts)
    schedule = None
    if decision.change and (publish or decision.settled):
        schedule = replace(
            to.in_force,
            generation=to.in_force.generation + 1,
            steps=decision.steps,
            exploration=decision.exploration,
            budget=to.budget,
            trial=decision.trial,
        )
    return Taken(Evidence(memory, before), decision, schedule, windows, discarded)


def heard(evidence: Evidence, counters: Mapping[Pod, Counters]) -> Mapping[Pod, Counters]:
    """Without engines that vLLM's own series were read of and not the engine package's, as they were before: they are
    taken as not read, for as long as a window may be."""

    def lost(pod: Pod, now: Counters) -> bool:
        last = evidence.before.get(pod)
        if last is None or last.life != now.life or last.all_steps is None:
            return False
        return now.all_steps is None and now.at - last.at <= LONGEST_WINDOW

    return {pod: now for pod, now in counters.items() if not lost(pod, now)}


def comparing(evidence: Evidence, counters: Mapping[Pod, Counters]) -> tuple[bool, list[TrialCount]]:
    """Whether every engine can compare two depths, and what each told last of a trial: one that could not be read this
    time may be the one that still compares. `counters` as `heard`."""
    able = bool(counters) and all(c.live and c.trial is not None for c in counters.values())
    latest = {**evidence.before, **counters}
    return able, [c.trial for c in latest.values() if c.trial is not None]


def _shape(before: ModelShape | None, counters: Mapping[Pod, Counters]) -> ModelShape | None:
    """The model's shape: as it was while any engine says so, or none says anything (an older engine package).

    While pods are replaced by those of another model, what was learnt is of the old ones still.
    """
    told = [c.shape for c in counters.values() if c.shape is not None]
    return before if before in told or not told else told[0]


def _windows(
    evidence: Evidence, counters: Mapping[Pod, Counters]
) -> tuple[dict[Pod, Window], dict[Pod, Discarded], dict[Pod, Counters]]:
    windows: dict[Pod, Window] = {}
    discarded: dict[Pod, Discarded] = {}
    before = dict(evidence.before)
    for pod, after in counters.items():
        earlier = before.get(pod)
        if earlier is not None:
            found = between(earlier, after)
            if isinstance(found, Window):
                windows[pod] = found
            else:
                discarded[pod] = found
                if found.reason is Discard.CLOCK_BACK:
                    continue  # not scraped anew since
                if found.reason is Discard.NOTHING_CLEAN and (longer := waiting(earlier, after)):
                    # Nothing to learn from yet: what was counted adds up until there is.
                    before[pod] = longer
                    continue
                if found.reason in (Discard.RESET, Discard.GAP):
                    earlier = None
        before[pod] = remember(earlier, after)
    return windows, discarded, before


def forget(evidence: Evidence, pods: Sequence[Pod]) -> Evidence:
    """Evidence that keeps counters of `pods` only: those of pods that are gone will not come back."""
    keep = set(pods)
    return replace(evidence, before={p: c for p, c in evidence.before.items() if p in keep})
