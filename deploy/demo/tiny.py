"""deploy/samples/cpu-tiny.yaml, made to fit this machine: a real vLLM that is worth watching for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "cpu-tiny.yaml"
NAME = "tiny"
AGREEMENT = 0.02  # of target and draft, as their damping: enough for drafting to pay with many clients too
LONGEST = 400  # tokens of a completion: fewer, and new requests would disturb most steps
CONTEXT = 128  # tokens that such requests hold at first; little, so that profiling is short


def tiny(
    image: str, target: Path, draft: Path, pod_template: dict[str, Any], interval: int
) -> dict[str, Any]:
    """The sample with an image, models and volumes of ours, looking every `interval` seconds."""
    body: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    spec = body["spec"]
    spec["model"] = {"name": str(target), "servedName": NAME}  # no hostPath: restricted pods may not have one
    spec["engine"]["image"] = image
    spec["speculation"]["draftModel"]["name"] = str(draft)
    # An engine of ten steps a second has to spend more on exploring than one of a hundred to learn as much.
    spec["tuning"] |= {"interval": f"{interval}s", "dwell": f"{2 * interval}s", "explorationPrice": 0.03}
    # Nor would it leave enough whole drafts to see within a few looks what traffic has become.
    spec["speculation"]["verification"] = {"adaptive": "Never"}
    spec["profiling"]["grid"] = {"tokens": [0, 1, 3], "batchSizes": [1, 16], "contextLengths": [CONTEXT]}
    spec["podTemplate"] = pod_template
    return body
