"""The row budget inside vLLM's own engine core, of the version that runs here and of the newest.

Only the model's execution is replaced, by a device whose step times and survival are known exactly.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.engine.core import drive
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot_engine import protocol

pytestmark = pytest.mark.xdist_group("vllm-code")

DEPTH, GOOD = 5, 0.9


def drive_live(code: Warm, pipelined: bool) -> dict[str, Any]:
    """The budget's reports by scenario, all of a live scheduler."""
    reports = drive("budget_script.py", code, pipelined)
    assert [report["state"]["live"] for report in reports.values()] == [True] * len(reports)
    return reports


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def reports(request: pytest.FixtureRequest, code: Callable[[str], Warm], version: str) -> dict[str, Any]:
    return drive_live(code(version), pipelined=request.param)


def goodput(part: dict[str, Any]) -> float:
    return part["emitted"] / part["seconds"]


def series(report: dict[str, Any], name: str) -> tuple[float, str]:
    """Value and reason of one series."""
    families = text_string_to_metric_families(report["metrics"])
    (found,) = (s for f in families for s in f.samples if s.name == name)
    return found.value, found.labels.get("reason", "")


def test_without_a_budget_every_draft_is_verified_whole(reports):
    plain = reports["hopeless"]["parts"][0]
    assert set(plain["rows"][1:]) == {4 * (1 + DEPTH)}


def test_hopeless_drafts_are_left_out_within_a_few_looks_and_goodput_doubles(reports):
    plain, early, late = reports["hopeless"]["parts"]
    assert early["rows"][100:].count(4) > 80
    assert goodput(late) > 2 * goodput(plain)
    # Of what can be had while the drafter goes on drafting, only the price of probes is lost.
    assert goodput(late) > 0.97 * 4 / 0.0165


def test_it_still_looks_whether_drafts_have_turned_good(reports):
    rows = reports["hopeless"]["parts"][2]["rows"]
    whole = [i for i, n in enumerate(rows) if n == 4 * (1 + DEPTH)]
    assert 0.01 * len(rows) < len(whole) < 0.03 * len(rows)
    assert max(b - a for a, b in pairwise(whole)) < 300


def test_drafts_that_turn_good_are_verified_again_and_the_budget_steps_back(reports):
    _, turning, after = reports["recovering"]["parts"]
    assert sum(turning["rows"][-40:]) > 0.9 * 40 * 4 * (1 + DEPTH)
    assert set(after["rows"][:30]) == {4 * (1 + DEPTH)}
    assert reports["recovering"]["cutting"] is False


def test_rows_go_to_the_requests_whose_drafts_survive(reports):
    good = bad = 0
    for part in reports["mixed"]["parts"][2:]:
        for drafts in part["drafts"][60:240]:
            good += sum(drafts[::2])
            bad += sum(drafts[1::2])
    assert good > 5 * bad


def test_survival_for_the_operator_is_that_of_all_requests_not_of_those_that_were_verified(reports):
    truth = [0.5 * GOOD**j for j in range(1, DEPTH + 1)]
    drafted, accepted, verified = [0] * DEPTH, [0] * DEPTH, [0] * DEPTH
    for part in reports["mixed"]["parts"]:
        for j in range(DEPTH):
            drafted[j] += part["drafted"][j]
            accepted[j] += part["accepted"][j]
            verified[j] += sum(length > j for drafts in part["drafts"] for length in drafts)
    assert [a / d for a, d in zip(accepted, drafted, strict=True)] == pytest.approx(truth, abs=0.05)
    assert verified[0] > 1.5 * drafted[0]  # many more were verified, of the good requests mostly


@pytest.mark.parametrize("scenario", ["hopeless", "mixed", "recovering", "exploring"])
def test_times_are_those_of_whole_steps_at_their_depth(reports, scenario):
    samples = reports[scenario]["samples"]
    assert len(samples) > 10
    for _tokens, _batch, seconds, truth in samples:
        assert seconds == pytest.approx(truth)


def test_what_explores_another_depth_is_verified_whole(reports):
    report = reports["exploring"]
    drafts = report["parts"][0]["drafts"]
    deep = [lengths for lengths in drafts if max(lengths, default=0) > 2]
    assert len(deep) == report["explored"] > 10
    assert {tuple(lengths) for lengths in deep} == {(5, 5, 5, 5)}
    assert sum(tokens == 5 for tokens, *_ in report["samples"]) >= report["explored"] / 4


def test_rows_are_accounted_for(reports):
    report = reports["hopeless"]
    drafted = 4 * DEPTH * (len(report["steps"]) - 100)  # that many before the schedule gave leave
    verified, trimmed = (series(report, n)[0] for n in (protocol.M_ROWS_VERIFIED, protocol.M_ROWS_TRIMMED))
    assert verified + trimmed == pytest.approx(drafted, abs=4 * DEPTH)
    assert series(report, protocol.M_BUDGET) == (1.0, "")
    assert series(report, protocol.M_PROBES)[0] >= 10
