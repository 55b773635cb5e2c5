"""specpilot against every fixed depth on a real vLLM: `python -m benchmarks.real_vllm --out FILE`.

Tiny models on the CPU, two drafts of different agreement, phases of 1, 16, 4, 32 and 1 clients of which some
sample. In every phase all arms run in turn on one engine, in an order drawn anew: specpilot, with the
operator's own control step every few seconds, and each candidate depth held fixed. Tokens are the
engine's own count. specpilot begins each repeat knowing nothing but the profile, and what it learns it learns in
the seconds that count.

FILE gets a line for each finished segment: run the same command again, after an interruption or with more
--repeats, and it goes on. The result is printed as Markdown and written beside FILE as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from pathlib import Path

from benchmarks.real_vllm import kept, scenario
from benchmarks.real_vllm.report import result
from benchmarks.real_vllm.run import expected_seconds, play
from benchmarks.real_vllm.table import table
from deploy.console import TroubleError, say


def main() -> int:
    args = arguments().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the engine is ended too
    try:
        if args.report:
            return report(kept.read(args.report))
        if not args.out:
            raise TroubleError("The run needs a file: name one with --out.")
        run = kept.begin(args.out, plan(args), args.resume)
        left = sum(len(run.missing(r, d)) for r in range(args.repeats) for d in run.plan.drafts)
        say(
            f"{left} segments to play, about {expected_seconds(run) / 60:.0f} min; load average {os.getloadavg()[0]:.1f}"
        )
        play(run)
        return report(run)
    except TroubleError as e:
        say(str(e))
    except AssertionError as e:  # of the engine's start
        say(f"The engine failed, run it again and it goes on: {e}")
    except KeyboardInterrupt:
        say("interrupted: run it again and it goes on")
    return 1


def arguments() -> argparse.ArgumentParser:
    default = scenario.Plan(repeats=4)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_vllm",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, help="the run's file")
    add("--report", type=Path, metavar="FILE", help="play nothing: only tell what FILE says")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on where --out ended")
    add("--repeats", type=int, default=default.repeats, help="of the whole scenario (%(default)s)")
    add("--seconds", type=float, default=default.seconds, help="measured of a segment (%(default)s)")
    add("--warmup", type=float, default=default.warmup, help="seconds before (%(default)s)")
    add("--interval", type=float, default=default.interval, help="seconds between looks (%(default)s)")
    add("--exploration", type=float, default=default.exploration, help="price of it (%(default)s)")
    add("--profile", action=argparse.BooleanOptionalAction, default=True, help="measure step times first")
    add("--seed", type=int, default=default.seed, help="of orders and prompts")
    add("--drafts", nargs="+", default=default.drafts, choices=scenario.DRAFTS)
    add("--phases", nargs="+", default=default.phases, help="clients of each, 16s where they sample")
    return parser


def plan(args: argparse.Namespace) -> scenario.Plan:
    """Raises TroubleError where the arguments make none."""
    try:
        phases = [scenario.phase(text) for text in args.phases]
    except ValueError as e:
        raise TroubleError(f"{e}.") from None
    for name in ("seconds", "warmup", "interval"):
        if not 0 < getattr(args, name) < math.inf:
            raise TroubleError(f"Give --{name} a number of seconds above 0.")
    if args.repeats < 1 or args.seconds <= args.interval:
        raise TroubleError("Give at least one repeat, and --seconds longer than --interval.")
    if not 0 <= args.exploration <= 0.2:
        raise TroubleError("Give --exploration a share of goodput, from 0 to 0.2.")
    if max(p.clients for p in phases) > 32:
        raise TroubleError("The engine runs 32 requests at most: give no phase more clients.")
    return scenario.Plan(
        repeats=args.repeats,
        seconds=args.seconds,
        warmup=args.warmup,
        interval=args.interval,
        exploration=args.exploration,
        profile=args.profile,
        seed=args.seed,
        drafts=tuple(dict.fromkeys(args.drafts)),
        phases=tuple(args.phases),
    )


def report(run: kept.Kept) -> int:
    """Print the tables and write the JSON."""
    found = result(run.plan, run.segments)
    if found is None:
        raise TroubleError(f"{run.path} holds no complete repeat yet: run it again, and it goes on.")
    beside = run.path.with_suffix(".result.json")
    try:
        beside.write_text(json.dumps(found.as_json(), indent=1) + "\n")
    except OSError as e:
        say(f"{beside} cannot be written ({e.strerror})")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
