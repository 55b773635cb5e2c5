"""Which vLLM an image holds, as far as its name says, and what that version cannot do."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

OLDEST = Version("0.30.0")  # the oldest vLLM whose arguments this project has read
ADAPTIVE_SINCE = Version("0.32.0")  # the oldest in which it has read adaptive verification

# v0.33.0, 0.33.0rc1, v0.33.0-cu130, nightly-0.33.1: a version that stands alone in the tag.
_IN_TAG = re.compile(r"(?:^|-)v?([0-9]+\.[0-9]+(?:\.[0-9]+)?(?:(?:rc|\.post|\.dev)[0-9]+)?)(?=$|[-+_.])")
_CALENDAR = 20  # vendors' images count in years (26.05-py3): no vLLM is that far


def engine_version(image: str, vllm_version: str | None = None) -> Version | None:
    """vLLM's version: what the user says, else what the image's tag says, else None."""
    if vllm_version is not None:
        return _version(vllm_version)
    found = _IN_TAG.search(tag(image))
    version = _version(found.group(1)) if found else None
    return version if version is not None and version.major < _CALENDAR else None


def tag(image: str) -> str:
    """`registry:5000/vllm:v0.33.0@sha256:…` → `v0.33.0`; "" where there is none."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    return name.partition(":")[2]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
