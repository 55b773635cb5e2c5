"""Scenarios inside vLLM's own engine core, in the vLLM environment: see core_script.py and budget_script.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.setup import models, vllm

HERE = Path(__file__).parent


def drive(script: str, version: str, pipelined: bool) -> dict[str, Any]:
    """A script's reports by scenario, of the version that runs here or of the newest."""
    environment = vllm.provide()
    tiny = models.provide(models.Shape(hidden=512, layers=8))
    path = [str(HERE.parents[1] / "serving")]
    if version == vllm.NEWEST:
        path.insert(0, str(vllm.provide_newest()))
    done = subprocess.run(
        [environment.python, HERE / script, tiny.target, tiny.draft, str(int(pipelined))],
        # The newest version's wheel is for GPUs: it has to be told that there is none.
        env={**os.environ, **vllm.ENVIRONMENT, "PYTHONPATH": ":".join(path), "VLLM_TARGET_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    sys.stderr.write(done.stderr[-5000:])
    assert done.returncode == 0
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert {report["vllm"] for report in reports.values()} == {version}
    return reports
