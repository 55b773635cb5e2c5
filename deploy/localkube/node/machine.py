"""What the machine must offer before anything starts."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from .layout import PORT, TroubleError, say

# Programs by the Debian package that brings them.
PROGRAMS = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "nft": "nftables",
    "openssl": "openssl",
    "ip": "iproute2",
    "mount": "mount",
}
CNI_PACKAGE = "containernetworking-plugins"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "portmap", "loopback")
PORTS = {PORT: "the API server", 10250: "the kubelet", 10256: "kube-proxy", 10257: "the controllers"}
NEEDED = 3 << 30  # bytes: images, etcd and logs of a test run


def require_root() -> None:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise TroubleError("This needs 64-bit Linux: use kind with Docker on this machine (deploy/kind).")
    if os.geteuid() != 0:
        raise TroubleError("This needs root, for namespaces, mounts and network: run it with sudo.")


def require_programs() -> Path:
    """Install the programs that are missing; answers the folder of the CNI plugins."""
    missing = missing_packages()
    if missing:
        if not shutil.which("apt-get"):
            raise TroubleError(
                f"Install {', '.join(missing)} with this machine's package manager and run it again."
            )
        say(f"installing {', '.join(missing)}")
        _apt(missing)
        if still := missing_packages():
            raise TroubleError(f"Install {', '.join(still)}: apt-get did not bring what they should hold.")
    return next(folder for folder in CNI_FOLDERS if _plugins_in(folder))


def missing_packages() -> list[str]:
    """Debian packages of which something is missing here."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)}
    if not any(_plugins_in(folder) for folder in CNI_FOLDERS):
        missing.add(CNI_PACKAGE)
    return sorted(missing)


def _plugins_in(folder: Path) -> bool:
    return all((folder / plugin).exists() for plugin in CNI_PLUGINS)


def _apt(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0 and command is install:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TroubleError(f"Install {', '.join(packages)} by hand, since apt-get could not ({last}).")


def require_ports() -> None:
    for port, use in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                raise TroubleError(
                    f"Port {port}, for {use}, is taken by {_holder(port)}: end it first."
                ) from None


def _holder(port: int) -> str:
    command = ["ss", "-Hltnp", f"sport = :{port}"]
    listing = subprocess.run(command, capture_output=True, text=True).stdout
    name, _, rest = listing.partition('users:(("')[2].partition('",pid=')
    return f"{name} (process {rest.partition(',')[0]})" if rest else "another program"


def require_room(folder: Path, needed: int = NEEDED) -> None:
    """TroubleError when the disk that will hold `folder` has less than `needed` bytes free."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        gib = 1 << 30
        raise TroubleError(
            f"The disk of {folder} has {free / gib:.1f} GiB free and {needed / gib:.0f} GiB are needed: make room."
        )
