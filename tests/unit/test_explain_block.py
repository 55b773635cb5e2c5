"""What block verification is said to be worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.decide.memory import Memory
from specpilot.estimate.load import LoadMemory
from specpilot.estimate.survival import SurvivalMemory
from specpilot.explain import words
from specpilot.explain.block import Drafts, Verification
from specpilot.explain.subject import Explanation, Subject, explain
from specpilot_engine.acceptance import block_survival
from specpilot_engine.protocol import ProfilePoint

CHAT = (0.62, 0.40, 0.25, 0.15, 0.09, 0.055, 0.03)
SECONDS = {0: 0.010, 1: 0.011, 3: 0.013, 7: 0.017}
POINTS = tuple(ProfilePoint(k, b, 512, s, 0.01, 16) for k, s in SECONDS.items() for b in (1, 16))
LOAD = LoadMemory({16: 100.0}, {16: 16.0}, 512.0)


def explained(curve: tuple[float, ...], verification: Verification, load: LoadMemory = LOAD) -> Explanation:
    seen = SurvivalMemory((1e7,) * len(curve), tuple(1e7 * s for s in curve), (0.5,) * 7, (1.0,) * 7)
    return explain(Subject("x", (0, 1, 3, 7), 16, POINTS, Memory(seen, load=load), verification=verification))


def test_a_draft_that_is_sampled_gains_what_the_model_says_at_the_best_depth_of_each() -> None:
    it = explained(CHAT, Verification(drafts=Drafts.SAMPLED))
    block = block_survival(CHAT)
    assert it.block.standard[-1] == pytest.approx(1 + sum(CHAT), rel=1e-3)
    assert it.block.block == pytest.approx(1 + np.cumsum((0, *block)), rel=1e-3)
    depth = {k: (1 + sum(CHAT[:k])) / s for k, s in SECONDS.items()}
    other = {k: (1 + sum(block[:k])) / s for k, s in SECONDS.items()}
    assert it.block.gain == pytest.approx(max(other.values()) / max(depth.values()) - 1, abs=1e-3)
    assert 0 < it.block.gain < it.block.most


@pytest.mark.parametrize("drafts", [Drafts.GREEDY, Drafts.NGRAM])
@pytest.mark.parametrize("block", [False, True])
def test_one_hot_drafts_gain_0(drafts: Drafts, block: bool) -> None:
    it = explained(CHAT, Verification(block, drafts))
    assert (it.block.gain, it.block.most) == (0.0, 0.0)
    assert (it.block.standard == it.block.block).all()
    said = words.block(it)
    assert said.startswith("in force, but worth nothing here" if block else "worth nothing here")
    assert ("draftSampling Probabilistic" in said) == (drafts is Drafts.GREEDY)


def test_where_block_is_in_force_what_is_measured_is_its_own() -> None:
    """Standard at CHAT and block at what the model makes of CHAT are the same pair of models."""
    standard = explained(CHAT, Verification(drafts=Drafts.SAMPLED))
    block = explained(block_survival(CHAT), Verification(True, Drafts.SAMPLED))
    assert block.block.standard == pytest.approx(standard.block.standard, rel=2e-3)
    assert block.block.gain == pytest.approx(standard.block.gain, abs=2e-3)
    assert (block.block.measured == block.block.block).all()
    assert (standard.block.measured == standard.block.standard).all()
    assert words.block(block).startswith("in force; a model puts its worth at +")


@settings(max_examples=30)
@given(st.lists(st.floats(0.1, 0.98), min_size=7, max_size=7), st.booleans())
def test_it_never_loses_and_lies_within_its_bounds(conditional: list[float], block: bool) -> None:
    curve = tuple(float(s) for s in np.cumprod(conditional))
    found = explained(curve, Verification(block, Drafts.SAMPLED)).block
    assert -1e-6 <= found.gain <= found.most + 1e-3
    assert (found.block >= found.standard - 1e-3).all()


def test_what_is_said_is_marked_as_a_prediction() -> None:
    said = words.block(explained(CHAT, Verification(drafts=Drafts.SAMPLED)))
    assert said.startswith("a model predicts +")
    assert "goodput at the load" in said
    assert "nothing for requests at temperature 0" in said
    unknown = words.block(explained(CHAT, Verification(), LoadMemory()))
    assert "goodput if drafts are sampled" in unknown
    assert words.block(explained(CHAT, Verification(synthetic=True))) == (
        "nothing can be said: acceptance is synthetic"
    )


def test_before_any_traffic_each_doubling_of_the_batch_counts_alike() -> None:
    it = explained(CHAT, Verification(), LoadMemory())
    assert it.block.gain == pytest.approx(explained(CHAT, Verification()).block.gain, abs=1e-3)  # flat in B
