"""What is told of one SpeculativeDeployment: its status, events of what changed in it, its gauges."""

from __future__ import annotations

import time
from dataclasses import replace

from specpilot.api.base import timestamp
from specpilot.api.status import SpeculativeDeploymentStatus
from specpilot.api.vocabulary import Reason
from specpilot.cluster.client import Cluster
from specpilot.cluster.events import Events
from specpilot.cluster.status import older_crd, write_status
from specpilot.control import arms, faults, read
from specpilot.control.acknowledge import Acknowledgements, Following
from specpilot.control.conditions import Facts, Finding
from specpilot.control.measuring import Gathered
from specpilot.control.observe import confirmed
from specpilot.control.profile_choice import Choice
from specpilot.control.rollout import Trouble, rollout_of
from specpilot.control.status import announcements, refused_status, status_of
from specpilot.control.store import Body, Key, Store
from specpilot.control.telemetry import Telemetry
from specpilot.plan import adaptive
from specpilot.plan.arguments import live_support, speculates
from specpilot_engine.protocol import Schedule, Step

NOTHING_TO_DRAFT = Schedule(0, (Step(1, 0),))


class Reports:
    def __init__(self, cluster: Cluster, store: Store, events: Events, telemetry: Telemetry) -> None:
        self._cluster, self._store, self._events, self._telemetry = cluster, store, events, telemetry

    async def served(
        self,
        g: Gathered,
        choice: Choice,
        schedule: Schedule | None,
        problem: Trouble | None,
        acknowledgements: Acknowledgements,
    ) -> None:
        """`schedule` is in force; `problem` kept the plan from being applied."""
        sd, live, parsed = g.sd, g.live, g.live.parsed
        assert parsed is not None
        complaints = parsed.complaints
        if problem and faults.was_applied(sd.status.conditions, sd.metadata.generation):
            complaints, problem = (problem, *complaints), None  # what serves is of this spec all the same
        deployment = self._store.get("Deployment", sd.metadata.namespace, sd.metadata.name)
        drafts = speculates(sd.spec)
        engines = arms.engines(sd, deployment, read.serving(g.pods))
        arm, rollout = engines.arm, engines.rollout
        tuned = arms.tuned(sd, live.arms, arm, rollout)
        following = Following(schedule or NOTHING_TO_DRAFT, read.ready(g.pods))
        acknowledged = acknowledgements.status(following)
        deepest = max(step.tokens for step in arms.drafted(arm, schedule).steps) if schedule else None
        supported, why = live_support(sd.spec)
        overdue = acknowledgements.overdue(g.key)
        able = tuned or (arm.capped and rollout.complete and all(a.live for a in acknowledged.answers))
        tuning = live.fault or (confirmed(live.tuning, acknowledged, overdue) if able else live.tuning)
        if not supported and not adaptive.fixed(sd.spec):
            tuning = Finding(Reason.NOT_SUPPORTED, why)
        facts = Facts(
            generation=sd.metadata.generation,
            rollout=rollout,
            problem=problem,
            complaints=complaints,
            warnings="; ".join(filter(None, (parsed.warnings, older_crd(self._cluster, sd.kind)))),
            waiting_for_profile=choice.profiling.hold_serving,
            speculation=replace(
                live.speculation,
                drafter=drafts,
                depth=arm.tokens if deepest is None else deepest,
                live=live.speculation.live if tuned else None,
            ),
            profile=choice.finding,
            tuning=tuning,
            metrics=live.metrics,
        )
        spoken = arms.spoken(arm, schedule, acknowledged) if drafts and schedule else None
        decision, told = live.decision, arms.arm_status(sd, live.arms, arm)
        status = status_of(sd, facts, spoken, choice, decision, timestamp(time.time()), arm, told)
        if drafts and schedule is None:
            status = status.model_copy(update={"speculation": sd.status.speculation})
        await self._write(g.body, sd.status, status)
        if live.decision is decision:  # a tick may have decided anew meanwhile
            live.decision = None
        self._telemetry.show(g.key, facts.speculation.depth)

    async def refused(self, key: Key, body: Body, problem: Trouble) -> None:
        """Say why nothing is done for an object; all that serves goes on."""
        pods = self._store.pods(key)
        deployment = self._store.get("Deployment", *key)
        wanted = (deployment or {}).get("spec", {}).get("replicas") or 0
        generation, before = int(body["metadata"].get("generation") or 0), read.status(body)
        bug = problem.reason is Reason.INTERNAL_ERROR
        served = bug and faults.was_applied(before.conditions, generation)
        facts = Facts(
            generation=generation,
            rollout=rollout_of(int(wanted), deployment, read.serving(pods)),
            problem=None if served else problem,
            complaints=(problem,) if served else (),
        )
        await self._write(body, before, refused_status(before, facts, timestamp(time.time())))

    async def _write(
        self, body: Body, before: SpeculativeDeploymentStatus, status: SpeculativeDeploymentStatus
    ) -> None:
        written = await write_status(self._cluster, body, status.to_json())
        if written is None:
            return
        self._store.put(written)
        now = time.time()
        for kind, reason, message in announcements(before.conditions, status.conditions):
            await self._events.say(body, kind, reason, message, now)
