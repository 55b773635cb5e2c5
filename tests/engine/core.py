"""Scenarios inside vLLM's own engine core: see core_script.py and budget_script.py."""

import json
from typing import Any

from tests.engine.warm import Warm
from tests.setup import models


def drive(script: str, code: Warm, pipelined: bool) -> dict[str, Any]:
    """A script's reports by scenario."""
    tiny = models.provide(models.Shape(hidden=512, layers=8))
    done = code.run(script, str(tiny.target), str(tiny.draft), str(int(pipelined)))
    reports: dict[str, Any] = json.loads(done.splitlines()[-1])
    assert {report["vllm"] for report in reports.values()} == {code.version}
    return reports
