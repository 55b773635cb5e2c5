"""After a schedule is written: make the kubelets sync it, and follow the engines until they use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from specpilot.cluster.client import Cluster
from specpilot.cluster.pods import nudge
from specpilot.config import Acknowledgement
from specpilot.control.rollout import life_of
from specpilot.control.store import Key
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.http import MetricsError
from specpilot.metrics.scrape import StateAnswer, Target
from specpilot.metrics.source import Metrics
from specpilot_engine.protocol import Schedule

log = structlog.get_logger(__name__)
Body = dict[str, Any]

LONGEST_REST = 300.0  # seconds between attempts on an engine that never acknowledges


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow for one object at this moment: its schedule and the ready pods that serve."""

    schedule: Schedule
    pods: Sequence[Body]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Of `ready` pods, `current` run the schedule; `answers` are the known ones, in the pods' order."""

    ready: int
    current: int
    answers: tuple[StateAnswer, ...]


class Acknowledgements:
    """`look` gives the present Following of a key (None: nothing to follow), `done` hears of progress."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        settings: Acknowledgement,
        telemetry: Telemetry,
        look: Callable[[Key], Following | None],
        done: Callable[[Key], None],
    ) -> None:
        self._cluster, self._metrics, self._settings, self._telemetry = cluster, metrics, settings, telemetry
        self._look, self._done = look, done
        self._answers: dict[str, StateAnswer] = {}  # by life: a restarted engine has not answered yet
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._changed_at: dict[Key, float] = {}
        self._rest: dict[Key, tuple[float, float]] = {}  # not before, length of this rest

    def status(self, following: Following) -> Acknowledged:
        """What is known now."""
        known = [self._answers.get(life_of(pod)) for pod in following.pods]
        current = sum(a is not None and a.hash == following.schedule.hash for a in known)
        return Acknowledged(len(known), current, tuple(a for a in known if a is not None))

    def overdue(self, key: Key) -> bool:
        """Whether the engines of `key` have not acknowledged in the time that they were given."""
        return key in self._rest

    def changed(self, key: Key) -> None:
        """A new schedule has just been written."""
        following = self._look(key)
        self._rest.pop(key, None)
        if following is not None and following.pods:
            self._changed_at[key] = time.monotonic()
            self.follow(key)

    def follow(self, key: Key) -> None:
        """See to it that the engines of `key` are asked, unless all have acknowledged or rest is due."""
        if key in self._tasks:
            return
        following = self._look(key)
        if following is None or not self._waiting(following):
            return
        if self._rest.get(key, (0.0, 0.0))[0] > time.monotonic():
            return
        task = asyncio.create_task(self._follow(key), name=f"acknowledge {key}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def forget(self, key: Key) -> None:
        self._changed_at.pop(key, None)
        self._rest.pop(key, None)

    async def aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _waiting(self, following: Following) -> list[Body]:
        return [pod for pod in following.pods if not self._settled(pod, following.schedule)]

    def _settled(self, pod: Body, schedule: Schedule) -> bool:
        """An engine that runs as stock vLLM has nothing to acknowledge."""
        answer = self._answers.get(life_of(pod))
        return answer is not None and (not answer.live or answer.hash == schedule.hash)

    async def _follow(self, key: Key) -> None:
        try:
            settled = await self._until_settled(key)
        except Exception:
            # A bug of ours rests as well: whoever hears that this is done has it followed again.
            log.exception("acknowledgement", namespace=key[0], name=key[1])
            settled = False
        if settled:
            self._rest.pop(key, None)
        else:
            rest = min(LONGEST_REST, 2 * self._rest.get(key, (0.0, self._settings.timeout / 2))[1])
            self._rest[key] = (time.monotonic() + rest, rest)
            log.warning("not acknowledged", namespace=key[0], name=key[1], next_attempt_in=rest)
        self._done(key)

    async def _until_settled(self, key: Key) -> bool:
        deadline = time.monotonic() + self._settings.timeout
        nudged: dict[str, float] = {}
        while (following := self._look(key)) is not None:
            waiting = self._waiting(following)
            if not waiting:
                self._finished(key)
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            due = [pod for pod in waiting if self._to_nudge(key, pod, nudged, now)]
            # Asking does not wait for nudging: a kubelet that is slow to patch delays no other pod.
            await asyncio.gather(self._nudge(following.schedule, due, nudged), self._ask(waiting))
            if self._waiting(following):
                await asyncio.sleep(self._settings.poll)
        return True

    def _to_nudge(self, key: Key, pod: Body, nudged: Mapping[str, float], now: float) -> bool:
        """After a change every pod, at once and then each second; a pod that merely joined, only when it
        says that it runs another schedule: it usually has read the present one at its start."""
        life = life_of(pod)
        if now - nudged.get(life, float("-inf")) < self._settings.nudge:
            return False
        return key in self._changed_at or life in self._answers

    async def _nudge(self, schedule: Schedule, pods: Sequence[Body], nudged: dict[str, float]) -> None:
        if not pods:
            return
        at = time.monotonic()
        nudged.update({life_of(pod): at for pod in pods})
        names = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]
        # A repeated value would be no change, and only a change makes a kubelet look.
        errors = await nudge(self._cluster, names, f"{schedule.hash}.{time.time_ns() // 10**6}")
        for error in errors:
            log.warning("pod not nudged", error=error.message)

    async def _ask(self, pods: Sequence[Body]) -> None:
        targets = {target.key: target for pod in pods if (target := target_of(pod)) is not None}
        for name, answer in (await self._metrics.states(list(targets.values()))).items():
            if isinstance(answer, MetricsError):
                log.debug("state", pod=name, error=answer.message)
            else:
                self._answers[targets[name].life] = answer

    def keep(self, lives: set[str]) -> None:
        """Forget the answers of engines that are gone."""
        self._answers = {life: a for life, a in self._answers.items() if life in lives}

    def _finished(self, key: Key) -> None:
        since = self._changed_at.pop(key, None)
        if since is not None:
            seconds = time.monotonic() - since
            self._telemetry.acknowledged.observe(seconds)
            log.info("acknowledged", namespace=key[0], name=key[1], seconds=round(seconds, 3))


def target_of(pod: Body, **more: Any) -> Target | None:
    """A pod to ask over HTTP; None while it has no address."""
    ip = (pod.get("status") or {}).get("podIP")
    meta = pod["metadata"]
    if not ip:
        return None
    return Target(meta["namespace"], meta["name"], life_of(pod), ip, **more)
