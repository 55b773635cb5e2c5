"""A real Prometheus on this machine that scrapes the pods of a cluster."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from deploy.demo import discovery
from tests.setup import debian
from tests.setup.cluster import Cluster
from tests.setup.reader import Reader
from tests.setup.waiting import eventually

from specpilot.local.process import free_ports


class Prometheus:
    """One that runs; `url` is what an operator's configuration names."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: series with their value or, for a range selector, values."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, trust_env=False)
        answer.raise_for_status()
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def samples(self, selector: str, seconds: int) -> dict[float, float]:
        """Time of scrape → value of the one series that `selector` picks, over the last `seconds`."""
        found = self.query(f"{selector}[{seconds}s]")
        assert len(found) == 1, f"{selector} picks {len(found)} series"
        return {float(at): float(value) for at, value in found[0]["values"]}


@contextmanager
def running(cluster: Cluster, folder: Path, interval: str) -> Iterator[Prometheus]:
    """Prometheus on a free port of this machine; `folder` is for its configuration and data."""
    debian.provide({"prometheus": debian.CLUSTER["prometheus"]})
    program = shutil.which("prometheus")
    assert program
    config, url = folder / "prometheus.yml", f"http://127.0.0.1:{free_ports(1)[0]}"
    config.write_text(yaml.safe_dump(discovery.configuration(interval, folder / "targets.json")))
    options = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
    with (folder / "prometheus.log").open("wb") as log:
        address = f"--web.listen-address={url.removeprefix('http://')}"
        process = subprocess.Popen([program, *options, address], stdout=log, stderr=log)
    stop = threading.Event()
    discoverer = threading.Thread(target=_discover, args=(cluster, folder / "targets.json", stop))
    discoverer.start()
    try:
        eventually(
            lambda: httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200,
            30,
            f"Prometheus ({folder / 'prometheus.log'})",
        )
        yield Prometheus(url)
    finally:
        stop.set()
        discoverer.join()
        process.kill()
        process.wait()


def _discover(cluster: Cluster, targets: Path, stop: threading.Event) -> None:
    reader = Reader(cluster.kubeconfig)  # a thread's own connection
    while not stop.wait(discovery.PERIOD):
        with contextlib.suppress(Exception):  # an API server that is late is asked again
            discovery.write(targets, reader.all("pods", "*", discovery.SELECTOR))
