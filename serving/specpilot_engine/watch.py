"""Follows the schedule file from a thread of its own, so that the step path only reads an attribute.

The file is a ConfigMap volume (a symlink the kubelet swaps) or, beside it, an override that the
profiler writes. Reading, parsing, validating and preparing happen here; a file that is missing,
half-written or asks for the impossible leaves the last good schedule in force and is named in
`file_error`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from specpilot_engine.protocol import OVERRIDE_TTL, Schedule, ScheduleError, parse_schedule

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.0  # a file this young is read again: two writes may share one mtime
MAX_BYTES = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Active(Generic[T]):
    """A schedule with what was prepared from it; one object, so that readers see both or neither."""

    schedule: Schedule
    prepared: T


class _File(Generic[T]):
    """One watched file: its last good content and what is wrong with the present one."""

    def __init__(self, path: str, load: Callable[[str], Active[T]], transient: bool) -> None:
        self.path = path
        self.load = load
        self.transient = transient  # meant to come and go
        self.good: Active[T] | None = None
        self.error = ""
        self.mtime = 0.0
        self.valid = False  # the content on disk is the last good one
        self._signature: tuple[int, int, int] | None = None
        self._text: str | None = None

    def poll(self, now: float) -> None:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            self._missing()
            return
        except OSError as e:
            self._unreadable(e.strerror or e)
            return
        self.mtime = stat.st_mtime
        signature = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if signature == self._signature and abs(now - stat.st_mtime) > SETTLE_SECONDS:
            return
        try:
            text = self._read()
        except (OSError, ValueError) as e:
            self._unreadable(e)
            return
        self._signature = signature
        if text == self._text:
            return
        self._text = text
        try:
            self.good = self.load(text)
        except ScheduleError as e:
            self._fail(str(e))
        except Exception as e:
            self._fail(f"cannot be used: {e!r}")
        else:
            self.error, self.valid = "", True

    def _read(self) -> str:
        with open(self.path, encoding="utf-8") as f:
            text = f.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        return text

    def _missing(self) -> None:
        self._signature = self._text = None
        self.valid = False
        # A schedule file that never was there is no error either: its volume is optional.
        lost = self.good is not None and not self.transient
        self.error = "file is gone; its last content stays in force" if lost else ""

    def _unreadable(self, why: object) -> None:
        """Whatever it holds once it can be read again is news, even if it is what it held before."""
        self._signature = self._text = None
        self._fail(f"cannot be read: {why}")

    def _fail(self, message: str) -> None:
        if message != self.error:
            log.warning("specpilot: %s: %s", self.path, message)
        self.error, self.valid = message, False


class ScheduleWatcher(Generic[T]):
    """Keeps `active`, the schedule in force, up to date with its files.

    `startup` is in force (as generation 0) until a file says otherwise. A depth above `max_tokens`,
    the engine's start-up maximum, is refused. `prepare` turns a schedule into what the step path
    needs; it runs in the watching thread, and raising refuses the schedule.

    Readers use `active` or `current`, and `file_error`, what is wrong with the files on disk ("" when
    nothing is): plain attribute reads, atomic under the GIL.
    """

    def __init__(
        self,
        startup: Schedule,
        max_tokens: int,
        prepare: Callable[[Schedule], T],
        schedule_file: str = "",
        override_file: str = "",
    ) -> None:
        self._max_tokens = max_tokens
        self._prepare = prepare
        self._startup = self.active = Active(startup, prepare(startup))
        self.file_error = ""
        self._schedule = _File(schedule_file, self._load, False) if schedule_file else None
        self._override = _File(override_file, self._load, True) if override_file else None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def current(self) -> Schedule:
        """The schedule in force."""
        return self.active.schedule

    def poll(self, now: float) -> None:
        """Look at the files once; `now` is wall-clock seconds, comparable to a file's mtime."""
        active, errors = self._startup, []
        if self._schedule is not None:
            self._schedule.poll(now)
            active = self._schedule.good or active
            if self._schedule.error:
                errors.append(f"schedule file: {self._schedule.error}")
        if self._override is not None:
            self._override.poll(now)
            if abs(now - self._override.mtime) <= OVERRIDE_TTL:
                if self._override.valid and self._override.good:
                    active = self._override.good
                if self._override.error:
                    errors.append(f"override file: {self._override.error}")
        self.file_error = "; ".join(errors)
        if active is not self.active:
            self.active = active
            log.info(
                "specpilot: schedule generation %d in force: %s",
                active.schedule.generation,
                active.schedule.as_vllm(),
            )

    def start(self) -> None:
        """Poll once now, then from a daemon thread until `stop`."""
        self._poll_safely()
        self._thread = threading.Thread(target=self._run, name="specpilot-schedule", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Have the thread end by itself, soon; `active` keeps its value."""
        self._stopped.set()

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self.cancel()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self._poll_safely()

    def _poll_safely(self) -> None:
        try:
            self.poll(time.time())
        except Exception:
            # The thread must outlive anything odd about a file system; the schedule simply stays.
            log.exception("specpilot: looking at the schedule files failed")
            self._stopped.wait(1.0)

    def _load(self, text: str) -> Active[T]:
        schedule = parse_schedule(text)
        against = schedule.trial.against if schedule.trial else ()
        deepest = max(schedule.exploration.tokens, *(step.tokens for step in (*schedule.steps, *against)))
        if deepest > self._max_tokens:
            raise ScheduleError(
                f"depth {deepest} is above the {self._max_tokens} tokens the engine was started with"
            )
        return Active(schedule, self._prepare(schedule))
