"""Whatever becomes of a profiler beside a serving engine, its pod may serve."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.engine.profiler_pod import JOB, PATIENCE, pod, until

from specpilot_engine import protocol
from specpilot_engine.protocol import ProfileRequest

__all__ = ["pod"]

WRONG = [
    (protocol.ENV_PROFILE_FILE, ""),
    (protocol.ENV_PROFILE_FILE, "/dev/null/points"),
    (protocol.ENV_OVERRIDE_FILE, ""),
    (protocol.ENV_PROFILER_PORT, "x"),
    (protocol.ENV_PROFILER_PORT, "99999"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_settings_end_a_job_with_a_status(pod, name, value):
    assert pod.profiler(JOB, **{name: value}).wait(PATIENCE) == 2


@pytest.mark.parametrize(
    ("name", "value"), [*WRONG, (protocol.ENV_PROFILE, "{}"), (protocol.ENV_PROFILE, "not JSON")]
)
def test_wrong_settings_do_not_keep_a_serving_pod_from_its_service(pod, name, value):
    process = pod.profiler(**{name: value})
    until(pod.may_serve.exists, "the pod to be ready")
    assert process.poll() is None  # a container that ends would take the pod out again
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_neither_does_a_taken_port(pod):
    with socket.socket() as s:
        s.bind(("", pod.profiler_port))
        s.listen()
        assert pod.profiler(JOB).wait(PATIENCE) == 2
        process = pod.profiler()
        until(pod.may_serve.exists, "the pod to be ready")
        assert process.poll() is None


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"data": []}', b"<html>", b"\xff\xfe", b'{"data": 3}']
)
def test_neither_does_an_engine_that_answers_nonsense(pod, answer):
    class Nonsense(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", pod.engine_port), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pod.profiler()
        profile = pod.finished()
        server.shutdown()
    assert profile["points"] == []
    assert "(4 points left out)" in profile["error"]
    until(pod.may_serve.exists, "the pod to be ready")


def test_neither_does_a_profiler_that_is_killed_again_and_again(pod):
    pod.engine()
    for _ in range(3):
        process = pod.profiler(ProfileRequest("k", (0,), (1,), (512,), 10_000, 0, 120.0))
        until(pod.override.exists, "the override")
        process.kill()
        process.wait()
        pod.override.unlink()
        assert not pod.may_serve.exists()
    pod.profiler(ProfileRequest("k", (0,), (1,), (512,), 10_000, 0, 120.0))
    assert "was killed 3 times while it measured: raise its memory limit" in pod.finished()["error"]
    until(pod.may_serve.exists, "the pod to be ready")
