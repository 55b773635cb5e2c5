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
from specpilot_engine.protocol import Exploration, Schedule, Step
from specpilot_engine.record import Recorder
from specpilot_engine.timing import StepClock, TimedStep
from specpilot_engine.watch import Active, ScheduleWatcher

KV_ROOM = 0.9  # above this share of KV cache in use a deeper draft may preempt somebody

Lookup = list[int]  # depth by number of scheduled requests; index 0 unused
BuildLookup = Callable[[list[tuple[int, int, int]]], Lookup]


@dataclass(frozen=True, slots=True)
class Lookups:
    """A schedule as vLLM reads it, and the same with the depth to explore where exploring is allowed."""

    scheduled: Lookup
    explored: Lookup
    exploration: Exploration


def prepare_lookups(schedule: Schedule, build: BuildLookup, size: int, row_budget: int) -> Lookups:
    """Build both lookups; they must have vLLM's own `size`.

    Exploring stops where a batch of full drafts would exceed `row_budget`, the rows a step may have:
    vLLM would cut drafts there, and the step would measure nothing. Raises ValueError.
    """
    scheduled = build(schedule.as_vllm())
    if len(scheduled) != size:
        raise ValueError(f"vLLM built a schedule for {len(scheduled) - 1} requests, not {size - 1}")
    x = schedule.exploration
    widest = min(x.max_batch, row_budget // (1 + x.tokens), size - 1) if x.price > 0 else 0
    explored = list(scheduled)
    explored[1 : widest + 1] = [x.tokens] * widest
    return Lookups(scheduled, explored, x)


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
    """

    def __init__(
        self,
        scheduler: Any,
        recorder: Recorder,
        clock: StepClock,
        watcher: ScheduleWatcher[Lookups] | None,
    ) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._clock = clock
        self._watcher = watcher
        self._active: Active[Lookups] | None = None
        self._explorer = Explorer()
        self._flying: deque[tuple[Any, TimedStep]] = deque()  # scheduled, results still to come

    def before_schedule(self) -> None:
        """Put the lookup for the coming step in place."""
        if self._watcher is None:
            return
        scheduler, active = self._scheduler, self._watcher.active
        self._active = active
        lookups = active.prepared
        lookup = lookups.scheduled
        running = len(scheduler.running)
        if running:
            batch = min(running, len(lookup) - 1)
            differs = lookups.explored[batch] != lookup[batch]
            if self._explorer.step(lookups.exploration, differs, self._may_explore):
                lookup = lookups.explored
                self._recorder.explored_steps = self._explorer.explored
            self._recorder.exploration_share = self._explorer.share
        if scheduler.dynamic_sd_lookup is not lookup:
            scheduler.dynamic_sd_lookup = lookup

    def after_schedule(self, output: Any, now: float) -> None:
        """Note the step that `output` (a SchedulerOutput) will be; `now` is when scheduling began."""
        if not output.total_num_scheduled_tokens:
            return
        cached = output.scheduled_cached_reqs
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
        )
        self._clock.scheduled(step, output.total_num_scheduled_tokens, output.scheduled_spec_decode_tokens)
        self._flying.append((output, step))

    def before_update(self, output: Any, results: Any) -> None:
        """Count acceptance. vLLM cuts the sampled tokens at a request's end in its own update, so now."""
        drafts = output.scheduled_spec_decode_tokens
        sampled = results.sampled_token_ids
        if not drafts or not sampled:
            return
        requests, index = self._scheduler.requests, results.req_id_to_index
        invalid = output.num_invalid_spec_tokens
        drafted, accepted = self._recorder.draft_lengths, self._recorder.accepted_lengths
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
            drafted[length] += 1
            accepted[tokens - 1] += 1

    def after_update(self, output: Any, results: dict[int, Any], now: float) -> None:
        """Time the step; `results` are the EngineCoreOutputs by client, `now` when they came."""
        if not output.total_num_scheduled_tokens:
            return
        self._recorder.all_steps += 1
        step = self._landed(output)
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

    def _landed(self, output: Any) -> TimedStep | None:
        """The step of `output`; earlier ones still listed lost their results and are dropped."""
        while self._flying:
            candidate, step = self._flying.popleft()
            if candidate is output:
                return step
        return None

    def _may_explore(self) -> bool:
        scheduler = self._scheduler
        if scheduler.kv_cache_manager.usage > KV_ROOM:
            return False
        # Deferred grammar work would be timed instead of the step.
        return not any(request.use_structured_output for request in scheduler.running)
