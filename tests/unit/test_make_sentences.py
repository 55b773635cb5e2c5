"""`make venv` where it cannot be made: one sentence, and a log for whoever wants to know more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_network(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    python = Path(sys.base_prefix, "bin", "python3")
    # The tests may run under a make themselves.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--no-print-directory", "venv", f"PYTHON={python}"],
        cwd=tmp_path,
        env=environment | {"PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    began, sentence, make = done.stderr.splitlines()
    assert began == "specpilot: making the virtual environment"
    assert sentence == (
        "The virtual environment could not be filled, see .venv/setup.log: check the network and the space on this"
        " disk, and run make venv again"
    )
    assert make.startswith("make: ***")
    assert "No matching distribution" in (tmp_path / ".venv" / "setup.log").read_text()
    assert not (tmp_path / ".venv" / ".ready").exists()
