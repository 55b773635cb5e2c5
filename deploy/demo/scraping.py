"""How a Prometheus without its operator finds what specpilot's pods export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specpilot.api.vocabulary import LABEL_COMPONENT, LABEL_PART_OF, MANAGER
from specpilot.plan.labels import SERVING
from specpilot.plan.names import PORT_NAME_HTTP, PORT_NAME_SPECPILOT


def configuration(interval: str, kubeconfig: Path | None = None) -> dict[str, Any]:
    """A whole prometheus.yml; without a kubeconfig for one that runs in the cluster itself."""
    discovery = {"role": "pod", **({"kubeconfig_file": str(kubeconfig)} if kubeconfig else {})}
    labels = [f"__meta_kubernetes_pod_label_{_meta(label)}" for label in (LABEL_PART_OF, LABEL_COMPONENT)]
    job = {
        "job_name": MANAGER,
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            {
                "action": "keep",
                "source_labels": [*labels, "__meta_kubernetes_pod_container_port_name"],
                "regex": f"{MANAGER};{SERVING};({PORT_NAME_HTTP}|{PORT_NAME_SPECPILOT})",
            },
            # By these two the operator knows whose series they are.
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        ],
    }
    # A scrape may not take longer than the interval, which is short here.
    times = {"scrape_interval": interval, "scrape_timeout": interval}
    return {"global": times, "scrape_configs": [job]}


def _meta(label: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in label)
