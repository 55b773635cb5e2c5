"""When a change may be made: surer where nothing proves it than where a trial will."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.test_decide_goodput import BIG, DEPTHS, GOOD, land

from specpilot.api.vocabulary import Reason
from specpilot.decide.memory import Memory, Undone
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


@pytest.mark.parametrize(
    ("left", "present", "waits"),
    [
        (Step(16, 3), Step(16, 1), False),  # depth 3 was tried instead of 1, and undone
        (Step(16, 7), Step(16, 1), True),  # and that was the change after it, which is let rest
    ],
)
def test_dwell_is_waived_for_the_undoing_of_a_change_alone(left: Step, present: Step, waits: bool) -> None:
    length = 1 + np.cumsum([0.0, *GOOD])
    ms = 12.0 / float(length[1]) / 1.15
    found = land(GOOD, [[ms, ms], [12.0, 12.0], [20.0, 20.0], [60.0, 60.0]], BIG)
    old, new = np.full(16, DEPTHS.index(1)), np.full(16, DEPTHS.index(0))
    settings = Settings(DEPTHS, 16, AT_1, minimum_gain=0.0, prove=True, interval=30.0, dwell=120.0)
    memory = Memory(
        fresh=5,
        steps=(present,),
        left=(left,),
        changed_at=1e6 - 30,
        undone=(Undone(16.0, 1, 3, 0.1, 0.1, 1e6 - 60),),
    )
    found_verdict = judge(memory, found, settings, old, new, found.log_goodput, np.eye(16)[15], 1e6)
    assert found_verdict.reason is (Reason.DWELLING if waits else Reason.BETTER_SCHEDULE)


def test_that_nothing_better_is_left_than_what_was_undone_is_said() -> None:
    found = land(GOOD, [[10.0, 10.0], [12.0, 12.0], [12.1, 12.1], [60.0, 60.0]], BIG)
    old, score, at_16 = np.full(16, DEPTHS.index(1)), np.full((4, 16), -1.0), np.eye(16)[15]
    for batch, said in ((16.0, ", besides what was tried there and undone"), (4.0, "")):
        memory = Memory(fresh=5, undone=(Undone(batch, 1, 3, 0.1, 0.1, 1.0),))
        held = judge(memory, found, Settings(DEPTHS, 16, AT_1), old, old, score, at_16, 1e6)
        assert held.message == f"the schedule in force is the best known at the present load{said}"


def test_where_no_trial_is_possible_it_must_be_surer() -> None:
    assert not verdict(0.04, True, TRIED).passed  # one is under way
    assert not verdict(0.10, True, share=0.15).passed  # too little of the load would be compared
