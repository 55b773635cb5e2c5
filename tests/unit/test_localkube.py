"""localkube's parts that need neither root nor a cluster."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from deploy.localkube.node import binaries, golang, machine, network, pause, processes
from deploy.localkube.node.layout import Layout, TroubleError

LOCALKUBE = Path(__file__).resolve().parents[2] / "deploy" / "localkube"

RULES = r"""*nat
:PREROUTING ACCEPT [3:180]
:POSTROUTING ACCEPT [1:60]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:CNI-88745d - [0:0]
:CNI-other - [0:0]
[3:180] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
[0:0] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
[1:60] -A POSTROUTING -s 10.244.0.2/32 -m comment --comment "name: \"localkube\" id: \"f97\"" -j CNI-88745d
[0:0] -A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podman\" id: \"a1\"" -j CNI-other
[0:0] -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y
[0:0] -A CNI-88745d -d 10.244.0.0/24 -m comment --comment "name: \"localkube\" id: \"f97\"" -j ACCEPT
[0:0] -A CNI-88745d ! -d 224.0.0.0/4 -m comment --comment "name: \"localkube\" id: \"f97\"" -j MASQUERADE
[0:0] -A CNI-other ! -d 224.0.0.0/4 -m comment --comment "name: \"podman\" id: \"a1\"" -j MASQUERADE
COMMIT
"""


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(LOCALKUBE), *args],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_clean_up_leaves_the_packet_filter_rules_of_others() -> None:
    assert network.without_ours(RULES) == (
        "*nat\n"
        ":PREROUTING ACCEPT [3:180]\n"
        ":POSTROUTING ACCEPT [1:60]\n"
        ":DOCKER - [0:0]\n"
        ":CNI-other - [0:0]\n"
        "[0:0] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n"
        '[0:0] -A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \\"podman\\" id: \\"a1\\"" -j CNI-other\n'
        '[0:0] -A CNI-other ! -d 224.0.0.0/4 -m comment --comment "name: \\"podman\\" id: \\"a1\\"" -j MASQUERADE\n'
        "COMMIT\n"
    )


def test_the_pause_image_is_an_archive_of_one_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    pause.pack(program, tmp_path / "one.tar")
    pause.pack(program, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        contents = {name: stream.read() for name, stream in files.items() if stream}
    (entry,) = json.loads(contents["manifest.json"])
    config = json.loads(contents[entry["Config"]])
    assert entry["RepoTags"] == ["localhost/pause:1"]
    assert config["config"] == {"Entrypoint": ["/pause"], "User": "65535:65535"}
    (tmp_path / "layer.tar").write_bytes(contents[entry["Layers"][0]])
    with tarfile.open(tmp_path / "layer.tar") as layer:
        (member,) = layer.getmembers()
        assert (member.name, member.mode, member.size) == ("pause", 0o755, 4)


def test_a_packed_prebuilt_copy_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prebuilt = tmp_path / "prebuilt"
    prebuilt.mkdir()
    program = os.urandom(2 << 20)
    for name in ("localkube", "containerd-shim-runc-v2"):
        (prebuilt / f"{name}.xz").write_bytes(lzma.compress(program, preset=0))
    (prebuilt / "pause.tar").write_bytes(b"image")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECPILOT_LOCALKUBE", str(prebuilt))
    folder = binaries.provide()
    assert (folder / "localkube").read_bytes() == program
    assert os.access(folder / "containerd-shim-runc-v2", os.X_OK)
    assert (folder / "pause.tar").read_bytes() == b"image"
    unpacked = (folder / "localkube").stat().st_mtime_ns
    assert binaries.provide() == folder
    assert (folder / "localkube").stat().st_mtime_ns == unpacked


def test_an_unpacking_that_was_interrupted_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt = tmp_path / "prebuilt"
    prebuilt.mkdir()
    for name in ("localkube", "containerd-shim-runc-v2"):
        (prebuilt / f"{name}.xz").write_bytes(lzma.compress(os.urandom(2 << 20), preset=0))
    (prebuilt / "pause.tar").write_bytes(b"image")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECPILOT_LOCALKUBE", str(prebuilt))
    folder = binaries.provide()
    (folder / binaries.COMPLETE).unlink()
    (folder / "localkube").write_bytes(b"half")
    assert (binaries.provide() / "localkube").stat().st_size == 2 << 20


def test_a_wrongly_named_prebuilt_copy_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPILOT_LOCALKUBE", str(tmp_path))
    with pytest.raises(TroubleError, match="lacks some of localkube"):
        binaries.provide()


def test_a_process_that_got_an_old_id_is_not_taken_for_ours(tmp_path: Path) -> None:
    state = Layout(tmp_path, pids=tmp_path / "pids")
    state.pids.mkdir()
    record = {"pid": os.getpid(), "started": 1}  # of an earlier process
    (state.pids / "etcd").write_text(json.dumps(record))
    assert processes.alive(state, "etcd") is None


def test_a_part_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    state = Layout(tmp_path, pids=tmp_path / "pids")
    for folder in (state.pids, state.logs):
        folder.mkdir()
    program = tmp_path / "localkube"
    program.write_text('#!/bin/sh\necho "no such flag: $2" >&2\nexit 1\n')
    program.chmod(0o755)
    processes.start(state, tmp_path, "etcd", ["--wrong"])
    with pytest.raises(TroubleError, match=r"etcd ended right after its start \(no such flag: --wrong\)"):
        processes.wait(state, "etcd", lambda: False, seconds=30)


def test_a_taken_port_is_named_with_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(machine, "PORTS", {port: "the API server"})
        with pytest.raises(
            TroubleError, match=rf"Port {port}, for the API server, is taken by .+: end it first\."
        ):
            machine.require_ports()


def test_too_little_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(TroubleError, match=r"GiB free and \d+ GiB are needed: make room"):
        machine.require_room(tmp_path / "not" / "there", free + (2 << 30))


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("go: github.com/x: dial tcp: lookup proxy: no such host", "check the network"),
        ("link: write: no space left on device", "The disk is full"),
        ("./main.go:3: undefined: x", "The build failed (./main.go:3: undefined: x)"),
    ],
)
def test_a_failed_build_says_what_to_do(tmp_path: Path, log: str, told: str) -> None:
    (tmp_path / "build.log").write_text(log)
    assert told in golang._reason(tmp_path / "build.log")


@pytest.mark.parametrize("command", ["up", "prepare", "down", "load", "status"])
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: localkube {command}")


def test_a_wrong_resource_is_refused_with_an_example() -> None:
    done = run("up", "--extended-resource", "gpu")
    assert done.returncode == 2
    assert "'gpu' is not NAME=COUNT, e.g. nvidia.com/gpu=8" in done.stderr


def test_kubectl_on_a_node_that_is_down_says_so(tmp_path: Path) -> None:
    done = run("kubectl", "get", "pods", LOCALKUBE_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "localkube: The node is down: bring it up first.\n")


def test_without_root_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TroubleError, match=r"^This needs root, .*: run it with sudo\.$"):
        machine.require_root()
