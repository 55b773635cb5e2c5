"""Run by vLLM's own Python: which destinations its parser sets for the spellings that it is asked about.

Standard input is a JSON list of argument lists ([] asks for the parser's options instead), standard output
the answers: the destinations set, null where the parser refuses, or {destination: options}.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from vllm.utils.argparse_utils import FlexibleArgumentParser

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser


class Recorder(argparse.Action):
    """Notes that it was asked for, whatever its value would have meant."""

    def __call__(self, _parser: Any, namespace: Any, *_: Any) -> None:
        namespace.asked = [*getattr(namespace, "asked", []), self.dest]


def recording_parser() -> argparse.ArgumentParser:
    parser = make_arg_parser(FlexibleArgumentParser())
    for action in parser._actions:
        if action.option_strings:
            action.__class__ = Recorder
            action.type = action.choices = None
            action.required = False
            action.nargs = "?"
    return parser


def destinations(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str] | None:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return getattr(parser.parse_args(list(arguments)), "asked", [])
    except (SystemExit, ValueError, AssertionError, OSError):
        return None


if __name__ == "__main__":
    recorder = recording_parser()
    options: dict[str, list[str]] = {}
    for known in recorder._actions:
        options.setdefault(known.dest, []).extend(known.option_strings)
    answers_to, sys.stdout = sys.stdout, sys.stderr  # vLLM logs to standard output
    questions = json.load(sys.stdin)
    answers = [destinations(recorder, asked) if asked else options for asked in questions]
    print(json.dumps(answers), file=answers_to)
