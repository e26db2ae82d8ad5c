import pytest

from securebench.run.observe.launches import is_noisy, usage_text

MIB = 1024**2
CASES = {
    "nothing is known": ({}, "1Gi", False, ()),
    "far from its limit": ({"memory_peak_bytes": 100 * MIB}, "1Gi", False, ("100.0 MiB",)),
    "near its limit": ({"memory_peak_bytes": 980 * MIB}, "1Gi", True, ("980.0 MiB", "near")),
    "without a limit": ({"memory_peak_bytes": 980 * MIB}, None, False, ("980.0 MiB",)),
    "a limit that is none": ({"memory_peak_bytes": 980 * MIB}, "much", False, ("980.0 MiB",)),
    "throttled now and then": ({"cpu_periods": 100, "cpu_throttled": 24}, "1Gi", False, ("24 of",)),
    "throttled much": ({"cpu_periods": 100, "cpu_throttled": 25}, "1Gi", True, ("25 of", "near")),
    "throttled in a moment": ({"cpu_periods": 9, "cpu_throttled": 9}, "1Gi", False, ("9 of",)),
    "never throttled": ({"cpu_periods": 100, "cpu_throttled": 0}, "1Gi", False, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_container(name: str) -> None:
    usage, limit, noisy, want = CASES[name]
    container = {"usage": usage, "limits": {} if limit is None else {"memory": limit}}
    assert is_noisy(container) is noisy
    words = usage_text(container)
    assert len(words) == len(want)
    assert all(part in word for part, word in zip(want, words, strict=True))
