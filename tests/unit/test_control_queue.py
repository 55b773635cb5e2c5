"""The work queue: once each, one worker per key, back-off that forgets on success."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from specpilot.control.queue import Refusal, Retry, WorkQueue


async def worked_off(queue: WorkQueue[str], handle: object, workers: int = 2) -> None:
    task = asyncio.create_task(queue.run(handle, workers))  # type: ignore[arg-type]
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_key_added_many_times_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: Counter[str] = Counter()

    async def handle(key: str) -> None:
        seen[key] += 1

    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    await worked_off(queue, handle)
    assert seen == {"a": 1, "b": 1}


async def test_a_key_added_while_it_is_worked_on_is_worked_on_again_and_never_by_two_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    running, most, runs = 0, 0, 0

    async def handle(key: str) -> None:
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        if runs == 1:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(0)
        running -= 1

    queue.add("a")
    await worked_off(queue, handle, workers=3)
    assert (runs, most) == (2, 1)


async def test_a_failing_key_backs_off_and_does_not_stop_the_others() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=100, longest_delay=300)
    seen: list[str] = []

    async def handle(key: str) -> None:
        if key == "bad":
            raise Retry("not now")
        if key == "broken":
            raise ValueError("a bug")
        seen.append(key)

    for key in ("bad", "broken", "good"):
        queue.add(key)
    await worked_off(queue, handle)
    assert seen == ["good"]
    assert [queue.delay(k) for k in ("good", "bad", "broken")] == [100, 200, 200]


async def test_back_off_doubles_up_to_its_limit_and_is_forgotten_by_a_success() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=0.0, longest_delay=60.0)
    attempts = 0

    async def handle(_: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise Retry("still not")

    queue.add("a")
    task = asyncio.create_task(queue.run(handle, 1))
    while attempts < 4:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    assert queue._failures == {}

    slow: WorkQueue[str] = WorkQueue(first_delay=0.5, longest_delay=60.0)
    delays = []
    for failures in range(9):
        slow._failures["a"] = failures
        delays.append(slow.delay("a"))
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_key_that_says_when_to_come_back_does_so_without_back_off() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=100, longest_delay=300)
    rests = [0.0, 0.0, 0.0]

    async def handle(_: str) -> None:
        if rests:
            raise Refusal("no", rests.pop())

    queue.add("a")
    await worked_off(queue, handle, workers=1)
    assert (rests, queue.delay("a")) == ([], 100)


async def test_the_earliest_of_several_delays_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 3600)
    queue.add_after("a", 0)
    queue.add_after("a", 3600)
    await asyncio.sleep(0.01)
    assert len(queue) == 1
