"""The tables of docs/tuning.md have every constant of estimation, decision and the engine's rules, with its value."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The modules whose constants a table has; those of every other table are estimation's and decision's.
TABLES = {
    "arms": ("specpilot.decide.arms_constants", "specpilot.control.arms"),
    "caps": ("specpilot.decide.caps_constants",),
    "row budget (in the engine)": ("specpilot_engine.budget", "specpilot_engine.trim"),
    "in the engine (`specpilot_engine`)": (
        "specpilot_engine.protocol.interval",
        "specpilot_engine.trial",
        "specpilot_engine.explore",
        "specpilot_engine.timing",
        "specpilot_engine.live",
    ),
    "block verification (in `explain`)": ("specpilot_engine.acceptance",),
}
OTHERS = ("specpilot.estimate.constants",)
# Numbers that decide nothing: formats, sizes of tables.
ELSEWHERE = {
    "specpilot.decide.arms_memory.VERSION",
    "specpilot.decide.caps_memory.VERSION",
    "specpilot.decide.explain.MOST_BATCHES",
    "specpilot.decide.memory.VERSION",
    "specpilot.estimate.profile.FAR",
}
UNITS = {"GB": 1e9, "GFLOP": 1e9, "µs": 1e-6, "ms": 1e-3, "h": 3600.0, "%": 0.01, "": 1.0}
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+))? ?(GB\b|GFLOP\b|µs\b|ms\b|h\b|%)?")


def constants(module: str) -> dict[str, list[float]]:
    """Public upper-case numbers of a module and the numbers in its tuples, flat, as it defines them."""
    loaded = importlib.import_module(module)
    assert loaded.__file__ is not None
    found = {}
    for node in ast.parse(Path(loaded.__file__).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = (node.target,)
        for name in (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)):
            values = list(flat(getattr(loaded, name)))
            if re.fullmatch("[A-Z][A-Z0-9_]*", name) and values:
                found[name] = values
    return found


def flat(value: object) -> Iterator[float]:
    if isinstance(value, tuple):
        for part in value:
            yield from flat(part)
    elif isinstance(value, int | float):
        yield float(value)


def rows() -> dict[str, list[tuple[list[str], str, str]]]:
    """By table: names, value and worked value of each row."""
    found = defaultdict(list)
    title = ""
    for line in (ROOT / "docs" / "tuning.md").read_text().partition("## The constants")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 4 and cells[1:] == ["value", "why", "worked value"]:
            title = cells[0]
        elif len(cells) == 4 and re.match("[A-Z]", cells[0]):
            found[title].append((cells[0].split(", "), cells[1], cells[3]))
    return found


def numbers(cell: str) -> list[float]:
    return [
        float(number.replace(",", "")) / float(under or 1) * UNITS[unit]
        for number, under, unit in NUMBER.findall(cell)
    ]


@pytest.mark.parametrize("modules", [OTHERS, *TABLES.values()], ids=lambda modules: modules[0])
def test_every_constant_has_a_row_with_its_value_and_no_row_is_of_none(modules: tuple[str, ...]) -> None:
    known = {name: value for module in modules for name, value in constants(module).items()}
    told = [row for title, found in rows().items() if TABLES.get(title, OTHERS) == modules for row in found]
    assert sorted(name for names, _, _ in told for name in names) == sorted(known)
    for names, value, worked in told:
        assert numbers(value) == pytest.approx([v for name in names for v in known[name]]), names
        assert worked, names


@pytest.mark.parametrize("package", ["estimate", "decide"])
def test_no_constant_of_estimation_or_decision_stands_elsewhere(package: str) -> None:
    modules = [
        f"specpilot.{package}.{path.stem}"
        for path in sorted((ROOT / "operator" / "specpilot" / package).glob("*.py"))
    ]
    listed = {module for group in (OTHERS, *TABLES.values()) for module in group}
    found = {f"{module}.{name}" for module in modules if module not in listed for name in constants(module)}
    assert found == {name for name in ELSEWHERE if f".{package}." in name}
