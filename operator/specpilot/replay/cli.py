"""`specpilot bench`: how the tuner does where the truth is known."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpilot.console import FAILED, WRONG, end, terminal, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specpilot.replay.registry import Outcome
    from specpilot.replay.world import World

QUIET = 2.0  # seconds before anything is said of the progress

bench = typer.Typer(
    help="Compare tuning policies in worlds where the truth is known.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@bench.callback()
def _bench() -> None:
    """A group even while it has one command."""


@bench.command(
    epilog="\b\nExamples:\n"
    "  specpilot bench replay benchmarks/worlds\n"
    "  specpilot bench replay world.json --policy specpilot --policy fixed-3 --seed 7 --json out.json"
)
def replay(
    worlds: Annotated[
        list[Path], typer.Argument(metavar="WORLD", help="World files (JSON), or folders of them.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this policy; may be repeated. fixed-3 is depth 3 for ever."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed and world give the same answer.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write the scores to this file.")
    ] = None,
    minimum_gain: Annotated[
        float, typer.Option(min=0, help="Of specpilot: the gain that is worth a change, 0.03 for 3%.")
    ] = 0.0,
    dwell: Annotated[
        str, typer.Option(metavar="DURATION", help="Of specpilot: the least time between changes.")
    ] = "2m",
) -> None:
    """Replay every policy in the same worlds, against an oracle that knows the truth.

    A policy sees the profile and the counters of each scrape, as the operator does, and answers with a
    schedule. Closed loops are scored by tokens, open ones by mean request latency.
    """
    from specpilot.api.base import seconds
    from specpilot.replay.engine import ScheduleRefused
    from specpilot.replay.product import Options
    from specpilot.replay.registry import compare
    from specpilot.replay.table import legend, summary_table, world_table
    from specpilot.replay.world import WorldError

    try:
        options = Options(minimum_gain, seconds(dwell))
    except ValueError:
        end(f"--dwell takes a duration such as 60s or 2m, not {dwell}", WRONG)
    wanted = list(dict.fromkeys(policy or ()))
    console, outcomes = terminal(), []
    try:
        for world, names in _playable(_read(worlds), wanted):
            with _Progress(world) as progress:
                outcomes.append(compare(world, seed, names, options, progress.told))
            console.print(world_table(outcomes[-1]))
            console.print()
    except WorldError as e:
        end(str(e), WRONG)
    except ScheduleRefused as e:
        end(f"{e}: correct the policy", FAILED)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if len(outcomes) > 1:
        console.print(summary_table(outcomes))
        console.print()
    console.print(legend())
    if out is not None:
        _write(out, outcomes)


def _read(paths: Sequence[Path]) -> list[World]:
    from specpilot.replay.world import WorldError, read_world

    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise WorldError(f"{path} has no .json files: name a world's file or a folder of them")
        files += found
    return [read_world(file) for file in files]


def _playable(worlds: Sequence[World], wanted: Sequence[str]) -> list[tuple[World, list[str]]]:
    """Each world with those of the policies that can play it: a fixed depth is no candidate in every one."""
    from specpilot.replay.registry import contenders

    known = [contenders(world) for world in worlds]
    for name in wanted:
        if not any(name in policies for policies in known):
            contenders(worlds[0], [name])  # says that nobody knows it
    names = [[name for name in wanted if name in policies] for policies in known]
    return [(world, some) for world, some in zip(worlds, names, strict=True) if some or not wanted]


class _Progress:
    """Says on standard error what is being played, once that takes longer than one waits gladly."""

    def __init__(self, world: World) -> None:
        from rich.console import Console

        self._world, self._start = world, time.monotonic()
        self._console = Console(stderr=True)
        self._status = self._console.status(f"playing {world.name}")
        self._shown = False

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._status.stop()

    def told(self, name: str, seconds: float) -> None:
        if time.monotonic() - self._start < QUIET:
            return
        text = f"{self._world.name}: {name}, {seconds / self._world.seconds:.0%}"
        if not self._shown:
            self._shown = True
            if not self._console.is_terminal:
                self._console.print(f"playing {self._world.name} …")
            self._status.start()
        self._status.update(text)


def _write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One world's document, or a list of them."""
    documents = [outcome.as_json() for outcome in outcomes]
    write(path, json.dumps(documents[0] if len(documents) == 1 else documents, indent=1) + "\n")
