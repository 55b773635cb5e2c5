#!/usr/bin/env python3
"""A real one-node Kubernetes on this Linux machine, without Docker and without a VM.

It runs upstream's etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy,
containerd and CoreDNS, and needs root. State: LOCALKUBE_DIR, else a folder under the temporary folder.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path

from node import binaries, machine, node, processes
from node.api import Api
from node.layout import Layout, TroubleError, layout


def main() -> int:
    args = _parser().parse_args()
    try:
        return int(args.run(layout(), args) or 0)
    except TroubleError as error:
        print(f"localkube: {error}", file=sys.stderr)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"localkube: The disk of {layout().root} is full: make room and run it again.", file=sys.stderr)
    except KeyboardInterrupt:
        print("localkube: interrupted: run `down` to remove what was started.", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localkube", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start everything and print the kubeconfig's path")
    up.add_argument("--audit-log", action="store_true", help="log who wrote what to logs/audit.log")
    up.add_argument(
        "--extended-resource",
        action="append",
        default=[],
        type=_resource,
        metavar="NAME=COUNT",
        help="let the node claim such devices, e.g. nvidia.com/gpu=8, to try scheduling without them",
    )
    up.set_defaults(run=_up)
    prepare = commands.add_parser("prepare", help="get everything that `up` needs, and start nothing")
    prepare.set_defaults(run=_prepare)
    down = commands.add_parser("down", help="end everything and undo its mounts, links, rules and settings")
    down.set_defaults(run=_down)
    load = commands.add_parser(
        "load", help="import an image archive (docker save, buildah push) into the node"
    )
    load.add_argument("archive", type=Path)
    load.set_defaults(run=_load)
    status = commands.add_parser("status", help="what runs, and its memory; exit code 1 when down")
    status.set_defaults(run=_status)
    kubectl = commands.add_parser("kubectl", help="run kubectl on this cluster", add_help=False)
    kubectl.add_argument("words", nargs=argparse.REMAINDER)
    kubectl.set_defaults(run=_kubectl)
    return parser


def _resource(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition("=")
    if not name or not count.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COUNT, e.g. nvidia.com/gpu=8")
    return name, int(count)


def _up(state: Layout, args: argparse.Namespace) -> None:
    machine.require_root()
    with node.alone():
        node.up(state, args.audit_log, dict(args.extended_resource))
    print(state.kubeconfig)


def _prepare(_: Layout, __: argparse.Namespace) -> None:
    machine.require_root()
    machine.require_programs()
    binaries.provide()


def _down(state: Layout, _: argparse.Namespace) -> None:
    machine.require_root()
    with node.alone():
        node.require_no_other(state)
        node.down(state)


def _load(state: Layout, args: argparse.Namespace) -> None:
    machine.require_root()
    with node.alone():
        node.load(state, args.archive)


def _status(state: Layout, _: argparse.Namespace) -> int:
    machine.require_root()  # only root may read the keys
    node.require_no_other(state)
    for name in node.parts(state):
        pid = processes.alive(state, name)
        print(f"{name:24} " + (f"pid {pid:<8} {processes.memory(pid):5} MiB" if pid else "stopped"))
    ready = node.is_up(state) and Api(state).node_ready()
    print("the node is ready" if ready else "the node is not ready")
    if ready:
        print(f"kubeconfig {state.kubeconfig}")
    return 0 if ready else 1


def _kubectl(state: Layout, args: argparse.Namespace) -> None:
    if not state.kubeconfig.exists():
        raise TroubleError("The node is down: bring it up first.")
    os.execve(
        binaries.kubectl(), ["kubectl", *args.words], {**os.environ, "KUBECONFIG": str(state.kubeconfig)}
    )


if __name__ == "__main__":
    sys.exit(main())
