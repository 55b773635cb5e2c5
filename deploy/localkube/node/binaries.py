"""Where the node's programs come from: a prebuilt copy, the cache, or a build from Go modules."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from . import golang, pause
from .layout import TroubleError, cache, say

HERE = Path(__file__).resolve().parent.parent
SOURCE = HERE / "src"
PROGRAMS = ("localkube", "containerd-shim-runc-v2")
PAUSE = "pause.tar"
COMPLETE = ".complete"


def provide() -> Path:
    """A folder with the programs and the pause image, made if need be.

    SPECPILOT_LOCALKUBE names a folder with a prebuilt copy (packed with xz or not). Without it a
    prebuilt copy in the checkout is used, then what an earlier run has built, then a new build.
    """
    named = os.environ.get("SPECPILOT_LOCALKUBE")
    if named:
        if not _prebuilt(Path(named)):
            wanted = ", ".join((*(f"{program}[.xz]" for program in PROGRAMS), PAUSE))
            raise TroubleError(
                f"SPECPILOT_LOCALKUBE={named} lacks some of {wanted}: name a folder that has them."
            )
        return _unpacked(Path(named).resolve())
    beside = HERE.parent.parent.parent / "shared" / "localkube"
    return _unpacked(beside) if _prebuilt(beside) else _built()


def kubectl() -> str:
    """A kubectl: the machine's own, else the one in our own build."""
    if own := shutil.which("kubectl"):
        return own
    if (ours := provide() / "kubectl").exists():
        return str(ours)
    raise TroubleError("Install kubectl: neither this machine nor the prebuilt copy of localkube has it.")


def _packed(folder: Path, program: str) -> Path | None:
    return next((p for p in (folder / f"{program}.xz", folder / program) if p.is_file()), None)


def _prebuilt(folder: Path) -> bool:
    # A Python program may have the same name: only a real one is longer than a script.
    programs = [_packed(folder, program) for program in PROGRAMS]
    return (folder / PAUSE).is_file() and all(p is not None and p.stat().st_size > 1 << 20 for p in programs)


def _unpacked(folder: Path) -> Path:
    files = [path for program in PROGRAMS if (path := _packed(folder, program)) is not None]
    if all(path.suffix != ".xz" for path in files):
        return folder
    target = cache() / digest([*files, folder / PAUSE])
    with _making(target) as partial:
        if partial:
            say(f"unpacking the programs into {target}")
            for program, path in zip(PROGRAMS, files, strict=True):
                with _open(path) as packed, (partial / program).open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
                (partial / program).chmod(0o755)
            shutil.copyfile(folder / PAUSE, partial / PAUSE)
    return target


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, lzma.open(path)) if path.suffix == ".xz" else path.open("rb")


def _built() -> Path:
    target = cache() / digest(sorted(path for path in SOURCE.rglob("*") if path.is_file()))
    with _making(target) as partial:
        if partial:
            golang.build(SOURCE, partial)
            pause.pack(partial / "pause", partial / PAUSE)
            (partial / "kubectl").symlink_to("localkube")
    return target


def digest(files: list[Path]) -> str:
    """Sixteen hex digits over names and contents."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                total.update(block)
    return total.hexdigest()[:16]


@contextmanager
def _making(target: Path) -> Iterator[Path | None]:
    """A folder to fill, which becomes `target` when all went well; None when `target` is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / COMPLETE).exists():
            yield None
            return
        partial = target.with_suffix(".partial")
        for folder in (partial, target):
            shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir()
        yield partial
        (partial / COMPLETE).touch()
        partial.rename(target)
