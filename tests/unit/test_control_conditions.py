"""Facts → conditions, one sentence each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specpilot.api.status import Condition
from specpilot.api.vocabulary import Reason
from specpilot.control.conditions import CHAINS, Facts, Finding, Speculation, assess
from specpilot.control.rollout import Rollout, Trouble

NOW, EARLIER = "2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z"
SERVING = Rollout(2, exists=True, updated=2, ready=2, total=2, complete=True)
ROLLING = Rollout(2, exists=True, updated=1, ready=1, total=2)
FINE = Facts(generation=3, rollout=SERVING)
PULL = Trouble(Reason.IMAGE_PULL_FAILED, "cannot get its image")

CASES: dict[str, tuple[Facts, dict[str, tuple[str, str]]]] = {
    "all pods of this generation serve": (
        FINE,
        {
            "Ready": ("True", "Serving"),
            "Progressing": ("False", "RolledOut"),
            "Degraded": ("False", "AsExpected"),
        },
    ),
    "nothing exists yet": (
        replace(FINE, rollout=Rollout(2)),
        {"Ready": ("False", "PodsNotReady"), "Progressing": ("True", "RollingOut")},
    ),
    "serving waits for its profile": (
        replace(FINE, rollout=Rollout(2), waiting_for_profile=True),
        {"Ready": ("False", "WaitingForProfile"), "Progressing": ("True", "WaitingForProfile")},
    ),
    "a rollout is under way": (
        replace(FINE, rollout=ROLLING),
        {"Ready": ("False", "RollingOut"), "Progressing": ("True", "RollingOut")},
    ),
    "a pod stopped being ready after the rollout": (
        replace(FINE, rollout=replace(SERVING, ready=1)),
        {"Ready": ("False", "PodsNotReady"), "Progressing": ("False", "RolledOut")},
    ),
    "scaled to zero": (
        replace(FINE, rollout=Rollout(0, exists=True, complete=True)),
        {"Ready": ("False", "ScaledToZero"), "Progressing": ("False", "RolledOut")},
    ),
    "the spec is invalid while older pods serve": (
        replace(FINE, problem=Trouble(Reason.INVALID_SPEC, "spec.x: fix it")),
        {
            "Degraded": ("True", "InvalidSpec"),
            "Ready": ("False", "InvalidSpec"),
            "Progressing": ("False", "InvalidSpec"),
        },
    ),
    "an image cannot be pulled": (
        replace(FINE, rollout=replace(ROLLING, troubles=(PULL,))),
        {"Degraded": ("True", "ImagePullFailed"), "Progressing": ("True", "RollingOut")},
    ),
    "the rollout did not get on in time": (
        replace(FINE, rollout=replace(ROLLING, deadline_exceeded="no progress in 1800 s")),
        {
            "Degraded": ("True", "ProgressDeadlineExceeded"),
            "Progressing": ("False", "ProgressDeadlineExceeded"),
        },
    ),
    "drafts are counted": (
        replace(FINE, speculation=Speculation(depth=3, drafted=True, live=True)),
        {"Speculating": ("True", "Drafting")},
    ),
    "the schedule drafts nothing on purpose": (
        replace(FINE, speculation=Speculation(depth=0)),
        {"Speculating": ("True", "DepthZero")},
    ),
    "there is traffic at a depth above 0 and no draft": (
        replace(FINE, speculation=Speculation(depth=3, drafted=False, live=True)),
        {"Speculating": ("False", "NoDrafts")},
    ),
    "the engine runs as stock vLLM and drafts at its start-up depth": (
        replace(FINE, speculation=Speculation(depth=3, drafted=True, live=False, live_reason="no lookup")),
        {"Speculating": ("True", "LiveTuningOff")},
    ),
    "nothing is known about drafting": (FINE, {"Speculating": ("Unknown", "NoTraffic")}),
    "a profile is reused": (
        replace(FINE, profile=Finding(Reason.REUSED)),
        {"Profiled": ("True", "Reused")},
    ),
    "the named profile is of another GPU": (
        replace(FINE, profile=Finding(Reason.PROFILE_MISMATCH, "gpu")),
        {"Profiled": ("False", "ProfileMismatch")},
    ),
    "a change waits for the engines": (
        replace(FINE, tuning=Finding(Reason.AWAITING_ACKNOWLEDGEMENT)),
        {"Tuned": ("False", "AwaitingAcknowledgement")},
    ),
    "Prometheus is gone and pods are scraped": (
        replace(FINE, metrics=Finding(Reason.FALLBACK_SCRAPING)),
        {"MetricsAvailable": ("True", "FallbackScraping")},
    ),
    "metrics are gone": (
        replace(FINE, metrics=Finding(Reason.METRICS_UNAVAILABLE)),
        {"MetricsAvailable": ("False", "MetricsUnavailable")},
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_when(sentence: str) -> None:
    facts, expected = CASES[sentence]
    found = {c.type: (c.status, c.reason) for c in assess(facts, [], NOW)}
    assert {t: found[t] for t in expected} == expected


def test_every_condition_is_there_once_in_a_fixed_order_with_the_generation() -> None:
    conditions = assess(FINE, [], NOW)
    assert [c.type for c in conditions] == [str(c) for c in CHAINS]
    assert {c.observed_generation for c in conditions} == {3}


def test_the_time_changes_with_the_status_and_not_with_the_reason() -> None:
    before = assess(replace(FINE, metrics=Finding(Reason.PROMETHEUS)), [], EARLIER)
    after = assess(replace(FINE, metrics=Finding(Reason.FALLBACK_SCRAPING)), before, NOW)
    assert since(after)["MetricsAvailable"] == EARLIER
    lost = assess(replace(FINE, metrics=Finding(Reason.METRICS_UNAVAILABLE)), after, NOW)
    assert since(lost)["MetricsAvailable"] == NOW
    assert since(lost)["Ready"] == EARLIER


def test_what_is_not_known_stays_as_it_was() -> None:
    """A restarted operator has no counters yet: its first status must equal the one before."""
    knowing = replace(
        FINE,
        speculation=Speculation(depth=3, drafted=True, live=True),
        profile=Finding(Reason.MEASURED),
        tuning=Finding(Reason.HOLDING),
        metrics=Finding(Reason.PROMETHEUS),
    )
    before = assess(knowing, [], EARLIER)
    assert assess(FINE, before, NOW) == before


def test_a_bug_that_is_met_no_longer_leaves_no_word_behind() -> None:
    told = replace(FINE, tuning=Finding(Reason.INTERNAL_ERROR, "a bug"))
    before = assess(told, [], EARLIER)
    tuned = {c.type: (c.status, c.reason, c.message) for c in before}["Tuned"]
    assert tuned == ("False", "InternalError", "a bug")
    after = {c.type: (c.status, c.reason, c.message) for c in assess(FINE, before, NOW)}["Tuned"]
    assert after == ("Unknown", "WaitingForEvidence", "")


def since(conditions: list[Condition]) -> dict[str, Any]:
    return {c.type: c.last_transition_time for c in conditions}


def test_a_rollout_that_ends_pods_first_says_so() -> None:
    told = {c.type: c for c in assess(replace(FINE, rollout=replace(ROLLING, in_turn=True)), [], NOW)}
    assert told["Progressing"].message == (
        "1 of 2 pods are of this generation; each ends before its successor starts, as one more would not fit"
        " beside them"
    )


def test_a_paused_rollout_says_how_to_go_on() -> None:
    told = {c.type: c for c in assess(replace(FINE, rollout=replace(ROLLING, paused=True)), [], NOW)}
    assert told["Progressing"].message.startswith(
        "1 of 2 pods are of this generation; the Deployment is paused"
    )
    assert "kubectl rollout resume" in told["Progressing"].message
