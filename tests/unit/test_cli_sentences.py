"""Whatever a person meets on the command line is one sentence that says what to do."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from tests.unit.documents import GOOD
from typer.testing import CliRunner, Result

from specpilot.cli import app


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def refused(result: Result, status: int = 1) -> str:
    """The one sentence of a command that could not go on."""
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("specpilot: ")
    return lines[0].removeprefix("specpilot: ")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "flash.yaml").write_text(GOOD)
    return tmp_path / "flash.yaml"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        yield s.getsockname()[1]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "no.yaml"
    assert refused(run("up", file)) == f"{file} cannot be read (No such file or directory): check the path"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a: [",
            "is not YAML (line 1, column 5: expected the node content, but found '<stream end>'): correct it there",
        ),
        (
            "a: 1\n\tb: 2",
            "is not YAML (line 2, column 1: found character '\\t' that cannot start any token): correct",
        ),
        ("", "holds no SpeculativeDeployment objects: name a file with exactly one"),
        (f"{GOOD}\n---\n{GOOD}", "holds 2 SpeculativeDeployment objects: name a file with exactly one"),
        (GOOD.replace("maxTokens", "maxTokenz"), "spec.speculation.maxTokenz is not a field of this API"),
        (GOOD.replace("MTP", "Magic"), "spec.speculation.method"),
        (GOOD.replace(": 3", ": -1"), "spec.speculation.maxTokens"),
        (GOOD.replace("flash", "Flash_1"), "metadata.name"),
        (GOOD.replace("{name: flash}", "{name: flash, namespace: ../../x}"), "metadata.namespace"),
        (GOOD.replace("spec:", "tuning: {}\nspec:"), "tuning is not a field of this API"),
        (
            GOOD.replace("v0.33.0", "banana"),
            "spec.engine.image has a tag that does not tell vLLM's version: set spec.engine.vllmVersion",
        ),
        (GOOD + "  speculation: {}\n", "column 3: speculation stands twice in one place): correct it there"),
        (GOOD + "  podTemplate: {spec: {nodeSelector: {a: .nan}}}\n", "cannot be written as JSON"),
        ("a: " + "[" * 3000, "is nested too deep"),
        (GOOD + f"  profiling: {{grid: {{batchSizes: {list(range(1, 99))}}}}}\n", "has more than 16 items"),
        (GOOD + "  replicas: 4096\n", "too many for one machine: set at most 64"),
        (
            GOOD + "  podTemplate: {spec: {volumes: [{name: x, configMap: {}}], containers: [{name: vllm,"
            " volumeMounts: [{name: x, mountPath: /x}]}]}}\n",
            "spec.podTemplate makes no pod",
        ),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert words in refused(run("up", tmp_path / "f.yaml", "--engine", "sim", "--state", tmp_path / "s"))


def test_a_taken_port(good: Path, taken: int) -> None:
    state = good.parent / "state"
    sentence = refused(run("up", good, "--engine", "sim", "--port", str(taken), "--state", state))
    assert sentence == f"port {taken} cannot be had on 127.0.0.1: choose another with --port"


@pytest.mark.parametrize("port", ["0", "8000"])
@pytest.mark.parametrize("host", ["256.1.1.1", "no.such.host.invalid", "192.0.2.7"])
def test_an_address_that_is_not_of_this_machine(good: Path, host: str, port: str) -> None:
    state = good.parent / "state"
    sentence = refused(run("up", good, "--engine", "sim", "--host", host, "--port", port, "--state", state))
    assert sentence == f"nothing can listen on {host}: name an address of this machine with --host"


def test_no_vllm(good: Path) -> None:
    sentence = refused(run("up", good, "--state", good.parent / "s", "--python", "/no/python"))
    assert sentence == (
        "/no/python has no vLLM: name a Python that has it with --python, or use --engine sim to simulate it"
    )


def test_a_state_folder_that_cannot_be_made(good: Path) -> None:
    (good.parent / "file").touch()
    sentence = refused(run("up", good, "--engine", "sim", "--state", good.parent / "file" / "x"))
    assert sentence.endswith("name another folder with --state")


def test_a_state_folder_without_permission(good: Path) -> None:
    sentence = refused(run("up", good, "--engine", "sim", "--state", "/sys/specpilot"))
    assert re.fullmatch(
        r"/sys/specpilot cannot be used for state \([A-Z][a-z -]+\): name another folder with --state",
        sentence,
    )


def test_a_state_folder_on_a_full_disk(good: Path) -> None:
    """Not one byte can be written, as root neither."""
    state = good.parent / "state"
    command = [sys.executable, "-m", "specpilot.cli", "up", good, "--engine", "sim", "--state", state]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "operator:serving", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert done.returncode == 1
    assert re.fullmatch(
        rf"specpilot: \S*{state}\S* cannot be written \([A-Z][a-z ]+\): free some space, or name another folder with"
        r" --state\n",
        done.stderr,
    )


def test_a_duration_that_is_none(good: Path) -> None:
    sentence = refused(run("up", good, "--engine", "sim", "--for", "soon"), 2)
    assert sentence == "--for takes a duration such as 60s or 5m, not soon"


def test_a_kind_of_traffic_that_is_none(good: Path) -> None:
    sentence = refused(run("up", good, "--engine", "sim", "--traffic", "cod", "--state", good.parent / "s"))
    assert sentence == "--traffic takes chat, code, prose or mixed, not cod"


def test_a_subject_that_is_neither_file_nor_name() -> None:
    assert (
        refused(run("explain", "flash"), 2)
        == "flash is neither a file nor NAMESPACE/NAME: name one of the two"
    )


def test_an_explanation_before_any_run(good: Path) -> None:
    sentence = refused(run("explain", good, "--state", good.parent / "nothing"))
    assert sentence == (
        f"flash has not run with its state in {good.parent / 'nothing'}: start it with specpilot up {good} (add --engine"
        " sim where there is no vLLM), or name another --state"
    )


def test_no_cluster_to_explain_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "KUBECONFIG" in refused(run("explain", "llm/flash"))


def test_a_report_folder_that_cannot_be_made(good: Path) -> None:
    (good.parent / "file").touch()
    sentence = refused(run("demo", "--file", good, "--out", good.parent / "file" / "demo"))
    assert sentence.endswith("name another folder with --out")


def test_a_temporary_folder_that_cannot_be_made(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(good.parent / "nothing"))
    sentence = refused(run("demo", "--file", good, "--out", good.parent / "demo"))
    assert sentence == (
        "no temporary folder can be made (No such file or directory): free some space, or name another with TMPDIR"
    )


def test_a_wrong_option_is_told_by_its_name(good: Path) -> None:
    result = run("up", good, "--engine", "cuda")
    assert result.exit_code == 2
    assert "cuda" in result.output
    assert "sim" in result.output


@pytest.mark.parametrize("command", ["up", "explain", "demo", "crd", "operator"])
def test_help_has_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"  specpilot {command}" in result.output


def test_crd_prints_both_definitions() -> None:
    docs = list(yaml.safe_load_all(run("crd").stdout))
    assert [d["spec"]["names"]["kind"] for d in docs] == ["SpeculativeDeployment", "CostProfile"]


@pytest.mark.parametrize("words", [("version",), ("--version",), ("--version", "demo")], ids=" ".join)
def test_the_version_is_one_line_and_nothing_else_is_done(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 0
    assert result.stdout == f"{version('specpilot')}\n"


def test_help_imports_none_of_the_heavy_libraries() -> None:
    probe = (
        "import sys; from typer.testing import CliRunner; from specpilot.cli import app;"
        "CliRunner().invoke(app, ['--help']);"
        "print(sorted({'numpy','pydantic','kopf','kubernetes','plotly','httpx','aiohttp','yaml'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": "operator:serving"}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"
