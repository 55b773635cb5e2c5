"""The folder in which one SpeculativeDeployment's state is kept between runs on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

import specpilot_engine
from specpilot.api.objects import CostProfile, Metadata, SpeculativeDeployment
from specpilot.api.profile import CostProfileSpec, Point
from specpilot.control.profile_choice import points_of
from specpilot.decide.memory import Memory
from specpilot.local.errors import LocalError, advice
from specpilot.plan import names
from specpilot.plan.fingerprint import fingerprint, request_key
from specpilot_engine.protocol import SCHEDULE_KEY, ProfilePoint, Schedule, ScheduleError, parse_schedule

MEASURED_ON = "this machine, by specpilot up"
_SPACE = "free some space, or name another folder with --state"


def default_folder(sd: SpeculativeDeployment) -> Path:
    """Below the temporary directory, one for each user, object and engine.

    Files of one name in two checkouts share it only while they describe the same engine. No part of its
    name can hold an underscore, so no two objects have the same one. Raises LocalError.
    """
    name = f"{sd.metadata.namespace}_{sd.metadata.name}_{request_key(sd.spec)[:8]}"
    with advice("no temporary folder can be used", "free some space, or name a folder with --state"):
        return Path(tempfile.gettempdir()) / _of_user() / name


def _of_user() -> str:
    return f"specpilot-{os.getuid()}"


class State:
    """Reads and writes the folder. `key` names what a profile in it is of."""

    def __init__(self, folder: Path, sd: SpeculativeDeployment, key: str) -> None:
        self.folder = folder
        self._sd, self._key = sd, key
        self._schedule = folder / names.schedule_config_map(sd.metadata.name) / SCHEDULE_KEY
        self._memory = folder / f"{names.tuner_config_map(sd.metadata.name)}.json"
        self._profile = folder / f"{names.cost_profile(sd.metadata.name, key)}.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the folder for this process alone, with the engine package in it.

        Raises LocalError when it cannot be used, another run uses it, or another object's state is in it.
        """
        with _locked(self.folder):
            self._claim()
            _copy_package(self.folder / "engine")
            yield

    def _claim(self) -> None:
        owner, here = self.folder / "of", f"{self._sd.metadata.namespace}/{self._sd.metadata.name}"
        known = _read(owner).strip() if owner.exists() else here
        if known != here:
            raise LocalError(
                f"{self.folder} keeps the state of {known}, and {here} is another: name another folder with --state"
            )
        write_whole(owner, f"{here}\n")

    def schedule(self) -> Schedule | None:
        """The schedule of the run before; None when there is none that can be used."""
        try:
            return parse_schedule(_read(self._schedule))
        except (OSError, ScheduleError):
            return None

    def write_schedule(self, schedule: Schedule) -> None:
        """What the ConfigMap volume is on a cluster."""
        write_whole(self._schedule, schedule.dump())

    def memory(self) -> Memory:
        """The tuner's memory; an empty one at first."""
        try:
            return Memory.from_json(_read(self._memory))
        except OSError:
            return Memory()

    def write_memory(self, memory: Memory) -> None:
        write_whole(self._memory, memory.to_json())

    def points(self) -> tuple[tuple[ProfilePoint, ...], int]:
        """Measured points under this key, and how many were planned; (), 0 when there are none."""
        try:
            profile = CostProfile.model_validate_json(_read(self._profile))
        except (OSError, ValidationError):
            return (), 0
        if profile.spec.key != self._key:
            return (), 0
        return points_of(profile), profile.spec.total

    def write_points(self, points: Sequence[ProfilePoint], total: int) -> None:
        """As a CostProfile: `kubectl apply -f` and `specpilot explain` take the file."""
        sd = self._sd
        profile = CostProfile(
            metadata=Metadata(
                name=names.cost_profile(sd.metadata.name, self._key), namespace=sd.metadata.namespace
            ),
            spec=CostProfileSpec(
                key=self._key,
                fingerprint=fingerprint(sd.spec, digest_of_image=sd.spec.engine.image),
                total=total,
                measured_on=MEASURED_ON,
                points=[
                    Point(
                        tokens=p.tokens,
                        batch_size=p.batch,
                        context_length=p.context,
                        seconds=p.seconds,
                        spread=p.spread,
                        steps=p.steps,
                    )
                    for p in points
                ],
            ),
        )
        metadata = {"name": profile.metadata.name, "namespace": profile.metadata.namespace}
        doc = {
            "apiVersion": profile.api_version,
            "kind": profile.kind,
            "metadata": metadata,
            "spec": profile.spec.to_json(),
        }
        write_whole(self._profile, json.dumps(doc, indent=1))

    @property
    def profile_file(self) -> Path:
        return self._profile


def _locked(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.parent.name == _of_user() and folder.parent.stat().st_uid != os.getuid():
            # Engines import the package from there: whoever made it could have them run anything.
            raise LocalError(f"{folder.parent} belongs to another user: name another folder with --state")
        lock = (folder / "lock").open("w")
    except OSError as e:
        raise LocalError(
            f"{folder} cannot be used for state ({e.strerror}): name another folder with --state"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LocalError(
            f"another run uses {folder} for its state: end that one, or name another folder with --state"
        ) from None
    return lock


def _copy_package(to: Path) -> None:
    """The init container's work: a copy, so that nothing else of our environment is on the engine's path."""
    source = Path(specpilot_engine.__file__).parent
    with advice(f"the engine package cannot be copied to {to}", _SPACE):
        if to.exists():
            shutil.rmtree(to)  # another version's modules must not be left between ours
        shutil.copytree(
            source, to / source.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )


def _read(path: Path) -> str:
    """What is no text becomes text that no reader takes. Raises OSError."""
    return path.read_text(errors="replace")


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all, as a ConfigMap volume changes."""
    with advice(f"{path} cannot be written", _SPACE):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)
