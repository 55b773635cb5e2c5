"""When a change may be made: surer where nothing proves it than where a trial will."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.test_decide_goodput import BIG, DEPTHS, GOOD, land

from specpilot.api.vocabulary import Reason
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.verdict import Verdict, judge
from specpilot_engine.protocol import Schedule, Step, Trial

AT_1 = Schedule(4, (Step(16, 1),))
TRIED = replace(AT_1, trial=Trial((Step(16, 0),), 8, 60))


def verdict(gain: float, prove: bool, in_force: Schedule = AT_1, share: float = 1.0) -> Verdict:
    """Depth 3 instead of 1 for the part `share` of the load, where it gives `gain` more: known to about 6%."""
    length = 1 + np.cumsum([0.0, *GOOD])
    ms = 12.0 * float(length[3] / length[1]) / (1 + gain)
    found = land(GOOD, [[10.0, 10.0], [12.0, 12.0], [ms, ms], [60.0, 60.0]], BIG)
    old, weights = np.full(16, DEPTHS.index(1)), np.zeros(16)
    weights[3], weights[15] = 1 - share, share
    new = old.copy()
    new[15] = DEPTHS.index(3)
    settings = Settings(DEPTHS, 16, in_force, minimum_gain=0.0, prove=prove)
    return judge(Memory(fresh=5), found, settings, old, new, found.log_goodput, weights, 1e6)


@pytest.mark.parametrize(
    ("gain", "prove", "passes"),
    [
        (0.04, True, True),  # likely, and a trial will tell
        (0.04, False, False),  # nothing will
        (0.005, True, False),  # no trial tells as little
        (0.20, False, True),
        (0.20, True, True),
    ],
)
def test_a_change_that_a_trial_proves_needs_be_likely_only(gain: float, prove: bool, passes: bool) -> None:
    found = verdict(gain, prove)
    assert found.passed is passes
    assert found.reason is (Reason.BETTER_SCHEDULE if passes else Reason.BELOW_MINIMUM_GAIN)
    assert found.gain == pytest.approx(np.log1p(gain), abs=0.002)


def test_where_no_trial_is_possible_it_must_be_surer() -> None:
    assert not verdict(0.04, True, TRIED).passed  # one is under way
    assert not verdict(0.10, True, share=0.15).passed  # too little of the load would be compared
