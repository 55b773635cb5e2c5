"""What the operator counts about itself."""

from __future__ import annotations

from specpilot.api.vocabulary import Reason
from specpilot.control.telemetry import MOST_OBJECTS, Telemetry
from specpilot.decide.decision import Decision
from specpilot.decide.proof import Measured
from specpilot_engine.protocol import Exploration, Step

KEY = ("team", "flash")


def verdict(reason: Reason, measured: Measured | None) -> Decision:
    steps = (Step(64, 3),)
    return Decision(True, steps, Exploration(), reason, "", 0.08, settled=True, measured=measured)


def gain(telemetry: Telemetry, bound: str, key: tuple[str, str] = KEY) -> float | None:
    labels = {"namespace": key[0], "name": key[1], "bound": bound}
    return telemetry.registry.get_sample_value("specpilot_measured_gain", labels)


def ended(telemetry: Telemetry, reason: Reason) -> float | None:
    return telemetry.registry.get_sample_value("specpilot_operator_trials_total", {"reason": str(reason)})


def test_a_trial_leaves_its_gain_with_the_interval_until_the_object_goes() -> None:
    telemetry = Telemetry()
    telemetry.show(KEY, 3)
    telemetry.proved(KEY, verdict(Reason.GAIN_CONFIRMED, Measured(0.08, 0.05, 0.11, 40)))
    assert [gain(telemetry, bound) for bound in ("low", "mean", "high")] == [0.05, 0.08, 0.11]
    telemetry.proved(KEY, verdict(Reason.CHANGE_UNDONE, Measured(-0.04, -0.06, -0.02, 30)))
    assert gain(telemetry, "mean") == -0.04
    assert (ended(telemetry, Reason.GAIN_CONFIRMED), ended(telemetry, Reason.CHANGE_UNDONE)) == (1, 1)
    telemetry.forget(KEY)
    assert gain(telemetry, "mean") is None


def test_what_exploring_cost_is_told_while_the_object_lives() -> None:
    telemetry = Telemetry()

    def explored() -> float | None:
        labels = {"namespace": KEY[0], "name": KEY[1]}
        return telemetry.registry.get_sample_value("specpilot_explored_share", labels)

    telemetry.show(KEY, 3)
    assert explored() is None
    telemetry.learned(KEY, None, 0.004)
    telemetry.learned(KEY, 0.1, None)
    assert explored() == 0.004
    telemetry.forget(KEY)
    assert explored() is None


def test_a_tick_that_ends_after_its_object_brings_no_series_back() -> None:
    telemetry = Telemetry()
    telemetry.show(KEY, 3)
    telemetry.forget(KEY)
    telemetry.learned(KEY, 0.1, 0.004)
    telemetry.proved(KEY, verdict(Reason.GAIN_CONFIRMED, Measured(0.08, 0.05, 0.11, 40)))
    series = [s for metric in telemetry.registry.collect() for s in metric.samples]
    assert [s.name for s in series if s.labels.get("name") == KEY[1]] == []
    assert ended(telemetry, Reason.GAIN_CONFIRMED) == 1


def test_a_trial_that_measured_nothing_is_counted_alone() -> None:
    telemetry = Telemetry()
    telemetry.proved(KEY, verdict(Reason.GAIN_INCONCLUSIVE, None))
    assert ended(telemetry, Reason.GAIN_INCONCLUSIVE) == 1
    assert gain(telemetry, "mean") is None
    telemetry.forget(KEY)


def test_a_fleet_does_not_drown_prometheus() -> None:
    telemetry = Telemetry()
    measured = verdict(Reason.GAIN_CONFIRMED, Measured(0.08, 0.05, 0.11, 40))
    for i in range(MOST_OBJECTS + 1):
        telemetry.show(("team", str(i)), 3)
        telemetry.proved(("team", str(i)), measured)
    assert gain(telemetry, "mean", ("team", str(MOST_OBJECTS - 1))) == 0.08
    assert gain(telemetry, "mean", ("team", str(MOST_OBJECTS))) is None
    assert ended(telemetry, Reason.GAIN_CONFIRMED) == MOST_OBJECTS + 1
