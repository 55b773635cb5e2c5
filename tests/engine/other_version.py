"""The factory on a vLLM that lacks something it needs: named by --scheduler-cls in the tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from specpilot_engine import probe, scheduler

probe.OUTPUT_FIELDS += ("a_field_of_another_version",)  # type: ignore[assignment]


def factory(**kwargs: Any) -> Any:
    """The scheduler; leaves its class's name beside the schedule file."""
    made = scheduler.factory(**kwargs)
    folder = Path(os.environ[scheduler.protocol.ENV_SCHEDULE_FILE]).parent
    (folder / "class").write_text(f"{type(made).__module__}.{type(made).__qualname__}")
    return made
