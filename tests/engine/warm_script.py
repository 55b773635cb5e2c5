"""Runs scripts in children of a process that has imported vLLM already, which takes ten seconds each time.

Runs in the vLLM environment. A line of standard input is {"script", "arguments", "folder"}: the script runs
as `python SCRIPT ARGUMENT…` would, with the folder's file `input` as its standard input, and leaves there
`output` and `errors`; the answer is a line with its exit status.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from typing import Any

from vllm.engine import arg_utils  # noqa: F401

SECONDS = 900  # of a script that hangs
STREAMS = (("input", os.O_RDONLY), ("output", os.O_WRONLY | os.O_CREAT), ("errors", os.O_WRONLY | os.O_CREAT))


def run(task: dict[str, Any]) -> int:
    for descriptor, (name, flags) in enumerate(STREAMS):
        os.dup2(os.open(f"{task['folder']}/{name}", flags), descriptor)
    signal.alarm(SECONDS)
    sys.argv = [task["script"], *task["arguments"]]
    sys.path.insert(0, os.path.dirname(task["script"]))
    try:
        runpy.run_path(task["script"], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = run(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # taking all that was imported to pieces takes as long as importing it


if __name__ == "__main__":
    main()
