"""A status that the cluster's CRD has no place for is told as far as it goes."""

from __future__ import annotations

from specpilot.cluster.missing import TRIED_AGAIN, Missing

STATUS = {"ready": "1/1", "arm": {"inForce": "a", "better": "b"}, "conditions": []}
REFUSED = (
    "apply of SpeculativeDeployment flash: failed to create typed patch object (a/flash;"
    " specpilot.io/v1alpha1, Kind=SpeculativeDeployment): .status.{}: field not declared in schema"
)


def test_a_field_that_is_refused_is_left_out_and_tried_again_later() -> None:
    missing = Missing()
    assert missing.without(STATUS, 0) == STATUS
    assert missing.learn(REFUSED.format("arm.better"), STATUS, 0)
    assert missing.learn(REFUSED.format("ready"), STATUS, 1)
    assert missing.without(STATUS, 2) == {"arm": {"inForce": "a"}, "conditions": []}
    assert missing.without(STATUS, TRIED_AGAIN + 0.5) == {k: v for k, v in STATUS.items() if k != "ready"}
    assert STATUS["arm"] == {"inForce": "a", "better": "b"}


def test_a_field_that_was_written_is_missing_no_longer() -> None:
    missing = Missing()
    missing.learn(REFUSED.format("arm.better"), STATUS, 0)
    missing.forget(missing.without(STATUS, 1))
    assert set(missing.until) == {("arm", "better")}
    missing.forget(STATUS)
    assert missing.until == {}


def test_another_refusal_teaches_nothing() -> None:
    missing = Missing()
    assert not missing.learn("apply of SpeculativeDeployment flash: exceeded quota", STATUS, 0)
    assert not missing.learn(REFUSED.format("speculation"), STATUS, 0)  # it was not said
    assert missing.until == {}
