"""The programs that build images: buildah, or Docker where its daemon runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from deploy.console import TroubleError, run


class Builder(Protocol):
    """What building needs of a container program."""

    def build(self, context: Path, recipe: Path, tag: str, arguments: dict[str, str]) -> None: ...

    def has(self, tag: str) -> bool: ...

    def save(self, tag: str, archive: Path) -> None: ...

    def remove(self, tag: str) -> None: ...


class Buildah:
    """Buildah with storage of its own in the cache, so that nothing else on the machine is touched."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        storage.mkdir(parents=True, exist_ok=True)

    def run(self, *args: str, trouble: str = "") -> str:
        driver = ("--storage-driver", "overlay") if os.geteuid() == 0 else ()
        places = ("--root", str(self._storage / "root"), "--runroot", str(self._storage / "run"))
        return run("buildah", *places, *driver, *args, trouble=trouble)

    def build(self, context: Path, recipe: Path, tag: str, arguments: dict[str, str]) -> None:
        # chroot: it needs neither a runtime nor a network namespace, which containers often cannot have.
        options = ("--isolation", "chroot", "--layers", "--pull-never" if _local(arguments) else "--pull")
        words = (*options, *_arguments(arguments), "-f", str(recipe), "-t", tag, str(context))
        self.run("build", *words, trouble=_trouble(arguments))

    def has(self, tag: str) -> bool:
        return bool(self.run("images", "--quiet", "--filter", f"reference={tag}").strip())

    def import_root(self, folder: Path, tag: str) -> None:
        """Make an image of one layer from a folder that holds a root file system."""
        container = self.run("from", "scratch").strip()
        try:
            self.run("add", container, str(folder), "/")
            self.run(
                "config",
                "--env",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                container,
            )
            self.run("commit", container, tag)
        finally:
            self.run("rm", container)

    def save(self, tag: str, archive: Path) -> None:
        self.run("push", tag, f"docker-archive:{archive}:{tag}")

    def remove(self, tag: str) -> None:
        if self.has(tag):
            self.run("rmi", tag)


class Docker:
    """Docker, where its daemon answers."""

    def build(self, context: Path, recipe: Path, tag: str, arguments: dict[str, str]) -> None:
        words = (*_arguments(arguments), "-f", str(recipe), "-t", tag, str(context))
        run("docker", "build", *words, trouble=_trouble(arguments))

    def has(self, tag: str) -> bool:
        return subprocess.run(["docker", "image", "inspect", tag], capture_output=True).returncode == 0

    def save(self, tag: str, archive: Path) -> None:
        run("docker", "save", "-o", str(archive), tag)

    def remove(self, tag: str) -> None:
        if self.has(tag):
            run("docker", "rmi", tag)


def docker_runs() -> bool:
    """Whether a Docker daemon really answers; the program alone is no sign of one."""
    if not shutil.which("docker"):
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def builder(storage: Path) -> Builder:
    """Docker where its daemon runs, else buildah; TroubleError where neither is there."""
    if docker_runs():
        return Docker()
    if shutil.which("buildah"):
        return Buildah(storage)
    raise TroubleError("Nothing here can build images: run `apt-get install buildah`, or start Docker.")


def _local(arguments: dict[str, str]) -> bool:
    return any(value.startswith("localhost/") for value in arguments.values())


def _arguments(arguments: dict[str, str]) -> list[str]:
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def _trouble(arguments: dict[str, str]) -> str:
    base = arguments.get("BASE", "")
    if not base or _local(arguments):
        return ""
    return f"No image could be built on {base}: check that its registry answers, or use --debian-base."
