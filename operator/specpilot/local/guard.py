"""`python guard.py GRACE COMMAND…`: runs a command that must not outlive whoever started it.

The starter holds the other end of this process's standard input. When that closes, because the starter
wants an end or because it was killed in whatever way, the command's process group is asked to end
and, after GRACE seconds, made to. Standard library only: one of these runs beside each engine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

_POLL = 0.1  # seconds between looks at the command


def main(argv: list[str]) -> int:
    """Returns the command's exit status, 128 + the signal that ended it, or 127 when it cannot start."""
    grace, command = float(argv[0]), argv[1:]
    # Whoever wants an end closes the input; signals meant for the starter's whole group are not for us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True, preexec_fn=_reset
        )
    except OSError as e:
        print(f"cannot run {command[0]}: {e.strerror}", file=sys.stderr)
        return 127
    while child.poll() is None:
        if select.select([sys.stdin], [], [], _POLL)[0] and not os.read(sys.stdin.fileno(), 4096):
            _signal(child.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL / 2)
            break
    # Whatever of its group is left (an engine's workers, say) ends with it.
    _signal(child.pid, signal.SIGKILL)
    status = child.wait()
    return status if status >= 0 else 128 - status


def _reset() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
