"""What the live scheduler does around each of vLLM's own calls.

Knows vLLM's objects by shape only and imports none of it. Nothing here may disturb serving: the
scheduler that calls these hooks catches whatever they raise and goes on as stock vLLM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specpilot_engine.explore import Explorer
from specpilot_engine.protocol import Exploration, Schedule, Step, Trial
from specpilot_engine.record import Recorder
from specpilot_engine.timing import StepClock, TimedStep
from specpilot_engine.trial import Slice, TrialRun
from specpilot_engine.trim import Trimmer
from specpilot_engine.watch import Active, ScheduleWatcher

KV_ROOM = 0.9  # above this share of KV cache in use a deeper draft may preempt somebody

Lookup = list[int]  # depth by number of scheduled requests; index 0 unused
BuildLookup = Callable[[list[tuple[int, int, int]]], Lookup]


@dataclass(frozen=True, slots=True)
class Lookups:
    """A schedule as vLLM reads it, and the same with the depth to explore where exploring is allowed.

    `against` is the schedule that it is on `trial` against, both None without one.
    """

    scheduled: Lookup
    explored: Lookup
    exploration: Exploration
    against: Lookup | None = None
    trial: Trial | None = None


def prepare_lookups(
    schedule: Schedule, build: BuildLookup, size: int, row_budget: int, adaptive: int = 0
) -> Lookups:
    """Build both lookups; they must have vLLM's own `size`. `adaptive`: drafts of which vLLM itself sizes what is
    verified, so that the schedule's caps are what counts; 0: it verifies all.

    Exploring stops where a batch of full drafts would exceed `row_budget`, the rows a step may have:
    vLLM would cut drafts there, and the step would measure nothing. Raises ValueError.
    """
    if adaptive:
        schedule = schedule.under_adaptive(adaptive)
    scheduled = build(schedule.as_vllm())
    if len(scheduled) != size:
        raise ValueError(f"vLLM built a schedule for {len(scheduled) - 1} requests, not {size - 1}")
    x = schedule.exploration
    widest = min(x.max_batch, row_budget // (1 + x.tokens), size - 1) if x.price > 0 else 0
    explored = list(scheduled)
    explored[1 : widest + 1] = [x.tokens] * widest
    trial = schedule.trial
    against = build(Schedule(0, trial.against).as_vllm()) if trial is not None else None
    return Lookups(scheduled, explored, x, against, trial)


def schedule_of(lookup: Lookup | None, size: int, tokens: int) -> Schedule:
    """The start-up schedule, generation 0: vLLM's own lookup read back, or one static depth."""
    depths = lookup[1:] if lookup else [tokens] * size
    steps: list[Step] = []
    for batch, depth in enumerate(depths, start=1):
        if steps and steps[-1].tokens == depth:
            steps.pop()
        steps.append(Step(batch, depth))
    return Schedule(0, tuple(steps))


