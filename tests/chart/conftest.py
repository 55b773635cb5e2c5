"""Rendering the chart as Helm does, without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart

CHART = Path(__file__).parents[2] / "charts/specpilot"
Body = dict[str, Any]
Render = Callable[..., list[Body]]


def ci_values(name: str) -> Body:
    values: Body = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return values


@pytest.fixture(scope="session")
def manifests() -> Callable[..., dict[str, str]]:
    """manifests(values) → the text that each template renders to."""

    def rendered(values: Body | None = None, **options: Any) -> dict[str, str]:
        with Chart.load(CHART) as chart:
            texts = chart.render(
                values or {}, **{"name": "specpilot", "namespace": "specpilot-system", **options}
            )
        return {name.removeprefix("specpilot/templates/"): text for name, text in texts.items()}

    return rendered


@pytest.fixture(scope="session")
def render(manifests: Callable[..., dict[str, str]]) -> Render:
    """render(values, kind=…) → the objects that Helm would create, those of one kind when asked for it."""

    def objects(values: Body | None = None, kind: str = "", **options: Any) -> list[Body]:
        texts = [text for name, text in manifests(values, **options).items() if name.endswith(".yaml")]
        found = [body for text in texts for body in yaml.safe_load_all(text) if body]
        return [body for body in found if kind in ("", body["kind"])]

    return objects
