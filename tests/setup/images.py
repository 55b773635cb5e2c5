"""The project's images, built on a base that this machine can get."""

from __future__ import annotations

from deploy.images.build import Image, Images


def provide(name: str) -> Image:
    """Name and archive of an image (base, operator, sim or vllm-cpu), built if need be."""
    return Images(base=None).provide(name)
