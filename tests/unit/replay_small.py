"""A tiny world for the replay's own tests, as its file would be."""

from __future__ import annotations

import json
from typing import Any

from specpilot.replay.world import World, parse_world

PHASE: dict[str, Any] = {"seconds": 120, "requests": 8, "traffic": {"code": 1.0}}


def document(**changes: Any) -> dict[str, Any]:
    """Depth 3 pays for code (goodput at batch 8: 400, 560, 640 tokens a second) and depth 0 for prose."""
    return {
        "name": "small",
        "depths": [0, 1, 3],
        "batches": [1, 8, 16],
        "step_time_ms": [[10, 20, 30], [12, 24, 40], [16, 34, 70]],
        "traffic": {"code": {"survival": [0.8, 0.6, 0.4]}, "prose": {"survival": [0.1, 0.0, 0.0]}},
        "phases": [PHASE],
        **changes,
    }


def small(**changes: Any) -> World:
    return parse_world(json.dumps(document(**changes)))
