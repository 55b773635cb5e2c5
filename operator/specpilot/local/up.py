"""`specpilot up FILE`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from specpilot.api.documents import documents
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.validate import KIND, Severity, problems
from specpilot.local.errors import LocalError
from specpilot.local.load import Load, hold
from specpilot.local.pod import EngineKind, Machine, Ports
from specpilot.local.process import free_ports, port_taken
from specpilot.local.run import Local
from specpilot.local.state import State, default_folder
from specpilot.local.table import render
from specpilot.local.view import View
from specpilot.plan.arguments import speculates
from specpilot.plan.fingerprint import request_key
from specpilot_engine.protocol import ENV_SIM

_MOST_REPLICAS = 64
_KINDS = ("chat", "code", "prose", "mixed")  # of the world that the simulated engine has by itself
_UNANSWERED = 5.0  # seconds without an answer, and with refusals, until it is said
_HISTORY = 120  # readings that the table may draw


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a file on this machine. `port` is the first replica's, 0 any free ones."""

    kind: EngineKind = "vllm"
    port: int = 8000
    host: str = "127.0.0.1"
    seconds: float | None = None  # None: until interrupted
    state: Path | None = None
    python: str | None = None  # that has vLLM
    clients: int = 0  # of made-up traffic
    traffic: str = ""  # its kind, for the simulated engine


