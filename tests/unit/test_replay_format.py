"""World files: what is read, and one sentence for each thing that is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay_small import PHASE, document, small

from specpilot.replay.world import WorldError, parse_world, read_world


def phase(**changes: Any) -> dict[str, Any]:
    """document()'s only phase with other fields; None takes one out."""
    return {"phases": [{k: v for k, v in {**PHASE, **changes}.items() if v is not None}]}


def test_the_documented_example_is_a_world() -> None:
    page = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text()
    world = parse_world(page.split("```json")[1].split("```")[0])
    assert (world.name, world.depths, world.max_batch, world.seconds) == ("figure-3", (0, 1, 3), 64, 1200)
    assert world.phases[1].mix == {"chat": 0.3, "code": 0.7}


def test_what_is_left_out_has_a_default() -> None:
    world = small()
    assert (world.scrape_seconds, world.step_noise, world.window_noise, world.profile) == (
        15,
        0.05,
        0.01,
        None,
    )
    assert (world.phases[0].context, world.phases[0].traffic_per_request) == (8192, False)


def test_shares_within_a_hundredth_of_1_are_made_to_add_up() -> None:
    mix = small(**phase(traffic={"code": 0.33, "prose": 0.66})).phases[0].mix
    assert mix == pytest.approx({"code": 1 / 3, "prose": 2 / 3})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"depths": [0, 3, 1]}, "depths must rise from one to the next, not [0, 3, 1]: sort them"),
    ({"batches": [8, 1, 16]}, "batches must rise from one to the next, not [8, 1, 16]: sort them"),
    ({"depths": []}, "depths is empty: give at least one"),
    ({"step_time_ms": [[1, 2, 3]]}, "step_time_ms has 1 rows for 3 depths: give one row a depth"),
    (
        {"step_time_ms": [[1, 2, 3], [1, 2], [1, 2, 3]]},
        "step_time_ms[1] has 2 times for 3 batches: give one time a batch",
    ),
    (
        {"step_time_ms": [[1, 2, 3], [1, 2, -3], [1, 2, 3]]},
        "step_time_ms[1][2] should be greater than 0, not -3: correct it",
    ),
    (
        {"traffic": {"code": {"survival": [0.8, 0.6]}}},
        "traffic.code.survival has 2 slots but depths go to 3: give one value a slot",
    ),
    (
        {"traffic": {"code": {"survival": [0.6, 0.8, 0.4]}}},
        "traffic.code has a survival that rises: it is the probability that a slot and all before it are"
        " emitted, so give values that never rise",
    ),
    (
        {"traffic": {"code": {"survival": [1.2, 0.8, 0.4]}}},
        "traffic.code.survival[0] should be less than or equal to 1, not 1.2: correct it",
    ),
    (
        phase(traffic={"poems": 1.0}),
        "phases[0].traffic names 'poems', which traffic does not describe (known: code, prose): add its"
        " survival or correct the name",
    ),
    (
        phase(traffic={"code": 0.5}),
        "phases[0] has traffic that adds up to 0.5: make the shares add up to 1",
    ),
    (
        phase(rate=2.0, output_tokens=100),
        "phases[0] has both requests and rate: give exactly one of the two",
    ),
    (phase(requests=None), "phases[0] has neither requests and rate: give exactly one of the two"),
    (
        phase(requests=None, rate=2.0),
        "phases[0] has a rate without output_tokens: add the mean length of an answer",
    ),
    (phase(seconds=0), "phases[0].seconds should be greater than 0, not 0: correct it"),
    (phase(seconds=None), "phases[0].seconds is missing: add it"),
    (
        phase(request=8),
        "phases[0].request is not a field of a world: correct its name, perhaps to requests, or take it out",
    ),
    (phase(requests=8.5), "phases[0].requests should be a valid integer, not 8.5: correct it"),
    (
        {"context_factor": {"long": 1.3}},
        "context_factor has the key 'long': name a context length in tokens, such as 8192",
    ),
    ({"phases": []}, "phases is empty: give at least one"),
    ({"scrape_seconds": 0}, "scrape_seconds should be greater than 0, not 0: correct it"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG, ids=lambda x: x[:40] if isinstance(x, str) else "")
def test_what_is_wrong_is_said_in_one_sentence_with_the_field_and_the_fix(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(WorldError) as e:
        parse_world(json.dumps(document(**changes)))
    assert str(e.value) == sentence


def test_a_file_that_is_no_world_is_named(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    with pytest.raises(WorldError, match=r"world.json cannot be read \(No such file or directory\): name a"):
        read_world(file)
    file.write_text("{,}")
    with pytest.raises(WorldError, match=r"world.json: it is not JSON \(.*line 1 column 2"):
        read_world(file)
    file.write_text("[]")
    with pytest.raises(WorldError, match=r"world.json: a world .*, not \[\]: correct it"):
        read_world(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(WorldError, match=r"world\.json is not text"):
        read_world(file)
