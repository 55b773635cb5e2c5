"""Tells a Prometheus which of specpilot's pods to scrape: targets as its file_sd_configs reads them.

Debian builds Prometheus without discovery in Kubernetes; one that has it needs none of this. Runs in the
cluster as a file of its own, with the rights of its service account, so it imports the standard library only:

    python3 discovery.py FILE
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SELECTOR = "app.kubernetes.io/part-of=specpilot,app.kubernetes.io/component=serving"
PORTS = ("http", "specpilot")  # by name: vLLM's own series, and the engine package's
PERIOD = 1.0  # seconds between two looks
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def configuration(interval: str, targets: Path) -> dict[str, Any]:
    """A whole prometheus.yml that scrapes what the file `targets` lists."""
    job = {"job_name": "specpilot", "file_sd_configs": [{"files": [str(targets)]}]}
    # A scrape may not take longer than the interval.
    return {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": [job]}


def groups(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One group of targets a pod. By the labels namespace and pod the operator knows whose series they are."""
    found = []
    for pod in pods:
        ip, meta = pod.get("status", {}).get("podIP"), pod["metadata"]
        ports = [p for c in pod["spec"]["containers"] for p in c.get("ports", []) if p.get("name") in PORTS]
        if ip and ports:
            targets = [f"{ip}:{port['containerPort']}" for port in ports]
            found.append(
                {"targets": targets, "labels": {"namespace": meta["namespace"], "pod": meta["name"]}}
            )
    return found


def write(file: Path, pods: Iterable[dict[str, Any]]) -> None:
    """Put the targets where Prometheus looks, never half-written."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(groups(pods)))
    partial.rename(file)


def pods_of_cluster() -> list[dict[str, Any]]:
    """Serving pods of all namespaces, asked with the service account's token. Raises OSError."""
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    query = urllib.parse.urlencode({"labelSelector": SELECTOR})
    token = (ACCOUNT / "token").read_text()
    request = urllib.request.Request(f"https://{host}:{port}/api/v1/pods?{query}")
    request.add_header("Authorization", f"Bearer {token}")
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
        pods: list[dict[str, Any]] = json.load(answer)["items"]
    return pods


def main() -> None:
    file = Path(sys.argv[1])
    while True:
        try:
            write(file, pods_of_cluster())
        except OSError as error:
            print(f"pods could not be listed ({error}): Prometheus keeps the targets it has", file=sys.stderr)
        time.sleep(PERIOD)


if __name__ == "__main__":
    main()
