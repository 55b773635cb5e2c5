"""The tuner against fixed depths, peers and an oracle in every world: `python -m benchmarks.replay`.

Prints shares by world and the criteria as Markdown. Processor time is counted for each run alone; where many run at
once it comes out longer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from benchmarks.replay.criteria import FLIP_FLOP, Criterion, Runs, judge
from benchmarks.replay.played import WORLDS, Seen, Task, see
from benchmarks.replay.table import table
from deploy.console import TroubleError, say

from specpilot.replay.world import WorldError, read_world

QUIET, EVERY = 2.0, 10.0  # seconds before anything is said of the progress, and from then on


def main() -> int:
    args = arguments().parse_args()
    try:
        tasks = planned(args.worlds or known(), args.seeds, args.flip_flop, not args.only_product)
        if args.json:
            written(args.json, "", "a")  # whether it can be: playing takes long
        seen = played(tasks, max(args.jobs, 1))
        runs = by_world([one for one in seen if one.seed in args.seeds])
        flips = [one for one in seen if one.world == FLIP_FLOP and one.seed < args.flip_flop]
        criteria = judge(runs, flips)
        print(table(runs, criteria))
        if args.json:
            write(args.json, seen, criteria)
    except (TroubleError, WorldError) as e:
        say(str(e))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=list(range(5)), help="of each world (%(default)s)")
    add("--worlds", nargs="+", metavar="NAME", help="of benchmarks/worlds (all)")
    add(
        "--flip-flop",
        type=int,
        default=40,
        metavar="N",
        help="seeds of that world to count changes in (%(default)s)",
    )
    add("--only-product", action="store_true", help="no peers and no fixed depths")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything seen to FILE too")
    return parser


def known() -> list[str]:
    return sorted(path.stem for path in WORLDS.glob("*.json"))


def planned(worlds: Sequence[str], seeds: Sequence[int], flips: int, everybody: bool) -> list[Task]:
    """Every world with every seed, and the other seeds of flip-flop with the product alone.

    Raises TroubleError, and WorldError of a world's file.
    """
    for name in worlds:
        if name not in known():
            raise TroubleError(f"{name} is no world: choose from {', '.join(known())}.")
        read_world(WORLDS / f"{name}.json")  # what is wrong with one is said before anything is played
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise TroubleError("Give --seeds different numbers from 0 on.")
    tasks = [Task(name, seed, everybody) for name in dict.fromkeys(worlds) for seed in seeds]
    if FLIP_FLOP in worlds:
        tasks += [Task(FLIP_FLOP, seed, False) for seed in range(flips) if seed not in seeds]
    return tasks


def played(tasks: Sequence[Task], jobs: int) -> list[Seen]:
    """What came of the tasks, in their order."""
    begun, told, seen = time.monotonic(), -EVERY, []
    say(f"{len(tasks)} runs to play, {jobs} at once")
    with multiprocessing.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        for done, one in enumerate(pool.imap(see, tasks), 1):
            seen.append(one)
            now = time.monotonic() - begun
            if done < len(tasks) and now > QUIET and now - told >= EVERY:
                told = now
                say(
                    f"{done} of {len(tasks)} runs after {now:.0f} s, {one.world} with seed {one.seed} the last"
                )
    return seen


def by_world(seen: Sequence[Seen]) -> Runs:
    return {
        name: [one for one in seen if one.world == name] for name in dict.fromkeys(one.world for one in seen)
    }


def write(path: Path, seen: Sequence[Seen], criteria: Sequence[Criterion]) -> None:
    """Raises TroubleError."""
    document = {"runs": [asdict(one) for one in seen], "criteria": [asdict(one) for one in criteria]}
    written(path, json.dumps(document, indent=1) + "\n", "w")


def written(path: Path, text: str, mode: Literal["w", "a"]) -> None:
    """Raises TroubleError."""
    try:
        with path.open(mode) as file:
            file.write(text)
    except OSError as e:
        raise TroubleError(f"{path} cannot be written ({e.strerror}): name another file.") from None


if __name__ == "__main__":
    sys.exit(main())
