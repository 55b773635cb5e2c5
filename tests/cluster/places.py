"""Namespaces under restricted pod security, for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tests.setup.cluster import Cluster

RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


def namespace(name: str, **labels: str) -> dict[str, Any]:
    """The object."""
    metadata = {"name": name, "labels": {**RESTRICTED, **labels}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


@contextmanager
def namespace_of(cluster: Cluster, prefix: str = "t") -> Iterator[str]:
    """One for as long as the block; its name."""
    name = f"{prefix}-{uuid4().hex[:8]}"
    cluster.apply(namespace(name))
    try:
        yield name
    finally:
        cluster.remove_namespace(name)
