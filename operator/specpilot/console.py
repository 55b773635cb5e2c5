"""How commands speak: results on standard output, and what keeps them from going on in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import typer

if TYPE_CHECKING:
    from rich.console import Console

FAILED, WRONG = 1, 2  # exit statuses: it could not go on; what was asked for cannot be done


def end(sentence: str, status: int) -> NoReturn:
    """End the command with a sentence that says what to do."""
    print(f"specpilot: {sentence}", file=sys.stderr)
    raise typer.Exit(status)


def plain(text: str) -> None:
    """Plain text to standard output, as it is."""
    stdout = _Stdout()
    stdout.write(text)
    stdout.flush()


def terminal() -> Console:
    """Standard output for rich. What its encoding has no sign for is a question mark there."""
    from rich.console import Console

    if callable(reconfigure := getattr(sys.stdout, "reconfigure", None)):
        reconfigure(errors="replace")
    return Console(file=cast("IO[str]", _Stdout()))


def write(path: Path, text: str) -> None:
    """A result into a file that the user has named."""
    try:
        path.write_text(text)
    except OSError as e:
        end(f"{path} cannot be written ({e.strerror}): name another file", FAILED)


class _Stdout:
    """Standard output, which may be a file on a full disk: that ends the command in one sentence."""

    def __init__(self) -> None:
        self._file = sys.stdout

    def write(self, text: str) -> int:
        with _told():
            return self._file.write(text)

    def flush(self) -> None:
        with _told():
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def _told() -> Iterator[None]:
    """A reader that has left (`| head`) is the caller's affair."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the flush at exit would fail again
        end(f"the output cannot be written ({e.strerror}): free some space", FAILED)
