"""Decides which engine steps are clean, and how long they took.

A step's time is the interval between two successive `update_from_output` calls. From schedule to
update would be wrong: with two steps in flight the first half of that span belongs to the step
before. The interval is the step's own only where nothing else filled it:

- the engine never waited: with several steps in flight, step n was scheduled before the results of
  step n-1 came in; in a synchronous engine the next schedule followed right after them;
- the same requests, all decoding, with the same number of drafts each, and no preemption;
- one depth throughout. The interval holds the verification of the depth drafted one step before
  and, depending on vLLM's model runner, the drafting of either that depth or the next one. So the
  steps before and after must have the same depth: only runs of three equal steps are timed.

Pure: times are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

# Between results and the next schedule a synchronous engine hands out tokens and, with several
# processes, waits for the drafter: part of the step. More than this share of it is waiting for work.
GAP_SHARE = 0.5


@dataclass(slots=True)
class TimedStep:
    """One scheduled step.

    `asked` is the depth its requests are to draft after it, verified one step later; `decoding`
    that no request in it is new, resumed, preempted or held back for structured output; `context`
    the context tokens summed over its requests; `whole` that it verifies all that was drafted, by plan;
    `tokens` the depth it verifies (-1: not one depth).

    `seconds` is what it took, if nothing else filled the time and the depth drafted was one throughout,
    whatever number of drafts were verified.
    """

    requests: Sequence[str]
    scheduled_at: float
    asked: int
    decoding: bool
    context: int
    whole: bool = True
    tokens: int = -1
    updated_at: float | None = None
    seconds: float | None = None
    previous: TimedStep | None = None


class StepClock:
    """Fed every non-empty step in order, once when scheduled and once when its results came.

    `pipelined`: vLLM keeps several steps in flight. `stages`: pipeline-parallel stages, each with a
    microbatch of its own; a microbatch's step lasts from its own last results to its next. `variable`:
    the drafter may propose fewer tokens than asked (n-gram); its steps are keyed by what was asked.
    """

    def __init__(self, pipelined: bool, stages: int = 1, variable: bool = False) -> None:
        self.stages = stages
        self._pipelined = pipelined
        self._variable = variable
        self._recent: deque[TimedStep] = deque(maxlen=stages)
        self._last_update = float("-inf")

    def scheduled(self, step: TimedStep, rows: int, drafts: Mapping[str, Sized]) -> None:
        """`rows`: tokens the step computes in all; `drafts`: those to verify, by request."""
        for earlier in reversed(self._recent):
            if earlier.requests == step.requests:
                step.previous = earlier
                if (
                    step.decoding
                    and step.whole
                    and self._uniform(earlier.asked, len(step.requests), rows, drafts)
                ):
                    step.tokens = earlier.asked
                break
        self._recent.append(step)

    def updated(self, step: TimedStep, now: float, outputs: int) -> float | None:
        """Seconds the step took if it was clean. `outputs`: how many of its requests got tokens."""
        previous, step.previous = step.previous, None
        waited_for, self._last_update = self._last_update, now
        step.updated_at = now
        if previous is None or previous.updated_at is None or outputs != len(step.requests):
            return None
        if not (step.decoding and previous.decoding) or previous.asked != step.asked:
            return None
        seconds = now - previous.updated_at
        waited = self._pipelined or step.scheduled_at - previous.updated_at > GAP_SHARE * seconds
        if step.scheduled_at >= waited_for and waited:
            return None
        step.seconds = seconds
        return seconds if step.tokens == previous.tokens == step.asked else None

    def _uniform(self, asked: int, batch: int, rows: int, drafts: Mapping[str, Sized]) -> bool:
        if self._variable:
            return rows == batch + sum(map(len, drafts.values()))
        return rows == batch * (1 + asked) and len(drafts) == (batch if asked else 0)
