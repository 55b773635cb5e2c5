"""vLLM's engine core with asynchronous scheduling, by its shapes: a step is scheduled before the last one's results.

Drafts are placeholders, one list that all requests share, until the device has them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from specpilot_engine.live import LiveHooks, Lookups
from specpilot_engine.protocol import Budget, Exploration, Schedule, Step, Trial
from specpilot_engine.record import Recorder
from specpilot_engine.timing import StepClock
from specpilot_engine.trim import Trimmer
from specpilot_engine.watch import Active

DEPTH, DEEPEST, PRICE = 4, 5, 0.005


def step_seconds(rows: int) -> float:
    return 0.02 * (1 + 0.1 * rows)


class Watched(Trimmer):
    """Keeps what it was told that steps of so many rows took."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__(max_tokens)
        self.times: list[tuple[int, float]] = []

    def timed(self, tokens: int, batch: int, rows: int, seconds: float) -> None:
        super().timed(tokens, batch, rows, seconds)
        self.times.append((rows, seconds))


class Engine:
    """`batch` requests whose drafts survive with `q` a slot. `landed` has each step's lengths, and those drafted."""

    def __init__(self, q: Callable[[int], float], batch: int = 4) -> None:
        self.q, self.random = q, random.Random(0)
        running = [self.request(f"r{i}") for i in range(batch)]
        self.scheduler = SimpleNamespace(
            running=running,
            requests={r.request_id: r for r in running},
            dynamic_sd_lookup=None,
            kv_cache_manager=SimpleNamespace(usage=0.1),
        )
        self.watcher: Any = SimpleNamespace(active=None)
        self.recorder, self.trimmer = Recorder(DEEPEST), Watched(DEEPEST)
        self.hooks = LiveHooks(
            self.scheduler, self.recorder, StepClock(pipelined=True), self.watcher, self.trimmer
        )
        self.ask()
        self.flying: deque[tuple[Any, float, list[int]]] = deque()
        self.now = self.free = 0.0
        self.drafted = {r.request_id: 0 for r in running}
        self.landed: list[tuple[list[int], list[int]]] = []
        self.emitted = 0

    @staticmethod
    def request(name: str) -> Any:
        return SimpleNamespace(
            request_id=name, spec_token_ids=[], use_structured_output=False, is_finished=lambda: False
        )

    def ask(
        self, price: float = PRICE, exploration: Exploration | None = None, trial: Trial | None = None
    ) -> None:
        """Put another schedule in force."""
        lookup = [DEPTH] * (len(self.scheduler.running) + 1)
        explored = [exploration.tokens] * len(lookup) if exploration else lookup
        against = [trial.against[0].tokens] * len(lookup) if trial else None
        prepared = Lookups(lookup, explored, exploration or Exploration(), against, trial)
        self.watcher.active = Active(Schedule(1, (Step(64, DEPTH),), budget=Budget(price)), prepared)

    def run(self, steps: int, paused: Callable[[int], bool] = lambda _: False) -> None:
        """`paused` says of a step whether the scheduler leaves all requests out."""
        for i in range(steps):
            self.schedule([] if paused(i) else self.scheduler.running)
            if len(self.flying) == 2:
                self.land()

    def schedule(self, requests: Sequence[Any]) -> None:
        held = [(r.spec_token_ids, list(r.spec_token_ids)) for r in self.scheduler.running]
        self.hooks.before_schedule()
        assert all(shared == before for shared, before in held)
        drafts = {r.request_id: r.spec_token_ids for r in requests if r.spec_token_ids}
        names = [r.request_id for r in requests]
        scheduled = {name: 1 + len(drafts.get(name, ())) for name in names}
        output = SimpleNamespace(
            total_num_scheduled_tokens=sum(scheduled.values()),
            num_scheduled_tokens=scheduled,
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=names, resumed_req_ids=set(), num_computed_tokens=[9] * len(names)
            ),
            scheduled_spec_decode_tokens=drafts,
            preempted_req_ids=set(),
            pending_structured_output_tokens=False,
            num_invalid_spec_tokens={},
            num_spec_tokens_to_schedule=self.scheduler.dynamic_sd_lookup[len(names)],
        )
        placeholders = [-1] * output.num_spec_tokens_to_schedule
        for r in requests:
            r.spec_token_ids = placeholders
        self.hooks.after_schedule(output, self.now)
        if names:
            drafted = [self.drafted[name] for name in names]
            self.drafted.update(dict.fromkeys(names, len(placeholders)))
            self.free = max(self.now, self.free) + step_seconds(output.total_num_scheduled_tokens)
            self.flying.append((output, self.free, drafted))

    def land(self) -> None:
        output, at, drafted = self.flying.popleft()
        self.now = max(self.now, at)
        names = list(output.num_scheduled_tokens)
        lengths = [output.num_scheduled_tokens[name] - 1 for name in names]
        sampled = [[7] * (1 + self.accepted(i, n)) for i, n in enumerate(lengths)]
        index = {name: i for i, name in enumerate(names)}
        self.hooks.before_update(output, SimpleNamespace(sampled_token_ids=sampled, req_id_to_index=index))
        tokens = [SimpleNamespace(new_token_ids=new) for new in sampled]
        self.hooks.after_update(output, {0: SimpleNamespace(outputs=tokens)}, self.now)
        self.landed.append((lengths, drafted))
        self.emitted += sum(map(len, sampled))

    def accepted(self, request: int, length: int) -> int:
        accepted = 0
        while accepted < length and self.random.random() < self.q(request):
            accepted += 1
        return accepted

    def goodput(self, steps: int) -> float:
        """Tokens per second of the next steps."""
        emitted, now = self.emitted, self.now
        self.run(steps)
        return (self.emitted - emitted) / (self.now - now)
