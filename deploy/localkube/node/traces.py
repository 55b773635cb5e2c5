"""What the node leaves on the machine besides processes and network, and how it is removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from .layout import RUN, Layout

BUNDLES = RUN / "containerd" / "io.containerd.runtime.v2.task" / "k8s.io"
CNI_RESULTS = Path("/var/lib/cni/results")
PLUGIN_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
# Folders at fixed places that upstream's parts make; removed when empty.
FIXED_FOLDERS = (
    *("/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/log/containers"),
    *("/var/lib/cni/results", "/var/lib/cni", "/run/containerd/s", "/run/containerd"),
)


def of_containers() -> list[Path]:
    """Files at fixed places that belong to running containers; to be asked before these are ended."""
    found: list[Path] = []
    for bundle in BUNDLES.glob("*"):
        found.extend(CNI_RESULTS.glob(f"*-{bundle.name}-*"))
        with suppress(OSError, ValueError, KeyError):
            address = json.loads((bundle / "bootstrap.json").read_text())["address"]
            found.append(Path(address.removeprefix("unix://")))
    return found


def unmount(layout: Layout) -> None:
    """Detach everything mounted in our folders: volumes, container roots, network namespaces."""
    ours = (f"{layout.root}/", f"{RUN}/")
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in reversed(points):  # what was mounted last lies on top
        if point.encode().decode("unicode_escape").startswith(ours):
            subprocess.run(["umount", "-l", point], capture_output=True)


def remove_cgroups() -> None:
    for top in (*Path("/sys/fs/cgroup").glob("kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")):
        for folder, _, _ in os.walk(top, topdown=False):
            for _ in range(20):  # a cgroup is busy until its ended processes are reaped
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.05)


def remove_files(layout: Layout, containers: list[Path]) -> None:
    """Remove every file but the logs."""
    links = Path("/var/log/containers").glob("*.log")
    of_pods = [link for link in links if str(link.readlink()).startswith(f"{layout.pod_logs}/")]
    for path in (*containers, *of_pods, PLUGIN_SOCKET):
        path.unlink(missing_ok=True)
    for folder in FIXED_FOLDERS:
        with suppress(OSError):
            os.rmdir(folder)
    for path in layout.root.glob("*") if layout.root.exists() else ():
        if path != layout.logs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(RUN, ignore_errors=True)