def read_file(file: Path) -> SpeculativeDeployment:
    """The one SpeculativeDeployment in a YAML file. Raises LocalError with one line per problem."""
    try:
        docs = documents(file.read_text())
    except OSError as e:
        raise LocalError(f"{file} cannot be read ({e.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise LocalError(f"{file} is not text: name a YAML file with a {KIND}") from None
    except ValueError as e:
        raise LocalError(f"{file} is not YAML ({e}): correct it there") from None
    ours: list[dict[str, Any]] = [d for d in docs if isinstance(d, dict) and d.get("kind") == KIND]
    if len(ours) != 1:
        count = len(ours) or "no"
        raise LocalError(f"{file} holds {count} {KIND} objects: name a file with exactly one")
    found = [p for p in problems(ours[0]) if p.severity == Severity.ERROR]
    if found:
        raise LocalError("\n".join(f"{file}: {p.message}" for p in found))
    return SpeculativeDeployment.parse(json.loads(json.dumps(ours[0])))  # as the API server has it


def make_machine(options: Options, folder: Path) -> Machine:
    """Raises LocalError when vLLM is wanted and not there."""
    python = sys.executable
    if options.kind == "vllm":
        python = _python_with_vllm(options.python)
    return Machine(options.kind, python, options.host, folder, dict(os.environ))


def _python_with_vllm(named: str | None) -> str:
    candidates = [named] if named else [sys.executable, shutil.which("python3") or "python3"]
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    for candidate in candidates:
        with contextlib.suppress(OSError):
            if subprocess.run([candidate, "-c", probe], check=False, capture_output=True).returncode == 0:
                return candidate
    where = f"{named} has no vLLM" if named else "vLLM is not installed here"
    raise LocalError(f"{where}: name a Python that has it with --python, or use --engine sim to simulate it")


def choose_ports(options: Options, replicas: int) -> list[Ports]:
    """Ports of each replica. Raises LocalError when one that was asked for is taken."""
    if replicas > _MOST_REPLICAS:
        raise LocalError(
            f"spec.replicas is {replicas}, too many for one machine: set at most {_MOST_REPLICAS}"
        )
    if port_taken(0, options.host):
        raise LocalError(f"nothing can listen on {options.host}: name an address of this machine with --host")
    free = free_ports(3 * replicas)
    if options.port == 0:
        return [Ports(*free[3 * i : 3 * i + 3]) for i in range(replicas)]
    wanted = range(options.port, options.port + replicas)
    if wanted[-1] > 65535 or options.port < 0:
        raise LocalError(
            f"port {options.port} leaves no room for {replicas} replicas: choose another with --port"
        )
    for port in wanted:
        if port_taken(port, options.host):
            raise LocalError(f"port {port} cannot be had on {options.host}: choose another with --port")
    return [Ports(port, *free[3 * i : 3 * i + 2]) for i, port in enumerate(wanted)]


async def up(file: Path, options: Options, console: Console) -> None:
    """Run until interrupted, until `options.seconds` have passed, or until it cannot serve (LocalError)."""
    sd = read_file(file)
    folder = (options.state or default_folder(sd)).absolute()
    _check_traffic(options, sd)
    machine = make_machine(options, folder)
    state = State(folder, sd, request_key(sd.spec))
    with state.held():
        ports = choose_ports(options, sd.spec.replicas)
        with Screen(
            console, f"[bold]{sd.metadata.name}[/]  {_what(options)}  [dim]Ctrl-C ends it[/]"
        ) as screen:
            if sd.spec.tuning.actuator == "Restart":
                screen.tell(
                    "spec.tuning.actuator Restart: on this machine depths are tuned live, and nothing restarts"
                )
            local = Local(sd, machine, state, ports, screen.tell, screen.show)
            await run_while(local, _serve(local, options))
    if speculates(sd.spec) and any(replica.served for replica in local.replicas):
        again = f" --state {options.state}" if options.state else ""
        console.print(
            f"What it learnt is in {folder}: specpilot explain {file}{again} shows it, and the next run goes on from it.",
            markup=False,
            highlight=False,
            soft_wrap=not console.is_terminal,
        )


def _check_traffic(options: Options, sd: SpeculativeDeployment) -> None:
    """Raises LocalError for a kind that the simulated engine would take for its usual one."""
    ours = ENV_SIM not in os.environ and not any(e.get("name") == ENV_SIM for e in sd.spec.engine.env)
    if options.kind == "sim" and ours and options.traffic not in ("", *_KINDS):
        raise LocalError(f"--traffic takes {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, not {options.traffic}")


def _what(options: Options) -> str:
    return "simulated engines on this machine" if options.kind == "sim" else "vLLM on this machine"


async def _serve(local: Local, options: Options) -> None:
    """Let the time pass, with traffic if that is asked for."""
    sending = asyncio.create_task(_send(local, options))
    try:
        await (asyncio.Event().wait() if options.seconds is None else asyncio.sleep(options.seconds))
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(local: Local, options: Options) -> None:
    """Made-up traffic, to ready replicas only, as a Service would: any other would spoil the profile."""
    while not options.clients or not local.ready:
        await asyncio.sleep(0.2)
    load = Load([r.url for r in local.replicas], options.clients, options.traffic)
    await asyncio.gather(hold(load, asyncio.Event()), _complain(load, local))


async def _complain(load: Load, local: Local) -> None:
    """Say it once when requests are refused and none is answered: else the table only shows that nothing runs."""
    answered, refused, since = 0, 0, time.monotonic()
    while load.errors - refused <= load.clients or time.monotonic() - since < _UNANSWERED:
        if load.requests > answered:
            answered, refused, since = load.requests, load.errors, time.monotonic()
        await asyncio.sleep(0.5)
    local.tell(
        f"no made-up request is answered ({load.last_error}): correct what that says, or look into"
        f" {local.state.folder}/logs"
    )


async def run_while(local: Local, work: Coroutine[Any, Any, None]) -> bool:
    """Run `local` until `work` is done or a signal comes, then end everything in good order.

    Returns whether `work` was done. Raises LocalError when serving fails, and what `work` raises.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    running, working, stopping = map(asyncio.create_task, (local.run(), work, _wait(stop)))
    tasks = (working, running, stopping)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done = working.done()
    finally:
        for task in tasks:  # the work first: its requests end before their servers do
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for number in numbers:
            loop.remove_signal_handler(number)
    for task in (running, working):
        if not task.cancelled():
            task.result()
    return done


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


class Screen:
    """A live table where there is a terminal, and lines where there is none."""

    def __init__(self, console: Console, heading: str) -> None:
        self.heading = heading
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        )
        self._history: deque[View] = deque(maxlen=_HISTORY)

    def __enter__(self) -> Screen:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def tell(self, sentence: str) -> None:
        if self._live is None:
            self._console.print(
                f"{time.strftime('%H:%M:%S')}  {sentence}", markup=False, highlight=False, soft_wrap=True
            )

    def show(self, view: View) -> None:
        self._history.append(view)
        if self._live:
            self._live.update(render(view, self.heading, tuple(self._history)), refresh=True)
