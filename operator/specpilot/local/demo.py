"""`specpilot demo`: two simulated replicas, traffic that shifts, and a report of what the operator made of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import specpilot
from specpilot.api.objects import SpeculativeDeployment
from specpilot.local.errors import LocalError, advice
from specpilot.local.load import Load, hold
from specpilot.local.page import page
from specpilot.local.pod import Machine
from specpilot.local.record import Fixed, Moment, Played, Record, Scene, busy_machine, moment, schedules
from specpilot.local.run import Local
from specpilot.local.state import State
from specpilot.local.up import Options, Screen, choose_ports, read_file, run_while
from specpilot.local.view import View
from specpilot.plan.fingerprint import request_key
from specpilot.plan.limits import limits
from specpilot_engine.protocol import ENV_SIM

TIME_SCALE = 2.0  # the simulated engines' clock against this one's, so that minutes suffice
SCENES = (
    Scene("a few developers", 8, "code"),
    Scene("the evening crowd", 96, "prose"),
    Scene("code again, by many", 48, "code"),
)
SCENE_SECONDS = 25.0
MAX_TOKENS, PROMPT_TOKENS = 256, 32
_READY_SECONDS = 90.0  # until both replicas serve; the profile's own budget is 30
_ELSEWHERE = "free some space, or name another folder with --out"
_ENGINE = "DeepSeek V4-Pro on eight B300, as vLLM published its throughput"


class Demo:
    """Plays the scenes against `local` and keeps what is to be reported."""

    def __init__(self, screen: Screen, seconds: float) -> None:
        self._screen, self._seconds = screen, seconds
        self.local: Local | None = None
        self.moments: list[Moment] = []
        self.played: list[Played] = []
        self.started = 0.0
        self.last: View | None = None

    def show(self, view: View) -> None:
        self.last = view
        if self.started:
            self.moments.append(moment(view, self.started))
        self._screen.show(view)

    async def play(self) -> None:
        local = self.local
        assert local is not None
        self._head("measuring what a step costs, then serving")
        deadline = time.monotonic() + _READY_SECONDS
        while self.last is None or not self.last.ready:
            if time.monotonic() > deadline:
                raise LocalError(
                    f"the simulated engines did not serve in {_READY_SECONDS:.0f} s: see {local.state.folder}/logs"
                )
            await asyncio.sleep(0.1)
        stop = asyncio.Event()
        load = Load([r.url for r in local.replicas], 0, max_tokens=MAX_TOKENS, prompt_tokens=PROMPT_TOKENS)
        loading = asyncio.create_task(hold(load, stop))
        try:
            self.started = time.time()
            before, start = await local.totals(), 0.0
            for i, scene in enumerate(SCENES, 1):
                load.clients, load.traffic = scene.clients, scene.traffic
                local.tell(f"traffic: {scene.title} ({scene.clients} clients, {scene.traffic})")
                for left in range(round(self._seconds), 0, -1):
                    self._head(
                        f"{i} of {len(SCENES)}: {scene.title}, {scene.clients} clients, {scene.traffic}", left
                    )
                    await asyncio.sleep(
                        max(0.0, self.started + start + self._seconds - left + 1 - time.time())
                    )
                after = await local.totals()
                end = time.time() - self.started
                tokens, decoding = after.tokens - before.tokens, after.decoding - before.decoding
                self.played.append(Played(scene, start, end, tokens, decoding))
                before, start = after, end
        finally:
            stop.set()
            await loading

    def _head(self, text: str, left: int | None = None) -> None:
        rest = "" if left is None else f"  [dim]{left} s left[/]"
        self._screen.heading = f"[bold]specpilot demo[/]  {text}{rest}"


def sample() -> Path:
    """The deployment that the demonstration plays. Raises LocalError where it is not installed."""
    name = "sim-two-replicas.yaml"
    package = Path(specpilot.__file__).parent
    # The wheel has it in the package; a checkout, beside the other samples.
    for folder in (package / "samples", package.parents[1] / "deploy" / "samples"):
        if (folder / name).is_file():
            return folder / name
    raise LocalError(f"{name} is not installed with specpilot: name a SpeculativeDeployment with --file")


async def demo(file: Path, out: Path, console: Console, seconds: float = SCENE_SECONDS) -> Record | None:
    """Play, and leave report.html and report.json in `out`; None when interrupted. Raises LocalError."""
    sd = read_file(file)
    with advice(f"{out} cannot be written", _ELSEWHERE):
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.json").touch()
    with advice("no temporary folder can be made", "free some space, or name another with TMPDIR"):
        folder = Path(tempfile.mkdtemp(prefix="specpilot-demo-"))
    world = {ENV_SIM: json.dumps({"time_scale": TIME_SCALE})}
    machine = Machine("sim", sys.executable, "127.0.0.1", folder, {**os.environ, **world})
    state = State(folder, sd, request_key(sd.spec))
    with state.held(), Screen(console, "") as screen:
        play = Demo(screen, seconds)
        ports = choose_ports(Options("sim", port=0), sd.spec.replicas)
        local = play.local = Local(sd, machine, state, ports, screen.tell, play.show)
        done = await run_while(local, play.play())
    if done:
        console.print("[dim]working out what fixed depths would have emitted…[/]")
        record = await _record(sd, play, machine)
        write_report(record, out)
    shutil.rmtree(folder, ignore_errors=True)  # after a failure it stays: the error names its logs
    return record if done else None


def write_report(record: Record, out: Path) -> None:
    """The numbers first: the page is large. Raises LocalError."""
    with advice(f"the report cannot be written to {out}", _ELSEWHERE):
        (out / "report.json").write_text(json.dumps(record.as_json(), indent=1) + "\n")
        (out / "report.html").write_text(page(record))


async def _record(sd: SpeculativeDeployment, play: Demo, machine: Machine) -> Record:
    bounds = limits(sd.spec)
    scenes = [(p.seconds, p.scene) for p in play.played]
    load = {
        "replicas": sd.spec.replicas,
        "max_tokens": MAX_TOKENS,
        "prompt_tokens": PROMPT_TOKENS,
        "max_num_seqs": bounds.max_num_seqs,
        "max_num_batched_tokens": bounds.max_num_batched_tokens,
        "depths": list(range(sd.spec.speculation.max_tokens + 1)),
        "phases": [{"seconds": s, "clients": scene.clients, "traffic": scene.traffic} for s, scene in scenes],
    }
    changes = [c for c in play.last.changes if c.at >= play.started] if play.last else []
    return Record(
        play.started,
        tuple(play.played),
        tuple(play.moments),
        tuple(schedules(changes)),
        await _replay(load, machine),
        sd.spec.speculation.depths,
        sd.spec.replicas,
        TIME_SCALE,
        _ENGINE,
    )


async def _replay(load: Mapping[str, Any], machine: Machine) -> dict[int, Fixed]:
    """The same traffic at each fixed depth, played by the simulated engine without waiting."""
    process = await asyncio.create_subprocess_exec(
        *(machine.python, "-m", "specpilot_engine.sim.replay"),
        env={**machine.environ, "PYTHONPATH": str(machine.package)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate(json.dumps(load).encode())
    if process.returncode != 0:
        raise LocalError(f"the fixed depths could not be played: {error.decode(errors='replace').strip()}")
    return {
        int(k): Fixed(tuple(tokens["phases"]), tuple(tokens["seconds"]))
        for k, tokens in json.loads(out)["depths"].items()
    }


def summary(record: Record, out: Path) -> Sequence[str]:
    """What to print at the end, as rich markup."""
    waits = [c.acknowledged_after for c in record.changes if c.acknowledged_after is not None]
    latency = f", each in use within {max(waits):.2f} s" if waits else ""
    starved = () if record.kept_up else (f"[yellow]{busy_machine(record)}[/]",)
    return (
        *starved,
        f"[bold]{record.oracle_share:.1%}[/] of what an oracle emits that knows each phase's best depth;"
        f" the best single depth ({record.best_fixed}) gets {record.best_fixed_share:.1%}.",
        f"{record.depth_changes} changes of the schedule{latency}; no restart.",
        f"Report: [bold]{out / 'report.html'}[/] (open it in a browser), numbers: {out / 'report.json'}",
    )
