"""specpilot on a real cluster, with a real vLLM on the CPU: `make cluster-demo`.

Brings up a cluster (kind where Docker runs, else localkube), a Prometheus, the operator by its Helm chart
and a tiny model with a tinier drafter; then lets traffic change and tells what the operator does about
it. Ten minutes at most, and nothing stays behind unless --keep is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from deploy.console import TroubleError
from deploy.demo.monitoring import Prometheus
from deploy.demo.scenes import SCENES, Outcome, Theatre, table
from deploy.demo.tiny import AGREEMENT, NAME, tiny
from helm_python import Chart, Config, HelmError
from tests.setup import cluster as clusters
from tests.setup import images, models, vllm, vllm_pods
from tests.setup.cluster import PROJECT, Cluster
from tests.setup.waiting import eventually

SYSTEM, NAMESPACE = "specpilot-system", "specpilot-demo"
CHART = PROJECT / "charts" / "specpilot"
INTERVAL = 5  # seconds between two looks of the operator: a slow engine needs so long to show something
PATIENCE = 300.0  # seconds for the pod to become ready; a minute and a half is usual


class Demo:
    """What it does, in order; `stack` undoes it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._begun = time.monotonic()

    def tell(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        print(f"{minutes}:{seconds:02} {text}", flush=True)

    def run(self) -> Cluster:
        """All of it, up to the last table."""
        self.tell("bringing a cluster up")
        cluster, started = clusters.start()
        if started:
            self._stack.callback(clusters.stop)
        self.tell("loading images into it")
        operator, engine = (self._image(cluster, name) for name in ("operator", "vllm-cpu"))
        for name in (SYSTEM, NAMESPACE):
            self._namespace(cluster, name)
        self.tell(f"starting Prometheus in namespace {NAMESPACE}")
        prometheus = Prometheus(cluster, NAMESPACE, operator)
        self._stack.callback(prometheus.stop)
        prometheus.start()
        self.tell(f"installing the operator by its Helm chart in namespace {SYSTEM}")
        self._install(cluster, operator, prometheus.url)
        self.tell(
            f"applying SpeculativeDeployment {NAME}: a vLLM that drafts up to 5 tokens with a small model"
        )
        self._serve(cluster, engine)
        theatre = Theatre(cluster, NAMESPACE, operator, prometheus, self.tell)
        before = theatre.engine()
        outcomes = [theatre.play(scene) for scene in SCENES]
        theatre.stop()
        self._conclude(outcomes, before == theatre.engine())
        return cluster

    def _image(self, cluster: Cluster, name: str) -> str:
        image = images.provide(name)
        cluster.load(image.archive)
        return image.name

    def _namespace(self, cluster: Cluster, name: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self._stack.callback(cluster.remove_namespace, name)

    def _install(self, cluster: Cluster, image: str, prometheus: str) -> None:
        repository, _, tag = image.rpartition(":")
        values = {
            "image": {"repository": repository, "tag": tag},
            "crds": {"keep": False},
            "config": {"tick": "1s"},
            "prometheus": [{"name": "main", "url": prometheus}],
        }
        helm = self._stack.enter_context(Config(kubeconfig_path=cluster.kubeconfig, namespace=SYSTEM))
        with Chart.load(CHART) as chart:
            helm.install(chart, "specpilot", values, timeout=120)
        self._stack.callback(helm.uninstall, "specpilot", ignore_not_found=True, timeout=60)
        cluster.kubectl("rollout", "status", "deployment/specpilot", "--namespace", SYSTEM, "--timeout=120s")

    def _serve(self, cluster: Cluster, image: str) -> None:
        pair, template = (
            models.provide(models.Shape(damping=AGREEMENT)),
            vllm_pods.pod_template(cluster, NAMESPACE, vllm.provide()),
        )
        self._stack.callback(vllm_pods.remove, cluster, NAMESPACE)
        cluster.apply(tiny(image, pair.target, pair.draft, template, INTERVAL), namespace=NAMESPACE)
        applied, told = time.monotonic(), ""

        def ready() -> bool:
            nonlocal told
            status = cluster.get("specdep", NAME, NAMESPACE).get("status", {})
            known = {c["type"]: c for c in status.get("conditions", [])}
            shown = "; ".join(
                f"{kind} {known[kind]['status']}, {known[kind]['reason']}"
                for kind in ("Ready", "Profiled")
                if kind in known
            )
            if shown != told:
                told = shown
                self.tell(f"   {shown}")
            return "Ready" in known and known["Ready"]["status"] == "True"

        eventually(ready, PATIENCE, f"SpeculativeDeployment {NAME} to be ready", every=1.0)
        self.tell(f"   it serves, {time.monotonic() - applied:.0f} s after it was applied")

    def _conclude(self, outcomes: list[Outcome], same: bool) -> None:
        self.tell("what the operator settled on:\n")
        print(table(outcomes))
        print(f"\nThe engine was {'never' if same else 'unexpectedly'} restarted.\n", flush=True)


def look_further(cluster: Cluster) -> str:
    """Where to go from here, on a cluster that is kept."""
    return f"""The cluster is kept. Look around:
  export KUBECONFIG={cluster.kubeconfig}
  kubectl get specdep --namespace {NAMESPACE} --watch
  kubectl describe specdep {NAME} --namespace {NAMESPACE}
  kubectl get costprofile --namespace {NAMESPACE} --output yaml
  kubectl logs deployment/specpilot --namespace {SYSTEM}
  kubectl port-forward service/prometheus 9090 --namespace {NAMESPACE}
  .venv/bin/specpilot explain {NAMESPACE}/{NAME}
and remove it with `make cluster-down`."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster and all that is in it")
    keep = parser.parse_args().keep
    with ExitStack() as stack:
        demo = Demo(stack)
        try:
            cluster = demo.run()
            if keep:
                stack.pop_all()
                print(look_further(cluster))
            else:
                demo.tell("cleaning up")
        except (TroubleError, AssertionError, HelmError) as error:
            print(f"specpilot: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("specpilot: interrupted, cleaning up", file=sys.stderr)
            return 130
    print("Next: `python -m deploy.demo --keep` leaves it running to look at; docs/ says how it decides.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
