"""The export port, spoken to over HTTP."""

import errno
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from specpilot_engine import protocol
from specpilot_engine.exports import EngineStatus, ExportServer, Reply, _Server, engine_routes, metrics_text
from specpilot_engine.protocol import MAX_SERIES, ModelShape, Pairs, Schedule, Step, Trial, parse_shape
from specpilot_engine.record import Recorder
from specpilot_engine.trial import TrialRun

SCHEDULE = Schedule(7, (Step(8, 3), Step(64, 1)))


def recorded() -> Recorder:
    recorder = Recorder(5)
    for batch in (1, 2, 4, 8, 16, 32, 64):
        for k in (0, 1, 3, 5):
            recorder.clean_step(k, batch, 100 * batch, 0.25, batch)
    recorder.draft_lengths[5] += 10
    recorder.accepted_lengths[2] += 10
    recorder.all_steps, recorder.explored_steps, recorder.exploration_share = 40, 4, 0.002
    return recorder


def parsed(text: str) -> dict[tuple[str, ...], float]:
    return {
        (s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_prometheus_reads_what_was_recorded():
    series = parsed(metrics_text(recorded(), EngineStatus(True, "", SCHEDULE)))
    assert series[protocol.M_LIVE, "reason="] == 1
    assert series[(protocol.M_GENERATION,)] == 7
    assert series[(protocol.M_ALL_STEPS,)] == 40
    assert series[(protocol.M_EXPLORED_STEPS,)] == 4
    assert series[(protocol.M_EXPLORATION,)] == 0.002
    assert series[protocol.M_STEPS, "batch=64", "k=5"] == 1
    assert series[protocol.M_SECONDS, "batch=64", "k=5"] == 0.25
    assert series[protocol.M_REQUESTS, "batch=64", "k=5"] == 64
    assert series[protocol.M_EMITTED, "batch=64", "k=5"] == 64
    assert series[protocol.M_CONTEXT, "batch=64", "k=5"] == 6400
    assert [series[protocol.M_DRAFTED, f"position={i}"] for i in range(5)] == [10] * 5
    assert [series[protocol.M_ACCEPTED, f"position={i}"] for i in range(5)] == [10, 10, 0, 0, 0]
    assert len(series) <= MAX_SERIES


def test_a_trial_is_exported_while_its_schedule_is_in_force_and_within_the_limit():
    trial = Trial((Step(64, 0),), slice=8, pairs=60)
    recorder, on_trial = recorded(), Schedule(8, SCHEDULE.steps, trial=trial)
    recorder.trial = TrialRun(trial, 8, Pairs(6, -0.3, 0.02))
    series = parsed(metrics_text(recorder, EngineStatus(True, "", on_trial)))
    assert series[(protocol.M_TRIAL_PAIRS,)] == 6
    assert series[(protocol.M_TRIAL_GENERATION,)] == 8
    assert series[(protocol.M_TRIAL_GAIN,)] == -0.3
    assert series[(protocol.M_TRIAL_SQUARES,)] == 0.02
    assert series[(protocol.M_TRIAL_RUNNING,)] == 1
    assert len(series) <= MAX_SERIES
    after = parsed(metrics_text(recorder, EngineStatus(True, "", SCHEDULE)))
    assert after[(protocol.M_TRIAL_PAIRS,)] == 0
    assert (protocol.M_TRIAL_GENERATION,) not in after


def test_the_models_shape_is_one_series_within_the_limit():
    trial = Trial((Step(64, 0),), slice=8, pairs=60)
    recorder, on_trial = recorded(), Schedule(8, SCHEDULE.steps, trial=trial)
    recorder.trial = TrialRun(trial, 8, Pairs(6, -0.3, 0.02))
    shape = ModelShape(1.5e10, 1.5e10, 32, device="cuda", device_name='an "odd" name', full_bytes=131100.0)
    text = metrics_text(recorder, EngineStatus(True, "", on_trial, shape=shape))
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    (told,) = (s for s in samples if s.name == protocol.M_SHAPE)
    assert (told.value, parse_shape(told.labels)) == (1, shape)
    assert len(samples) <= MAX_SERIES
    assert protocol.M_SHAPE not in metrics_text(recorder, EngineStatus(True, "", on_trial))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_reason_survives_the_text_format(reason):
    text = metrics_text(Recorder(1), EngineStatus(False, reason, SCHEDULE))
    (family,) = (f for f in text_string_to_metric_families(text) if f.name == protocol.M_LIVE)
    assert family.samples[0].labels["reason"] == reason
    assert family.samples[0].value == 0


@pytest.fixture
def server() -> Iterator[ExportServer]:
    def broken(_query: object) -> Reply:
        raise RuntimeError("broken")

    status = EngineStatus(True, "", SCHEDULE, "schedule file: not JSON", {"vllm": "0.33.0"})
    routes = {**engine_routes(recorded(), lambda: status), "/broken": broken}
    server = ExportServer(0, routes)
    assert server.start() == ""
    yield server
    server.stop()


def get(server: ExportServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as reply:
        return reply.read().decode()


def test_the_state_is_the_protocols_document(server):
    state = json.loads(get(server, protocol.STATE_PATH))
    assert state == protocol.state_document(True, "", SCHEDULE, "schedule file: not JSON", {"vllm": "0.33.0"})
    assert state["hash"] == SCHEDULE.hash


def test_steps_are_listed_from_the_one_asked_for(server):
    steps = json.loads(get(server, protocol.STEPS_PATH + "?since=26"))["steps"]
    assert steps == [[27, 3, 64, 100.0, 0.25], [28, 5, 64, 100.0, 0.25]]


def test_metrics_are_served_as_text(server):
    assert get(server, protocol.METRICS_PATH).startswith("# HELP specpilot_")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing", 404), ("/broken", 500), (protocol.STEPS_PATH + "?since=-1", 400)],
)
def test_what_cannot_be_answered_is_a_status_and_the_port_goes_on(server, path, status):
    with pytest.raises(urllib.error.HTTPError) as error:
        get(server, path)
    assert error.value.code == status
    assert get(server, protocol.METRICS_PATH)


def test_nothing_can_be_written_through_the_port(server):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=10)
    assert error.value.code == 501


def test_a_taken_port_is_told_and_not_raised(server):
    second = ExportServer(server.port, {})
    error = second.start()
    assert error.startswith(f"port {server.port} cannot be served")
    assert protocol.ENV_PORT in error
    second.stop()


def test_where_ipv6_is_switched_off_the_port_opens_without_it(monkeypatch):
    bind = _Server.server_bind

    def refuse_ipv6(self: _Server) -> None:
        if self.address_family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "switched off")
        bind(self)

    monkeypatch.setattr(_Server, "server_bind", refuse_ipv6)
    server = ExportServer(0, {"/x": lambda _query: Reply("here")})
    assert server.start() == ""
    assert get(server, "/x") == "here"
    server.stop()


@pytest.mark.parametrize(("host", "others"), [("127.0.0.1", False), ("", True)])
def test_it_listens_on_the_address_that_it_is_given_alone(host, others, monkeypatch):
    monkeypatch.setenv(protocol.ENV_HOST, host)
    server = ExportServer(0, {"/x": lambda _query: Reply("here")})
    assert server.start() == ""
    assert get(server, "/x") == "here"
    with socket.socket() as s:
        assert (s.connect_ex(("127.0.0.2", server.port)) == 0) is others
    server.stop()


def test_a_number_that_is_no_port_is_told_and_not_raised():
    assert ExportServer(70_000, {}).start().startswith("port 70000 cannot be served")
