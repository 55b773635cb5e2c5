"""Bringing the node up and down."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import binaries, certificates, config, machine, network, processes, traces
from .api import Api
from .layout import LOCK, NODE, OWNER, RUN, SOCKET, Layout, TroubleError, say

LAST_TO_STOP = ("containerd", "kube-apiserver", "etcd")


@contextmanager
def alone() -> Iterator[None]:
    """Only one `up`, `down` or `load` at a time on this machine."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another localkube command to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def up(layout: Layout, audit: bool, resources: dict[str, int]) -> None:
    """Start the node unless it runs; afterwards it is ready and has the extended resources."""
    require_no_other(layout)
    if is_up(layout):
        if audit and not layout.audit_log.exists():
            raise TroubleError(
                "localkube runs without an audit log: take it down first, then up with --audit-log."
            )
        say("already up")
    else:
        _remove_left_over(layout)
        _start(layout, audit)
    if resources:
        Api(layout).advertise(resources)


def require_no_other(layout: Layout) -> None:
    """TroubleError while a node with another state folder runs."""
    owner = _owner()
    if owner and owner != layout and any_alive(owner):
        raise TroubleError(
            f"Another localkube runs from {owner.root}: take it down with LOCALKUBE_DIR={owner.root}."
        )


def _owner() -> Layout | None:
    return Layout(Path(OWNER.read_text())) if OWNER.exists() else None


def parts(layout: Layout) -> list[str]:
    """Names of the node's processes, in the order in which they start."""
    return list(config.commands(layout, audit=False))


def is_up(layout: Layout) -> bool:
    """Whether every part runs; a node that lost one must be started anew."""
    return _owner() == layout and all(processes.alive(layout, name) for name in parts(layout))


def any_alive(layout: Layout) -> bool:
    return any(processes.alive(layout, name) for name in parts(layout))


def _remove_left_over(layout: Layout) -> None:
    owner = _owner() or layout
    if RUN.exists() or (owner.root / "etcd").exists() or processes.strays(parts(layout)):
        say("removing what an earlier run left")
        down(owner)


def _start(layout: Layout, audit: bool) -> None:
    begun = time.monotonic()
    cni = machine.require_programs()
    machine.require_ports()
    machine.require_room(layout.root)
    programs = binaries.provide()
    RUN.mkdir(mode=0o700)
    OWNER.write_text(str(layout.root))
    layout.audit_log.unlink(missing_ok=True)
    certificates.make(layout)
    config.write(layout, programs, cni)
    (RUN / "programs").symlink_to(programs)
    network.up()
    api = Api(layout)
    ready = {
        "kube-apiserver": api.ready,
        "containerd": SOCKET.exists,
        "kubelet": api.node_ready,
    }
    for name, args in config.commands(layout, audit).items():
        if name == "kube-controller-manager":  # the parts from here on need the API server
            say("waiting for the API server")
            processes.wait(layout, "kube-apiserver", ready["kube-apiserver"])
            api.allow_dns()
        if name == "kubelet":
            processes.wait(layout, "containerd", ready["containerd"])
            _load(programs / binaries.PAUSE, "the pause image")
        processes.start(layout, programs, name, args)
    say(f"waiting for {NODE}")
    processes.wait(layout, "kubelet", ready["kubelet"])
    say(f"{NODE} is ready after {time.monotonic() - begun:.0f} s")


def load(layout: Layout, archive: Path) -> None:
    """Import an image archive, as `docker save` or `buildah push` writes it, into the node."""
    if not archive.is_file():
        raise TroubleError(f"There is no file {archive}: name an image archive (docker save, buildah push).")
    if processes.alive(layout, "containerd") is None:
        raise TroubleError("The node is down: bring it up first.")
    machine.require_room(layout.root, 2 * archive.stat().st_size)
    _load(archive, str(archive))


def _load(archive: Path, what: str) -> None:
    done = _ctr("images", "import", "--local", str(archive))
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TroubleError(f"containerd does not take {what} ({reason}): it must be an image archive.")


def _ctr(*args: str) -> subprocess.CompletedProcess[str]:
    program = str((RUN / "programs").resolve() / "localkube")
    command = [program, "ctr", "--address", str(SOCKET), "--namespace", "k8s.io", *args]
    return subprocess.run(command, capture_output=True, text=True)


def down(layout: Layout) -> None:
    """End everything and take back what the node changed on the machine; the logs stay."""
    say("taking the node down")
    of_containers = traces.of_containers()
    first = [name for name in parts(layout) if name not in LAST_TO_STOP]
    for name in reversed(first):  # kube-proxy and kubelet first, so that nothing is started again
        processes.stop(layout, name)
    for shim in processes.shims():
        _kill(*processes.children_of(shim), shim)
    for name in LAST_TO_STOP:
        processes.stop(layout, name)
    _kill(*processes.strays(parts(layout)))
    traces.unmount(layout)
    network.down()
    traces.remove_cgroups()
    traces.remove_files(layout, of_containers)


def _kill(*processes: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
