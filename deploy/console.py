"""What set-up code says to a person: progress on standard error, and one-sentence errors."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPORT_EVERY = 10.0  # seconds


class TroubleError(Exception):
    """What went wrong and what to do about it, in one sentence."""


def say(text: str) -> None:
    """One line of progress. Standard output stays free for what a script reads."""
    print(f"specpilot: {text}", file=sys.stderr, flush=True)


def cache() -> Path:
    """The folder of everything that may be kept from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specpilot"


def run(*command: str | Path, env: Mapping[str, str] | None = None, trouble: str = "") -> str:
    """Run to its end and answer standard output, with a line now and then while it lasts.

    TroubleError when it fails: `trouble` if given, else its own last words and the command.
    """
    words = [str(word) for word in command]
    begun = reported = time.monotonic()
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
    ) as process:
        while True:
            try:
                out, error = (stream.decode(errors="replace") for stream in process.communicate(timeout=1))
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now - reported >= REPORT_EVERY:
                    reported = now
                    say(f"  still at it after {now - begun:.0f} s")
            except BaseException:
                process.terminate()
                raise
    if process.returncode == 0:
        return out
    if "no space left" in error.lower():
        raise TroubleError(f"The disk is full: make room in {cache()} and run it again.")
    last = (error.strip() or out.strip() or "no output").splitlines()[-1]
    if trouble:
        raise TroubleError(f"{trouble} ({last})")
    raise TroubleError(f"{Path(words[0]).name} failed ({last}): to see more, run {shlex.join(words)}")


def require_room(folder: Path, needed: int) -> None:
    """TroubleError when the disk that will hold `folder` has less than `needed` bytes free."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise TroubleError(
            f"The disk of {folder} has {free >> 30} GiB free and {needed >> 30} GiB are needed: make room."
        )


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One set-up of a thing at a time."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
