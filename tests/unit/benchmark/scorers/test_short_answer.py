"""short_answer (contract 14.2)."""

import time

import pytest

from securebench.benchmark.families.short_answer import FAMILY, configuration_problem, verify
from securebench.benchmark.scorers.result import VerifierConfigurationError


@pytest.mark.parametrize(
    ("accepted", "tolerance", "text", "want"),
    [
        (["Lake Baikal"], None, "It is lake  baikal, in Siberia", "answer_span"),
        ([12.5], 0.5, "Final answer: 12.9 m", "numeric_tolerance"),
        (["ion"], None, "lions", None),
        (["ion"], None, "An ion.", "answer_span"),
        ([3], None, "3", "numeric_exact"),
        ([3.0], None, "3", "numeric_exact"),
        ([3.0], None, "3.0", "numeric_exact"),
        ([3], 0, "3.0", "numeric_tolerance"),
        ([3], 0, "3.1", None),
        ([3], 0, "4", None),
        (["about 1,234.5 m"], 0.6, "1235", "numeric_tolerance"),
        (["1e3"], 0, "1", None),
        ([-3], 0, "it is -3 degrees", "numeric_tolerance"),
        ([0.5], 0, ".5", "numeric_tolerance"),
        ([1e12], 0, "1000000000000.5", None),
        ([4], 0, "4e2", None),
        ([4], None, "4e2", None),
        (["Paris"], 1, "paris", "normalized_exact"),
        ([12], 0, "I counted 11 and 3\nanswer: 12.0", "numeric_tolerance"),
        ([12.5], 0, "I counted 11 and 3\nanswer: 12.50", "numeric_tolerance"),
        (["x"], None, "", None),
        (["x"], None, " \n", None),
        (["x"], None, None, None),
        (["..."], None, "...", "normalized_exact"),
        (["..."], None, " ...\n", "normalized_exact"),
        (["..."], None, "'", None),
        (["..."], None, ". . .", None),
        (["..."], None, "a...", None),
        (["a"], None, "...", None),
        ([-3], 0, "it is \u22123 degrees", "numeric_tolerance"),
        ([-3], 0, "\ufe633", "numeric_tolerance"),
        ([-3], 0, "\uff0d\uff13", "numeric_tolerance"),
        ([12.5], 0, "\uff11\uff12.\uff15", "numeric_tolerance"),
        ([1234], 0, "\U0001d7ed,\U0001d7ee\U0001d7ef\U0001d7f0", "numeric_tolerance"),
        (["\uff11\uff12"], 0, "12", "numeric_tolerance"),
        ([-3], 0, "\u20133", "numeric_tolerance"),
        ([5], 0, "9" * 400, None),
        ([102], 0, "10\u00b2", None),  # ten squared
        ([5], 0, "\u0665", None),  # an Arabic-Indic five
    ],
)
def test_strategies(accepted, tolerance, text, want):
    result = verify(text, {}, {"accepted_answers": accepted, "tolerance": tolerance})
    assert result.metadata["match_strategy"] == want
    assert result.passed is (want is not None)


def test_the_first_accepted_answer_that_is_met_counts():
    hidden = {"accepted_answers": ["third", "second", "first"]}
    result = verify("first is first\nanswer: second", {}, hidden)
    assert result.metadata["matched_answer_index"] == 1
    assert result.metadata["match_strategy"] == "normalized_exact"


def test_metadata():
    result = verify(" 12 ", {}, {"accepted_answers": ["x", 12], "tolerance": 1})
    assert result.metadata == {
        "verifier": "short_answer",
        "candidate_answer": "12",
        "accepted_answer_count": 2,
        "matched_answer_index": 1,
        "match_strategy": "numeric_tolerance",
        "tolerance": 1,
    }
    assert verify("y", {}, {"accepted_answers": ["x"]}).metadata["tolerance"] is None


@pytest.mark.parametrize("accepted", [None, [], "x", [""], [True], [None], [float("nan")]])
def test_unusable_accepted_answers(accepted):
    with pytest.raises(VerifierConfigurationError, match="accepted_answers"):
        verify("x", {}, {"accepted_answers": accepted})


@pytest.mark.parametrize("tolerance", [-1, True, "1", float("nan"), float("inf"), 10**400])
def test_unusable_tolerance(tolerance):
    hidden = {"accepted_answers": [1], "tolerance": tolerance}
    assert "tolerance" in (configuration_problem({}, hidden) or "")
    with pytest.raises(VerifierConfigurationError, match="non-negative number"):
        verify("1", {}, hidden)


def test_usable_configuration_has_no_problem():
    assert configuration_problem({}, {"accepted_answers": [1], "tolerance": 0}) is None


def test_numbers_beyond_the_bound_equal_nothing():
    for accepted in (10**400, "1e999999999", "9" * 2000):
        hidden = {"accepted_answers": [accepted], "tolerance": 1}
        assert not verify("5", {}, hidden).passed
    assert not verify("1e999999999", {}, {"accepted_answers": [1]}).passed
    assert not verify("9^999999", {}, {"accepted_answers": [1]}).passed
    assert verify("1e400", {}, {"accepted_answers": [10**400]}).passed


ROUNDED = {1 / 3: True, "1/3": True, 3.14159: True, "0.333": True, 1360.777: True}
EXACT = {5: False, 12.5: False, 0.125: False, "3/4": False, 1e-7: False, "1e-7": False, 3.14: False}
TEXTS = {"about 3.14159": False, "Paris": False, "1.2.3": False}


@pytest.mark.parametrize(("answer", "want"), [*ROUNDED.items(), *EXACT.items(), *TEXTS.items()])
def test_a_number_that_people_round_needs_a_tolerance(answer, want):
    rows = {"accepted_answers": [0, answer]}
    found = [advice.message for advice in FAMILY.advice(rows)]
    said = "eval.accepted_answers[1] is a number of many decimals and is compared exactly"
    assert found == ([said] if want else [])
    assert not list(FAMILY.advice({**rows, "tolerance": 0}))
    assert not list(FAMILY.advice({"accepted_answers": []}))


def test_many_digits_take_linear_time():
    started = time.process_time()
    verify("9" * 1_000_000, {}, {"accepted_answers": [1, "2"], "tolerance": 1})
    assert time.process_time() - started < 2
