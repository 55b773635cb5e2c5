"""Pods that restricted pod security admits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def restricted_pod(
    name: str, image: str, command: Sequence[str], container: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of one container, `main`; `container` and `spec` add fields to it and to the pod."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "securityContext": security,
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [main],
            **spec,
        },
    }
