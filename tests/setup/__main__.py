"""Brings what the test tiers need into the cache, and a cluster up or down for work by hand."""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections.abc import Callable

from deploy.console import TroubleError, cache, say
from tests.setup import cluster, debian, images, models, vllm


def engine_tier() -> None:
    debian.provide(debian.ENGINE)
    vllm.provide()
    vllm.provide_newest()
    models.provide()


def cluster_tier() -> None:
    debian.provide(debian.CLUSTER)
    cluster.prepare()
    for name in ("operator", "sim", "vllm-cpu"):
        images.provide(name)


def cluster_up() -> None:
    running, _ = cluster.start()
    say(f"the cluster is up: export KUBECONFIG={running.kubeconfig}")
    print(running.kubeconfig)


STEPS: dict[str, Callable[[], None]] = {
    "engine": engine_tier,
    "cluster": cluster_tier,
    "cluster-up": cluster_up,
    "cluster-down": cluster.stop,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.setup", description=__doc__)
    parser.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help=f"of {', '.join(STEPS)}")
    try:
        for name in parser.parse_args().steps:
            begun = time.monotonic()
            STEPS[name]()
            say(f"{name}: done after {time.monotonic() - begun:.0f} s")
    except TroubleError as error:
        print(f"specpilot: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"specpilot: The disk is full: make room in {cache()} and run it again.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
