"""vLLM arguments that the operator sets itself, and how to spot them in every spelling argparse accepts.

vLLM's parser takes short forms, `_` for `-`, dotted keys (--speculative-config.method) and any
unambiguous prefix (--spec, --speculative-conf), so a list of names alone would let them through.
"""

from __future__ import annotations

from collections.abc import Iterable

OWNED: dict[str, str] = {
    "--model": "spec.model.name",
    "--revision": "spec.model.revision",
    "--served-model-name": "spec.model.servedName",
    "--hf-token": "spec.model.tokenSecret",
    "--host": "nothing: the operator sets it",
    "--port": "nothing: the operator sets it",
    "--uds": "nothing: the operator sets it",
    "--config": "spec.engine.args, one argument each",
    "--tensor-parallel-size": "spec.parallelism.tensor",
    "--pipeline-parallel-size": "spec.parallelism.pipeline",
    "--data-parallel-size": "spec.parallelism.data",
    "--nnodes": "spec.parallelism.nodes",
    "--speculative-config": "spec.speculation",
    "--spec-method": "spec.speculation.method",
    "--spec-model": "spec.speculation.draftModel",
    "--spec-tokens": "spec.speculation.maxTokens",
    "--scheduler-cls": "nothing: the operator sets it",
    "--cudagraph-capture-sizes": "nothing: the operator plans them from spec.speculation.candidates",
    "--max-cudagraph-capture-size": "nothing: the operator plans it from spec.speculation.candidates",
    "--cuda-graph-sizes": "nothing: the operator plans them from spec.speculation.candidates",
}
"""Flag → what to set instead."""

SHORT: dict[str, str] = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-sc": "--speculative-config",
    "-n": "--nnodes",
}

# Prefixes of owned flags that are vLLM flags of their own, or begin too many others to be unambiguous.
SHORTEST_PREFIX = 5  # "--" and three letters: every shorter prefix is ambiguous to vLLM's parser


def owner_of(argument: str) -> str | None:
    """The owned flag that `argument` (one item of engine.args) would set, or None."""
    if not argument.startswith("-"):
        return None
    flag = argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
    if flag in SHORT:
        return SHORT[flag]
    if flag in OWNED:
        return flag
    if flag.startswith("--") and len(flag) >= SHORTEST_PREFIX:
        return next((owned for owned in OWNED if owned.startswith(flag) and flag not in _WHOLE), None)
    return None


# Whole vLLM flags that are prefixes of an owned one: they mean themselves.
_WHOLE = frozenset({"--tokenizer-revision"})


def violations(args: Iterable[str]) -> list[tuple[int, str, str]]:
    """(index, argument's flag, what to set instead) for each item of engine.args that the operator owns."""
    found = []
    for index, argument in enumerate(args):
        flag = owner_of(argument)
        if flag:
            found.append((index, flag, OWNED[flag]))
    return found


def cel_pattern() -> str:
    """A regular expression (RE2) that matches every spelling `owner_of` knows, for the CRD's rule."""
    names = [_any_dash(_prefixes(flag)) for flag in OWNED]
    shorts = "|".join(short[1:] for short in SHORT)
    return rf"^(--({'|'.join(names)})|-({shorts}))([=.].*)?$"


def _prefixes(flag: str) -> str:
    """`--model` → `mod(e(l)?)?`: the flag and its prefixes down to the shortest unambiguous one."""
    name = flag[2:]
    head = SHORTEST_PREFIX - 2
    if len(name) <= head:
        return name
    return name[:head] + "".join(f"({c}" for c in name[head:]) + ")?" * (len(name) - head)


def _any_dash(pattern: str) -> str:
    return pattern.replace("-", "[-_]")
