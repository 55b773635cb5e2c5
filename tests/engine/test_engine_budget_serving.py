"""The row budget in a real vLLM server: what it leaves out, and that outputs stay those of stock vLLM."""

import pytest
from tests.engine.server import MAX_SEQS, MAX_TOKENS, Server, prompt

from specpilot_engine import protocol
from specpilot_engine.protocol import Budget, Schedule, Step

# One of them at a time.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

LONG = 160  # tokens of a completion that is compared
SEEDS = range(6)
CROWDS = 10  # within which it has learnt what a row costs, on a machine that is never as fast twice


def use(server: Server, generation: int, price: float) -> None:
    schedule = Schedule(generation, (Step(MAX_SEQS, MAX_TOKENS),), budget=Budget(price))
    server.put(schedule)
    server.acknowledged(schedule)


def series(server: Server, name: str) -> float:
    return next(value for key, value in server.series(server.own).items() if key[0] == name)


def test_a_greedy_requests_output_is_that_of_stock_vllm_at_the_same_depth(timed_server, stock_server):
    """At a price of 1 a fifth of the steps are cut just to look, whether it pays or not."""
    use(timed_server, 1, 1.0)
    ours = [timed_server.complete(prompt(seed), LONG) for seed in SEEDS]
    assert series(timed_server, protocol.M_ROWS_TRIMMED) > 50
    assert series(timed_server, protocol.M_ROWS_VERIFIED) > 50
    theirs = [stock_server.complete(prompt(seed), LONG) for seed in SEEDS]
    assert ours == theirs
    assert min(len(text.split()) for text in ours) > 0.9 * LONG  # a few tokens have no text


async def test_drafts_that_do_not_survive_are_left_out_and_looked_at_again(timed_server):
    use(timed_server, 2, 0.005)
    for _ in range(CROWDS):
        began = {n: series(timed_server, n) for n in (protocol.M_ROWS_VERIFIED, protocol.M_ROWS_TRIMMED)}
        await timed_server.crowd(4, 200, temperature=1.0)
        verified, trimmed = (series(timed_server, n) - before for n, before in began.items())
        if trimmed > verified:
            break
    else:
        pytest.fail(f"{verified:g} rows were verified, {trimmed:g} were left out")
    assert verified > 0
    assert series(timed_server, protocol.M_PROBES) > 0


def test_without_a_budget_the_server_counts_no_rows(timed_server):
    use(timed_server, 3, 0.0)
    timed_server.complete(prompt(1), 20)
    assert not any("row" in key[0] for key in timed_server.series(timed_server.own))


def test_its_log_tells_of_no_error(timed_server):
    assert "Traceback" not in timed_server.log.read_text()
