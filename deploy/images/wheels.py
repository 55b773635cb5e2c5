"""What goes into the operator's image, collected outside the build so that it needs no network."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.console import TroubleError, run, say
from deploy.images.debian import PYTHON

GLIBC = 36  # minor version of the base's C library, newest that wheels may ask for


def inputs(project: Path) -> list[Path]:
    """Files that the operator's image depends on."""
    packages = (project / "operator" / "specpilot", project / "serving" / "specpilot_engine")
    code = (path for package in packages for path in package.rglob("*"))
    kept = sorted(path for path in code if path.is_file() and "__pycache__" not in path.parts)
    sample = project / "deploy" / "samples" / "sim-two-replicas.yaml"  # the wheel takes it in
    return [project / "pyproject.toml", project / "uv.lock", sample, *kept]


def context(project: Path, cache: Path, target: Path) -> None:
    """Fill `target` with wheels/, dist/ and engine/, as the Containerfile expects them."""
    shutil.copytree(_dependencies(project, cache), target / "wheels")
    run(_uv(), "build", "--quiet", "--wheel", "--out-dir", str(target / "dist"), str(project))
    package = "specpilot_engine"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project / "serving" / package, target / "engine" / package, ignore=ignored)


def _dependencies(project: Path, cache: Path) -> Path:
    """A folder with the wheels that the lock file names, for the base's Python and this machine's kind."""
    locked = hashlib.sha256((project / "uv.lock").read_bytes() + PYTHON.encode()).hexdigest()[:12]
    folder = cache / "wheels" / locked
    if folder.exists():
        return folder
    say("fetching the wheels that the operator needs")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    export = (
        "--frozen",
        "--no-dev",
        "--no-emit-project",
        "--no-header",
        "--quiet",
        "--project",
        str(project),
    )
    (partial / "requirements.txt").write_text(run(_uv(), "export", *export))
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, 4, -1)] + [f"manylinux2014_{machine}"]
    run(
        *(*_pip(), "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
        *("--implementation", "cp", "--python-version", PYTHON),
        *(word for tag in tags for word in ("--platform", tag)),
        *("--dest", str(partial), "-r", str(partial / "requirements.txt")),
    )
    partial.rename(folder)
    return folder


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise TroubleError("uv is missing: run `make venv`, which brings it.")
    return found


def _pip() -> tuple[str, ...]:
    for python in (sys.executable, str(Path(sys.base_prefix, "bin", "python3"))):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return (python, "-m", "pip")
    raise TroubleError("pip is missing: run `make venv`, which brings it.")
