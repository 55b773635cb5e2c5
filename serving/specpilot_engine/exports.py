"""The read-only HTTP port of the engine package: counters, state, recent steps.

On a port and in a text format of its own: under API-server scale-out vLLM merges the
prometheus_client counters of all its processes into its own /metrics, where ours would be scraped
a second time. A port that cannot be had is reported in the log and changes nothing else.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from specpilot_engine import protocol
from specpilot_engine.protocol import ModelShape, Pairs, Schedule, state_document
from specpilot_engine.record import Recorder
from specpilot_engine.trial import TrialRun
from specpilot_engine.trim import Trimmer

log = logging.getLogger(__name__)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
CLIENT_SECONDS = 10.0  # a client that neither sends nor reads for so long is dropped


@dataclass(frozen=True, slots=True)
class Reply:
    """What a route answers."""

    body: str
    content_type: str = TEXT
    status: int = 200


Query = Mapping[str, str]
Routes = Mapping[str, Callable[[Query], Reply]]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What the engine says about itself at one moment: the arguments of `state_document`, and more."""

    live: bool
    reason: str = ""
    schedule: Schedule | None = None
    file_error: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    whole_drafts: str = ""  # why drafts are never cut; not of the state document, nor is the shape
    shape: ModelShape | None = None
    adaptive: int = 0  # drafts of which vLLM itself sizes what is verified; 0: it verifies all


def engine_routes(recorder: Recorder, status: Callable[[], EngineStatus]) -> Routes:
    """The three paths of the protocol's PORT."""

    def metrics(_query: Query) -> Reply:
        return Reply(metrics_text(recorder, status()))

    def state(_query: Query) -> Reply:
        s = status()
        run = _trial(recorder, s)
        trial = run.as_json() if run else None
        about = (s.live, s.reason, s.schedule, s.file_error, s.versions)
        return json_reply(state_document(*about, trial, s.adaptive))

    def steps(query: Query) -> Reply:
        text = query.get("since", "0")
        if not text.isdecimal():
            return json_reply({"error": "since must be a sequence number"}, 400)
        return json_reply({"steps": [s.as_json() for s in recorder.samples(int(text))]})

    return {protocol.METRICS_PATH: metrics, protocol.STATE_PATH: state, protocol.STEPS_PATH: steps}


def json_reply(value: Any, status: int = 200) -> Reply:
    """`value` as a JSON answer."""
    return Reply(json.dumps(value, separators=(",", ":")), JSON, status)


def metrics_text(recorder: Recorder, status: EngineStatus) -> str:
    """Prometheus text exposition of all series of the protocol."""
    cells = recorder.exported_cells()
    generation = status.schedule.generation if status.schedule else 0
    columns = (
        (protocol.M_STEPS, "Clean decode steps.", "steps"),
        (protocol.M_SECONDS, "Seconds in clean decode steps.", "seconds"),
        (protocol.M_REQUESTS, "Running requests summed over clean steps.", "requests"),
        (protocol.M_EMITTED, "Tokens emitted in clean steps.", "emitted"),
        (protocol.M_CONTEXT, "Context tokens summed over the requests of clean steps.", "context"),
    )
    live = [({"reason": status.reason}, float(status.live))]
    lines = [
        *_series(protocol.M_LIVE, "gauge", "1 while the draft depth can be changed live.", live),
        *_series(protocol.M_GENERATION, "gauge", "Schedule generation in force.", [({}, generation)]),
        *_series(protocol.M_ALL_STEPS, "counter", "Every step, clean or not.", [({}, recorder.all_steps)]),
        *_series(
            protocol.M_EXPLORED_STEPS,
            "counter",
            "Steps taken to explore another depth.",
            [({}, recorder.explored_steps)],
        ),
        *_series(
            protocol.M_EXPLORATION,
            "gauge",
            "Share of goodput that exploring cost lately.",
            [({}, recorder.exploration_share)],
        ),
        *_shape_series(status.shape),
        *_trial_series(_trial(recorder, status)),
        *_budget_series(recorder.trimmer, status),
    ]
    for name, text, attribute in columns:
        samples = [({"k": k, "batch": b}, getattr(cell, attribute)) for (k, b), cell in cells.items()]
        lines += _series(name, "counter", text, samples)
    for name, text, counts in (
        (protocol.M_DRAFTED, "Drafts that had this position.", recorder.drafted()),
        (protocol.M_ACCEPTED, "Drafts accepted at this position.", recorder.accepted()),
    ):
        lines += _series(name, "counter", text, [({"position": i}, n) for i, n in enumerate(counts)])
    return "\n".join(lines) + "\n"


