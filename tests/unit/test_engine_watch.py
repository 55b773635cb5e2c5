"""The schedule watcher: what is in force after which files were seen, and what it says about bad ones."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specpilot_engine.protocol import OVERRIDE_TTL, Exploration, Schedule, Step
from specpilot_engine.scheduler import Tuning
from specpilot_engine.watch import ScheduleWatcher

STARTUP = Schedule(0, (Step(64, 5),))
NOW = 1_000_000.0


def depth(generation: int, tokens: int, explored: int = 0) -> Schedule:
    return Schedule(generation, (Step(64, tokens),), Exploration(tokens=explored))


def write(path: Path, text: str, at: float = NOW) -> None:
    path.write_text(text)
    os.utime(path, (at, at))


class Watched:
    def __init__(self, tmp_path: Path) -> None:
        self.schedule, self.override = tmp_path / "schedule.json", tmp_path / "override.json"
        self.watcher = ScheduleWatcher(
            STARTUP,
            5,
            lambda s: s.tokens_at(1),
            str(self.schedule),
            str(self.override),
        )

    def after(self, now: float) -> tuple[int, str]:
        self.watcher.poll(now)
        return self.watcher.current.generation, self.watcher.file_error


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_without_a_file_the_startup_schedule_is_in_force_and_nothing_is_wrong(watched):
    assert watched.after(NOW) == (0, "")
    assert watched.watcher.active.prepared == 5


def test_a_new_schedule_is_in_force_with_what_was_prepared_from_it(watched):
    write(watched.schedule, depth(3, 2).dump())
    assert watched.after(NOW) == (3, "")
    assert watched.watcher.active.prepared == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "schedule file: not JSON"),
        (depth(4, 1).dump()[:-20], "schedule file: not JSON"),
        (depth(4, 1).dump().replace('"generation":4', '"generation":5'), "hash does not match"),
        (depth(4, 7).dump(), "depth 7 is above the 5 tokens the engine was started with"),
        (depth(4, 1, 7).dump(), "depth 7 is above the 5 tokens the engine was started with"),
        ("x" * (1 << 21), "larger than"),
    ],
)
def test_a_bad_file_leaves_the_last_good_schedule_and_is_named(watched, text, error):
    write(watched.schedule, depth(3, 2).dump())
    watched.after(NOW)
    write(watched.schedule, text, NOW + 5)
    generation, said = watched.after(NOW + 5)
    assert generation == 3
    assert error in said
    write(watched.schedule, depth(5, 1).dump(), NOW + 10)
    assert watched.after(NOW + 10) == (5, "")


def test_a_schedule_that_cannot_be_prepared_is_refused(tmp_path):
    def prepare(schedule: Schedule) -> int:
        if schedule.generation:
            raise RuntimeError("no room")
        return 0

    path = tmp_path / "schedule.json"
    watcher = ScheduleWatcher(STARTUP, 5, prepare, str(path))
    write(path, depth(3, 2).dump())
    watcher.poll(NOW)
    assert watcher.current is STARTUP
    assert "no room" in watcher.file_error


def test_a_file_that_goes_away_keeps_its_schedule_in_force(watched):
    write(watched.schedule, depth(3, 2).dump())
    watched.after(NOW)
    watched.schedule.unlink()
    assert watched.after(NOW + 5) == (3, "schedule file: file is gone; its last content stays in force")
    write(watched.schedule, depth(3, 2).dump())
    assert watched.after(NOW + 9) == (3, "")


def test_an_unreadable_file_is_named_and_read_again_when_it_can_be(watched):
    watched.schedule.mkdir()
    generation, said = watched.after(NOW)
    assert generation == 0
    assert "cannot be read" in said
    watched.schedule.rmdir()
    write(watched.schedule, depth(3, 2).dump())
    assert watched.after(NOW) == (3, "")


@pytest.mark.parametrize("which", ["schedule", "override"])
def test_what_could_not_be_read_for_once_holds_again_though_it_is_what_it_was(watched, which):
    write(watched.schedule, depth(1, 1).dump())
    file = getattr(watched, which)
    write(file, depth(3, 2).dump())
    assert watched.after(NOW) == (3, "")
    file.unlink()
    file.mkdir()
    os.utime(file, (NOW, NOW))
    assert "cannot be read" in watched.after(NOW + 1)[1]
    file.rmdir()
    write(file, depth(3, 2).dump())
    assert watched.after(NOW + 2) == (3, "")


def test_a_swapped_link_to_a_file_of_the_same_size_and_time_is_noticed(watched, tmp_path):
    """What the kubelet does to a ConfigMap volume."""
    for name, schedule in (("a", depth(3, 2)), ("b", depth(4, 1))):
        write(tmp_path / name, schedule.dump(), NOW - 60)
    watched.schedule.symlink_to(tmp_path / "a")
    assert watched.after(NOW)[0] == 3
    swap = tmp_path / "swap"
    swap.symlink_to(tmp_path / "b")
    swap.replace(watched.schedule)
    assert watched.after(NOW)[0] == 4


def test_an_override_wins_while_it_is_young_and_when_it_is_gone_the_schedule_is_back(watched):
    write(watched.schedule, depth(3, 2).dump())
    write(watched.override, depth(0, 1).dump())
    assert watched.after(NOW + OVERRIDE_TTL - 1) == (0, "")
    assert watched.watcher.active.prepared == 1
    assert watched.after(NOW + OVERRIDE_TTL + 1) == (3, "")
    os.utime(watched.override, (NOW + 20, NOW + 20))
    assert watched.after(NOW + 21)[0] == 0
    watched.override.unlink()
    assert watched.after(NOW + 22) == (3, "")


def test_a_refused_override_is_named_and_the_schedule_stays_in_force(watched):
    write(watched.schedule, depth(3, 2).dump())
    write(watched.override, depth(0, 7).dump())
    refusal = "override file: depth 7 is above the 5 tokens the engine was started with"
    assert watched.after(NOW) == (3, refusal)
    assert watched.after(NOW + OVERRIDE_TTL + 1) == (3, "")


def test_an_override_from_the_future_does_not_hold_for_ever(watched):
    write(watched.override, depth(0, 1).dump(), NOW + 1e6)
    assert watched.after(NOW) == (0, "")
    assert watched.watcher.current is STARTUP


def test_the_thread_follows_the_file_and_ends_when_stopped(watched):
    watcher = ScheduleWatcher(STARTUP, 5, lambda s: s, str(watched.schedule))
    watcher.start()
    watched.schedule.write_text(depth(3, 2).dump())
    assert eventually(lambda: watcher.current.generation == 3)
    watcher.stop()
    assert not threads()


def test_an_engine_that_gives_up_live_tuning_follows_files_no_longer(watched):
    watcher = ScheduleWatcher(STARTUP, 5, lambda s: s, str(watched.schedule))
    watcher.start()
    tuning = Tuning("", STARTUP, watcher)
    tuning.off("internal error: ValueError()")
    assert (tuning.status().live, tuning.status().reason) == (False, "internal error: ValueError()")
    assert eventually(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "specpilot-schedule"]


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()
