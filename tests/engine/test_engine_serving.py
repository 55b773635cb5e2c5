"""The engine package in a real vLLM server: depth without a restart, counters, step times, the profiler."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.engine.server import (
    GENERATED,
    LABELS,
    MAX_SEQS,
    MAX_TOKENS,
    PATIENCE,
    ROOT,
    Series,
    Server,
    free_port,
    prompt,
    serving,
)

from specpilot_engine import protocol
from specpilot_engine.protocol import Exploration, ProfileRequest, Schedule, Step

# One of them at a time.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

DEPTHS = (5, 2, 0)
LONG = 120  # tokens of a completion that is compared


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("live")
    with serving(folder, "specpilot_engine.scheduler.factory", light=True) as server:
        yield server


def everywhere(generation: int, tokens: int, exploration: Exploration | None = None) -> Schedule:
    return Schedule(generation, (Step(MAX_SEQS, tokens),), exploration or Exploration())


def use(server: Server, schedule: Schedule) -> None:
    server.put(schedule)
    server.acknowledged(schedule)


def grown(after: Series, before: Series, *name: str) -> float:
    return after.get(name, 0.0) - before.get(name, 0.0)


def test_it_starts_live_with_the_startup_schedule(server):
    state = server.state()
    assert (state["live"], state["reason"], state["generation"]) == (True, "", 0)
    assert state["schedule"] == [{"upTo": MAX_SEQS, "tokens": MAX_TOKENS}]
    assert state["versions"]["vllm"].startswith("0.32.0")


def test_it_tells_the_shape_of_its_model_and_of_the_draft(server):
    told = [name[1:] for name in server.series(server.own) if name[0] == protocol.M_SHAPE]
    (labels,) = (dict(label.split("=", 1) for label in labels) for labels in told)
    # 8 attention heads and 4 KV heads of 64; 1 layer of the draft; an output head each; all in 32 bits.
    layer, head = 512 * 64 * (2 * 8 + 2 * 4) + 3 * 512 * 1536, 512 * 2048
    expected = protocol.ModelShape(
        weights=4.0 * (8 * layer + head),
        weight_flops=2.0 * (8 * layer + head),
        layers=8,
        device="cpu",
        full_bytes=8.0 * 2 * 4 * 4 * 64,
        full_flops=8.0 * 4 * 8 * 64,
        draft="autoregressive",
        draft_layers=1,
        draft_weights=4.0 * (layer + head),
        draft_flops=2.0 * (layer + head),
    )
    assert labels == expected.labels()


async def test_a_changed_schedule_is_in_force_at_the_next_steps_of_the_same_requests(server):
    use(server, everywhere(1, 5))
    since = max((int(s[0]) for s in server.steps()), default=0)
    running = asyncio.create_task(server.crowd(2, 1900))
    for generation, tokens in enumerate((5, 2, 0), start=2):
        await asyncio.to_thread(use, server, everywhere(generation, tokens))
        end = time.monotonic() + PATIENCE
        while sum(s[1] == tokens for s in server.steps(since)) < 10:
            assert not running.done()
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
    running.cancel()
    order = [int(s[1]) for s in server.steps(since) if s[2] == 2]
    assert sorted(order, reverse=True) == order
    assert set(order) == {5, 2, 0}
    assert server.process.poll() is None


def test_a_broken_file_leaves_the_last_good_schedule_and_is_named(server):
    good = everywhere(20, 2)
    use(server, good)
    for text, error in (
        (everywhere(21, 7).dump(), "depth 7 is above the 5 tokens"),
        (everywhere(21, 1).dump()[:-9], "not JSON"),
        ("{}", "version None is not 1"),
    ):
        server.schedule.write_text(text)
        end = time.monotonic() + PATIENCE
        while error not in (state := server.state())["fileError"]:
            assert time.monotonic() < end, state
            time.sleep(0.05)
        assert state["hash"] == good.hash
        server.complete(prompt(1), 8)
    use(server, everywhere(22, 1))
    assert server.state()["fileError"] == ""


async def test_acceptance_is_what_vllm_counts_and_emitted_tokens_are_accounted_for(server):
    vllm_before, before = await asyncio.to_thread(server.counted), server.series(server.own)
    for generation, tokens in enumerate(DEPTHS, start=30):
        await asyncio.to_thread(use, server, everywhere(generation, tokens))
        await server.crowd(3, 60)
    wanted = vllm_before[GENERATED] + 3 * 3 * 60
    vllm_after, after = await asyncio.to_thread(server.counted, wanted), server.series(server.own)
    for i in range(MAX_TOKENS):
        theirs = ("vllm:spec_decode_num_accepted_tokens_per_pos_total", *LABELS, f"position={i}")
        ours = (protocol.M_ACCEPTED, f"position={i}")
        assert grown(after, before, *ours) == grown(vllm_after, vllm_before, *theirs)
    drafted = [grown(after, before, protocol.M_DRAFTED, f"position={i}") for i in range(MAX_TOKENS)]
    total = ("vllm:spec_decode_num_draft_tokens_total", *LABELS)
    assert sum(drafted) == grown(vllm_after, vllm_before, *total)
    assert drafted[0] == grown(vllm_after, vllm_before, "vllm:spec_decode_num_drafts_total", *LABELS)
    assert drafted[0] == drafted[1] > drafted[2] == drafted[4] > 0
    emitted = sum(grown(after, before, *key) for key in after if key[0] == protocol.M_EMITTED)
    generated = grown(vllm_after, vllm_before, *GENERATED)
    assert 0.5 * generated < emitted <= generated


async def test_step_times_add_up_to_the_time_that_passed(server):
    use(server, everywhere(40, 1))
    await server.crowd(1, 20)
    before, since = server.series(server.own), int(server.steps()[-1][0])
    began = time.monotonic()
    await server.crowd(1, 300)
    passed = time.monotonic() - began
    after, samples = server.series(server.own), server.steps(since)
    cell = (f"batch={protocol.bucket(1)}", "k=1")
    steps = grown(after, before, protocol.M_STEPS, *cell)
    seconds = grown(after, before, protocol.M_SECONDS, *cell)
    every = grown(after, before, protocol.M_ALL_STEPS)
    assert steps == len(samples) >= every - 8
    assert sum(s[4] for s in samples) == pytest.approx(seconds)
    # The unclean rest is a prefill and the first and last steps.
    assert 0.5 * passed < seconds < passed
    context = grown(after, before, protocol.M_CONTEXT, *cell)
    assert 16 < context / steps < 316
    assert context / steps == pytest.approx(sum(s[3] for s in samples) / len(samples))


async def test_exploring_stays_within_its_price(server):
    x = Exploration(price=0.02, tokens=5, cost=0.4, max_batch=MAX_SEQS)
    use(server, everywhere(50, 1, x))
    before, since = server.series(server.own), int(server.steps()[-1][0])
    await server.crowd(2, 500)
    after = server.series(server.own)
    steps = grown(after, before, protocol.M_ALL_STEPS)
    explored = grown(after, before, protocol.M_EXPLORED_STEPS)
    assert 0 < explored <= 0.05 * (steps + 1) + 4  # and a run that was paid for before
    assert grown(after, before, protocol.M_DRAFTED, "position=4") > 0
    depths = [int(s[1]) for s in server.steps(since)]
    assert depths.count(5) >= explored / 4
    use(server, everywhere(51, 1))
    before = server.series(server.own)
    await server.crowd(2, 60)
    assert grown(server.series(server.own), before, protocol.M_EXPLORED_STEPS) == 0


def profile(server: Server, request: ProfileRequest, points: Path) -> dict:
    """What the profiler has found when it says that it is finished."""
    port = free_port()
    env = {
        **os.environ,
        "PYTHONPATH": "serving",
        protocol.ENV_PROFILE: request.dump(),
        protocol.ENV_PROFILE_FILE: str(points),
        protocol.ENV_PROFILER_PORT: str(port),
        protocol.ENV_PORT: str(server.own_port),
        protocol.ENV_OVERRIDE_FILE: str(server.override),
        protocol.ENV_ENGINE_URL: server.url,
    }
    process = subprocess.Popen([sys.executable, "-m", "specpilot_engine.profiler"], cwd=ROOT, env=env)
    document: dict = {"finished": False}
    end = time.monotonic() + 600
    try:
        while not document["finished"]:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
            with contextlib.suppress(httpx.ConnectError):
                document = server.http.get(f"http://127.0.0.1:{port}{protocol.PROFILE_PATH}").json()
    finally:
        process.kill()
        process.wait()
    return document


def test_the_profiler_measures_this_engine_and_goes_on_where_it_was(server, tmp_path):
    request = ProfileRequest("k", (0, 5), (1, 4, 32), (256,), repeats=10, warmup=2, budget=300.0)
    mine, kept = everywhere(60, 1), tmp_path / "points.jsonl"
    use(server, mine)
    document = profile(server, request, kept)
    points = {(p["tokens"], p["batchSize"]): p for p in document["points"]}
    assert set(points) == {(0, 1), (5, 1), (0, 4), (5, 4)}
    assert document["error"] == "the engine runs no more than 16 requests at once (2 points left out)"
    assert all(p["steps"] == 10 for p in points.values())
    for (tokens, batch), point in points.items():
        times = [s[4] for s in server.steps() if s[1] == tokens and s[2] == batch and s[3] > 100]
        assert min(times) <= point["seconds"] <= max(times)
    assert points[5, 4]["seconds"] > points[0, 1]["seconds"]
    server.acknowledged(mine)  # the override is gone
    again = profile(server, request, kept)
    assert again["points"] == document["points"]
    assert kept.read_text().count('"point"') == len(points)  # none was measured twice


def test_greedy_output_is_that_of_stock_vllm_and_what_it_lacks_is_said(server, stock_server):
    """The other server's vLLM lacks a field that is needed: it runs vLLM's own scheduler."""
    use(server, everywhere(70, MAX_TOKENS))
    ours = [server.complete(prompt(seed), LONG) for seed in range(4)]
    scheduler = stock_server.schedule.with_name("class").read_text()
    assert scheduler == "vllm.v1.core.sched.scheduler.Scheduler"
    stock_server.put(everywhere(1, 0))
    before = stock_server.counted()
    theirs = [stock_server.complete(prompt(seed), LONG) for seed in range(4)]
    state, series = stock_server.state(), stock_server.series(stock_server.own)
    after = stock_server.counted(before[GENERATED] + 4 * LONG)
    assert ours == theirs
    assert min(len(text.split()) for text in ours) > 0.9 * LONG  # a few tokens have no text
    reason = "vLLM's SchedulerOutput has no field a_field_of_another_version"
    assert (state["live"], state["reason"], state["generation"]) == (False, reason, 0)
    assert series[protocol.M_LIVE, f"reason={reason}"] == 0
    # The start-up schedule drafts, whatever the file says.
    assert grown(after, before, "vllm:spec_decode_num_drafts_total", *LABELS) > 0
