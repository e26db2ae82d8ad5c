"""Scorers decide about any text and never raise (contract 1.4, 14.1 to 14.3)."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from securebench.benchmark.families import free_response, multiple_choice, short_answer
from securebench.benchmark.scorers.numbers import places
from securebench.benchmark.scorers.text import contains_whole, norm, plain, read, typeset

TEXT = st.text() | st.text(alphabet=" \t\n\"'`.,;:-([])isanswerABbc0123456789\u0130\u017f\u212a")
ANSWERS = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4)
NUMBERS = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
NON_BLANK = st.text(min_size=1).filter(str.strip)


@given(TEXT, st.lists(NON_BLANK, min_size=1, max_size=26), st.data())
def test_multiple_choice_decides_about_any_text(text, choices, data):
    index = data.draw(st.integers(0, len(choices) - 1))
    public, hidden = {"choices": choices}, {"answer": index}
    result = multiple_choice.verify(text, public, hidden)
    assert result.score == float(result.passed)
    letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
    if all(norm(plain(typeset(choice))) for choice in choices):
        assert multiple_choice.verify(f"({letter})", public, hidden).passed


@given(TEXT, st.lists(NON_BLANK | NUMBERS, min_size=1, max_size=4), st.none() | st.floats(0, 1e9))
def test_short_answer_decides_about_any_text(text, answers, tolerance):
    hidden = {"accepted_answers": answers, "tolerance": tolerance}
    result = short_answer.verify(text, {}, hidden)
    assert result.passed is (result.metadata["matched_answer_index"] is not None)


@given(TEXT, ANSWERS, st.none() | ANSWERS, st.floats(0, 1))
def test_free_response_decides_about_any_text(text, accepted, rejected, least):
    body = {"accepted_answers": accepted, "rejected_answers": rejected, "min_token_f1": least}
    result = free_response.verify(text, {}, {"rubric": body})
    matched = result.metadata["matched_answer_index"] is not None
    assert result.passed is (matched and result.metadata["rejected_answer_index"] is None)


@pytest.mark.parametrize("text", [None, "", " \n\t"])
@given(answers=ANSWERS)
def test_null_candidates_fail(text, answers):
    assert not multiple_choice.verify(text, {"choices": answers}, {"answer": 0}).passed
    assert not short_answer.verify(text, {}, {"accepted_answers": answers}).passed
    body = {"accepted_answers": answers, "min_token_f1": 0}
    assert not free_response.verify(text, {}, {"rubric": body}).passed


@given(TEXT)
@example(". .")
def test_norm_keeps_nothing_at_the_ends(text):
    assert norm(text) == norm(text).strip(" \t\r\n\"'`.,;:")
    assert "  " not in norm(text)


@given(TEXT)
def test_typography_is_folded_once(text):
    assert typeset(typeset(text)) == typeset(text)


@given(TEXT)
def test_what_is_stated_stands_in_the_text(text):
    given_text = read(text)
    if given_text.stated is not None:
        words = given_text.stated.removeprefix("not ").removeprefix("-").split()
        assert all(word in given_text.text for word in words)


@given(TEXT)
def test_numbers_have_places_in_their_order(text):
    found = list(places(text))
    ends = [end for place in found for end in (place.start, place.end)]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)


SPARSE = st.text(alphabet="a-. _^\n\ue000\ue001\\\u0301", max_size=12)


def defined(text, part):
    """Say it as the contract does, in time that grows with both lengths multiplied."""
    found = re.search(rf"(?<![\w^]){re.escape(part)}(?![\w^])", text)
    return bool(part) and found is not None


@given(SPARSE, SPARSE, SPARSE)
@example("a-a", "-a", "")
@example("a\n\na", "\n", "")
@example("a\ue000\ue000a", "\n\ue000\n", "\n")
def test_a_part_stands_alone_exactly_as_defined(before, part, after):
    for text in (before + part + after, before + part + part + after, before + after):
        assert contains_whole(text, part) is defined(text, part)
