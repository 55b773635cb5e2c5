"""The operator as a process of this machine, with an identity and rights of its own in the cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.operator_identity import Identity
from tests.setup.cluster import PROJECT, Cluster
from tests.setup.waiting import eventually

from specpilot.local.process import free_ports


class OperatorProcess:
    """One operator; start it, end it in any way, start it again.

    `before` is Python that runs in its process first, for a bug that it shall have; `server` a URL by which it
    reaches the API server.
    """

    def __init__(
        self, who: Identity, folder: Path, before: str = "", server: str = "", **config: Any
    ) -> None:
        self.identity = who
        program = "import runpy; runpy.run_module('specpilot.operator_main', run_name='__main__')"
        self._program = ["-c", f"{before}\n{program}"] if before else ["-m", "specpilot.operator_main"]
        self._log = folder / "operator.log"
        self._health = free_ports(1)[0]
        self._config = folder / "operator.yaml"
        settings = {
            "namespace": who.namespace,
            "watchNamespaces": who.watched,
            "tick": "500ms",
            # A container that is restarted in its pod keeps its name, and with it the Lease. Its deadlines
            # are long: the machines that run tests stall.
            "identity": "specpilot-test",
            "lease": {"duration": "60s", "renewDeadline": "45s", "retryPeriod": "500ms"},
            "ports": {"health": self._health, "metrics": free_ports(1)[0]},
            "logLevel": "info",
            **config,
        }
        self.ports: dict[str, int] = settings["ports"]
        self._config.write_text(yaml.safe_dump(settings))
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(who.kubeconfig(server)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until its caches are filled."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "SPECPILOT_CONFIG": str(self._config),
            "PYTHONPATH": f"{PROJECT / 'operator'}:{PROJECT / 'serving'}",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program], env=environment, stderr=log, stdout=log
            )
        eventually(self.ready, 30, f"the operator's caches ({self._log})")

    def ready(self) -> bool:
        return self._ask("readyz") == 200

    def alive(self) -> bool:
        return self._ask("healthz") == 200

    def _ask(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return 0

    def metric(self, name: str) -> float:
        """A series of the operator's own /metrics, by its name with labels; 0 where it is absent."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        return 0.0

    def kill(self) -> None:
        """As a node that dies does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As Kubernetes does; its exit status."""
        return self._end(signal.SIGTERM)

    def ended(self, within: float = 120) -> int:
        """Wait until it ends by itself; its exit status."""
        assert self._process is not None
        status = self._process.wait(within)
        self._process = None
        return status

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        status = self._process.wait(120)
        self._process = None
        return status

    def logged(self) -> list[dict[str, Any]]:
        """Its log, one dictionary a line."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def running(
    cluster: Cluster, folder: Path, before: str = "", places: int = 3, server: str = "", **config: Any
) -> Iterator[OperatorProcess]:
    """An installed operator that runs for as long as the block, and ends as told.

    It looks after `places` namespaces, to be had from `identity.place()`; 0: after the whole cluster.
    """
    identity = Identity(cluster, places)
    identity.install()
    process = OperatorProcess(identity, folder, before, server, **config)
    try:
        process.start()
        yield process
    finally:
        status = process.stop()
        identity.remove()
    assert status == 0, f"the operator ended with {status}: see {folder}"
