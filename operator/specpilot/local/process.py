"""Child processes that end with this one, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from specpilot.local import guard

GRACE = 25.0  # seconds to finish after being asked to end; the pod's grace period on a cluster
_TAIL = 4096  # bytes of a log that are looked at for its last words


class Process:
    """A command with its output in a log file, run under a guard in a session of its own."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._guard: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str], env: Mapping[str, str], grace: float = GRACE) -> None:
        """Start `command`; a command that cannot run ends at once with status 127 and its log says why."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._guard = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", guard.__file__, str(grace), *command),
                env=dict(env),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs or before it started."""
        return self._guard.returncode if self._guard else None

    async def wait(self) -> int:
        """Until it ends by itself; returns the exit status."""
        if self._guard is None:
            raise RuntimeError(f"{self.name} was not started")
        return await self._guard.wait()

    async def stop(self) -> None:
        """Ask it to end, and return when it has; harmless when it has ended already."""
        if self._guard is None or self._guard.returncode is not None:
            return
        if self._guard.stdin:
            self._guard.stdin.close()
        await self._guard.wait()

    def last_words(self) -> str:
        """The last line of its log that says something, to be shown to a person."""
        try:
            with self.log.open("rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - _TAIL))
                lines = f.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def port_taken(port: int, host: str) -> bool:
    """Whether nothing could listen on host:port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError:
            return True
    return False


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
