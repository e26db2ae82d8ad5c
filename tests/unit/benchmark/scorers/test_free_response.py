"""free_response (contract 14.3)."""

import time

import pytest

from securebench.benchmark.families.free_response import (
    STOP_WORDS,
    configuration_problem,
    token_f1,
    tokens,
    verify,
)
from securebench.benchmark.scorers.result import VerifierConfigurationError


def rubric(accepted, rejected=None, **more):
    body = {"accepted_answers": accepted, **more}
    if rejected is not None:
        body["rejected_answers"] = rejected
    return {"rubric": body}


@pytest.mark.parametrize(("least", "want_passed"), [(0.7, True), (0.75, True), (0.8, False)])
def test_bees(least, want_passed):
    hidden = rubric(["bees share directions by dancing"], min_token_f1=least)
    result = verify("Bees dance to share directions", {}, hidden)
    assert result.metadata["accepted_token_f1"] == 0.75
    assert result.passed is want_passed
    assert result.metadata["matched_answer_index"] == (0 if want_passed else None)


def test_contained_on_both_lists_fails():
    result = verify("Copper rusts green", {}, rubric(["green"], ["copper rusts"]))
    assert not result.passed
    assert result.metadata["matched_answer_index"] == 0
    assert result.metadata["rejected_answer_index"] == 0


def test_containment_respects_word_ends_and_the_united_states():
    hidden = rubric(["the U.S. Senate"])
    assert verify("It was The united states senate.", {}, hidden).passed
    assert not verify("the united states senates", {}, hidden).passed


def test_rejected_needs_at_least_the_accepted_overlap():
    hidden = rubric(["red blue green"], ["red blue black"], min_token_f1=0.5)
    closer = verify("green blue red x", {}, hidden)
    assert closer.passed
    assert closer.metadata["rejected_answer_index"] is None
    tie = verify("blue red x", {}, hidden)
    assert not tie.passed
    assert tie.metadata["rejected_answer_index"] == 0


def test_first_best_wins_and_zero_has_no_index():
    hidden = rubric(["one two", "two one"], min_token_f1=0)
    assert verify("two two one", {}, hidden).metadata["matched_answer_index"] == 1
    assert verify("one x two", {}, hidden).metadata["matched_answer_index"] == 0
    nothing = verify("three", {}, hidden)
    assert not nothing.passed
    assert nothing.metadata["accepted_token_f1"] == 0.0


def test_metadata():
    result = verify(" Green ", {}, rubric(["green"], ["blue"], type="contains_any"))
    assert result.passed
    assert result.metadata == {
        "verifier": "free_response",
        "rubric_type": "contains_any",
        "candidate_answer": "Green",
        "accepted_answer_count": 1,
        "rejected_answer_count": 1,
        "matched_answer_index": 0,
        "rejected_answer_index": None,
        "accepted_token_f1": 1.0,
        "rejected_token_f1": 0.0,
        "min_token_f1": 1.0,
    }


@pytest.mark.parametrize("text", [None, "", "  "])
def test_empty_candidates_fail(text):
    assert not verify(text, {}, rubric(["a", "..."], min_token_f1=0)).passed


@pytest.mark.parametrize(
    ("accepted", "text", "want"),
    [
        ("...", "...", True),
        (" ...", "...\n", True),
        ("...", "..", False),
        ("...", ". . .", False),
        ("...", "a...", False),
        ("'", '"', False),
    ],
)
def test_an_answer_of_signs_has_to_be_the_whole_text(accepted, text, want):
    assert verify(text, {}, rubric([accepted])).passed is want


def test_tokens():
    assert tokens("The U.S. is big_BIG") == {"united": 1, "states": 1, "big": 2}
    assert tokens("\u00c9t\u00e9 2") == {"\u00e9t\u00e9": 1, "2": 1}
    assert len(STOP_WORDS) == 50


def test_whole_number_ratios_have_one_rounding():
    five = tokens("v w x y z")
    assert token_f1(five, tokens("v w x q r")) == 0.6


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("be nice", "structured rubric"),
        (None, "structured rubric"),
        ({"accepted_answers": ["a"], "type": "exact"}, "type must be contains_any"),
        ({"accepted_answers": ["a"], "type": None}, "type must be contains_any"),
        ({}, "accepted_answers"),
        ({"accepted_answers": []}, "accepted_answers"),
        ({"accepted_answers": ["a", " "]}, "accepted_answers"),
        ({"accepted_answers": ["a"], "rejected_answers": []}, "rejected_answers"),
        ({"accepted_answers": ["a"], "rejected_answers": [1]}, "rejected_answers"),
        ({"accepted_answers": ["a"], "min_token_f1": 1.1}, "min_token_f1"),
        ({"accepted_answers": ["a"], "min_token_f1": True}, "min_token_f1"),
        ({"accepted_answers": ["a"], "min_token_f1": None}, "min_token_f1"),
        ({"accepted_answers": ["a"], "min_token_f1": float("nan")}, "min_token_f1"),
    ],
)
def test_unusable_rubrics(value, words):
    assert words in (configuration_problem({}, {"rubric": value}) or "")
    with pytest.raises(VerifierConfigurationError, match=words):
        verify("a", {}, {"rubric": value})


def test_null_rejected_answers_mean_none():
    assert configuration_problem({}, rubric(["a"])) is None
    nulled = {"rubric": {"accepted_answers": ["a"], "rejected_answers": None}}
    assert verify("a", {}, nulled).metadata["rejected_answer_count"] == 0


def test_large_candidates_take_linear_time():
    started = time.process_time()
    verify("u.s. green " * 90_000, {}, rubric(["red", "blue"], ["u.s. green red"]))
    assert time.process_time() - started < 3
