"""Starting, finding and ending the node's processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .layout import SOCKET, Layout, TroubleError


def start(layout: Layout, binaries: Path, name: str, args: list[str]) -> None:
    """Start one part in a session of its own, so that it outlives this command."""
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ.get('PATH', '')}"}
    with (layout.logs / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [str(binaries / "localkube"), name, *args],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=layout.root,
            env=environment,
        )
    record = {"pid": process.pid, "started": _started(process.pid)}
    (layout.pids / name).write_text(json.dumps(record))


def _started(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(layout: Layout, name: str) -> int | None:
    """Process id of a part that runs; another program that got its old id does not count."""
    try:
        record = json.loads((layout.pids / name).read_text())
    except (OSError, ValueError):
        return None
    started = _started(record["pid"])
    return int(record["pid"]) if started is not None and started == record["started"] else None


def memory(pid: int) -> int:
    """Resident memory in MiB; 0 when the process has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def wait(layout: Layout, name: str, ready: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until a part is ready; TroubleError with its last words when it ends or takes too long."""
    log = layout.logs / f"{name}.log"
    deadline = time.monotonic() + seconds
    while not ready():
        if alive(layout, name) is None:
            raise TroubleError(f"{name} ended right after its start ({_last_line(log)}): see {log}.")
        if time.monotonic() > deadline:
            raise TroubleError(f"{name} was not ready after {seconds:.0f} s: see {log}.")
        time.sleep(0.1)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else "without a word"


def stop(layout: Layout, name: str, seconds: float = 5) -> None:
    """End one part, by force after `seconds`."""
    pid = alive(layout, name)
    if pid is not None:
        with suppress(ProcessLookupError):  # it may end between a look and a signal
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + seconds
            while alive(layout, name) is not None and time.monotonic() < deadline:
                time.sleep(0.05)
            if alive(layout, name) is not None:
                os.kill(pid, signal.SIGKILL)
    (layout.pids / name).unlink(missing_ok=True)


def strays(names: Collection[str]) -> list[int]:
    """Process ids of parts of a node whose records are lost: a machine has one node, so they are of none."""
    running = ((pid, words) for pid, words in _commands() if words[0].endswith("/localkube"))
    return [pid for pid, words in running if {*words[1:2]} & {*names}]


def shims() -> list[int]:
    """Process ids of the shims of our containerd, known by the socket on their command line."""
    program = "containerd-shim-runc-v2"
    return [pid for pid, words in _commands() if words[0].endswith(program) and str(SOCKET) in words]


def _commands() -> Iterator[tuple[int, list[str]]]:
    """Process id and command line of everything that runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            yield int(path.parent.name), words


def children_of(pid: int) -> list[int]:
    """Process ids below `pid`, nearest first."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in path.read_text().split())
            except OSError:
                continue
    return found[1:]
