"""Looking at processes that may end at any moment, also while they are looked at."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has collected yet is dead.

    One read and no question before it: whatever ends between two looks would make a liar of the first.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # no such file, or no such process once the file is open
        return False