def _trial(recorder: Recorder, status: EngineStatus) -> TrialRun | None:
    """The trial of the schedule in force: an earlier one's is left behind only at the next step."""
    run, schedule = recorder.trial, status.schedule
    return run if run and schedule and run.generation == schedule.generation else None


def _trial_series(run: TrialRun | None) -> list[str]:
    """The first series says that this engine can compare schedules; the others stand while it does."""
    pairs = run.pairs if run else Pairs()
    rows = [(protocol.M_TRIAL_PAIRS, "Pairs of slices compared in a trial.", pairs.count)]
    if run is not None:
        rows += [
            (protocol.M_TRIAL_GENERATION, "Generation on trial.", run.generation),
            (protocol.M_TRIAL_GAIN, "Log ratios of goodput of the pairs, summed.", pairs.total),
            (protocol.M_TRIAL_SQUARES, "Their squares, summed.", pairs.squares),
            (protocol.M_TRIAL_RUNNING, "1 while two schedules alternate.", float(run.running)),
        ]
    return [line for name, text, value in rows for line in _series(name, "gauge", text, [({}, value)])]


def _shape_series(shape: ModelShape | None) -> list[str]:
    text = "What a step of this model reads and computes, on one device."
    return _series(protocol.M_SHAPE, "gauge", text, [(shape.labels(), 1.0)]) if shape else []


def _budget_series(trimmer: Trimmer | None, status: EngineStatus) -> list[str]:
    """Nothing without a budget in the schedule; where this engine cannot keep one, the reason alone."""
    if status.schedule is None or status.schedule.budget.price <= 0:
        return []
    cutting = trimmer is not None and trimmer.cutting
    state = [({"reason": status.whole_drafts}, float(cutting))]
    lines = _series(protocol.M_BUDGET, "gauge", "1 while drafts are cut before they are verified.", state)
    if trimmer is not None:
        for name, text, value in (
            (protocol.M_ROWS_VERIFIED, "Draft rows verified.", trimmer.rows_verified),
            (protocol.M_ROWS_TRIMMED, "Draft rows drafted and not verified.", trimmer.rows_trimmed),
            (protocol.M_PROBES, "Steps verified whole while drafts are cut.", trimmer.probes),
        ):
            lines += _series(name, "counter", text, [({}, value)])
    return lines


def _series(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, Any], float]]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escape(str(v))}"' for key, v in labels.items())
        lines.append(f"{name}{{{inner}}} {value!r}" if inner else f"{name} {value!r}")
    return lines


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, routes: Routes, family: socket.AddressFamily) -> None:
        self.routes = routes
        self.address_family = family
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it looks the host's name up, which can take seconds without DNS.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, *_client: Any) -> None:
        log.debug("specpilot: a client of the export port went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        route = self.server.routes.get(url.path)
        if route is None:
            reply = Reply("not found\n", status=404)
        else:
            try:
                reply = route(dict(parse_qsl(url.query)))
            except Exception:
                log.exception("specpilot: answering %s failed", url.path)
                reply = Reply("internal error\n", status=500)
        body = reply.body.encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: probes and scrapes would fill the engine's log."""


def _open(host: str, port: int, routes: Routes) -> _Server:
    """Without a host one socket for both address families: a pod may have either. Raises OSError or OverflowError."""
    if host:
        return _Server(host, port, routes, socket.AF_INET6 if ":" in host else socket.AF_INET)
    if socket.has_dualstack_ipv6():
        try:
            return _Server("", port, routes, socket.AF_INET6)
        except OSError as e:
            # Known to the kernel but switched off, as in many containers.
            if e.errno == errno.EADDRINUSE:
                raise
    return _Server("", port, routes, socket.AF_INET)


class ExportServer:
    """Serves `routes` from daemon threads on `port` (0: any free one, then in `port`), at the address that ENV_HOST
    names.

    `setting` names the environment variable by which another port is chosen.
    """

    def __init__(self, port: int, routes: Routes, setting: str = protocol.ENV_PORT) -> None:
        self.port = port
        self._routes = routes
        self._setting = setting
        self._server: _Server | None = None

    def start(self) -> str:
        """Begin to serve; returns "" or why the port could not be had. Never raises OSError."""
        try:
            self._server = _open(os.environ.get(protocol.ENV_HOST, ""), self.port, self._routes)
        except (OSError, OverflowError) as e:
            error = f"port {self.port} cannot be served ({e}); choose another with {self._setting}"
            log.error("specpilot: %s", error)
            return error
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="specpilot-exports", daemon=True).start()
        return ""

    def stop(self) -> None:
        """Close the port; harmless when it never opened."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
