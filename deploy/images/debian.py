"""A plain Debian base image from Debian's packages, for machines that reach no image registry."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from deploy.console import TroubleError, run, say
from deploy.images.engines import Buildah

SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = ("python3", "python3-venv", "ca-certificates", "libnuma1", "libgomp1")
# Of no use in a container, and a third of its size.
DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")


def make(buildah: Buildah, tag: str) -> None:
    """Make the image `tag`; takes about a minute. Needs root and debootstrap."""
    if os.geteuid() != 0:
        raise TroubleError(
            "A base image can be made by root only: run it with sudo, or name one with --base."
        )
    if not shutil.which("debootstrap"):
        raise TroubleError(
            "debootstrap is missing: run `apt-get install debootstrap`, or name an image with --base."
        )
    with tempfile.TemporaryDirectory(prefix="specpilot-base-") as folder:
        root = Path(folder) / "root"
        say(f"making a Debian {SUITE} base image with debootstrap, about a minute")
        mirror = os.environ.get("SPECPILOT_DEBIAN_MIRROR")
        run(
            *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)),
            *((mirror,) if mirror else ()),
            trouble="No base could be made: check the network, or name a mirror in SPECPILOT_DEBIAN_MIRROR.",
        )
        for name in DROPPED:
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir(parents=True)
        root.chmod(0o755)
        (root / "root").chmod(0o755)  # a mounted interpreter may lie below it and be used by any user
        buildah.import_root(root, tag)
