"""Programs and libraries from Debian's packages."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.console import TroubleError, run, say

# Packages by tier: the program, or else the library, that tells whether each is there. What localkube
# needs it brings by itself.
ENGINE = {"libnuma1": "numa", "libgomp1": "gomp"}
CLUSTER = {"buildah": "buildah", "debootstrap": "debootstrap", "prometheus": "prometheus"}
POLICY = Path("/usr/sbin/policy-rc.d")


def provide(packages: dict[str, str]) -> None:
    """Install what is missing; TroubleError where that is not possible."""
    missing = [package for package, sign in packages.items() if not _there(sign)]
    if not missing:
        return
    command = f"apt-get install {' '.join(missing)}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise TroubleError(
            f"Install {', '.join(missing)} (as root, on Debian: `{command}`) and run it again."
        )
    say(f"installing {', '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    trouble = f"Run `{command}` by hand: it could not be done here."
    with _services_asleep():
        run("apt-get", "update", "-qq", env=quiet, trouble=trouble)
        run(
            "apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=quiet, trouble=trouble
        )
    if "prometheus" in missing and shutil.which("systemctl"):
        # The tests start one of their own; the service would hold its port after the next boot.
        subprocess.run(["systemctl", "disable", "prometheus"], capture_output=True)


def _there(sign: str) -> bool:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return bool(shutil.which(sign, path=path) or ctypes.util.find_library(sign))


@contextmanager
def _services_asleep() -> Iterator[None]:
    """Keep packages from starting their services: Prometheus' would take port 9090."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
