"""The wheel is all that `specpilot demo` needs: no checkout, no option."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
from specpilot.local.demo import sample
from specpilot.local.up import read_file
file = sample()
print(file)
print(read_file(file).metadata.name)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, with what the project's wheel has."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")  # `make venv` brings it
    built = [str(uv), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    done = subprocess.run(built, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_demonstration_plays_the_sample_that_is_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    file, name = done.stdout.splitlines()
    assert Path(file).is_relative_to(installed)
    sample = ROOT / "deploy" / "samples" / "sim-two-replicas.yaml"
    assert Path(file).read_text() == sample.read_text()
    assert name == "sim"


def test_the_wheel_holds_the_two_packages_and_nothing_else(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert tops == {"specpilot", "specpilot_engine"}
