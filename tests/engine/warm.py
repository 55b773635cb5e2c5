"""vLLM's own code, asked by scripts in its environment: see warm_script.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.setup import vllm

HERE = Path(__file__).parent


class Warm:
    """A process that has imported one version's vLLM, in children of which scripts run."""

    def __init__(self, version: str, process: subprocess.Popen[str]) -> None:
        self.version, self._process = version, process

    def run(self, script: str, *arguments: str, given: str = "") -> str:
        """What a script of this folder prints, with `given` as its standard input; AssertionError if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "input").write_text(given)
            task = {"script": str(HERE / script), "arguments": arguments, "folder": folder}
            print(json.dumps(task), file=self._process.stdin, flush=True)
            status = self._process.stdout.readline().strip()
            errors = Path(folder, "errors").read_text()
            sys.stderr.write(errors[-5000:])
            assert status == "0", errors[-3000:]
            return Path(folder, "output").read_text()


@contextmanager
def warm(version: str) -> Iterator[Warm]:
    """The vLLM that runs here or, of the newest, its code."""
    path = [str(HERE.parents[1] / "serving")]
    if version == vllm.NEWEST:
        path.insert(0, str(vllm.provide_newest()))
    # The newest version's wheel is for GPUs: it has to be told that there is none.
    environment = {**vllm.ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path), "VLLM_TARGET_DEVICE": "cpu"}
    environment["TRITON_INTERPRET"] = "1"  # its kernels run as Python; triton reads this when it is imported
    command = [vllm.provide().python, HERE / "warm_script.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **environment}, **pipes) as process:
        yield Warm(version, process)
        process.stdin.close()
