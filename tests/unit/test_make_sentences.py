"""`make venv` where it cannot be made: one sentence, and a log for whoever wants to know more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make_venv(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, folder)
    python = Path(sys.base_prefix, "bin", "python3")
    # The tests may run under a make themselves.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", "venv", f"PYTHON={python}"],
        cwd=folder,
        env=environment | more,
        capture_output=True,
        text=True,
    )


def test_no_network(tmp_path: Path) -> None:
    done = make_venv(tmp_path, PIP_NO_INDEX="1")
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


@pytest.mark.parametrize(("home", "cached"), [("home", "yes"), ("/proc/nobody", "no")])
def test_a_home_that_cannot_be_written_needs_no_cache(tmp_path: Path, home: str, cached: str) -> None:
    programs = {
        "python": "exit 0",
        "pip": "exit 0",
        "uv": 'case "$1" in cache) echo "$HOME/.cache/uv";; sync) echo "${UV_NO_CACHE:-0}" >cache;; esac',
    }
    for name, does in programs.items():
        file = tmp_path / ".venv" / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)
    done = make_venv(tmp_path, HOME=str(tmp_path / home))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache").read_text() == {"yes": "0\n", "no": "1\n"}[cached]
