"""Standard and block verification, enumerated in exact arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot_engine.acceptance import (
    METHODS,
    expected_ratio,
    extended,
    outcomes,
    pick,
    propose,
    survival,
    verify,
)

Prefix = tuple[int, ...]
Conditional = Callable[[Prefix], list[Fraction]]
DEEPEST = 3


def always(*weights: Fraction) -> Conditional:
    """A model without a memory."""
    return lambda _: list(weights)


# The paper's example: two tokens, two slots.
TARGET = always(Fraction(1, 3), Fraction(2, 3))
DRAFT = always(Fraction(2, 3), Fraction(1, 3))


@st.composite
def model(draw: st.DrawFn, vocabulary: int = 2, one_hot: bool = False) -> Conditional:
    """Conditionals of every prefix up to DEEPEST tokens."""
    prefixes = [p for n in range(DEEPEST + 1) for p in product(range(vocabulary), repeat=n)]
    count = len(prefixes) * vocabulary
    drawn = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    table = {}
    for i, prefix in enumerate(prefixes):
        weights = drawn[i * vocabulary : (i + 1) * vocabulary]
        if one_hot or not any(weights):
            weights = [int(token == weights[0] % vocabulary) for token in range(vocabulary)]
        table[prefix] = [Fraction(w, sum(weights)) for w in weights]
    return table.__getitem__


def joint(target: Conditional, length: int, vocabulary: int) -> dict[Prefix, Fraction]:
    """The target's own distribution of `length` tokens, without those of probability 0."""
    whole = {}
    for tokens in product(range(vocabulary), repeat=length):
        weight = Fraction(1)
        for i, token in enumerate(tokens):
            weight *= target(tokens[:i])[token]
        if weight:
            whole[tokens] = weight
    return whole


@pytest.mark.parametrize(("method", "length"), [("standard", Fraction(10, 9)), ("block", Fraction(11, 9))])
def test_the_papers_example_accepts_10_and_11_ninths(method: str, length: Fraction) -> None:
    assert sum(survival(method, TARGET, DRAFT, 2)) == length


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(target=model(), draft=model(), slots=st.integers(0, DEEPEST))
def test_what_is_emitted_is_distributed_as_the_target_is(
    method: str, target: Conditional, draft: Conditional, slots: int
) -> None:
    found = outcomes(method, target, draft, slots)
    assert sum(found.values()) == 1
    length = min(slots + 1, DEEPEST + 1)
    assert extended(found, target, length) == joint(target, length, 2)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(target=model(3), draft=model(3))
def test_it_is_with_three_tokens_as_well(method: str, target: Conditional, draft: Conditional) -> None:
    assert extended(outcomes(method, target, draft, 2), target, 3) == joint(target, 3, 3)


@settings(max_examples=60)
@given(target=model(), draft=model(), slots=st.integers(1, DEEPEST))
def test_block_accepts_no_fewer_at_any_slot(target: Conditional, draft: Conditional, slots: int) -> None:
    standard, block = (survival(method, target, draft, slots) for method in METHODS)
    assert block[0] == standard[0]
    assert all(b >= s for b, s in zip(block, standard, strict=True))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(target=model(), draft=model(), slots=st.integers(1, DEEPEST))
def test_survival_of_a_slot_is_the_same_for_any_depth(
    method: str, target: Conditional, draft: Conditional, slots: int
) -> None:
    """So that survival measured at a large depth holds at any smaller one."""
    mean = expected_ratio(method, target, draft, DEEPEST)
    assert survival(method, target, draft, slots) == mean[:slots]
    assert all(a >= b for a, b in pairwise([1, *mean]))


@settings(max_examples=60)
@given(target=model(), draft=model(one_hot=True), slots=st.integers(1, DEEPEST))
def test_one_hot_drafts_make_block_worth_nothing(target: Conditional, draft: Conditional, slots: int) -> None:
    assert survival("block", target, draft, slots) == survival("standard", target, draft, slots)


@settings(max_examples=60)
@given(target=model(one_hot=True), draft=model(), slots=st.integers(1, DEEPEST))
def test_so_does_a_target_that_samples_nothing(target: Conditional, draft: Conditional, slots: int) -> None:
    """Temperature 0."""
    assert survival("block", target, draft, slots) == survival("standard", target, draft, slots)


@pytest.mark.parametrize("method", METHODS)
def test_draws_from_evenly_spread_uniforms_are_the_enumerated_distribution(method: str) -> None:
    thirds, twelfths = ([(i + 0.5) / n for i in range(n)] for n in (3, 12))
    counts: Counter[Prefix] = Counter()
    for uniforms in product(thirds, thirds, twelfths, twelfths, thirds):
        drafted = propose(DRAFT, 2, uniforms[:2])
        counts[verify(method, TARGET, DRAFT, drafted, uniforms[2:])] += 1
    total = counts.total()
    exact = outcomes(method, TARGET, DRAFT, 2)
    assert {emitted: Fraction(count, total) for emitted, count in counts.items()} == exact


@pytest.mark.parametrize(("method", "accepted"), [("standard", 0), ("block", 2)])
def test_block_looks_past_a_slot_that_standard_stops_at(method: str, accepted: int) -> None:
    """Token 0 has ratio 1/2 and is refused by 0.6; token 1 after it makes up for that."""
    emitted = verify(method, TARGET, DRAFT, (0, 1), (0.6, 0.9, 0.0))
    assert len(emitted) == accepted + 1


@settings(max_examples=60)
@given(weights=st.lists(st.floats(0, 1), min_size=1, max_size=5).filter(any), uniform=st.floats(0, 0.999999))
def test_a_token_without_weight_is_never_picked(weights: list[float], uniform: float) -> None:
    assert weights[pick(weights, uniform)] > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: verify("lucky", TARGET, DRAFT, (0,), (0.5, 0.5)), "lucky is no method"),
        (lambda: verify("block", TARGET, DRAFT, (0, 1), (0.5,)), "need 3 uniforms"),
        (
            lambda: verify("standard", TARGET, always(Fraction(1), Fraction(0)), (1,), (0.5, 0.5)),
            "gives token 1 no weight",
        ),
    ],
)
def test_what_cannot_be_verified_is_said(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
