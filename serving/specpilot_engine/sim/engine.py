"""Continuous batching without a model: which requests run, what a step takes, what it emits.

No clock and no I/O: the caller asks for a step, lets its seconds pass, and says when it ended. As in
vLLM a depth chosen while scheduling step n is drafted in it and verified in step n+1, prompts are
prefilled in chunks beside running requests, and every running request takes part in every step.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.truth import Truth


@dataclass(slots=True, eq=False)
class Request:
    """One request; `deliver(tokens, finished)` is called after each step that emitted for it."""

    id: str
    prompt_tokens: int
    max_tokens: int
    survival: tuple[float, ...]
    arrived: float  # on the clock that the steps end on
    deliver: Callable[[int, bool], None]
    prefilled: int = 0
    emitted: int = 0
    aborted: bool = False

    @property
    def context(self) -> int:
        """Tokens in its KV cache."""
        return self.prefilled + self.emitted

    @property
    def use_structured_output(self) -> bool:
        return False

    def is_finished(self) -> bool:
        """Whether it has all its tokens."""
        return self.emitted >= self.max_tokens

    @property
    def decodes(self) -> bool:
        """Whether its prompt is done."""
        return self.prefilled >= self.prompt_tokens


@dataclass(slots=True)
class Step:
    """One step of the whole batch, as planned by `Engine.begin` and completed by `Engine.finish`."""

    tokens: int  # drafts verified for each request of `decoding`
    next_tokens: int  # drafts proposed for the step after
    decoding: list[Request]
    prefilling: list[tuple[Request, int]]  # with the prompt tokens computed in this step
    accepted: list[int]  # drafts that will be accepted, for each of `decoding`
    seconds: float  # what it takes, noise and prefill included
    started: float
    ended: float = 0.0
    emitted: list[int] = field(default_factory=list)  # tokens emitted, for each of `decoding`
    first_tokens: list[Request] = field(default_factory=list)  # requests that emitted their first token
    finished: list[Request] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return len(self.decoding) + len(self.prefilling)


class KvCache:
    """A cache that never fills: the simulation knows no preemption."""

    usage = 0.0


class Engine:
    """The batch and its queue.

    Its attributes have the names of vLLM's scheduler, so that the engine package's hooks find in it
    what they find there; `dynamic_sd_lookup` is the live depth by requests in the step.
    """

    def __init__(
        self,
        truth: Truth,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        speculation: Speculation | None,
    ) -> None:
        self.requests: dict[str, Request] = {}  # all that run or wait
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.max_num_running_reqs = max_num_seqs
        self.max_num_scheduled_tokens = max_num_batched_tokens
        self.num_spec_tokens = speculation.tokens if speculation else 0
        self.dynamic_sd_lookup = speculation.lookup(max_num_seqs) if speculation else None
        self.kv_cache_manager = KvCache()
        self._truth = truth
        self._longer = 1.0 if self.dynamic_sd_lookup is None else 1 + truth.schedule_overhead
        self._drafted = 0
        self._random = random.Random(truth.seed)

    @property
    def idle(self) -> bool:
        return not self.requests

    def submit(self, request: Request) -> None:
        """Queue a request; it runs from the next step that has room for it."""
        self.requests[request.id] = request
        self.waiting.append(request)

    def abort(self, request: Request) -> None:
        """Drop a request whose client went away. Unknown and finished ones are ignored."""
        request.aborted = True
        if self.requests.pop(request.id, None) is not None:
            (self.running if request in self.running else self.waiting).remove(request)

    def begin(self, now: float) -> Step:
        """Plan the next step from what runs and waits. Call only when not idle."""
        decoding = [r for r in self.running if r.decodes]
        prefilling = self._prefill(self.max_num_scheduled_tokens - len(decoding) * (1 + self._drafted))
        batch = len(decoding) + len(prefilling)
        tokens = self._drafted if decoding else 0
        context = sum(r.context for r in decoding) / max(len(decoding), 1)
        seconds = self._truth.step_seconds(tokens, batch, context) * self._longer * self._noise()
        seconds += self._truth.prefill_seconds_per_token * sum(n for _, n in prefilling)
        accepted = [self._accept(r.survival, tokens) for r in decoding]
        self._drafted = self._depth(batch)
        return Step(tokens, self._drafted, decoding, prefilling, accepted, seconds, now)

    def _depth(self, batch: int) -> int:
        lookup = self.dynamic_sd_lookup
        return self.num_spec_tokens if lookup is None else lookup[batch]

    def _prefill(self, budget: int) -> list[tuple[Request, int]]:
        """Share the step's token budget among unfinished prompts, admitting while there is room."""
        chunks: list[tuple[Request, int]] = []
        pending = [r for r in self.running if not r.decodes]
        while budget > 0:
            if pending:
                request = pending.pop(0)
            elif self.waiting and len(self.running) < self.max_num_running_reqs:
                request = self.waiting.popleft()
                self.running.append(request)
            else:
                break
            chunk = min(budget, request.prompt_tokens - request.prefilled)
            budget -= chunk
            chunks.append((request, chunk))
        return chunks

    def _noise(self) -> float:
        # Normal, cut where a step would become absurdly short.
        return max(0.1, self._random.gauss(1.0, self._truth.step_noise))

    def finish(self, step: Step, now: float) -> None:
        """Hand out the step's tokens; requests that have all of theirs leave the batch."""
        step.ended = now
        for request, accepted in zip(step.decoding, step.accepted, strict=True):
            step.emitted.append(min(1 + accepted, request.max_tokens - request.emitted))
            self._emit(step, request, step.emitted[-1])
        for request, chunk in step.prefilling:
            request.prefilled += chunk
            if request.decodes:
                step.first_tokens.append(request)
                self._emit(step, request, 1)
        if step.finished:
            for request in step.finished:
                del self.requests[request.id]
            self.running = [r for r in self.running if r.id in self.requests]

    def _accept(self, survival: tuple[float, ...], tokens: int) -> int:
        """Draw how many drafts are accepted: one uniform number, as slots survive only in order."""
        u, accepted, most = self._random.random(), 0, min(tokens, len(survival))
        while accepted < most and u < survival[accepted]:
            accepted += 1
        return accepted

    def _emit(self, step: Step, request: Request, tokens: int) -> None:
        request.emitted += tokens
        if request.aborted:
            return
        finished = request.is_finished()
        if finished:
            step.finished.append(request)
        request.deliver(tokens, finished)
