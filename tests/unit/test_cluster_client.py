"""What is sent to the API server."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as some

from specpilot.cluster.client import apply_patch

# Halves of surrogate pairs are no characters, and no API server has any.
TEXT = some.text(some.characters(exclude_categories=["Cs"]))


@given(some.dictionaries(TEXT, TEXT))
def test_an_apply_patch_is_the_same_in_json_and_in_yaml(data: dict[str, str]) -> None:
    patch = apply_patch({"data": data})
    assert json.loads(patch) == {"data": data}
    assert yaml.safe_load(patch) == {"data": data}


def test_an_emoji_is_sent_as_it_is_and_what_is_no_character_is_replaced() -> None:
    assert apply_patch({"a": "\U0001f680"}) == '{"a": "\U0001f680"}'.encode()
    assert json.loads(apply_patch({"a": "\ud83d!\udc00"})) == {"a": "\ufffd!\ufffd"}
