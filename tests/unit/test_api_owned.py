"""Owned vLLM arguments in the spellings that argparse takes."""

from __future__ import annotations

import pytest

from specpilot.api.owned import GROUPS, owner_of


@pytest.mark.parametrize(
    ("argument", "owner"),
    [
        ("--model", "--model"),
        ("--model=org/x", "--model"),
        ("--mod", "--model"),
        ("--served_model-name", "--served-model-name"),
        ("-tp", "-tp"),
        ("-t", "-tp"),
        ("-tp=4", "-tp"),
        ("-n", "-n"),
        ("-n4", "-n"),
        ("-sc.method", "-sc"),
        ("--speculative-config.method=mtp", "--speculative-config"),
        ("--spec-me", "--spec-method"),
        ("--cudagraph-c", "--cudagraph-capture-sizes"),
        ("--dtype", None),
        ("--model-impl", None),
        ("--config-format", None),
        ("--speculative-algorithm", None),
        ("-dcp", None),
        ("-q", None),
        ("-1", None),
        ("-0.5", None),
        ("-", None),
        ("--", None),
        ("", None),
        ("auto", None),
        ("{'--model': 1}", None),
    ],
)
def test_a_spelling_is_owned_or_free(argument: str, owner: str | None) -> None:
    assert owner_of(argument) == owner


def test_no_flag_is_owned_for_two_reasons() -> None:
    flags = [flag for group in GROUPS for flag in group.flags]
    assert len(flags) == len(set(flags))
