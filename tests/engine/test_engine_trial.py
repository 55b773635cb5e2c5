"""Two depths on trial in a real vLLM server: the engine's verdict is the one of running each on its own."""

import math
import time

import pytest
from tests.engine.server import MAX_SEQS, MAX_TOKENS, Server

from specpilot_engine import protocol
from specpilot_engine.protocol import Schedule, Step, Trial

# One of them at a time.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

REQUESTS, LONG = 2, 200
HOPELESS = 1.0  # temperature: drafts cost what they cost and next to none survive


def use(server: Server, generation: int, tokens: int, against: int | None = None) -> None:
    trial = None if against is None else Trial((Step(MAX_SEQS, against),), slice=8, pairs=60)
    schedule = Schedule(generation, (Step(MAX_SEQS, tokens),), trial=trial)
    server.put(schedule)
    server.acknowledged(schedule)


async def log_rate(server: Server, generation: int, tokens: int) -> float:
    """Log of tokens per second and request at a depth held throughout."""
    use(server, generation, tokens)
    before = server.series(server.own)
    await server.crowd(REQUESTS, LONG, HOPELESS)
    after, cell = server.series(server.own), (f"batch={protocol.bucket(REQUESTS)}", f"k={tokens}")
    emitted, seconds = (
        after[name, *cell] - before.get((name, *cell), 0.0)
        for name in (protocol.M_EMITTED, protocol.M_SECONDS)
    )
    return math.log(emitted / seconds / REQUESTS)


async def tried(server: Server, generation: int, new: int, old: int) -> dict:
    """The trial's state when it has ended."""
    use(server, generation, new, old)
    end = time.monotonic() + 600
    while (state := server.state()["trial"]) is None or state["running"]:
        assert time.monotonic() < end, state
        await server.crowd(REQUESTS, LONG, HOPELESS)
    return state


async def test_the_better_of_two_depths_wins_whichever_of_them_is_new(timed_server: Server) -> None:
    deep, none = [await log_rate(timed_server, 101 + i, k) for i, k in enumerate((MAX_TOKENS, 0))]
    print(f"\ndepth 0 over depth {MAX_TOKENS}: {math.expm1(none - deep):+.1%} one after the other")
    assert none - deep > math.log(1.25)
    kept = await tried(timed_server, 110, 0, MAX_TOKENS)
    undone = await tried(timed_server, 111, MAX_TOKENS, 0)
    for state in (kept, undone):
        low, high = (math.expm1(bound) for bound in state["interval"])
        print(f"alternating: {math.expm1(state['logGain']):+.1%} ({low:+.1%} to {high:+.1%}), {state}")
    assert (kept["newRuns"], undone["newRuns"]) == (True, False)
    assert kept["interval"][0] > 0 > undone["interval"][1]
    assert kept["logGain"] == pytest.approx(none - deep, abs=0.35)
    assert max(kept["tried"], undone["tried"]) <= 40
    # The winner runs on until another schedule comes.
    since = int(timed_server.steps()[-1][0])
    await timed_server.crowd(REQUESTS, 60, HOPELESS)
    assert {int(step[1]) for step in timed_server.steps(since)} == {0}


async def test_where_the_two_do_not_differ_nothing_is_tried(timed_server: Server) -> None:
    """They do for more than eight requests, which do not run."""
    trial = Trial((Step(8, 1), Step(MAX_SEQS, 0)), slice=8, pairs=60)
    elsewhere = Schedule(120, (Step(8, 1), Step(MAX_SEQS, 3)), trial=trial)
    timed_server.put(elsewhere)
    timed_server.acknowledged(elsewhere)
    await timed_server.crowd(REQUESTS, 100)
    state = timed_server.state()["trial"]
    assert (state["running"], state["tried"], state["pairs"]) == (True, 0, 0)
