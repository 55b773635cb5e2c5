"""What a person would look at when a test on a cluster has failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.setup.cluster import Cluster

LINES = "60"  # of each container's log


@contextmanager
def explained(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Print objects, events and logs of a namespace when what it wraps fails."""
    try:
        yield
    except BaseException:
        where = ("--namespace", namespace)
        for words in (
            ("get", "pods,jobs,specdep,costprofiles", "--output=wide", *where),
            ("get", "specdep", "--output=yaml", *where),
            ("get", "events", "--sort-by=.lastTimestamp", *where),
        ):
            print(cluster.kubectl(*words, check=False), file=sys.stderr)
        for pod in cluster.get("pods", namespace=namespace):
            name = pod["metadata"]["name"]
            log = ("logs", name, "--all-containers", "--prefix", "--tail", LINES, *where)
            print(cluster.kubectl(*log, check=False), file=sys.stderr)
        raise
