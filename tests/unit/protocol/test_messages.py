import pytest

from securebench.protocol.messages import decode_object, decode_value

GOOD = {
    "empty": ("{}", {}),
    "bytes": (b'{"a": 1.5}', {"a": 1.5}),
    "nested": ('{"a": {"b": [1, null, true]}}', {"a": {"b": [1, None, True]}}),
    "same key in other objects": ('{"a": {"a": 1}}', {"a": {"a": 1}}),
}

BAD = {
    "empty": ("", "Expecting value"),
    "trailing": ("{} {}", "Extra data"),
    "array": ("[]", "not an object"),
    "text": ('"{}"', "not an object"),
    "duplicate": ('{"a": 1, "a": 1}', "duplicate key"),
    "duplicate inside": ('{"x": [{"a": 1, "a": 2}]}', "duplicate key"),
    "not a number": ('{"a": NaN}', "NaN is no number"),
    "infinity": ('{"a": -Infinity}', "-Infinity is no number"),
    "overflow": ('{"a": 1e999}', "1e999 is no number"),
    "half a character": ('{"a": "\\ud800"}', "surrogates not allowed"),
    "no UTF-8": (b'{"a": "\xff"}', "invalid start byte"),
    "byte-order mark": (b"\xef\xbb\xbf{}", "BOM"),
    "other encoding": ("{}".encode("utf-16"), "utf-8"),
    "too deep": ("[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", GOOD)
def test_objects(case):
    text, want = GOOD[case]
    assert decode_object(text) == want


@pytest.mark.parametrize("case", BAD)
def test_everything_else_is_refused(case):
    text, want_reason = BAD[case]
    with pytest.raises(ValueError, match=want_reason):
        decode_object(text)


def test_a_value_may_be_a_list_and_hold_half_a_character():
    assert decode_value('[{"a": "\\ud800"}]') == [{"a": "\ud800"}]


@pytest.mark.parametrize("case", ["duplicate", "overflow", "byte-order mark", "too deep"])
def test_values_are_as_strict(case):
    text, want_reason = BAD[case]
    with pytest.raises(ValueError, match=want_reason):
        decode_value(text)
