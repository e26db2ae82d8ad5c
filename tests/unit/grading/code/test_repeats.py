"""Calls that are made again: what is compared, and that no worker finds anything of another."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import math
import os
import subprocess
from functools import partial

import pytest

from securebench.grading.code import samples
from securebench.grading.code.samples import NotPlainError, Sample, form_of, outcome_of
from support.code_pair import BOOT, FOLDER, PYTHON, SECONDS, judge, runs_first

ALL_CALLS = 8
NO_NAMESPACES = "from securebench_code import process_reset; process_reset.NAMESPACES = -1"
POINTS = [collections.namedtuple("Point", "x y")(1, 2) for _ in range(2)]  # noqa: PYI024
"""Of two classes, as always where they cross."""


def has_attributes(folder):
    try:
        os.setxattr(folder, "user.some", b"")
    except OSError:
        return False
    return True


ATTRIBUTE = """\
    import os
    def remember(text): os.setxattr(".", "user.kept", text.encode())
    def recall(): return os.getxattr(".", "user.kept").decode()
"""


def test_attributes_are_not_left_for_later_workers(tmp_path):
    if not has_attributes(tmp_path):
        pytest.skip("the file system has no attributes")
    tests = "assert remember('six') is None\n" + "assert recall() == 'six'\n" * 7
    assert judge(ATTRIBUTE, tests).code == 0
    for line in ("", NO_NAMESPACES):
        with runs_first(line):
            judged = judge(ATTRIBUTE, tests, repeat=ALL_CALLS)
        assert judged.code == 1
        assert "a repeated call disagrees: recall()" in judged.stderr


def test_output_of_calls_that_are_made_again_is_told_once():
    judged = judge("def tell(): print('told')\n", "tell()\ntell()\n", repeat=ALL_CALLS)
    assert judged.code == 0
    assert "securebench: 2 repeated calls agree" in judged.stderr
    assert judged.stdout.count("told") == 2


def test_the_sample_is_drawn_from_all_calls():
    function = object()
    drawn = collections.Counter()
    for _ in range(200):
        sample = Sample(2)
        sample.know({"act": function})
        for number in range(10):
            assert (
                sample.watch(partial(int, -number), function, [number], {}, in_place=False)
                == -number
            )
        calls = sample.calls()
        assert len(calls) == 2
        drawn.update(call.arguments[0] for call in calls)

    assert set(drawn) == set(range(10))
    assert max(drawn.values()) < 80  # 40 are expected


def test_arguments_are_those_before_the_call():
    function, data = object(), [1]
    sample = Sample(1)
    sample.know({"act": function})

    sample.watch(data.clear, function, [data], {"key": data}, in_place=False)

    (call,) = sample.calls()
    assert (call.arguments, call.names) == ([[1]], {"key": [1]})
    assert call.told() == "act([1], key=[1])"
    assert call.outcome == outcome_of(None, None, ([[]], {"key": []}))


def test_long_calls_are_told_in_one_line():
    call = samples.Call("act", ["x" * 10_000, "\n"], {}, "")
    assert len(call.told()) < 300
    assert "\n" not in samples.Call("act", ["\n"], {}, "").told()
    assert samples.Call("act", [10**5000], {}, "").told() == "act(...)"


SAME = {
    "nan": ([math.nan, {math.nan}], [float("nan"), {float("nan")}]),
    "sets": ({"a", "b", 3}, {3, "b", "a"}),
    "dictionaries": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "named tuples": POINTS,
    "large": (10**5000, 10**5000),
    "decimals": (decimal.Decimal("1.50"), decimal.Decimal("1.50")),
    "dates": (dt.date(2020, 1, 2), dt.date(2020, 1, 2)),
}
OTHER = {
    "types": (1, True),
    "numbers": (1, 1.0),
    "containers": ([1], (1,)),
    "order": ([1, 2], [2, 1]),
    "ordered": (
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=2, a=1),
    ),
    "text": (["a', 'b"], ["a", "b"]),
    "nesting": ([[1], 2], [[1, 2]]),
    "decimals": (decimal.Decimal("1.5"), decimal.Decimal("1.50")),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_values_have_the_same_form(name):
    one, two = SAME[name]
    assert form_of(one) == form_of(two)


@pytest.mark.parametrize("name", OTHER)
def test_other_values_have_another_form(name):
    one, two = OTHER[name]
    assert form_of(one) != form_of(two)


def cyclic() -> list[object]:
    result: list[object] = []
    result.append(result)
    return result


def wide() -> list[object]:
    result: list[object] = []
    for _ in range(60):
        result = [result, result]
    return result


@pytest.mark.parametrize(
    "value",
    [object(), iter([]), len, cyclic(), wide()],
    ids=["object", "iterator", "function", "cyclic", "wide"],
)
def test_what_is_not_plain_has_no_form(value):
    with pytest.raises(NotPlainError):
        form_of(value)


def test_a_worker_that_cannot_begin_makes_no_socket(tmp_path):
    """supervise waits for it in vain, and the launch is repeated: no candidate is to blame."""
    (tmp_path / "securebench_code").symlink_to(FOLDER / "code")
    lacking = f"import sys; sys.modules['ctypes'] = None; {BOOT}"
    words = [str(tmp_path), "worker", str(tmp_path / "s"), str(tmp_path), "2", str(tmp_path)]
    done = subprocess.run(
        [PYTHON, "-I", "-B", "-c", lacking, *words],
        stderr=subprocess.PIPE, check=False, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert (done.returncode, "ctypes" in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "s").exists()
