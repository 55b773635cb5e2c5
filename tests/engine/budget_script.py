"""The row budget inside vLLM's own engine core, over a device whose step times and survival are known.

Runs in the vLLM environment: `budget_script.py TARGET DRAFT ASYNC`; the last line it prints is a JSON object
by scenario.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import core_script
import device
from core_script import Engine

from specpilot_engine import protocol, scheduler
from specpilot_engine.protocol import Budget, Exploration, Schedule, Step

DEPTH = 5


class Mixed(device.Device):
    """Accepts each draft token with a probability of its request's own."""

    survival: Callable[[str], float] = staticmethod(lambda _request: 0.0)
    _ids: Iterator[str]

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        self._ids = iter(list(self._scheduled.num_scheduled_tokens))
        return super().sample_tokens(grammar_output, non_block)

    def _accepted(self, length: int) -> int:
        q, accepted = Mixed.survival(next(self._ids)), 0
        while accepted < length and self._random.random() < q:
            accepted += 1
        return accepted


def number(request: str) -> int:
    return int(request.partition("-")[0][1:])


def run(engine: Engine, count: int) -> dict[str, Any]:
    """`count` steps: their rows, tokens and seconds, and what was counted for the operator by position."""
    recorder = engine.scheduler._specpilot._recorder
    first, emitted = len(engine.device.steps), engine.emitted
    drafted, accepted = recorder.drafted(), recorder.accepted()
    engine.steps(count)
    steps = engine.device.steps[first:]
    return {
        "drafted": [b - a for a, b in zip(drafted, recorder.drafted(), strict=True)],
        "accepted": [b - a for a, b in zip(accepted, recorder.accepted(), strict=True)],
        "rows": [step[1] for step in steps],
        "drafts": [step[2] for step in steps],
        "emitted": engine.emitted - emitted,
        "seconds": sum(device.step_seconds(step[1], step[3]) for step in steps),
    }


def budgeted(engine: Engine, price: float = 0.005, exploration: Exploration | None = None) -> None:
    schedule = Schedule(1, (Step(16, DEPTH),), exploration or Exploration(), Budget(price))
    engine.put(schedule, wait=False)
    engine.scheduler._specpilot._watcher.poll(0.0)


def hopeless(engine: Engine) -> list[dict[str, Any]]:
    Mixed.survival = staticmethod(lambda _request: 0.0)
    engine.add(4, 1900)
    plain = run(engine, 100)
    budgeted(engine)
    early = run(engine, 200)
    engine.steps(600)
    return [plain, early, run(engine, 900)]


def mixed(engine: Engine) -> list[dict[str, Any]]:
    """Every second request's drafts are good."""
    Mixed.survival = staticmethod(lambda request: 0.9 * (number(request) % 2))
    budgeted(engine)
    parts = []
    for _ in range(12):
        engine.add(8, 1200)
        parts.append(run(engine, 240))
        engine.core.abort_requests(list(engine.scheduler.requests))
        engine.drain()
    return parts


def recovering(engine: Engine) -> list[dict[str, Any]]:
    Mixed.survival = staticmethod(lambda _request: 0.0)
    budgeted(engine)
    engine.add(4, 1900)
    bad = run(engine, 400)
    Mixed.survival = staticmethod(lambda _request: 0.95)
    return [bad, run(engine, 200), run(engine, 40)]


def exploring(engine: Engine) -> list[dict[str, Any]]:
    """A depth is explored while drafts are cut."""
    Mixed.survival = staticmethod(lambda _request: 0.0)
    engine.put(Schedule(1, (Step(16, 2),), Exploration(0.02, 5, 0.5, 16), Budget(0.005)), wait=False)
    engine.scheduler._specpilot._watcher.poll(0.0)
    engine.add(4, 1900)
    return [run(engine, 800)]


def main() -> None:
    target, draft, pipelined = sys.argv[1:4]
    scheduler.time = device.Clock  # type: ignore[assignment]
    core_script.Device = Mixed  # type: ignore[misc]
    reports = {}
    for play in (hopeless, mixed, recovering, exploring):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            os.environ[protocol.ENV_PORT] = str(s.getsockname()[1])
        os.environ[protocol.ENV_SCHEDULE_FILE] = tempfile.mkdtemp() + "/schedule.json"
        engine = Engine(target, draft, pipelined == "1", [[1, 16, DEPTH]])
        parts = play(engine)
        trimmer = engine.scheduler._specpilot._trimmer
        reports[play.__name__] = {
            **engine.report(),
            "parts": parts,
            "metrics": engine.get(protocol.METRICS_PATH),
            "cutting": trimmer and trimmer.cutting,
        }
        del engine.scheduler._specpilot
    print("\n" + json.dumps(reports))


if __name__ == "__main__":
    main()
