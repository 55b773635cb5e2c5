"""What the operator counts about itself, for its own /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specpilot.control.store import Key
from specpilot.decide.decision import Decision

MOST_OBJECTS = 200  # SpeculativeDeployments with gauges of their own; a fleet must not drown Prometheus


class Telemetry:
    """One registry per operator, so that tests may run several in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "specpilot_operator_reconciles",
            "Objects reconciled, by result: ok, refused (by the API server), retried, failed (by a bug).",
            ["result"],
            registry=self.registry,
        )
        self.ticks = Counter("specpilot_operator_ticks", "Retune ticks.", registry=self.registry)
        self.tick_seconds = Histogram(
            "specpilot_operator_tick_seconds", "Duration of a retune tick.", registry=self.registry
        )
        self.changes = Counter(
            "specpilot_operator_schedule_changes", "Schedules changed.", ["reason"], registry=self.registry
        )
        self.errors = Counter(
            "specpilot_operator_errors",
            "Errors by where (apply, profile, retune, resync), and bugs (bug).",
            ["where"],
            registry=self.registry,
        )
        self.acknowledged = Histogram(
            "specpilot_operator_acknowledgement_seconds",
            "From a new schedule in the ConfigMap until every ready pod runs it.",
            buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60),
            registry=self.registry,
        )
        self.leading = Gauge(
            "specpilot_operator_leading", "1 while this replica holds the Lease.", registry=self.registry
        )
        self.objects = Gauge(
            "specpilot_operator_objects", "SpeculativeDeployments known.", registry=self.registry
        )
        self._depth = Gauge(
            "specpilot_schedule_depth",
            "Deepest step of the schedule in force.",
            ["namespace", "name"],
            registry=self.registry,
        )
        self._gain = Gauge(
            "specpilot_predicted_gain",
            "Predicted gain of the last change, as a share.",
            ["namespace", "name"],
            registry=self.registry,
        )
        self.proofs = Counter(
            "specpilot_operator_trials",
            "Trials of changes ended, by the reason told.",
            ["reason"],
            registry=self.registry,
        )
        self._measured = Gauge(
            "specpilot_measured_gain",
            "Gain of the last change that was tried, as a share: bound is low, mean or high.",
            ["namespace", "name", "bound"],
            registry=self.registry,
        )
        self._explored = Gauge(
            "specpilot_explored_share",
            "Share of goodput that exploring cost lately, the mean of the replicas.",
            ["namespace", "name"],
            registry=self.registry,
        )
        self._shown: set[Key] = set()

    def show(self, key: Key, depth: int | None) -> None:
        """Gauges of one object, from now on and while there is room for it."""
        if key not in self._shown and len(self._shown) >= MOST_OBJECTS:
            return
        self._shown.add(key)
        if depth is not None:
            self._depth.labels(*key).set(depth)

    def learned(self, key: Key, gain: float | None, explored: float | None) -> None:
        """What a tick found, of an object that is shown: one that goes meanwhile is not brought back."""
        for gauge, value in ((self._gain, gain), (self._explored, explored)):
            if value is not None and key in self._shown:
                gauge.labels(*key).set(value)

    def proved(self, key: Key, decision: Decision) -> None:
        """The end of a trial, with what it measured."""
        self.proofs.labels(str(decision.reason)).inc()
        measured = decision.measured
        if measured is None or key not in self._shown:
            return
        for bound, gain in (("low", measured.low), ("mean", measured.gain), ("high", measured.high)):
            self._measured.labels(*key, bound).set(gain)

    def forget(self, key: Key) -> None:
        """Its series end with the object."""
        if key in self._shown:
            self._shown.discard(key)
            rows = [(self._measured, (*key, bound)) for bound in ("low", "mean", "high")]
            for gauge, labels in ((self._depth, key), (self._gain, key), (self._explored, key), *rows):
                try:
                    gauge.remove(*labels)
                except KeyError:
                    continue
