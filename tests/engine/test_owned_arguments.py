"""The owned arguments against vLLM's own parser: every spelling that sets one is found, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot.api.owned import GROUPS, owner_of

pytestmark = pytest.mark.xdist_group("vllm-code")

_OWNED = """
model revision served_model_name hf_token
tensor_parallel_size pipeline_parallel_size data_parallel_size data_parallel_size_local
data_parallel_rank data_parallel_start_rank data_parallel_address data_parallel_rpc_port
data_parallel_hybrid_lb data_parallel_external_lb data_parallel_multi_port_external_lb
nnodes node_rank master_addr master_port headless
speculative_config spec_method spec_model spec_tokens
scheduler_cls cudagraph_capture_sizes max_cudagraph_capture_size
host port uds grpc ssl_keyfile ssl_certfile api_key config disable_log_stats
"""
OWNED = set(_OWNED.split())
GONE = {"--cuda-graph-sizes"}  # owned for older versions only


class Parser:
    """vLLM's parser of one version."""

    def __init__(self, code: Warm) -> None:
        self._code = code
        [self.options] = self.ask([[]])

    def ask(self, questions: list[list[str]]) -> list[Any]:
        answers: list[Any] = json.loads(self._code.run("vllm_parser_probe.py", given=json.dumps(questions)))
        return answers


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def parser(request: pytest.FixtureRequest, code: Callable[[str], Warm]) -> Parser:
    return Parser(code(request.param))


def spellings(option: str) -> Iterator[str]:
    """Ways to write an option, of which the parser may take some."""
    yield from (option[:end] for end in range(2, len(option)))
    for whole in (option, option[:-1]):
        yield whole
        yield f"{whole}=1"
        yield f"{whole}.key"
        yield f"{whole}.key=1"
        yield whole[:2] + whole[2:].replace("-", "_")
    if len(option) == 2:
        yield f"{option}1"


def test_every_owned_destination_is_one_of_the_parsers(parser: Parser) -> None:
    assert parser.options.keys() >= OWNED


def test_the_flags_are_the_parsers_flags_for_those_destinations(parser: Parser) -> None:
    expected = {option for name in OWNED for option in parser.options[name]}
    assert {flag for group in GROUPS for flag in group.flags} - GONE == expected


def test_every_spelling_that_sets_an_owned_destination_is_found_and_no_other(parser: Parser) -> None:
    every = sorted({s for options in parser.options.values() for o in options for s in spellings(o)} - {"--"})
    answers = parser.ask([[spelling, "1"] for spelling in every])
    taken = {s: set(asked) for s, asked in zip(every, answers, strict=True) if asked}
    assert len(taken) > 2000, "the parser took next to nothing: the probe is broken"
    missed = {s: asked for s, asked in taken.items() if asked & OWNED and owner_of(s) is None}
    wrong = {s: asked for s, asked in taken.items() if not asked & OWNED and owner_of(s) is not None}
    assert (missed, wrong) == ({}, {})
