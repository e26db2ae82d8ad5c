import pytest

from support.fake_objects import grace_seconds, matcher, merge_patch

WANT_MATCHES = {
    "": "abc",
    "app=x": "ab",
    "app==x": "ab",
    "app = x": "ab",
    "app!=x": "c",
    "app in (x)": "ab",
    "app in (y, x)": "ab",
    "app notin (x)": "c",
    "role": "b",
    "!role": "ac",
    "app=x,role": "b",
    "app in (x,y),!role": "a",
    "securebench.dev/run-uid=1-2": "c",
    "app=": "",
    "app in (z),role": "",
}
LABELS = {
    "a": {"app": "x"},
    "b": {"app": "x", "role": "h"},
    "c": {"securebench.dev/run-uid": "1-2"},
}


@pytest.mark.parametrize("selector", WANT_MATCHES)
def test_selectors(selector):
    matches = matcher(selector)

    assert "".join(name for name in "abc" if matches(LABELS[name])) == WANT_MATCHES[selector]


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "(", "a b", ",", "a=b,,c"])
def test_selectors_that_cannot_be_read(selector):
    with pytest.raises(ValueError, match="selector"):
        matcher(selector)


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        (None, {"a": 1}, {"a": 1}),
        ({}, {"a": None}, {}),
    ],
)
def test_merge_patch_of_rfc_7396(target, patch, want):
    assert merge_patch(target, patch) == want


def test_merge_patch_changes_nothing_in_place():
    target = {"a": {"b": 1}}
    patch = {"a": {"c": [1]}}

    merged = merge_patch(target, patch)
    merged["a"]["c"].append(2)

    assert (target, patch) == ({"a": {"b": 1}}, {"a": {"c": [1]}})


@pytest.mark.parametrize(
    ("spec", "phase", "wanted", "want"),
    [
        ({}, "Pending", 30, 0),
        ({"nodeName": "n"}, "Running", None, 30),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, "Running", None, 5),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, "Running", 1, 1),
        ({"nodeName": "n"}, "Succeeded", 30, 0),
        ({"nodeName": "n"}, "Failed", None, 0),
    ],
)
def test_grace_periods(spec, phase, wanted, want):
    assert grace_seconds({"spec": spec, "status": {"phase": phase}}, wanted) == want
