"""What the documentation lists is what the code has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from specpilot.api.vocabulary import Condition, Reason
from specpilot.config import Config, PrometheusEndpoint
from specpilot.control.telemetry import Telemetry
from specpilot_engine.protocol import names as protocol_names

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """Every Markdown file of the project; what tools and environments keep in hidden folders is not of it."""
    found: list[Path] = []
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def names(page: str) -> set[str]:
    """Every word in code style on a page."""
    return set(re.findall(r"`([A-Za-z.]+)`", (ROOT / "docs" / page).read_text()))


@pytest.mark.parametrize("kind", [Condition, Reason])
def test_every_condition_and_reason_is_explained(kind: type[Condition] | type[Reason]) -> None:
    assert {str(value) for value in kind} <= names("status.md")


def test_every_setting_of_the_operator_is_explained() -> None:
    settings = {
        f"{name}.{inner}" if hasattr(field.annotation, "model_fields") else name
        for name, field in ((f.alias or n, f) for n, f in Config.model_fields.items())
        for inner in (
            [f.alias for f in field.annotation.model_fields.values()]  # type: ignore[union-attr]
            if hasattr(field.annotation, "model_fields")
            else [""]
        )
    }
    assert settings <= names("configuration.md")
    assert {f.alias for f in PrometheusEndpoint.model_fields.values()} <= names("configuration.md")


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_every_metric_is_explained_and_no_other() -> None:
    """Of the operator as its registry has them, of engines as the protocol names them."""
    own = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in Telemetry().registry.collect()
    }
    engines = {text for name, text in vars(protocol_names).items() if name.startswith("M_")}
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(specpilot_\w+)` \|", page, re.MULTILINE)) == own | engines


def test_the_index_of_decisions_has_each_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    told = re.findall(
        r"^\| (\d{3}) \| \[(.+)\]\((\S+\.md)\) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    have = [
        (page.name[:3], page.read_text().splitlines()[0].removeprefix("# "), page.name)
        for page in sorted(folder.glob("[0-9]*.md"))
    ]
    assert sorted(told) == have
