"""Every test, in rounds that suit two cores, on one cluster: `python -m tests.everything`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from deploy.console import TroubleError, say
from tests.setup import cluster

SPREAD = ("--numprocesses", "4", "--dist", "loadgroup", "--no-loadscope-reorder", "--durations=20")
ROUNDS = (
    # What shares the cluster, beside the real engines.
    (*SPREAD, "-m", "not alone", "tests/engine", "tests/cluster"),
    # What must have the cluster to itself and mostly waits, beside what only computes.
    (*SPREAD, "-m", "not measures", "tests/unit", "tests/chart", "tests/cluster/test_install.py"),
    # What measures.
    ("--durations=5", "-m", "measures", "tests/cluster"),
)
AGAIN = ("--last-failed", "--last-failed-no-failures=none")


def main() -> int:
    """All rounds, whatever failed before. A cluster that runs already is used and left running."""
    try:
        _, started = cluster.start()
    except TroubleError as error:
        say(str(error))
        return 1
    try:
        return max([_round(arguments) for arguments in ROUNDS])
    except KeyboardInterrupt:
        return 130
    finally:
        if started:
            cluster.stop()


def _round(arguments: Sequence[str]) -> int:
    """Real engines and a real cluster on a busy machine can be late: what failed gets one more try, in the open.
    Both runs are printed, and what fails twice fails."""
    failed = _pytest(*arguments)
    if failed:
        say("what failed above is tried once more")
        failed = _pytest(*arguments, *AGAIN)
    return failed


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main())
