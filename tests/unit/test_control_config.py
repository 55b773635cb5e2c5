"""The operator's configuration: every problem is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.config import ConfigError, load


def write(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "operator.yaml"
    path.write_text(text)
    return {"SPECPILOT_CONFIG": str(path)}


def test_without_a_file_everything_has_a_default() -> None:
    config = load({"POD_NAMESPACE": "ops", "POD_NAME": "specpilot-0"})
    assert (config.namespace, config.identity, config.tick, config.prometheus) == (
        "ops",
        "specpilot-0",
        5,
        [],
    )


def test_nobody_holds_the_lease_under_no_name(tmp_path: Path) -> None:
    assert load({**write(tmp_path, 'identity: ""\n'), "POD_NAME": "specpilot-0"}).identity == "specpilot-0"
    assert load({**write(tmp_path, "identity: me\n"), "POD_NAME": "specpilot-0"}).identity == "me"
    assert load(write(tmp_path, "identity:\n")).identity


def test_durations_are_numbers_of_seconds_or_text(tmp_path: Path) -> None:
    config = load(
        write(tmp_path, "tick: 500ms\nlease: {duration: 15s, renewDeadline: 10, retryPeriod: 2s}\n")
    )
    assert (config.tick, config.lease.duration, config.lease.renew_deadline) == (0.5, 15, 10)


def test_an_endpoint_is_read_whole(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    config = load(
        write(
            tmp_path,
            f"prometheus:\n- {{name: main, url: 'https://prom:9090', tokenFile: {token}, insecureSkipVerify: true}}\n",
        )
    )
    (endpoint,) = config.prometheus
    assert (endpoint.name, endpoint.url, endpoint.token_file, endpoint.insecure_skip_verify) == (
        "main",
        "https://prom:9090",
        token,
        True,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tik: 5\n", "tik is not a field of the configuration"),
        ("tick: often\n", "tick: not a duration: 'often'"),
        ("tick: -1\n", "tick: input should be greater than 0"),
        ("prometheus: [{name: main, url: 'prom:9090'}]\n", "prometheus.0.url"),
        (
            "prometheus: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]\n",
            "two endpoints of one name (a): rename one",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', tokenFile: /nowhere/token}]\n",
            "/nowhere/token, which cannot be read",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', headers: {'X Tenant': a}}]\n",
            "prometheus.0.headers: holds 'X Tenant', which is no name of a header: correct it",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', headers: {authorization: Basic abc}}]\n",
            "holds authorization, which the operator sets itself: use tokenFile",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', headers: {X-Tenant: \"a\\nb\"}}]\n",
            "has a value for X-Tenant that is not one line of printable ASCII: correct it",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', headers: {X-T: a}, headerFiles: {x-t: /etc/hostname}}]\n",
            "sets the header x-t twice: remove one",
        ),
        (
            "prometheus: [{name: a, url: 'http://x', headerFiles: {X-T: /nowhere/tenant}}]\n",
            "names headerFiles.X-T /nowhere/tenant, which cannot be read",
        ),
        ("lease: {duration: 5, renewDeadline: 10}\n", "needs retryPeriod < renewDeadline < duration"),
        ("- a\n- b\n", "fields such as engineImage"),
        ("{tick", "is not YAML"),
        ("5: 6\n", "one mapping of fields such as engineImage"),
        ("tick: 1\n---\ntick: 2\n", "one mapping of fields"),
        ("tick: 1\ntick: 2\n", "line 2, column 1: tick stands twice in one place): correct it."),
    ],
)
def test_a_problem_is_a_sentence_that_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, text))
    (problem,) = error.value.problems
    assert said in problem
    assert problem.endswith(".")


@pytest.mark.parametrize("name", ["Authorization", "Ho st", "X-Ok"])
def test_no_header_value_is_ever_told(tmp_path: Path, name: str) -> None:
    text = f"prometheus: [{{name: a, url: 'http://x', timeout: -1, headers: {{'{name}': hunter2}}}}]\n"
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, text))
    assert "hunter2" not in str(error.value)
    sound = load(write(tmp_path, text.replace("timeout: -1, ", "").replace(name, "X-Ok")))
    assert sound.prometheus[0].headers == {"X-Ok": "hunter2"}
    assert "hunter2" not in repr(sound)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, "tick: 0\nworkers: 0\n"))
    assert len(error.value.problems) == 2


def test_a_missing_file_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"check \$SPECPILOT_CONFIG"):
        load({"SPECPILOT_CONFIG": "/nowhere/operator.yaml"})
