"""Leave for a row budget: who gets it, with which schedule, and when it ends."""

from dataclasses import replace
from typing import Any

import pytest

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.control.live import Live, Parsed
from specpilot.control.reconcile import Reconciler
from specpilot.control.step import first_schedule, settings, without_leave
from specpilot.estimate.counters import Counters
from specpilot.estimate.discards import Discard, Discarded
from specpilot.estimate.windows import Window, between
from specpilot_engine.protocol import Budget, Exploration, Schedule, Step

NOTHING: Any = None
IN_FORCE = Schedule(4, (Step(16, 3),))


def spec(
    *args: str, adaptive: str = "Auto", mode: str = "Apply", price: float = 0.005
) -> SpeculativeDeploymentSpec:
    return SpeculativeDeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm/vllm-openai:v0.33.0", "args": list(args)},
            "speculation": {
                "method": "DraftModel",
                "draftModel": {"name": "d"},
                "verification": {"adaptive": adaptive},
            },
            "tuning": {"mode": mode, "explorationPrice": price},
        }
    )


@pytest.mark.parametrize(
    ("given", "price"),
    [
        (spec("--enforce-eager", price=0.01), 0.01),
        (spec("--enforce-eager", adaptive="Never"), 0.0),
        (spec("--enforce-eager", mode="Observe"), 0.0),
        (spec("--enforce-eager", mode="Recommend"), 0.0),
        (spec("--enforce-eager", price=0.0), 0.0),
        (spec(), 0.0),  # with graphs
    ],
)
def test_leave_is_given_to_engines_without_graphs_that_may_be_tuned(given, price):
    assert settings(given, IN_FORCE).budget == Budget(price)
    assert first_schedule((), settings(given, IN_FORCE)).budget == Budget(price)


def test_leave_that_is_withdrawn_ends_with_a_new_generation_and_leave_that_is_new_waits_for_one():
    never = settings(spec("--enforce-eager", adaptive="Never"), IN_FORCE)
    auto = settings(spec("--enforce-eager"), IN_FORCE)
    with_budget = replace(IN_FORCE, budget=Budget(0.005))
    assert without_leave(with_budget, never) == replace(IN_FORCE, generation=5)
    assert without_leave(IN_FORCE, never) is None
    assert without_leave(with_budget, auto) is None
    assert without_leave(IN_FORCE, auto) is None


def test_whoever_asks_with_an_earlier_spec_leaves_no_settings_of_it_to_a_later_one():
    """A tick that waited for measurements has the spec that was there when it began."""
    of = Reconciler(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
    live = Live("u")
    earlier, later = (SpeculativeDeployment.parse(document(spec(mode=mode))) for mode in ("Apply", "Observe"))
    for version, sd in (("1", earlier), ("2", later)):
        live.parsed = Parsed(version, sd)
        for asks in (earlier, later, earlier):
            assert of.settings(live, asks, IN_FORCE).prove is (asks is earlier)
    again = of.settings(live, earlier, Schedule(7, (Step(16, 1),)))
    assert again.in_force.generation == 7
    assert again.allowed is of.settings(live, earlier, IN_FORCE).allowed  # the graph map is made once


def document(of: SpeculativeDeploymentSpec) -> dict[str, Any]:
    return {"metadata": {"name": "one", "namespace": "ns"}, "spec": of.to_json()}


@pytest.mark.parametrize("withdrawn", [{"mode": "Observe"}, {"mode": "Recommend"}, {"price": 0.0}])
def test_who_may_not_change_the_schedule_does_not_go_on_exploring_either(withdrawn):
    exploring = replace(IN_FORCE, exploration=Exploration(0.005, 3, 0.1, 64))
    assert without_leave(exploring, settings(spec(**withdrawn), IN_FORCE)) == replace(IN_FORCE, generation=5)
    assert without_leave(exploring, settings(spec(), IN_FORCE)) is None


def test_a_depth_that_engines_can_draft_no_longer_is_not_explored():
    """Engines of a smaller maxTokens would refuse the whole file, however fitting its steps."""
    exploring = replace(IN_FORCE, exploration=Exploration(0.005, 7, 0.1, 64))
    to = settings(spec(), IN_FORCE)
    assert without_leave(exploring, replace(to, depths=(0, 1, 3))) == replace(IN_FORCE, generation=5)
    assert without_leave(exploring, replace(to, depths=(0, 3, 7))) is None


def test_a_window_in_which_drafts_were_cut_and_no_whole_step_was_timed_is_discarded():
    before = Counters(
        "a", 0.0, all_steps=100, generated=1000, trimmed_rows=50, latency_sum=1.0, latency_count=100
    )
    after = replace(before, at=15.0, all_steps=400, generated=1400, latency_sum=5.0, latency_count=400)
    assert isinstance(between(before, after), Window)
    found = between(before, replace(after, trimmed_rows=450))
    assert isinstance(found, Discarded)
    assert found.reason is Discard.NOTHING_CLEAN
    assert found.message == (
        "none of 300 steps was a clean decode step in which all drafts were verified: 400 rows were left out"
    )
