"""Builds the project's images into archives in the cache, each named by a hash of what goes into it.

    python -m deploy.images.build operator sim      prints "NAME ARCHIVE" for each

An archive that is there already is answered at once. Base: --base IMAGE, else Python's public image; with
--debian-base a Debian base is made here from Debian's packages (root and debootstrap needed).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.console import TroubleError, cache, locked, say
from deploy.images import debian, wheels
from deploy.images.engines import Buildah, Builder, builder

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PUBLIC_BASE = "docker.io/library/python:3.11-slim-bookworm"
NAMES = ("base", "operator", "sim", "vllm-cpu")
# Leads the tag of engines, from which the operator reads vLLM's version.
ENGINE_VERSIONS = {"sim": "v0.33.0", "vllm-cpu": "v0.32.0"}
KEPT = 2  # archives of one name that stay in the cache


@dataclass(frozen=True)
class Image:
    name: str  # with its tag, as pods name it
    archive: Path  # as `docker save` writes it


class Images:
    """Builds images, each on the one before it.

    `base` is an image to build on; None makes one from Debian's packages.
    """

    def __init__(self, base: str | None) -> None:
        self._cache = cache()
        self._archives = self._cache / "images"
        self._archives.mkdir(parents=True, exist_ok=True)
        self._base = base
        self._planned: dict[str, Image] = {}  # of one moment: files may change while an image is built

    def provide(self, name: str) -> Image:
        """The image of that name (one of NAMES), built unless its archive is there. Raises TroubleError."""
        image = self.planned(name)
        with locked("images"):
            if not image.archive.exists():
                self._build(name, image)
        return image

    def planned(self, name: str) -> Image:
        """Name and archive that the image has, built or not."""
        if name not in self._planned:
            tag = self._tag(name)
            archive = self._archives / f"{name}-{tag}.tar"
            self._planned[name] = Image(f"localhost/specpilot/{name}:{tag}", archive)
        return self._planned[name]

    def _tag(self, name: str) -> str:
        if name == "base":
            return _digest(str(self._base), debian.__file__, HERE / "base" / "Containerfile")
        if name == "operator":
            return _digest(self._base_name(), HERE / "Containerfile", *wheels.inputs(PROJECT))
        if name in ENGINE_VERSIONS:
            salt = f"{self.planned('operator').name} {self._arguments(name)}"
            return f"{ENGINE_VERSIONS[name]}-{_digest(salt, *_files(HERE / name))}"
        raise TroubleError(f"There is no image {name!r}: choose from {', '.join(NAMES)}.")

    def _base_name(self) -> str:
        return self._base or self.planned("base").name

    def _build(self, name: str, image: Image) -> None:
        program = builder(self._cache / "buildah")
        self._make(program, name, image.name)
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        program.save(image.name, partial)
        partial.rename(image.archive)
        older = sorted(self._archives.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
        for archive in older[:-KEPT]:
            archive.unlink()
            program.remove(f"localhost/specpilot/{name}:{archive.stem.removeprefix(f'{name}-')}")
        say(f"{image.name} is in {image.archive}")

    def _make(self, program: Builder, name: str, tag: str) -> None:
        """Have the image in the builder's own storage, with those it is built on."""
        if program.has(tag):
            return
        if name == "base":
            self._make_base(program, tag)
        elif name == "operator":
            if not self._base:
                self._make(program, "base", self._base_name())
            say(f"building {tag}")
            with tempfile.TemporaryDirectory(prefix="specpilot-image-") as folder:
                wheels.context(PROJECT, self._cache, Path(folder))
                program.build(Path(folder), HERE / "Containerfile", tag, {"BASE": self._base_name()})
        else:
            self._make(program, "operator", self.planned("operator").name)
            say(f"building {tag}")
            program.build(HERE / name, HERE / name / "Containerfile", tag, self._arguments(name))

    def _arguments(self, name: str) -> dict[str, str]:
        arguments = {"OPERATOR": self.planned("operator").name}
        return arguments | {"VENV": str(self._cache / "vllm")} if name == "vllm-cpu" else arguments

    def _make_base(self, program: Builder, tag: str) -> None:
        if isinstance(program, Buildah):
            debian.make(program, tag)
        else:
            say(f"building {tag}")
            program.build(HERE / "base", HERE / "base" / "Containerfile", tag, {})


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _digest(salt: str, *files: str | Path) -> str:
    """Twelve hex digits over a text and files, by name and content."""
    total = hashlib.sha256(salt.encode())
    for path in map(Path, files):
        total.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--base", default=PUBLIC_BASE, help=f"image with Python to build on, {PUBLIC_BASE} by default"
    )
    parser.add_argument("--debian-base", action="store_true", help="make a Debian base here and build on it")
    return parser


def main(arguments: Iterable[str] | None = None) -> int:
    args = _parser().parse_args(None if arguments is None else list(arguments))
    images = Images(None if args.debian_base else args.base)
    try:
        for name in args.names:
            image = images.provide(name)
            print(image.name, image.archive)
    except TroubleError as error:
        print(f"specpilot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
