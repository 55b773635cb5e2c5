"""The profiler container's process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from specpilot_engine import protocol
from specpilot_engine.exports import ExportServer
from specpilot_engine.profiler.client import EngineClient
from specpilot_engine.profiler.order import groups
from specpilot_engine.profiler.override import Override
from specpilot_engine.profiler.progress import Progress
from specpilot_engine.profiler.run import Profiler
from specpilot_engine.profiler.store import PointStore, StoreError
from specpilot_engine.protocol import ProfileRequest, parse_profile_request

log = logging.getLogger("specpilot_engine.profiler")

WRONG_SETTINGS = 2
READ_SECONDS = 0.2  # between two looks whether everything was read
LOOK_SECONDS = 2.0  # between two attempts to make a file
LAST_REPLY_SECONDS = 0.5  # the reader's own answer must be out before the process ends


class SettingError(Exception):
    """The environment does not say what to do; one sentence."""


def main() -> int:
    """Exit status: 0 done (or ended by SIGTERM), 2 where nothing can be measured and nobody waits."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s specpilot profiler: %(message)s"
    )
    try:
        return asyncio.run(_run())
    except asyncio.CancelledError:
        return 0


async def _run() -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    leaves = False
    try:
        request = _request()
        leaves = request.then == "exit"
        progress = await _measure(request)
        while leaves and not progress.all_read.is_set():
            await asyncio.sleep(READ_SECONDS)
    except (SettingError, StoreError) as e:
        log.error("%s.", e)
        if leaves:
            return WRONG_SETTINGS
    if leaves:
        await asyncio.sleep(LAST_REPLY_SECONDS)
        return 0
    # Beside a serving engine this process never ends by itself: a container that has ended, or one
    # that is started again and again, would keep its pod out of the Service.
    await _let_serve()
    await asyncio.Event().wait()
    return 0


async def _measure(request: ProfileRequest) -> Progress:
    """Measure and answer; the port stays open afterwards."""
    store = PointStore(_setting(protocol.ENV_PROFILE_FILE), request.key)
    override = Override(_setting(protocol.ENV_OVERRIDE_FILE))
    total = sum(len(group.depths) for group in groups(request))
    progress = Progress(request.key, total, store)
    server = ExportServer(
        _port(protocol.ENV_PROFILER_PORT, protocol.PROFILER_PORT),
        progress.routes(),
        protocol.ENV_PROFILER_PORT,
    )
    if error := server.start():
        raise SettingError(error)
    url = os.environ.get(protocol.ENV_ENGINE_URL, "http://127.0.0.1:8000")
    async with EngineClient(url, _port(protocol.ENV_PORT, protocol.PORT)) as client, override:
        await Profiler(request, store, progress, client, os.environ.get(protocol.ENV_PROFILED_FILE, "")).run(
            override
        )
    return progress


async def _let_serve() -> None:
    """Make the file that the pod's readiness waits for: a file, because a port may be another's."""
    path, said = os.environ.get(protocol.ENV_READY_FILE, ""), False
    while path:
        try:
            with open(path, "a", encoding="utf-8"):
                return
        except OSError as e:
            if not said:
                log.error("%s cannot be made (%s): give its volume space and write access.", path, e.strerror)
            said = True
            await asyncio.sleep(LOOK_SECONDS)


def _request() -> ProfileRequest:
    text = _setting(protocol.ENV_PROFILE)
    try:
        request = parse_profile_request(text)
    except (ValueError, KeyError, TypeError) as e:
        raise SettingError(f"{protocol.ENV_PROFILE} is not a profile request: {e!r}") from None
    if request.repeats < 1 or request.warmup < 0:
        raise SettingError(f"{protocol.ENV_PROFILE} must ask for at least one repeat and no negative warmup")
    return request


def _setting(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise SettingError(f"{name} must be set for the profiler")
    return value


def _port(name: str, default: int) -> int:
    text = os.environ.get(name, "") or str(default)
    if not text.isdecimal():
        raise SettingError(f"{name} must be a port number, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
