"""Where output goes: a file, a full disk, a reader that leaves, an encoding without our signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.documents import GOOD

ROOT = Path(__file__).parents[2]
PLAYED = ("bench", "replay", str(ROOT / "benchmarks" / "worlds" / "flip-flop.json"), "--policy", "fixed-3")
POINTS = [
    {"tokens": k, "batchSize": b, "contextLength": 256, "seconds": 0.01 * (1 + k / 10) * b**0.5, "steps": 9}
    for k in (0, 1, 3)
    for b in (1, 8)
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    profile = {
        "apiVersion": "specpilot.io/v1alpha1",
        "kind": "CostProfile",
        "metadata": {"name": "measured"},
        "spec": {
            "key": "k",
            "fingerprint": {"model": "demo", "method": "MTP"},
            "total": len(POINTS),
            "points": POINTS,
        },
    }
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
    (tmp_path / "flash.yaml").write_text(GOOD)
    return {
        "PROFILE": str(tmp_path / "profile.yaml"),
        "FLASH": str(tmp_path / "flash.yaml"),
        "STATE": str(tmp_path / "state"),
    }


def started(*words: str, stdout: Any, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'serving'}", **environment}
    command = [sys.executable, "-m", "specpilot.cli", *words]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize(
    "words",
    [
        ("crd",),
        ("version",),
        ("--version",),
        ("explain", "PROFILE"),
        PLAYED,
        ("up", "FLASH", "--engine", "sim", "--port", "0", "--state", "STATE"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_full_disk(words: tuple[str, ...], files: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        process = started(*(files.get(word, word) for word in words), stdout=full)
        said = process.communicate(timeout=60)[1]
    assert said.removeprefix("playing flip-flop …\n") == (
        "specpilot: the output cannot be written (No space left on device): free some space\n"
    )
    assert process.returncode == 1


@pytest.mark.parametrize("words", [("crd",), ("explain", "PROFILE"), PLAYED], ids=lambda words: words[0])
def test_a_reader_that_leaves(words: tuple[str, ...], files: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = started(*(files.get(word, word) for word in words), stdout=write)
    os.close(write)
    assert process.communicate(timeout=60)[1].removeprefix("playing flip-flop …\n") == ""
    assert process.returncode == 1


def test_an_encoding_without_our_signs(files: dict[str, str]) -> None:
    """The numbers are all there; a sign that cannot be said is a question mark."""
    words = ("explain", files["PROFILE"], "--batch", "8")
    plain, utf8 = (
        started(*words, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding).communicate(timeout=60)
        for encoding in ("ascii", "utf-8")
    )
    assert plain[1] == ""
    assert "?" in plain[0]
    assert plain[0].replace("?", "") == utf8[0].encode("ascii", "ignore").decode()
