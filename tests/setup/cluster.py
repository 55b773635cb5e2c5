"""A cluster for the tests: one that is given, kind where Docker runs, or the project's own localkube."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from deploy.console import TroubleError, cache, run, say
from deploy.images.engines import docker_runs
from tests.setup.audit import AuditLog
from tests.setup.reader import Reader

PROJECT = Path(__file__).resolve().parents[2]
LOCALKUBE = (sys.executable, str(PROJECT / "deploy" / "localkube"))
KIND_CONFIG = PROJECT / "deploy" / "kind" / "cluster.yaml"
KIND_NAME = "specpilot"
GPUS = {"nvidia.com/gpu": 8}  # claimed by our own nodes, so that scheduling for GPUs can be seen

GIVEN, GIVEN_LOAD = "KUBECONFIG_SPECPILOT", "SPECPILOT_LOAD_IMAGE"
STARTED = "cluster_started"  # what a worker of a test run tells: it has started the cluster


class Cluster:
    """A cluster that runs, and how tests reach it."""

    def __init__(
        self, kubeconfig: Path, kubectl: tuple[str, ...], load: tuple[str, ...], audit_log: Path | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        self.audit_log = AuditLog(audit_log) if audit_log else None
        self._kubectl, self._load = kubectl, load
        self._reader: Reader | None = None

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:
        """Standard output of kubectl; AssertionError with its standard error when it fails and `check`."""
        done = subprocess.run(
            [*self._kubectl, *args],
            input=input,
            capture_output=True,
            text=True,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {shlex.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> None:
        """Server-side apply."""
        where = ("--namespace", namespace) if namespace else ()
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        options = ("--server-side", "--force-conflicts", "--field-manager=tests")
        self.kubectl("apply", *options, *where, "-f", "-", input=json.dumps(items))

    def get(self, kind: str, name: str = "", namespace: str | None = None, selector: str = "") -> Any:
        """One object, None where it is not there; without `name` all of a namespace, or of "*", all of them."""
        reader = self._connected()
        return reader.one(kind, name, namespace) if name else reader.all(kind, namespace, selector)

    def load(self, archive: Path) -> None:
        """Bring an image archive into the node, once in the cluster's life."""
        system = self.get("namespace", "kube-system")["metadata"]["uid"]
        loaded = cache() / "loaded" / system / archive.name
        if not loaded.exists():
            say(f"loading {archive.name} into the cluster")
            run(*self._load, archive)
            loaded.parent.mkdir(parents=True, exist_ok=True)
            loaded.touch()

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace with all that is in it: its pods end at once, the rest in a few seconds."""
        self._connected().remove_namespace(name)

    def _connected(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self.kubeconfig)
        return self._reader


def prepare() -> None:
    """Get what `start` needs, which may take minutes, and start nothing."""
    if not os.environ.get(GIVEN) and not _kind_works():
        _run_localkube("prepare")


def start() -> tuple[Cluster, bool]:
    """A cluster, and whether it was started for this and is to be stopped afterwards."""
    given = os.environ.get(GIVEN)
    if given:
        return _given(Path(given)), False
    if _kind_works():
        return _kind()
    return _localkube()


def stop() -> None:
    """End what `start` has started."""
    if _kind_works():
        run("kind", "delete", "cluster", "--name", KIND_NAME)
    else:
        _run_localkube("down")


def _kind_works() -> bool:
    return shutil.which("kind") is not None and docker_runs()


def _given(kubeconfig: Path) -> Cluster:
    load = os.environ.get(GIVEN_LOAD)
    if not kubeconfig.exists():
        raise TroubleError(f"{GIVEN}={kubeconfig} is no file: name a kubeconfig, or unset it.")
    if not load:
        raise TroubleError(
            f"Set {GIVEN_LOAD} to a command that loads an image archive, e.g. `kind load image-archive`."
        )
    return Cluster(kubeconfig, (_own_kubectl(),), tuple(shlex.split(load)))


def _own_kubectl() -> str:
    found = shutil.which("kubectl")
    if not found:
        raise TroubleError("kubectl is missing: install it to use this cluster.")
    return found


def _kind() -> tuple[Cluster, bool]:
    kubeconfig = cache() / "kind.kubeconfig"
    started = KIND_NAME not in run("kind", "get", "clusters").split()
    if started:
        say("creating a cluster with kind")
        config = yaml.safe_load(KIND_CONFIG.read_text())
        # What pods mount from this machine (vLLM, models) must be in the node at the same place.
        shared = [
            {"hostPath": str(path), "containerPath": str(path)} for path in (cache(), Path(sys.base_prefix))
        ]
        config["nodes"][0]["extraMounts"] = [mount for mount in shared if mount["hostPath"] != "/usr"]
        rendered = cache() / "kind.yaml"
        rendered.write_text(yaml.safe_dump(config))
        run("kind", "create", "cluster", "--config", rendered, "--kubeconfig", kubeconfig, "--wait", "120s")
    else:
        run("kind", "export", "kubeconfig", "--name", KIND_NAME, "--kubeconfig", kubeconfig)
    load = ("kind", "load", "image-archive", "--name", KIND_NAME)
    cluster = Cluster(kubeconfig, (_own_kubectl(),), load)
    for node in cluster.get("nodes"):
        capacity = {"status": {"capacity": {name: str(count) for name, count in GPUS.items()}}}
        patch = ("--subresource=status", "--type=merge", "--patch", json.dumps(capacity))
        cluster.kubectl("patch", "node", node["metadata"]["name"], *patch)
    return cluster, started


def _localkube() -> tuple[Cluster, bool]:
    running = subprocess.run([*LOCALKUBE, "status"], capture_output=True).returncode == 0
    claims = [word for name, count in GPUS.items() for word in ("--extended-resource", f"{name}={count}")]
    kubeconfig = Path(_run_localkube("up", "--audit-log", *claims).strip())
    audit_log = kubeconfig.parents[1] / "logs" / "audit.log"
    cluster = Cluster(kubeconfig, (*LOCALKUBE, "kubectl"), (*LOCALKUBE, "load"), audit_log)
    return cluster, not running


def _run_localkube(*args: str) -> str:
    """Its progress goes straight to the terminal; its one-sentence error is ours."""
    with subprocess.Popen(
        [*LOCALKUBE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        last = ""
        for line in process.stderr:
            last = line.rstrip()
            print(last, file=sys.stderr, flush=True)
        out = process.stdout.read()
    if process.returncode != 0:
        raise TroubleError(last.partition("localkube: ")[2] or last or f"localkube {args[0]} failed.")
    return out
