"""Reading the user's vLLM arguments, in every spelling that vLLM's parser takes for one flag."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# No engine has more than fifteen digits of anything.
_COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15}(?=[a-zA-Z]))?)([kKmMgGtT])?")
_SHORT = {
    "-cc": "--compilation-config",
    "-O": "--optimization-level",
    "-q": "--quantization",
    "-ep": "--enable-expert-parallel",
    "-dcp": "--decode-context-parallel-size",
}
_LEVEL = re.compile(r"-O(\w+)")  # the one value that needs no space


@dataclass(frozen=True, slots=True)
class Flag:
    """One option with its values, however they were attached; `key` is what follows a dot."""

    name: str
    key: str
    values: tuple[str, ...]

    def means(self, name: str) -> bool:
        """Whether vLLM takes it for the option `name`: any prefix does that is no other option's, or vLLM refuses it."""
        return self.name == name or (len(self.name) > len("--") and name.startswith(self.name))

    @property
    def value(self) -> str:
        return self.values[-1] if self.values else ""


def parse(args: Sequence[str]) -> tuple[Flag, ...]:
    """Flags in order. Items before the first flag belong to none and are dropped."""
    found: list[tuple[str, str, list[str]]] = []
    for item in args:
        if _is_flag(item):
            head, eq, value = item.partition("=")
            name, _, key = head.partition(".")
            found.append((_SHORT.get(name, name.replace("_", "-")), key, [value] if eq else []))
        elif found:
            found[-1][2].append(item)
    return tuple(Flag(name, key, tuple(values)) for name, key, values in found)


def last(flags: Iterable[Flag], name: str) -> Flag | None:
    """As argparse: the last one wins."""
    return next((f for f in reversed(tuple(flags)) if f.means(name) and not f.key), None)


def level(flags: Iterable[Flag]) -> str:
    """The optimization level; "" where none is given."""
    for flag in reversed(tuple(flags)):
        if short := _LEVEL.fullmatch(flag.name):
            return short[1]
        if flag.means("--optimization-level"):
            return flag.value
    return ""


def integer(flags: Iterable[Flag], name: str) -> int | None:
    """A count with vLLM's suffixes (8k is 8000, 8K is 8192); None when absent, -1, auto or not a number."""
    flag = last(flags, name)
    text = flag.value if flag else ""
    found = _COUNT.fullmatch(text.strip())
    if found is None:
        return None
    digits, suffix = found.groups()
    number = int(float(digits) * {**_DECIMAL, **_BINARY}[suffix]) if suffix else int(digits)
    return number if number > 0 else None


def enabled(flags: Iterable[Flag], name: str) -> bool:
    """A switch that is on: --x without --no-x after it."""
    state = False
    for flag in flags:
        if flag.means(name):
            state = flag.value.lower() not in ("false", "0")
        elif flag.means(f"--no-{name[2:]}"):
            state = False
    return state


def mapping(flags: Iterable[Flag], name: str) -> dict[str, Any]:
    """A JSON argument with its dotted parts merged in (first level); {} when it cannot be read."""
    merged: dict[str, Any] = {}
    for flag in flags:
        if not flag.means(name):
            continue
        value = _json(flag.value)
        if flag.key:
            merged[flag.key.rstrip("+")] = value
        elif isinstance(value, dict):
            merged.update(value)
    return merged


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_flag(item: str) -> bool:
    return item.startswith("-") and len(item) > 1 and not item[1].isdigit()
