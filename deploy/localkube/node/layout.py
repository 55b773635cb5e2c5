"""Names, addresses and places of the one node, and the error a person reads."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

NODE = "node-0"
NODE_IP = "10.200.0.1"
DNS_IP = "169.254.20.10"  # link-local, so that it clashes with no network of the machine's own
LINK = "lk0"  # holds NODE_IP and DNS_IP
POD_BRIDGE = "lkbr0"
CNI_NETWORK = "localkube"
SERVICE_RANGE, SERVICE_IP = "10.96.0.0/16", "10.96.0.1"
POD_RANGE, NODE_POD_RANGE = "10.244.0.0/16", "10.244.0.0/24"
PORT = 6443
SERVER = f"https://127.0.0.1:{PORT}"
PAUSE_IMAGE = "localhost/pause:1"

# Sockets live here and not in the state folder, whose path may be too long for a socket. A machine
# has room for one localkube only: OWNER says whose state folder belongs to what runs.
RUN = Path("/run/localkube")
SOCKET = RUN / "containerd.sock"
ETCD = f"unix://{RUN}/etcd.sock"
OWNER = RUN / "owner"
LOCK = Path("/run/localkube.lock")


class TroubleError(Exception):
    """What went wrong and what to do about it, in one sentence."""


@dataclass(frozen=True)
class Layout:
    """Where one node keeps its files; everything but the logs goes away with it."""

    root: Path
    pids: Path = RUN / "pids"  # not in `root`: what runs must be found even if that was deleted

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.pki / "admin.conf"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def pod_logs(self) -> Path:
        return self.root / "podlogs"


def layout() -> Layout:
    """The state folder: LOCALKUBE_DIR, else one under the temporary folder."""
    return Layout(
        Path(os.environ.get("LOCALKUBE_DIR") or Path(tempfile.gettempdir()) / "localkube").resolve()
    )


def cache() -> Path:
    """Where binaries are kept from one run to the next."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "specpilot" / "localkube"


def say(text: str) -> None:
    """One line of progress. Standard output stays free for what a script reads."""
    print(f"localkube: {text}", file=sys.stderr, flush=True)
