"""The profiler's order of measurement and its points file."""

import errno
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.profiler.order import Group, groups
from specpilot_engine.profiler.progress import Progress
from specpilot_engine.profiler.store import PointStore, StoreError
from specpilot_engine.protocol import ProfilePoint, ProfileRequest, parse_point

SIZES = st.lists(st.integers(1, 512), min_size=1, max_size=9)


def request(tokens, batches, contexts) -> ProfileRequest:
    return ProfileRequest("key", tuple(tokens), tuple(batches), tuple(contexts))


def point(tokens: int, batch: int = 1, context: int = 128) -> ProfilePoint:
    return ProfilePoint(tokens, batch, context, 0.01 * (1 + tokens), 0.05, 16)


def test_the_outer_batches_come_first_and_each_next_one_halves_a_gap():
    order = [g.batch for g in groups(request([0, 3], [1, 8, 32, 128, 256], [8192]))]
    assert order == [1, 256, 32, 8, 128]


def test_the_outer_depths_come_first_too():
    assert groups(request([0, 1, 2, 3, 5], [4], [8192]))[0].depths == (0, 5, 2, 1, 3)


def test_contexts_are_measured_in_the_order_asked_and_all_depths_together():
    assert groups(request([3, 0], [4], [8192, 1024])) == [Group(4, 8192, (0, 3)), Group(4, 1024, (0, 3))]


@given(SIZES, SIZES, SIZES)
def test_every_point_of_the_grid_is_measured_once(tokens, batches, contexts):
    points = [(k, g.batch, g.context) for g in groups(request(tokens, batches, contexts)) for k in g.depths]
    assert len(points) == len(set(points))
    assert set(points) == {(k, b, c) for k in tokens for b in batches for c in contexts}


def test_points_are_there_after_a_restart_with_the_time_they_took(tmp_path):
    path = str(tmp_path / "points.jsonl")
    store = PointStore(path, "a")
    store.append(point(0), 1.5)
    store.append(point(3), 2.5)
    again = PointStore(path, "a")
    assert list(again.points.values()) == [point(0), point(3)]
    assert again.spent == 2.5


def test_points_of_another_key_are_kept_but_not_used(tmp_path):
    path = str(tmp_path / "points.jsonl")
    PointStore(path, "a").append(point(0), 9.0)
    other = PointStore(path, "b")
    assert (other.points, other.spent) == ({}, 0.0)
    other.append(point(1), 1.0)
    assert list(PointStore(path, "a").points.values()) == [point(0)]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_short_loses_that_point_only(tmp_path, cut):
    path = tmp_path / "points.jsonl"
    store = PointStore(str(path), "a")
    store.append(point(0), 1.0)
    store.append(point(3), 2.0)
    os.truncate(path, path.stat().st_size - cut)
    resumed = PointStore(str(path), "a")
    expected = {0, 3} if cut == 1 else {0}
    assert {p.tokens for p in resumed.points.values()} == expected
    resumed.append(point(5), 3.0)
    assert {p.tokens for p in PointStore(str(path), "a").points.values()} == expected | {5}


@pytest.mark.parametrize("seconds", [0, -1, "NaN", "Infinity"])
def test_a_time_that_no_step_takes_is_no_point(seconds):
    with pytest.raises(ValueError, match="no step takes"):
        parse_point({**point(0).as_json(), "seconds": seconds})


@pytest.mark.parametrize("line", ["", "garbage", "[1]", "3", '{"key": "a"}', '{"key": "a", "point": {}}'])
def test_lines_that_are_no_points_are_passed_over(tmp_path, line):
    path = tmp_path / "points.jsonl"
    path.write_text(line + "\n")
    store = PointStore(str(path), "a")
    store.append(point(0), 1.0)
    assert list(PointStore(str(path), "a").points.values()) == [point(0)]


def test_measurements_that_ended_without_a_word_are_counted(tmp_path):
    path = str(tmp_path / "points.jsonl")
    PointStore(path, "other").measuring(True)
    for ended in (False, True, False):
        store = PointStore(path, "a")
        store.measuring(True)
        if ended:
            store.measuring(False)
    assert (PointStore(path, "a").cut_short, PointStore(path, "b").cut_short) == (2, 0)


def test_a_full_disk_is_one_sentence_that_says_what_to_do(tmp_path):
    path = tmp_path / "points.jsonl"
    store = PointStore(str(path), "a")
    path.symlink_to("/dev/full")
    with pytest.raises(StoreError, match=f"{os.strerror(errno.ENOSPC)}.*give its volume space"):
        store.append(point(0), 1.0)
    assert store.points == {}


def test_the_profile_says_what_it_has_and_why_the_rest_is_missing(tmp_path):
    store = PointStore(str(tmp_path / "points.jsonl"), "a")
    progress = Progress("a", 4, store)
    profile = progress.routes()["/v1/profile"]
    store.append(point(0), 1.0)
    assert json.loads(profile({}).body) == {
        "key": "a",
        "points": [point(0).as_json()],
        "total": 4,
        "finished": False,
        "error": "",
    }
    progress.give_up("the engine runs no more than 16 requests at once", 1)
    progress.give_up("the engine runs no more than 16 requests at once", 1)
    progress.give_up("no room", 1)
    progress.finished = True
    document = json.loads(profile({"seen": "0"}).body)
    assert document["finished"]
    assert document["error"] == (
        "the engine runs no more than 16 requests at once (2 points left out); no room (1 point left out)"
    )
    assert not progress.all_read.is_set()
    profile({"seen": "1"})
    assert progress.all_read.is_set()
