"""vLLM's own series (names, types and labels of 0.32), counted per step and rendered on a scrape.

Counted in plain numbers: a step with hundreds of requests updates a handful of them, where one call
of a metrics library per request would cost more than the step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.engine import Engine, Step

_ITL_BUCKETS = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
]  # fmt: skip
_TTFT_BUCKETS = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
]  # fmt: skip
_LATENCY_BUCKETS = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
]  # fmt: skip


class Histogram:
    """Counts per bucket and their sum."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        rows, total = [], 0
        for edge, count in zip([*map(str, self.edges), "+Inf"], self.counts, strict=True):
            total += count
            rows.append((edge, float(total)))
        return rows


class Counters:
    """What has happened since the start."""

    def __init__(self, speculation: Speculation | None) -> None:
        self.speculation = speculation
        self.generation_tokens = self.prompt_tokens = 0
        self.preemptions = 0  # the simulated KV cache never runs out
        self.drafts = self.draft_tokens = self.accepted_tokens = 0
        self.accepted_per_position = [0] * (speculation.tokens if speculation else 0)
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0, "repetition": 0}
        self.inter_token = Histogram(_ITL_BUCKETS)
        self.first_token = Histogram(_TTFT_BUCKETS)
        self.latency = Histogram(_LATENCY_BUCKETS)

    def count(self, step: Step) -> None:
        """Add a finished step. ITL is observed once per decoding request, as vLLM does."""
        if step.decoding:
            self.inter_token.observe(step.ended - step.started, len(step.decoding))
        self.generation_tokens += sum(step.emitted) + len(step.first_tokens)
        for request in step.first_tokens:
            self.prompt_tokens += request.prompt_tokens
            self.first_token.observe(step.ended - request.arrived)
        for request in step.finished:
            self.finished["length"] += 1
            self.latency.observe(step.ended - request.arrived)
        if step.tokens and step.decoding:
            self.drafts += len(step.decoding)
            self.draft_tokens += len(step.decoding) * step.tokens
            self.accepted_tokens += sum(step.accepted)
            for accepted in step.accepted:
                for position in range(accepted):
                    self.accepted_per_position[position] += 1


class VllmCollector(Collector):
    """Renders the counters and the engine's queue for prometheus_client."""

    def __init__(self, counters: Counters, engine: Engine, model_name: str) -> None:
        self._counters, self._engine = counters, engine
        self._labels = {"model_name": model_name, "engine": "0"}

    def registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterable[Metric]:
        c = self._counters
        yield self._gauge("num_requests_running", "Requests in the batch.", len(self._engine.running))
        yield self._gauge("num_requests_waiting", "Requests waiting for room.", len(self._engine.waiting))
        yield self._counter("num_preemptions", "Preemptions.", c.preemptions)
        yield self._counter("prompt_tokens", "Prompt tokens prefilled.", c.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", c.generation_tokens)
        yield self._by("request_success", "Finished requests.", "finished_reason", c.finished)
        yield self._histogram("time_to_first_token_seconds", "Time to first token.", c.first_token)
        yield self._histogram("inter_token_latency_seconds", "Time between outputs.", c.inter_token)
        yield self._histogram("e2e_request_latency_seconds", "Arrival to last token.", c.latency)
        if c.speculation is None:
            return
        yield self._counter("spec_decode_num_drafts", "Drafts verified.", c.drafts)
        yield self._counter("spec_decode_num_draft_tokens", "Draft tokens verified.", c.draft_tokens)
        yield self._counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", c.accepted_tokens)
        yield self._by(
            "spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by position.",
            "position",
            {str(i): n for i, n in enumerate(c.accepted_per_position)},
        )
        info = GaugeMetricFamily(
            "specpilot_sim_info", "How speculation was started.", labels=[*c.speculation.info]
        )
        info.add_metric(list(c.speculation.info.values()), 1)
        yield info

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=[*self._labels])
        family.add_metric([*self._labels.values()], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._labels])
        family.add_metric([*self._labels.values()], value)
        return family

    def _by(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", text, labels=[*self._labels])
        family.add_metric([*self._labels.values()], histogram.cumulative(), histogram.sum)
        return family
