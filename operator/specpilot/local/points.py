"""The profilers' files of points, which outlive a run here; in a pod they go with it."""

from __future__ import annotations

import json
from pathlib import Path

from specpilot.local.state import write_whole


def renew(path: Path) -> None:
    """Give the coming run the whole budget for what an earlier one has not measured: its points stay, what was spent
    on them does not count. A file that cannot be read is left to the profiler, which says so.
    Raises LocalError where it cannot be written."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    kept = []
    for line in lines:
        try:
            doc = json.loads(line)
            kept += [json.dumps({**doc, "spent": 0.0})] if "point" in doc else []
        except (ValueError, TypeError):
            continue  # cut short
    write_whole(path, "".join(f"{line}\n" for line in kept))
