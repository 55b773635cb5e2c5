"""The benchmark on a real vLLM: its arguments, its order, its file and its clock, without an engine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.real_vllm import kept
from benchmarks.real_vllm.__main__ import arguments, plan
from benchmarks.real_vllm.arms import Tuned, fixed
from benchmarks.real_vllm.kept import Segment
from benchmarks.real_vllm.run import SAMPLE, depth_shares, expected_seconds, tuner_settings
from benchmarks.real_vllm.scenario import ARMS, CANDIDATES, PHASES, PRODUCT, Key, Phase, Plan, phase
from deploy.console import TroubleError

from specpilot.estimate.counters import Cell, Counters
from specpilot.local.up import read_file
from specpilot_engine.explore import RUN, Explorer
from specpilot_engine.protocol import Exploration, ProfilePoint, StepSample

SMALL = Plan(repeats=2, drafts=("strong",), phases=("1", "16s"))
TIMES = ("seconds", "warmup", "interval")
POINT = ProfilePoint(3, 16, 256, 0.1, 0.05, 16)


def hundred(_key: Key) -> float:
    return 100.0


def played(plan: Plan, goodput) -> dict[Key, Segment]:
    """Every segment of `plan`, with goodput(key) tokens per second."""
    spent = {"1": 0.75, "3": 0.25}
    return {key: Segment(key, 10 * goodput(key), 10.0, 1.0, spent) for key in plan.all_segments()}


def counters(at: float, steps: float = 0.0, depth: int = 5, accepted: float = 0.0) -> Counters:
    """After `steps` clean steps of 16 requests at `depth`, 0.1 s each."""
    cell = Cell(steps, 0.1 * steps, 16 * steps, 16 * steps * (1 + accepted), 16 * 100 * steps)
    drafted = (16 * steps,) * depth + (0.0,) * (5 - depth)
    return Counters(
        "one",
        at,
        cells={(depth, 16): cell},
        drafted=drafted,
        accepted=tuple(accepted * d for d in drafted),
        all_steps=steps,
        live=True,
        generated=16 * steps,
    )


# the scenario


def test_the_candidates_are_the_sample_deployments():
    assert read_file(SAMPLE).spec.speculation.depths == CANDIDATES
    assert tuner_settings(SMALL).max_batch == 32


def test_the_phases_have_the_loads_in_order_and_are_all_greedy_or_all_sampling():
    played = [phase(text) for text in PHASES]
    assert [p.clients for p in played if not p.sampling] == [1, 16, 4, 32, 1]
    assert [p.clients for p in played if p.sampling] == [16, 4]
    assert (Phase(16, True).temperature, Phase(16, False).temperature) == (1.0, 0.0)


@pytest.mark.parametrize("text", ["", "0", "16x", "s", "1000", "-1"])
def test_what_is_no_phase_is_refused(text):
    with pytest.raises(ValueError, match="is no phase"):
        phase(text)


def test_every_phase_plays_every_arm_once_in_an_order_of_its_own():
    plan = Plan(repeats=8)
    orders = [
        tuple(key.arm for key in plan.segments(repeat, draft) if key.phase == number)
        for repeat in range(8)
        for draft in plan.drafts
        for number in range(len(plan.phases))
    ]
    assert all(sorted(order) == sorted(ARMS) for order in orders)
    assert len(set(orders)) > len(orders) / 2
    firsts = [order[0] for order in orders]
    assert all(firsts.count(arm) < len(orders) / 3 for arm in ARMS)
    assert list(plan.all_segments()) == list(Plan(repeats=8).all_segments())


def test_arms_of_a_phase_answer_the_same_prompts_and_repeats_others():
    plan = SMALL
    seeds = {(key.repeat, key.phase): set() for key in plan.all_segments()}
    for key in plan.all_segments():
        seeds[key.repeat, key.phase].add(plan.prompts(key))
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == 4


# the file


def test_a_file_that_can_be_read_alone_is_refused_with_what_to_do(tmp_path: Path, monkeypatch):
    file = tmp_path / "run.jsonl"
    kept.begin(file, SMALL)
    whole = Path.open

    def read_only(path: Path, mode: str = "r", *args, **kwargs):
        if mode != "r":
            raise PermissionError(13, "Permission denied")
        return whole(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", read_only)  # root may write whatever its mode
    with pytest.raises(TroubleError, match=r"cannot be written \(Permission denied\): name another file"):
        kept.begin(file, SMALL)


def test_a_killed_run_goes_on_with_the_first_segment_that_is_missing(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    run = kept.begin(file, SMALL)
    run.add_profile("strong", (POINT,))
    keys = list(SMALL.all_segments())
    for key in keys[:7]:
        run.add(Segment(key, 100.0, 8.0, 0.5, {"3": 1.0}, {"clock": 5.0}, [{"moved": True}]))
    with file.open("a") as cut:
        cut.write('{"segment": {"key": [0, "str')
    again = kept.begin(file, SMALL)
    assert again.missing(0, "strong") == keys[7:12]
    assert again.missing(1, "strong") == keys[12:]
    assert again.profiles == {"strong": (POINT,)}
    assert again.segments == run.segments
    again.add(Segment(keys[7], 1.0, 1.0, 0.0))
    assert list(kept.read(file).segments) == keys[:8]


def test_more_repeats_add_to_a_run_and_anything_else_is_refused(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    kept.begin(file, SMALL)
    assert kept.begin(file, replace(SMALL, repeats=3)).plan.repeats == 3
    with pytest.raises(TroubleError, match=r"another --seconds, 48\.0: give the same again"):
        kept.begin(file, replace(SMALL, seconds=8.0))


def test_a_run_can_be_begun_anew(tmp_path: Path):
    file = tmp_path / "run.jsonl"
    kept.begin(file, SMALL).add(Segment(next(SMALL.all_segments()), 1.0, 1.0, 0.0))
    anew = kept.begin(file, replace(SMALL, seconds=8.0), resume=False)
    assert anew.segments == {}
    assert kept.read(file).plan.seconds == 8.0


@pytest.mark.parametrize("text", ["", "hello\n", "[]\n", '{"plan": {}}\n', '{"plan": 3}\n'])
def test_another_file_is_neither_taken_nor_overwritten(tmp_path: Path, text: str):
    file = tmp_path / "notes"
    file.write_text(text)
    with pytest.raises(TroubleError, match="holds no run of this benchmark"):
        kept.begin(file, SMALL)
    assert file.read_text() == text


def test_the_tuner_goes_on_from_its_last_segment_of_the_repeat(tmp_path: Path):
    run = kept.begin(tmp_path / "run.jsonl", SMALL)
    assert run.tuner(0, "strong") is None
    for number, key in enumerate(SMALL.all_segments()):
        run.add(Segment(key, 1.0, 1.0, 0.0, tuner={"clock": number} if key.arm == PRODUCT else None))
    last = [n for n, key in enumerate(SMALL.segments(0, "strong")) if key.arm == PRODUCT][-1]
    assert run.tuner(0, "strong") == {"clock": last}


# the arms


def test_a_fixed_depth_explores_nothing_and_tries_nothing():
    schedule = fixed(3, 32)
    assert [schedule.tokens_at(batch) for batch in (1, 32)] == [3, 3]
    assert (schedule.exploration.max_batch, schedule.budget.price, schedule.trial) == (0, 0.0, None)
    assert len({fixed(k, 32).generation for k in CANDIDATES}) == len(CANDIDATES)


def test_what_was_saved_up_for_exploring_stands_still_while_other_arms_run():
    explorer, mine = Explorer(), Exploration(0.01, 3, 0.5, 32)
    for _ in range(399):  # of 400 steps that pay for two runs
        explorer.took(mine, False, 16, 1)
    for _ in range(5000):
        assert not explorer.step(fixed(3, 32).exploration, False, 16, lambda: True)
    explorer.took(mine, False, 16, 1)
    assert explorer.stretch(mine, True, 16) == (True, RUN)
    before, after = Explorer(), explorer
    assert before.stretch(mine, True, 16)[0] is False
    assert after.explored == 0


def test_the_tuners_clock_stands_still_while_other_arms_run():
    tuned = Tuned(tuner_settings(SMALL), (), 1000.0)
    tuned.begin(counters(50.0))
    tuned.look(counters(53.0, 20.0))
    tuned.look(counters(56.0, 20.0))
    assert tuned.discarded == {"Idle": 1}
    tuned.end(counters(58.0, 50.0))
    assert tuned.state()["clock"] == 1008.0
    tuned.begin(counters(400.0, 5000.0))
    tuned.look(counters(403.0, 5030.0))
    tuned.end(counters(404.0, 5040.0))
    assert tuned.state()["clock"] == 1012.0
    memory = json.loads(tuned.state()["memory"])
    assert memory["cost"]["cells"][0][2] == pytest.approx(50.0, rel=0.01)  # steps: 20 and 30, none of others


def test_the_tuner_leaves_hopeless_drafts_within_its_segment_and_goes_on_from_there_after_a_restart():
    points = [
        ProfilePoint(k, batch, 100, 0.085 + 0.003 * k, 0.05, 16) for k in CANDIDATES for batch in (1, 16)
    ]
    tuned = Tuned(tuner_settings(SMALL), points, 1000.0)
    assert tuned.schedule.tokens_at(16) == 5
    tuned.begin(counters(0.0))
    changes = (tuned.look(counters(3.0 * n, 30.0 * n)) for n in range(1, 6))
    moved = next(change for change in changes if change and change["moved"])
    assert moved["schedule"] == tuned.schedule.as_vllm()
    assert tuned.schedule.tokens_at(16) < 5
    again = Tuned(tuner_settings(SMALL), points, 0.0)
    again.resume(json.loads(json.dumps(tuned.state())))
    assert again.schedule == tuned.schedule
    assert again.state() == tuned.state()


def test_time_is_told_by_depth():
    steps = [StepSample(n, tokens, 16, 100.0, 0.1) for n, tokens in enumerate([5, 0, 5, 5])]
    assert depth_shares(steps) == {"0": 0.25, "5": 0.75}
    assert depth_shares([]) == {}


def test_what_is_left_is_told_in_time(tmp_path: Path):
    run = kept.begin(tmp_path / "run.jsonl", SMALL)
    # In each of four phases six segments of 52.5 s, and two engines' starts of a minute and a half.
    assert expected_seconds(run) == pytest.approx(4 * 6 * (48 + 3 + 1.5) + 2 * 90)
    for key in SMALL.segments(0, "strong"):
        run.segments[key] = Segment(key, 1.0, 1.0, 0.0)
    assert expected_seconds(run) == pytest.approx(2 * 6 * (48 + 3 + 1.5) + 90)


# its arguments


def test_without_arguments_it_is_the_plan_of_the_page():
    assert plan(arguments().parse_args([])) == Plan(repeats=4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *(
            (f"--{name} {value}", "a number of seconds above 0")
            for name in TIMES
            for value in ("nan", "inf", "0")
        ),
        ("--repeats 0", "at least one repeat"),
        ("--interval 60", "longer than --interval"),
        ("--exploration nan", "a share of goodput"),
        ("--exploration 0.3", "a share of goodput"),
        ("--phases 33", "32 requests at most"),
        ("--phases x", "no phase"),
    ],
)
def test_arguments_that_make_no_plan_are_refused_by_name(line: str, message: str):
    with pytest.raises(TroubleError, match=message):
        plan(arguments().parse_args(line.split()))


def test_a_draft_that_is_named_twice_is_played_once():
    assert plan(arguments().parse_args(["--drafts", "weak", "weak"])).drafts == ("weak",)


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("where", ["folder", "file/run.jsonl", "no/run.jsonl"])
def test_a_file_that_cannot_be_written_is_said_before_anything_starts(
    tmp_path: Path, where: str, resume: bool
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(TroubleError, match=r"cannot be (read|written) \("):
        kept.begin(tmp_path / where, SMALL, resume)