class LiveHooks:
    """Swaps the lookup before a step, times the step, counts what its drafts were worth.

    `watcher` is None where the depth cannot be changed: then everything is measured and nothing set.
    `trimmer` is None where every draft has to be verified whole.
    """

    def __init__(
        self,
        scheduler: Any,
        recorder: Recorder,
        clock: StepClock,
        watcher: ScheduleWatcher[Lookups] | None,
        trimmer: Trimmer | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._clock = clock
        self._watcher = watcher
        self._active: Active[Lookups] | None = None
        self._explorer = Explorer(clock.stages)
        # Requests of the latest steps, one of each microbatch.
        self._turns: deque[int] = deque(maxlen=clock.stages)
        self._trimmer = recorder.trimmer = trimmer
        self._batch = 0  # requests of the coming step
        self._asked = 0  # depth of the drafts that the coming step verifies
        self._explored = False  # they were drafted to explore
        self._whole = True  # it verifies all of them by plan
        self._slice: Slice | None = None  # of the coming step, under a trial
        self._flying: deque[tuple[Any, TimedStep, Slice | None]] = deque()  # results still to come

    def before_schedule(self) -> None:
        """Put the lookup for the coming step in place."""
        if self._watcher is None:
            return
        scheduler, active = self._scheduler, self._watcher.active
        if active is not self._active:
            self._adopt(active)
        lookups = active.prepared
        lookup = lookups.scheduled
        self._batch = batch = min(self._coming(), len(lookup) - 1)
        exploring = False
        run = self._recorder.trial
        if run is not None and lookups.against is not None:
            self._slice = run.next(batch > 0 and lookups.against[batch] != lookup[batch])
            lookup = lookup if run.new_runs else lookups.against
        elif batch:
            differs = lookups.explored[batch] != lookup[batch]
            if self._explorer.wants(lookups.exploration, differs, batch, self._may_explore):
                lookup, exploring = lookups.explored, True
        if scheduler.dynamic_sd_lookup is not lookup:
            scheduler.dynamic_sd_lookup = lookup
        if self._trimmer is not None:
            # What explores, or is compared in a trial, is a depth with all that it costs and brings.
            whole = self._explored or (run is not None and run.running)
            price = active.schedule.budget.price
            self._whole = self._trimmer.before_schedule(scheduler.running, self._asked, price, whole)
        self._explored = exploring

    def _coming(self) -> int:
        """How many requests the coming step has: all that run, or in a pipeline those of the microbatch whose turn it
        is, as at its last."""
        running, turns = len(self._scheduler.running), self._turns
        return min(running, turns[0]) if turns.maxlen != 1 and len(turns) == turns.maxlen else running

    def _took(self) -> None:
        """Account for the step that `before_schedule` was asked for. Where nothing was scheduled, as often in a
        pipeline, what it was to do is left to the next."""
        if self._active is None:
            return
        recorder, explorer = self._recorder, self._explorer
        if recorder.trial is not None:
            recorder.trial.took()
        elif self._batch:
            explorer.took(self._active.prepared.exploration, self._explored, self._batch, 1)
        recorder.explored_steps, recorder.exploration_share = explorer.explored, explorer.share

    def _adopt(self, active: Active[Lookups]) -> None:
        """Go by another schedule. Its trial goes on where it is the one that runs: the file may come back as it was."""
        self._active = active
        trial, generation = active.prepared.trial, active.schedule.generation
        run = self._recorder.trial
        if run is not None and (run.trial, run.generation) == (trial, generation):
            return
        self._slice = None
        self._recorder.trial = TrialRun(trial, generation) if trial is not None else None
        # Steps in flight belong to slices of a trial that is over.
        self._flying = deque((output, step, None) for output, step, _ in self._flying)

    def after_schedule(self, output: Any, now: float) -> None:
        """Note the step that `output` (a SchedulerOutput) will be; `now` is when scheduling began."""
        if self._trimmer is not None:
            self._trimmer.after_schedule(output.num_scheduled_tokens)
        if not output.total_num_scheduled_tokens:
            return
        self._took()
        cached = output.scheduled_cached_reqs
        self._turns.append(len(cached.req_ids) + len(output.scheduled_new_reqs))
        step = TimedStep(
            requests=cached.req_ids,
            scheduled_at=now,
            asked=output.num_spec_tokens_to_schedule,
            decoding=not (
                output.scheduled_new_reqs
                or cached.resumed_req_ids
                or output.preempted_req_ids
                or output.pending_structured_output_tokens
            ),
            context=sum(cached.num_computed_tokens),
            whole=self._whole,
        )
        self._asked = step.asked
        self._clock.scheduled(step, output.total_num_scheduled_tokens, output.scheduled_spec_decode_tokens)
        self._flying.append((output, step, self._slice))

    def before_update(self, output: Any, results: Any) -> None:
        """Count acceptance. vLLM cuts the sampled tokens at a request's end in its own update, so now."""
        drafts = output.scheduled_spec_decode_tokens
        sampled = results.sampled_token_ids
        if not drafts or not sampled:
            return
        requests, index = self._scheduler.requests, results.req_id_to_index
        invalid = output.num_invalid_spec_tokens
        # Of this step, not of the latest scheduled: that may be another one, still to come.
        step = next((step for flying, step, _ in self._flying if flying is output), None)
        whole = step is not None and step.whole
        drafted, accepted = self._recorder.draft_lengths, self._recorder.accepted_lengths
        learnt: list[tuple[str, int, int]] = []
        for request_id, draft in drafts.items():
            request = requests.get(request_id)
            if request is None or request.is_finished():
                continue
            tokens = len(sampled[index[request_id]])
            if tokens == 0:
                continue
            length = len(draft)
            if invalid:
                length -= invalid.get(request_id, 0)
            learnt.append((request_id, length, tokens - 1))
            if whole:
                drafted[length] += 1
                accepted[tokens - 1] += 1
        if self._trimmer is not None:
            self._trimmer.landed(learnt, whole)

    def after_update(self, output: Any, results: dict[int, Any], now: float) -> None:
        """Time the step; `results` are the EngineCoreOutputs by client, `now` when they came."""
        if not output.total_num_scheduled_tokens:
            return
        self._recorder.all_steps += 1
        step, of = self._landed(output)
        if step is None:
            return
        outputs = emitted = 0
        for client in results.values():
            outputs += len(client.outputs)
            for one in client.outputs:
                emitted += len(one.new_token_ids)
        seconds = self._clock.updated(step, now, outputs)
        if seconds is not None:
            self._recorder.clean_step(step.tokens, len(step.requests), step.context, seconds, emitted)
        if self._trimmer is not None and step.seconds is not None:
            rows = output.total_num_scheduled_tokens
            self._trimmer.timed(step.asked, len(step.requests), rows, step.seconds)
        if of is not None:
            self._compare(of, step, emitted, seconds)

    def _compare(self, of: Slice, step: TimedStep, emitted: int, seconds: float | None) -> None:
        """Count a step under trial. Its depth tells whether it was its slice's schedule that it ran: the
        first steps after a turn still verify what the other one drafted."""
        run, active = self._recorder.trial, self._active
        if run is None or active is None or active.prepared.against is None:
            return
        if seconds is not None:
            old, new = active.prepared.against, active.prepared.scheduled
            batch = min(len(step.requests), len(new) - 1)
            if old[batch] != new[batch] and step.tokens == (new if of.new else old)[batch]:
                of.add(len(step.requests), emitted, seconds)
        run.landed(of)

    def _landed(self, output: Any) -> tuple[TimedStep | None, Slice | None]:
        """The step of `output`; earlier ones still listed lost their results and are dropped."""
        while self._flying:
            candidate, step, of = self._flying.popleft()
            if candidate is output:
                return step, of
        return None, None

    def _may_explore(self) -> bool:
        scheduler = self._scheduler
        if scheduler.kv_cache_manager.usage > KV_ROOM:
            return False
        # Deferred grammar work would be timed instead of the step.
        return not any(request.use_structured_output for request in scheduler.running)
