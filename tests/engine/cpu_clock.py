"""The factory with a clock that stands still while the engine is not computing: for --scheduler-cls in tests.

The seconds of a step are then what it takes this process on the CPU, however busy the machine is.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

from specpilot_engine import scheduler
from specpilot_engine.scheduler import factory

__all__ = ["factory"]

scheduler.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
