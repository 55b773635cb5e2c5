"""The process: start-up, serving, faults on demand, graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from aiohttp import web

from specpilot_engine.protocol import ENV_SIM
from specpilot_engine.sim.api import Api, Phase
from specpilot_engine.sim.arguments import Arguments, ConfigError, parse_arguments
from specpilot_engine.sim.counters import Counters, VllmCollector
from specpilot_engine.sim.engine import Engine
from specpilot_engine.sim.live import Live
from specpilot_engine.sim.runner import Runner
from specpilot_engine.sim.truth import Truth, TruthError, read_truth

log = logging.getLogger("specpilot_engine.sim")


def main(argv: list[str] | None = None) -> int:
    """Run the simulated server until a signal ends it; returns the exit status.

    0 after SIGTERM or SIGINT; 1 where vLLM would fail to start or the port is taken; 2 for settings
    that cannot be read.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(message)s")
    try:
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    except ConfigError as e:
        log.error("%s", e)
        return 1
    try:
        truth = read_truth(os.environ.get(ENV_SIM))
    except TruthError as e:
        log.error("%s: %s.", ENV_SIM, e)
        return 2
    if arguments.speculation is not None and arguments.speculation.block:
        truth = truth.verified_by_block()
    if truth.fail.start or (truth.fail.without_drafter and arguments.speculation is None):
        log.error("the engine fails to start, as %s asks for.", ENV_SIM)
        return 1
    return asyncio.run(_serve(arguments, truth))


async def _serve(arguments: Arguments, truth: Truth) -> int:
    engine = Engine(truth, arguments.max_num_seqs, arguments.max_num_batched_tokens, arguments.speculation)
    live = Live(engine, arguments, truth.fail.live)
    counters = Counters(arguments.speculation)
    runner = Runner(engine, counters, live)
    collector = VllmCollector(counters, engine, arguments.served_names[0])
    api = Api(arguments, truth, runner, counters, collector.registry())
    # Cancelling the handler of a client that left is how its request leaves the batch.
    web_runner = web.AppRunner(
        api.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0
    )
    await web_runner.setup()
    site = web.TCPSite(web_runner, arguments.host, arguments.port)
    try:
        await site.start()
    except OSError as e:
        log.error("cannot listen on %s:%d (%s); give another --port.", arguments.host, arguments.port, e)
        return 1
    live.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if truth.fail.crash_after:
        loop.call_later(truth.fail.crash_after, _crash)
    steps = asyncio.create_task(runner.run())
    starting = asyncio.create_task(_start(api.phase, truth))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({steps, stopped}, return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    api.phase.ready, api.phase.why = False, "the engine is stopping"
    if not steps.done():
        await _drain(site, runner, truth.grace_seconds, arguments.shutdown_timeout)
        steps.cancel()
    await web_runner.cleanup()
    live.stop()
    if not steps.cancelled() and steps.done() and (error := steps.exception()):
        log.error("the step loop failed; this is a bug of the simulated engine.", exc_info=error)
        return 1
    return 0


async def _start(phase: Phase, truth: Truth) -> None:
    """Become ready after the start-up time, as loading a model would."""
    await asyncio.sleep(truth.startup_seconds)
    if not truth.fail.never_ready:
        phase.ready = True
        log.info("ready")


async def _drain(site: web.TCPSite, runner: Runner, grace: float, timeout: float | None) -> None:
    """Take no new connection and let running requests finish, for a while."""
    await site.stop()
    log.info("stopping; %d requests may finish", len(runner.engine.running) + len(runner.engine.waiting))
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(runner.drained(), grace if timeout is None else timeout)


def _crash() -> None:
    log.error("crashing, as %s asks for", ENV_SIM)
    os._exit(1)
