"""Traffic that a script changes while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from specpilot.local.load import Load, hold


@contextmanager
def traffic(load: Load) -> Iterator[Load]:
    """Hold `load` in a thread of its own; set its attributes to change it."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(hold(load, stop),), name="traffic")
    thread.start()
    try:
        yield load
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
