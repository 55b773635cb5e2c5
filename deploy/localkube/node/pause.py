"""The pause image, the container that holds a pod's namespaces open, packed without Docker."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

from .layout import PAUSE_IMAGE

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pack(program: Path, target: Path) -> None:
    """Write an image archive, as `docker save` would, that holds `program` alone as /pause."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, name: text, "manifest.json": json.dumps(manifest).encode()}
    target.write_bytes(_tar({path: (content, 0o644) for path, content in files.items()}))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Bytes of an archive that depend on the contents only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
