"""Measures one batch at one context: the requests are held while the depth is swept under them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles

from specpilot_engine.profiler.client import EngineClient, Held
from specpilot_engine.profiler.order import Group
from specpilot_engine.profiler.override import Override
from specpilot_engine.protocol import ProfilePoint, ProfileRequest, StepSample

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
ACK_SECONDS = 10.0  # an engine that is alive takes an override within two of its polls
REFUSAL_SECONDS = 2.0  # an error on show for so long is about this override, not the one before
# Without a step that counts and without one more request running for so long, the batch is not coming.
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 5.0  # between two looks at how many run
# So many clean steps in a row with fewer requests, over so long: the engine runs no more at once.
STEADY_STEPS, STEADY_SECONDS = 30, 3.0
CONTEXT_SHARE, CONTEXT_TOKENS = 1 / 8, 192  # how far from the wanted context a step may be
MIN_PROMPT = 8


class GivenUp(Exception):
    """These points cannot be measured; the message says why.

    `runs` is how many requests the engine runs at once where that is the reason.
    """

    def __init__(self, reason: str, runs: int = 0) -> None:
        super().__init__(reason)
        self.runs = runs


class OutOfBudget(Exception):
    """The time the profile may take is spent."""


class NotLive(Exception):
    """The engine cannot change its depth; the message is its reason."""


@dataclass(slots=True)
class Collected:
    """Clean steps of one point; the first `skip` of each attempt are dropped."""

    skip: int
    seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        if self.skip > 0:
            self.skip -= 1
        else:
            self.seconds.append(seconds)

    def point(self, tokens: int, group: Group, repeats: int) -> ProfilePoint:
        times = self.seconds[:repeats]
        middle = median(times)
        spread = 0.0
        if len(times) > 1:
            low, _, high = quantiles(times, n=4, method="inclusive")
            spread = (high - low) / middle
        return ProfilePoint(tokens, group.batch, group.context, middle, spread, len(times))


class Sweep:
    """One group's measurement; hands each finished point to `finish`.

    `deadline` is a time.monotonic() value; depths the engine does not take end up in `refused`, with
    the reason.
    """

    def __init__(
        self,
        client: EngineClient,
        override: Override,
        request: ProfileRequest,
        group: Group,
        deadline: float,
        finish: Callable[[ProfilePoint], None],
        refused: dict[int, str],
    ) -> None:
        self._client = client
        self._override = override
        self._request = request
        self._group = group
        self._deadline = deadline
        self._finish = finish
        self._tolerance = int(max(CONTEXT_TOKENS, group.context * CONTEXT_SHARE))
        self._since = 0
        self._steady: list[StepSample] = []  # the latest clean steps, as long as their batch is one
        self._steady_from = 0.0
        self._moved = 0.0  # when something last got further
        self._next_look = 0.0
        self._running = 0
        self._refused = refused

    async def run(self, depths: list[int]) -> None:
        """Measure `depths`, in their order.

        Raises GivenUp, OutOfBudget, NotLive, and the client's Refused and EngineGone.
        """
        collected = {k: Collected(self._request.warmup) for k in depths}
        waiting = [k for k in depths if k not in self._refused]
        while waiting:
            before = sum(len(c.seconds) for c in collected.values())
            prompt, tokens = self._sizes()
            # At depth 0 while prompts are computed: the requests that are through move on slowest.
            await self._set(0)
            await self._forget()
            async with Held(self._client, self._group.batch, prompt, tokens) as held:
                while waiting and await self._collect(held, waiting[0], collected[waiting[0]]):
                    k = waiting.pop(0)
                    if k not in self._refused:
                        self._finish(collected[k].point(k, self._group, self._request.repeats))
            if waiting and sum(len(c.seconds) for c in collected.values()) == before:
                self._check_steady(0.0)
                raise GivenUp(
                    f"requests of {tokens} tokens end before {self._group.batch} of them at context "
                    f"{self._group.context} give one step that counts"
                )

    def _sizes(self) -> tuple[int, int]:
        """Tokens of a prompt, and of its completion: the steps' mean context passes the wanted one."""
        wanted, longest = self._group.context, self._client.max_model_len
        prompt = wanted - self._tolerance // 2
        tokens = 2 * self._tolerance + self._group.batch
        if longest:
            if wanted > longest:
                raise GivenUp(f"context {wanted} is above the engine's {longest} tokens")
            prompt = min(prompt, longest - self._tolerance)
            tokens = min(tokens, longest - max(prompt, MIN_PROMPT))
        if tokens < 1:
            raise GivenUp(f"context {wanted} leaves no room in the engine's {longest} tokens")
        return max(prompt, MIN_PROMPT), tokens

    async def _forget(self) -> None:
        """Start anew: steps from before say nothing about the requests to come."""
        for sample in await self._client.steps(self._since):
            self._since = sample.seq
        self._steady, self._running = [], 0
        self._moved = time.monotonic()

    async def _set(self, tokens: int) -> bool:
        """Have the engine draft `tokens`; False when it refuses that depth."""
        if tokens in self._refused:
            return False
        schedule = self._override.set(tokens)
        error, began = "", time.monotonic()
        while time.monotonic() - began < (REFUSAL_SECONDS if error else ACK_SECONDS):
            self._check_budget()
            state = await self._client.state()
            if not state["live"]:
                raise NotLive(str(state["reason"]))
            if state["adaptive"]:
                raise NotLive("vLLM sizes what is verified of a draft itself")
            if state["hash"] == schedule.hash:
                return True
            error = str(state["fileError"]) if "override" in state["fileError"] else ""
            await asyncio.sleep(POLL_SECONDS / 2)
        self._refused[tokens] = f"the engine does not take depth {tokens}: {error or 'it does not follow'}"
        return False

    async def _collect(self, held: Held, tokens: int, into: Collected) -> bool:
        """Gather steps at depth `tokens`; False when the requests ended before there were enough."""
        if not await self._set(tokens):
            return True
        into.skip = self._request.warmup
        while len(into.seconds) < self._request.repeats:
            self._check_budget()
            if held.ended():
                return False
            for sample in await self._client.steps(self._since):
                self._since = sample.seq
                self._watch(sample)
                if self._counts(sample, tokens):
                    into.add(sample.seconds)
                    self._moved = time.monotonic()
                elif (
                    sample.batch == self._group.batch
                    and sample.context > self._group.context + self._tolerance
                ):
                    return False
            await self._check_progress()
            await asyncio.sleep(POLL_SECONDS)
        return True

    def _counts(self, sample: StepSample, tokens: int) -> bool:
        return (
            sample.tokens == tokens
            and sample.batch == self._group.batch
            and abs(sample.context - self._group.context) <= self._tolerance
        )

    def _watch(self, sample: StepSample) -> None:
        if not self._steady or self._steady[-1].batch != sample.batch:
            self._steady, self._steady_from = [], time.monotonic()
        self._steady.append(sample)

    def _check_steady(self, seconds: float) -> None:
        """GivenUp when fewer requests have been running for `seconds`, with nothing else to compute."""
        batch = self._steady[-1].batch if self._steady else 0
        fewer = batch < self._group.batch and len(self._steady) >= STEADY_STEPS
        if fewer and time.monotonic() - self._steady_from > seconds:
            raise GivenUp(f"the engine runs no more than {batch} requests at once", batch)

    async def _check_progress(self) -> None:
        self._check_steady(STEADY_SECONDS)
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        running = await self._client.running()
        if running > self._running:
            self._running, self._moved = running, now
        elif now - self._moved > PATIENCE_SECONDS:
            raise GivenUp(
                f"no clean step with {self._group.batch} requests at context {self._group.context} "
                f"for {PATIENCE_SECONDS:.0f} seconds"
            )

    def _check_budget(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfBudget
