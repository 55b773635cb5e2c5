"""One SpeculativeDeployment made true: gather → plan → apply → status."""

from __future__ import annotations

import time
from dataclasses import replace

import structlog

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.cluster.apply import InvalidPodTemplate, Outcome, Ref, apply_plan
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Terminating,
    Unavailable,
)
from specpilot.cluster.events import Events
from specpilot.cluster.nodes import Nodes
from specpilot.control import arms, faults, read
from specpilot.control.acknowledge import Acknowledgements, Following
from specpilot.control.keep import recall
from specpilot.control.live import Live, Parsed, Refused
from specpilot.control.measuring import Gathered, Measuring
from specpilot.control.profile_choice import Choice, measures_this
from specpilot.control.queue import Refusal, Retry
from specpilot.control.report import NOTHING_TO_DRAFT, Reports
from specpilot.control.rollout import RESCALED, Trouble, rescaled
from specpilot.control.step import first_schedule, settings, without_leave
from specpilot.control.store import Body, Key, Store
from specpilot.control.sync import reread
from specpilot.control.telemetry import Telemetry
from specpilot.decide.settings import Settings
from specpilot.plan import names
from specpilot.plan.arguments import speculates
from specpilot.plan.hashing import digest
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn
from specpilot.plan.render import render
from specpilot.plan.revision import carry_over
from specpilot_engine.protocol import Schedule

log = structlog.get_logger(__name__)

REFUSED_SECONDS = 120.0  # before a plan that was refused is tried again without a change: quotas grow


