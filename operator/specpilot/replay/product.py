"""The product's policy: the operator's own step, scrape by scrape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specpilot.control.step import Evidence, Pod, first_schedule, step
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Counters
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import ProfilePoint, Schedule

_POD: Pod = ("", "replay")


@dataclass(frozen=True, slots=True)
class Options:
    """What a user would set under spec.tuning. A minimum gain of 0 shows what the tuner can tell apart."""

    minimum_gain: float = 0.0
    dwell: float = 120.0  # seconds
    exploration_price: float = 0.005
    prove: bool = True


@dataclass(slots=True)
class Product:
    """As control/ does it: counters → windows → tuner → the next schedule."""

    options: Options = field(default_factory=Options)
    _settings: Settings | None = None
    _points: tuple[ProfilePoint, ...] = ()
    _evidence: Evidence = field(default_factory=Evidence)

    def start(self, setup: Setup) -> Schedule:
        options = self.options
        to = Settings(
            setup.depths,
            setup.max_batch,
            Schedule(0, ()),
            options.minimum_gain,
            options.dwell,
            setup.interval,
            options.exploration_price,
            prove=options.prove,
        )
        schedule = first_schedule(setup.profile, to)
        self._points, self._settings = setup.profile, replace(to, in_force=schedule)
        return schedule

    def look(self, counters: Counters, now: float) -> Schedule:
        to = self._settings
        assert to is not None, "start comes first"
        taken = step(self._evidence, {_POD: counters}, self._points, to, True, now)
        self._evidence = taken.evidence
        if taken.schedule is not None:
            self._settings = to = replace(to, in_force=taken.schedule)
        return to.in_force
