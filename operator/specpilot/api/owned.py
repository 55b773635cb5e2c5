"""vLLM arguments that the operator sets itself, and how to spot them in every spelling argparse accepts.

vLLM's parser takes short forms, `_` for `-`, dotted keys (--speculative-config.method) and any
unambiguous prefix (--spec-me, --speculative-conf), so comparing whole names would let them through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Flags that are owned for one reason; both texts go into one sentence."""

    what: str
    instead: str
    flags: tuple[str, ...]

    @property
    def message(self) -> str:
        return f"spec.engine.args {self.what}: remove it and {self.instead}"


GROUPS = (
    Group(
        "sets the model, its revision, served name or token",
        "use spec.model",
        ("--model", "--revision", "--served-model-name", "--hf-token"),
    ),
    Group(
        "sets how the model is split over devices or nodes",
        "use spec.parallelism",
        (
            *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
            *("--data-parallel-size", "-dp", "--data-parallel-size-local", "-dpl"),
            *("--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr"),
            *("--data-parallel-address", "-dpa", "--data-parallel-rpc-port", "-dpp"),
            *("--data-parallel-hybrid-lb", "--no-data-parallel-hybrid-lb", "-dph"),
            *("--data-parallel-external-lb", "--no-data-parallel-external-lb", "-dpe"),
            *("--data-parallel-multi-port-external-lb", "-dpm"),
            *("--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port", "--headless"),
        ),
    ),
    Group(
        "sets the drafter or how deep it drafts",
        "use spec.speculation",
        ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"),
    ),
    Group(
        "sets the scheduler class or the captured graph sizes",
        "let the operator plan them from spec.speculation.candidates",
        (
            "--scheduler-cls",
            "--cudagraph-capture-sizes",
            "--max-cudagraph-capture-size",
            "--cuda-graph-sizes",
        ),
    ),
    Group(
        "sets where or how the engine listens",
        "let the operator set it (TLS belongs in front of the Service)",
        ("--host", "--port", "--uds", "--grpc", "--ssl-keyfile", "--ssl-certfile"),
    ),
    Group(
        "sets an API key in plain sight",
        "set VLLM_API_KEY in spec.engine.env from a Secret",
        ("--api-key",),
    ),
    Group(
        "names a configuration file, which hides what the engine runs with",
        "write its arguments into spec.engine.args one by one",
        ("--config",),
    ),
    Group(
        "turns off the statistics, which the operator reads",
        "leave them on",
        ("--disable-log-stats",),
    ),
)

# vLLM takes these sizes inside --compilation-config too, as JSON or as a dotted key of any spelling.
CAPTURE_SIZES = "cudagraph[-_]capture[-_]size"


def owner_of(argument: str) -> str | None:
    """An owned flag that `argument` (one item of engine.args) sets or could set, or None.

    A prefix that fits an owned flag and others is owned too: vLLM refuses it as ambiguous at start.
    """
    return next((flag for group in GROUPS for flag in group.flags if _fits(argument, flag)), None)


def sets_any(group: Group, args: Iterable[str]) -> bool:
    return any(_fits(argument, flag) for argument in args for flag in group.flags)


def _fits(argument: str, flag: str) -> bool:
    name = argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
    if len(name) < 2 or name == "--":
        return False
    return flag.startswith(name) or (len(flag) == 2 and name.startswith(flag))  # -n takes 4 as -n4


def cel(group: Group) -> str:
    """What must hold for a list of arguments `self`; `_fits` in the API server's language."""
    letters = [flag for flag in group.flags if len(flag) == 2]
    glued = f" && !{letters}.exists(o, f.startsWith(o))" if letters else ""
    return (
        "self.map(a, a.split('=')[0].split('.')[0].replace('_', '-'))"
        f".all(f, f.size() < 2 || f == '--' || !{list(group.flags)}.exists(o, o.startsWith(f)){glued})"
    )