class Reconciler:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        events: Events,
        nodes: Nodes,
        facts: OperatorFacts,
        telemetry: Telemetry,
    ) -> None:
        self._cluster, self._store, self._events = cluster, store, events
        self._measuring = Measuring(store, nodes)
        self._reports = Reports(cluster, store, events, telemetry)
        self._facts, self._telemetry = facts, telemetry
        self.lives: dict[Key, Live] = {}
        self.acknowledgements: Acknowledgements  # set by the controller: each of the two calls the other

    async def reconcile(self, key: Key) -> None:
        """Raises Retry when another attempt may succeed."""
        body = self._store.main(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            # Its children are the garbage collector's; there is nothing of ours to finish first.
            self.forget(key)
            return
        try:
            await self._attempt(key, body)
        except Terminating:
            return  # its own deletion comes after that of its children
        except NotFound as e:
            if self._store.main(key) is body:
                raise Retry(e.message) from None
        except ClusterError as e:
            self._telemetry.errors.labels("apply").inc()
            raise Retry(e.message) from None

    async def _attempt(self, key: Key, body: Body) -> None:
        live = self.live(key, body)
        assert live.parsed is not None
        if live.parsed.sd is None:
            assert live.parsed.problem is not None
            await self._reports.refused(key, body, live.parsed.problem)
            return
        try:
            async with live.lock:
                await self._serve(self._gather(key, body, live, live.parsed.sd))
        except (ClusterError, Retry):
            raise
        except Exception as e:
            # Nobody foresaw it, and its trace is for us; its object's owner must hear of it all the same.
            trouble = self.fault(key, e)
            await self._reports.refused(key, body, trouble)
            raise Retry(trouble.message) from None

    def fault(self, key: Key, error: Exception) -> Trouble:
        """Count and log a bug that one object meets; call it while the exception is handled."""
        self._telemetry.errors.labels("bug").inc()
        log.exception("a bug", namespace=key[0], name=key[1])
        return faults.trouble_of(error)

    def live(self, key: Key, body: Body) -> Live:
        """The object's memory, begun anew for a successor of the same name; with its spec read."""
        live = self.lives.get(key)
        if live is None or live.uid != body["metadata"]["uid"]:
            live = self.lives[key] = Live(body["metadata"]["uid"])
        if live.parsed is None or live.parsed.version != read.version_of(body):
            try:
                live.parsed = read.parse(body)
            except Exception as e:
                live.parsed = Parsed(read.version_of(body), None, self.fault(key, e))
        if live.evidence is None:
            recall(live, self._store.tuner_map(key))
        return live

    def forget(self, key: Key) -> None:
        self.lives.pop(key, None)
        self.acknowledgements.forget(key)
        self._telemetry.forget(key)

    def settings(self, live: Live, sd: SpeculativeDeployment, in_force: Schedule) -> Settings:
        """The tuner's settings for a schedule in force."""
        if live.settings is None or live.settings[0] is not sd.spec:
            live.settings = (sd.spec, settings(sd.spec, in_force))
        return replace(live.settings[1], in_force=in_force)

    def schedule_body(self, sd: SpeculativeDeployment, schedule: Schedule) -> Body:
        """The schedule's ConfigMap, the very one that a whole plan would have."""
        plan = render(sd, Inputs(schedule, self._facts))
        name = names.schedule_config_map(sd.metadata.name)
        return next(b for b in plan if b["kind"] == "ConfigMap" and b["metadata"]["name"] == name)

    def look(self, key: Key) -> Following | None:
        """What the engines of an object have to acknowledge now."""
        if (body := self._store.main(key)) is None or body["metadata"].get("deletionTimestamp"):
            return None
        schedule = read.schedule_in(self._store.schedule_map(key))
        return Following(schedule, read.ready(self._store.pods(key))) if schedule else None

    def _gather(self, key: Key, body: Body, live: Live, sd: SpeculativeDeployment) -> Gathered:
        sd = sd.model_copy(update={"status": read.status(body)})
        return Gathered(key, body, sd, live, self._store.children(key), self._store.pods(key))

    async def _serve(self, g: Gathered) -> None:
        choice = g.live.choice = await self._measuring.choose(g)
        schedule, is_new = self._schedule(g, choice)
        problem = await self._apply(g, choice, schedule)
        if is_new and problem is None:
            self.acknowledgements.changed(g.key)
        # What was refused is in force nowhere, and a status that says so would have the next one tried.
        unwritten = is_new and problem is not None
        in_force = read.schedule_in(self._store.schedule_map(g.key)) if unwritten else schedule
        await self._reports.served(g, choice, in_force, problem, self.acknowledgements)
        self.acknowledgements.follow(g.key)
        if problem is not None:
            if (refused := g.live.refused) is not None:
                raise Refusal(problem.message, max(0.0, refused.until - time.monotonic()))
            raise Retry(problem.message)

    def _schedule(self, g: Gathered, choice: Choice) -> tuple[Schedule, bool]:
        """The schedule in force, or a first one where there is none that these engines can run."""
        if not speculates(g.sd.spec):
            return NOTHING_TO_DRAFT, False
        config_map = self._store.schedule_map(g.key)
        present, last = read.schedule_in(config_map), read.last_generation(config_map, g.body)
        to = self.settings(g.live, g.sd, NOTHING_TO_DRAFT)
        if lost := present is None or present.generation < last:
            present = read.wanted(g.sd.status, last + 1, to.budget)
        if present is not None and read.fits(present, g.sd.spec.speculation.depths):
            cut = without_leave(present, to)
            return cut or present, lost or cut is not None
        first = first_schedule(choice.points, to, last + 1)
        return replace(first, caps=read.caps_wanted(g.sd.status) if lost else None), True

    async def _apply(self, g: Gathered, choice: Choice, schedule: Schedule) -> Trouble | None:
        """What kept the plan from being applied, if anything did. Raises ClusterError for what may pass."""
        sd, live = g.sd, g.live
        deployment = g.child("Deployment", sd.metadata.name)
        job = g.child("Job", names.profile_job(sd.metadata.name))
        arm, profiling = arms.wanted(sd, live.arms), choice.profiling
        inputs = Inputs(schedule, self._facts, profiling, surge=live.room, arm=arm)
        inputs = carry_over(deployment, sd, inputs, job)
        desired = render(sd, inputs)
        keep: list[Ref] = [("ConfigMap", names.tuner_config_map(sd.metadata.name))]
        wanted = profiling.where is ProfileIn.JOB and profiling.request is not None
        if job is not None and wanted and measures_this(job, sd):
            # A measurement that runs, or that failed, is left alone: it is never repeated blindly.
            desired = [body for body in desired if body["kind"] != "Job"]
            keep.append(("Job", names.profile_job(sd.metadata.name)))
        plan, refused = digest(desired), live.refused
        if refused is not None and refused.plan == plan and time.monotonic() < refused.until:
            return refused.trouble
        try:
            outcome = await apply_plan(self._cluster, desired, g.children, sd.metadata.uid, keep)
        except (Invalid, Forbidden) as e:
            reason = Reason.INVALID_POD_TEMPLATE if isinstance(e, InvalidPodTemplate) else Reason.APPLY_FAILED
            trouble = Trouble(reason, e.message)
            live.refused, live.unapplied = Refused(plan, trouble, time.monotonic() + REFUSED_SECONDS), 0
            self._telemetry.errors.labels("apply").inc()
            log.warning("plan refused", namespace=g.key[0], name=g.key[1], error=e.message)
            return trouble
        except Unavailable as e:
            live.refused, live.unapplied = None, live.unapplied + 1
            if live.unapplied <= faults.PASSING:
                raise
            self._telemetry.errors.labels("apply").inc()
            return Trouble(Reason.APPLY_FAILED, e.message)
        except Conflict:
            await reread(self._cluster, self._store, g.key)
            raise
        live.refused, live.unapplied = None, 0
        await self._remember(g, outcome)
        return None

    async def _remember(self, g: Gathered, outcome: Outcome) -> None:
        outcome.log(*g.key)
        for body in outcome.applied:
            self._store.put(body)
        if text := rescaled(g.child("Deployment", g.key[1]), outcome.applied):
            await self._events.say(g.body, "Warning", RESCALED, text, time.time())
