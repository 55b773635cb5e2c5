"""How the simulated server refuses to start."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specpilot_engine.protocol import ENV_SIM


def start(*arguments: str, **world) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": "serving", ENV_SIM: json.dumps(world)}
    command = [sys.executable, "-m", "specpilot_engine.sim", *arguments]
    return subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "world", "status", "message"),
    [
        ([], {"fail": {"start": True}}, 1, "fails to start"),
        ([], {"speed": 1}, 2, "unknown setting 'speed'"),
        (["--speculative-config", '{"method": "mtp"}'], {}, 1, "num_speculative_tokens must be"),
        (["--speculative-config", "{"], {}, 2, "not JSON"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_a_status(arguments, world, status, message):
    end = start(*arguments, **world)
    assert end.returncode == status
    assert message in end.stderr
    assert "Traceback" not in end.stderr


def test_a_taken_port_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        end = start("--host", "127.0.0.1", "--port", str(taken.getsockname()[1]))
    assert end.returncode == 1
    assert "give another --port" in end.stderr
    assert "Traceback" not in end.stderr
