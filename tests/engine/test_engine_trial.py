"""Two depths on trial in a real vLLM server: the engine's verdict is the one of running each on its own."""

import math
import time
from collections.abc import Iterator

import pytest
from tests.engine.server import MAX_SEQS, MAX_TOKENS, Server, serving

from specpilot_engine import protocol
from specpilot_engine.protocol import Schedule, Step, Trial

# One of them at a time.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

REQUESTS, LONG = 2, 400
CLEAR = 0.15  # log: depths this far apart have a winner beyond doubt


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("trial"), "specpilot_engine.scheduler.factory") as server:
        yield server


def use(server: Server, generation: int, tokens: int, against: int | None = None) -> None:
    trial = None if against is None else Trial((Step(MAX_SEQS, against),), slice=8, pairs=60)
    schedule = Schedule(generation, (Step(MAX_SEQS, tokens),), trial=trial)
    server.put(schedule)
    server.acknowledged(schedule)


async def log_rate(server: Server, tokens: int) -> float:
    """Log of tokens per second and request at a depth held throughout."""
    before = server.series(server.own)
    await server.crowd(REQUESTS, LONG)
    after, cell = server.series(server.own), (f"batch={protocol.bucket(REQUESTS)}", f"k={tokens}")
    emitted, seconds = (
        after[name, *cell] - before.get((name, *cell), 0.0)
        for name in (protocol.M_EMITTED, protocol.M_SECONDS)
    )
    return math.log(emitted / seconds / REQUESTS)


async def tried(server: Server, generation: int, new: int, old: int) -> dict:
    """The trial's state when it has ended."""
    use(server, generation, new, old)
    end = time.monotonic() + 240
    while (state := server.state()["trial"]) is None or state["running"]:
        assert time.monotonic() < end, state
        await server.crowd(REQUESTS, LONG)
    return state


async def test_the_better_of_two_depths_wins_whichever_of_them_is_new(server: Server) -> None:
    rates = {}
    for generation, tokens in enumerate((MAX_TOKENS, 0, MAX_TOKENS, 0), start=1):
        use(server, generation, tokens)
        rates.setdefault(tokens, []).append(await log_rate(server, tokens))
    deep, none = (sum(rates[k]) / 2 for k in (MAX_TOKENS, 0))
    print(f"\ndepth {MAX_TOKENS} over depth 0: {math.expm1(deep - none):+.1%} one after the other")
    assert abs(deep - none) > CLEAR
    best, worst = (MAX_TOKENS, 0) if deep > none else (0, MAX_TOKENS)
    kept = await tried(server, 10, best, worst)
    undone = await tried(server, 11, worst, best)
    for state in (kept, undone):
        low, high = (math.expm1(bound) for bound in state["interval"])
        print(f"alternating: {math.expm1(state['logGain']):+.1%} ({low:+.1%} to {high:+.1%}), {state}")
    assert (kept["newRuns"], undone["newRuns"]) == (True, False)
    assert kept["interval"][0] > 0 > undone["interval"][1]
    assert kept["logGain"] == pytest.approx(abs(deep - none), abs=0.35)
    assert max(kept["tried"], undone["tried"]) <= 40
    # The winner runs on until another schedule comes.
    since = int(server.steps()[-1][0])
    await server.crowd(REQUESTS, 60)
    assert {int(step[1]) for step in server.steps(since)} == {best}


async def test_where_the_two_do_not_differ_nothing_is_tried(server: Server) -> None:
    """They do for more than eight requests, which do not run."""
    trial = Trial((Step(8, 1), Step(MAX_SEQS, 0)), slice=8, pairs=60)
    elsewhere = Schedule(20, (Step(8, 1), Step(MAX_SEQS, 3)), trial=trial)
    server.put(elsewhere)
    server.acknowledged(elsewhere)
    await server.crowd(REQUESTS, 100)
    state = server.state()["trial"]
    assert (state["running"], state["tried"], state["pairs"]) == (True, 0, 0)
