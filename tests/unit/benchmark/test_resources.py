import pytest

from securebench.benchmark.resources import (
    REDACTED,
    Lane,
    Resource,
    ResourceBundle,
    ResourceError,
    string_leaves,
)

QUESTION = Resource("question", Lane.PUBLIC, "text", "Which sea?")
TESTS = Resource("tests", Lane.EVALUATION_INPUTS, "json", {"code": "assert True"})
ANSWER = Resource("answer", Lane.HIDDEN, "text", "Kara")
BUNDLE = ResourceBundle((QUESTION, TESTS, ANSWER))

VIEWS = {
    "agent": {"question": "Which sea?"},
    "test_sandbox": {"question": "Which sea?", "tests": {"code": "assert True"}},
    "evaluator": {"question": "Which sea?", "answer": "Kara"},
    "result": {"question": "Which sea?", "tests": REDACTED, "answer": REDACTED},
}


@pytest.mark.parametrize("component", VIEWS)
def test_view_for(component):
    assert BUNDLE.view_for(component) == VIEWS[component]


def test_payload_methods_are_views():
    assert BUNDLE.agent_payload() == BUNDLE.public_payload() == VIEWS["agent"]
    assert BUNDLE.evaluation_payload() == VIEWS["test_sandbox"]
    assert BUNDLE.hidden_payload() == VIEWS["evaluator"]


def test_views_are_copies():
    BUNDLE.evaluation_payload()["tests"]["code"] = "changed"
    BUNDLE.value("tests")["code"] = "changed"
    assert BUNDLE.value("tests") == {"code": "assert True"}


def test_summary_keeps_order_and_hides_values():
    assert BUNDLE.resource_summary() == [
        {"name": "question", "visibility": "public", "kind": "text", "value": "Which sea?"},
        {"name": "tests", "visibility": "evaluation_inputs", "kind": "json", "redacted": True},
        {"name": "answer", "visibility": "hidden", "kind": "text", "redacted": True},
    ]


def test_lookups():
    assert BUNDLE.get("answer") is ANSWER
    assert BUNDLE.get("nothing") is None
    assert BUNDLE.value("nothing") is None
    assert BUNDLE.in_lane(Lane.HIDDEN) == (ANSWER,)
    assert list(BUNDLE) == [QUESTION, TESTS, ANSWER]
    assert len(BUNDLE) == 3


REFUSED = {
    "unknown lane": (lambda: Resource("a", "secret", "text", "x"), "visibility"),
    "duplicate": (lambda: ResourceBundle((ANSWER, ANSWER)), "duplicate"),
    "key mismatch": (lambda: ResourceBundle.from_mapping({"other": ANSWER}), "does not match"),
    "unknown component": (lambda: BUNDLE.view_for("courier"), "component"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_value_error(case):
    build, want_text = REFUSED[case]
    with pytest.raises(ValueError, match=want_text) as caught:
        build()
    assert isinstance(caught.value, ResourceError)


def test_from_mapping_keeps_resources():
    assert ResourceBundle.from_mapping({"answer": ANSWER}).resources == (ANSWER,)


def test_lane_name_becomes_lane():
    assert Resource("a", "hidden", "text", "x").visibility is Lane.HIDDEN


def test_string_leaves_go_through_maps_and_lists_without_keys():
    value = {"key": ["a", {"b": "c"}, 1, None, True], "other": ("d",)}
    assert string_leaves(value) == ("a", "c", "d")
