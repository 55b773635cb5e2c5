"""One SpeculativeDeployment on this machine: the plan's pods as processes, and the operator's loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.validate import validate
from specpilot.api.vocabulary import Reason
from specpilot.control.read import fits
from specpilot.control.step import Evidence, Pod, first_schedule, settings, step, without_leave
from specpilot.decide.decision import Decision
from specpilot.decide.memory import materially_differs
from specpilot.decide.schedule import in_words
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Counters
from specpilot.estimate.discards import Discarded
from specpilot.estimate.windows import Window, between
from specpilot.local.errors import LocalError, advice
from specpilot.local.pod import Machine, Ports, local_pod
from specpilot.local.profile import Profile
from specpilot.local.replica import Phase, Replica
from specpilot.local.state import State
from specpilot.local.view import Change, ReplicaView, Totals, View, explored_only, measured
from specpilot.metrics.http import MetricsError
from specpilot.metrics.scrape import StateAnswer
from specpilot.metrics.source import Metrics
from specpilot.plan.arguments import live_support, speculates
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.problems import problems
from specpilot.plan.profiling import profile_request, where_to_profile
from specpilot.plan.render import render
from specpilot_engine.protocol import ProfilePoint, ProfileRequest, Schedule

READ_SECONDS = 1.0  # between two readings, for the eye; a tick takes the latest
_ASK = 0.05  # seconds between two questions whether a new schedule is in use
_PATIENCE = 5.0  # seconds until a replica that does not acknowledge is no longer waited for
_EVENTS = 500


class Local:
    """Runs `sd` until cancelled. `tell` gets each event, one sentence; `show` a View after each reading."""

    def __init__(
        self,
        sd: SpeculativeDeployment,
        machine: Machine,
        state: State,
        ports: list[Ports],
        tell: Callable[[str], None],
        show: Callable[[View], None],
    ) -> None:
        self.sd, self.state = sd, state
        self._tell, self._show = tell, show
        self._metrics = Metrics()
        self._events: deque[tuple[float, str]] = deque(maxlen=_EVENTS)
        self._changes: list[Change] = []
        self._tunes = live_support(sd.spec)[0]
        self._evidence = Evidence(state.memory())
        self._saved = self._evidence.memory
        self._decision: Decision | None = None
        self._decided_at = 0.0
        points, total = state.points()
        stored = state.schedule() or Schedule(0, ())
        self._settings = settings(sd.spec, stored)
        self._adopt(_to_begin_with(stored, points, self._settings))
        wanted = self._tunes and ports and where_to_profile(sd.spec, False) is not ProfileIn.NOWHERE
        request = (
            profile_request(sd.spec, ProfileIn.POD) if wanted and (not total or len(points) < total) else None
        )
        self.profile = Profile(state, self._metrics, request is not None, self.tell)
        self._counters: dict[Pod, Counters] = {}
        self._answers: Mapping[Pod, StateAnswer | MetricsError] = {}
        self.replicas = self._make(machine, ports, request)

    @property
    def schedule(self) -> Schedule:
        """The schedule that is wanted."""
        return self._settings.in_force

    @property
    def ready(self) -> bool:
        """Whether every replica serves."""
        return len(self._ready()) == len(self.replicas)

    def _make(self, machine: Machine, ports: list[Ports], request: ProfileRequest | None) -> list[Replica]:
        sd = self.sd
        where = ProfileIn.POD if request is not None else ProfileIn.NOWHERE
        inputs = Inputs(self.schedule, OperatorFacts("local"), Profiling(where, request))
        deployment = next(o for o in render(sd, inputs) if o["kind"] == "Deployment")
        template = deployment["spec"]["template"]
        replicas, notices = [], [p.message for p in (*validate(sd.spec), *problems(sd))]
        for i, its_ports in enumerate(ports):
            try:
                pod = local_pod(f"{sd.metadata.name}-{i}", template, i, its_ports, machine)
            except (KeyError, TypeError, ValueError, AttributeError) as e:
                # On a cluster the API server knows what a pod is.
                raise LocalError(f"spec.podTemplate makes no pod ({e!r}): correct it") from e
            for folder in pod.folders:
                with advice(
                    f"{folder} cannot be made", "free some space, or name another folder with --state"
                ):
                    folder.mkdir(parents=True, exist_ok=True)
            notices += [n for n in pod.notices if n not in notices]
            replicas.append(Replica(pod, sd.metadata.namespace, its_ports, machine, self._metrics, self.tell))
        for notice in notices:
            self.tell(notice)
        if request is not None:
            self.tell(f"measuring what a step costs before serving, for at most {request.budget:.0f} s")
        return replicas

    async def run(self) -> None:
        """Serve and tune until cancelled, then end every process. Raises LocalError when it cannot serve."""
        if speculates(self.sd.spec):
            self.state.write_schedule(self.schedule)
        interval = self.sd.spec.tuning.period
        pause, due = min(READ_SECONDS, interval), time.monotonic() + interval
        try:
            for replica in self.replicas:
                replica.start()
            while True:
                await asyncio.sleep(pause)
                for replica in self.replicas:
                    replica.check()
                await self._profile()
                windows = await self._read()
                if self._tunes and time.monotonic() >= due:
                    due = time.monotonic() + interval
                    await self._tick()
                self._show(self._view(windows))
        finally:
            await asyncio.gather(*(r.stop() for r in self.replicas))
            await self._metrics.aclose()
            self._remember(at_end=True)

    async def totals(self) -> Totals:
        """What all ready replicas have done so far, read now."""
        reading = await self._metrics.read([r.target for r in self._ready()])
        counters = [p.counters for p in reading.pods.values() if p.counters is not None]
        return Totals(sum(c.generated or 0.0 for c in counters), sum(c.latency_sum or 0.0 for c in counters))

    def tell(self, sentence: str) -> None:
        """An event, for whoever watches."""
        self._events.append((time.time(), sentence))
        self._tell(sentence)

    def _adopt(self, schedule: Schedule) -> None:
        self._settings = replace(self._settings, in_force=schedule)

    def _ready(self) -> list[Replica]:
        return [r for r in self.replicas if r.phase is Phase.READY]

    async def _profile(self) -> None:
        if not await self.profile.read(self.replicas):
            return
        untouched = not self._evidence.memory.load.seconds
        first = first_schedule(self.profile.points, self._settings, self.schedule.generation + 1)
        if untouched and first.steps != self.schedule.steps:
            await self._publish(
                first, Reason.INITIAL, "what the profile says pays before any traffic", None, True
            )

    async def _read(self) -> dict[Pod, Window | Discarded]:
        """Read all ready replicas; what happened on each since the last reading."""
        targets = [r.target for r in self._ready()]
        reading, self._answers = await asyncio.gather(
            self._metrics.read(targets), self._metrics.states(targets if self._tunes else [])
        )
        now = {key: p.counters for key, p in reading.pods.items() if p.counters is not None}
        windows = {key: between(self._counters[key], now[key]) for key in now if key in self._counters}
        self._counters = now
        return windows

    async def _tick(self) -> None:
        acknowledged = all(self._runs_it(r) for r in self._ready())
        publish = self.sd.spec.tuning.mode == "Apply" and acknowledged
        now = time.time()
        taken = step(self._evidence, self._counters, self.profile.points, self._settings, publish, now)
        self._evidence, self._decision, self._decided_at = taken.evidence, taken.decision, now
        if taken.schedule is not None:
            d = taken.decision
            await self._publish(
                taken.schedule, d.reason, d.message, d.predicted_gain, d.steps_changed, d.settled
            )
        self._remember()

    async def _publish(
        self,
        schedule: Schedule,
        reason: Reason,
        message: str,
        gain: float | None,
        steps_changed: bool,
        settled: bool = False,
    ) -> None:
        try:
            self.state.write_schedule(schedule)
        except LocalError as e:
            self.tell(f"{e}; the schedule in force stays")
            return
        self._adopt(schedule)
        explored = len(explored_only(self._changes))
        change = Change(time.time(), schedule, reason, message, gain, steps_changed, settled=settled)
        after = await self._acknowledgement()
        self._changes.append(replace(change, acknowledged_after=after))
        if change.told:
            between = f" (after {explored} for exploring)" if explored else ""
            self.tell(
                f"generation {schedule.generation}{between}: {in_words(schedule.steps)} ({reason}: {message})"
            )

    async def _acknowledgement(self) -> float | None:
        """Seconds until every ready replica runs the schedule that is wanted; None if that takes too long."""
        began = time.monotonic()
        while time.monotonic() < began + _PATIENCE:
            self._answers = await self._metrics.states([r.target for r in self._ready()])
            if all(self._runs_it(r) for r in self._ready()):
                return time.monotonic() - began
            await asyncio.sleep(_ASK)
        return None

    def _runs_it(self, replica: Replica) -> bool:
        answer = self._answers.get(replica.target.key)
        return isinstance(answer, StateAnswer) and (not answer.live or answer.hash == self.schedule.hash)

    def _remember(self, at_end: bool = False) -> None:
        memory = self._evidence.memory
        if memory is self._saved or not (at_end or materially_differs(self._saved, memory)):
            return
        try:
            self.state.write_memory(memory)
            self._saved = memory
        except LocalError as e:
            self.tell(str(e))

    def _view(self, windows: dict[Pod, Window | Discarded]) -> View:
        views = [
            measured(ReplicaView(r.pod.name, r.url, r.phase, self._runs_it(r)), windows.get(r.target.key))
            for r in self.replicas
        ]
        return View(
            time.time(),
            self.sd.metadata.name,
            tuple(views),
            self.schedule if self._tunes else None,
            self._decision,
            self._decided_at,
            len(self.profile.points),
            self.profile.total,
            tuple(self._changes),
            tuple(self._events),
        )


def _to_begin_with(stored: Schedule, points: Sequence[ProfilePoint], to: Settings) -> Schedule:
    """The schedule of an earlier run, as far as the spec as it is now gives leave for it; a first one where there is none
    that engines could run."""
    if stored.steps and fits(stored, to.depths):
        return without_leave(stored, to) or stored
    return first_schedule(points, to, stored.generation + 1)
