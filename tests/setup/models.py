"""The tiny models of the engine and cluster tiers, made once and kept by what they are made of."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import astuple, dataclass
from pathlib import Path

from deploy.console import cache, locked, run, say
from tests.setup import tiny_model, vllm


@dataclass(frozen=True)
class Shape:
    """Sizes of the pair; the default has 155M parameters in the target and 17M in the draft.

    With damping 0.05 and greedy sampling a drafted token survives at about .70 .48 .32 .22 .15 by
    position, with 0.15 at .30 .10 .02.
    """

    hidden: int = 1024
    layers: int = 12
    draft_layers: int = 1
    damping: float = 0.05


@dataclass(frozen=True)
class TinyModels:
    target: Path
    draft: Path


def provide(shape: Shape | None = None) -> TinyModels:
    """Folders of the two models, as vLLM's --model and the draft's `model` take them."""
    shape = shape or Shape()
    source = Path(tiny_model.__file__)
    key = hashlib.sha256(source.read_bytes() + repr(astuple(shape)).encode()).hexdigest()[:12]
    folder = cache() / "models" / key
    with locked("models"):
        if not folder.exists():
            python = vllm.provide().python
            say(f"making a tiny target and draft in {folder}")
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            sizes = ("--hidden", shape.hidden, "--layers", shape.layers, "--draft-layers", shape.draft_layers)
            run(
                python,
                source,
                partial,
                *map(str, sizes),
                "--damping",
                str(shape.damping),
                env=vllm.ENVIRONMENT,
            )
            partial.rename(folder)
    return TinyModels(folder / "target", folder / "draft")
