"""Shared steps of the text scorers (contract 14.0)."""

import time

import pytest

from securebench.benchmark.scorers.text import (
    ANSWER_WORDS,
    LABEL_WORDS,
    contains_whole,
    focus,
    label,
    last_line,
    norm,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('"Venus".', "venus"),
        ("Venus!", "venus!"),
        ("  It is\tlake \n baikal,  in Siberia ", "it is lake baikal, in siberia"),
        ("`x`;", "x"),
        ("...", ""),
        ("", ""),
        ("(*a*)", "(*a*)"),
        ("'a, b'", "a, b"),
        ("\u00a0B\u2003C\u3000", "b c"),
    ],
)
def test_norm(text, want):
    assert norm(text) == want


@pytest.mark.parametrize(
    ("text", "count", "want"),
    [
        ("b", 3, "B"),
        ("(b)", 3, "B"),
        ("[ C ]", 3, "C"),
        ("B.", 3, "B"),
        ("B:", 3, "B"),
        ("  answer is: ( b ) ", 3, "B"),
        ("final answer - c", 3, "C"),
        ("option c", 3, "C"),
        ("choice is a", 3, "A"),
        ("answer\n:\n\nb", 3, "B"),
        ("answerb", 3, "B"),
        ("-a", 3, "A"),
        ("Answer: B", 3, None),
        ("Option b", 3, None),
        ("ANSWER b", 3, None),
        ("d", 3, None),
        ("z", 26, "Z"),
        ("B or C", 3, None),
        ("B))", 3, None),
        ("((B", 3, None),
        ("answer answer b", 3, None),
        ("is is b", 3, None),
        ("", 3, None),
        ("answer", 3, None),
        ("answer is", 3, None),
        ("b", 0, None),
        ("\u0432", 26, None),  # a Cyrillic letter
        ("\uff22", 26, None),  # a full-width B
        ("\u212a", 26, None),  # the Kelvin sign, whose lower case is k
        ("\u0131", 26, None),  # a dotless i, whose upper case is I
        ("1", 3, None),
    ],
)
def test_label(text, count, want):
    assert label(text, count) == want


@pytest.mark.parametrize(
    ("text", "words", "want"),
    [
        ("Let me think.\nMy option: (b)", LABEL_WORDS, "(b)"),
        ("Final answer: 12.9 m", ANSWER_WORDS, "12.9 m"),
        ("The ANSWER Is - b\n\n  \n", ANSWER_WORDS, "b"),
        ("answer island", ANSWER_WORDS, "island"),
        ("answer is island", ANSWER_WORDS, "island"),
        ("The answer is:", ANSWER_WORDS, "The answer is:"),
        ("answers: 3", ANSWER_WORDS, "answers: 3"),
        ("my_answer 3", ANSWER_WORDS, "my_answer 3"),
        ("\u00e9answer 3", ANSWER_WORDS, "\u00e9answer 3"),
        ("an\u017fwer 3", ANSWER_WORDS, "an\u017fwer 3"),
        ("choice b", ANSWER_WORDS, "choice b"),
        ("the choice: answer b", LABEL_WORDS, "answer b"),
        ("answer: 3\nno more", ANSWER_WORDS, "no more"),
        ("", ANSWER_WORDS, ""),
        (" \n ", ANSWER_WORDS, ""),
    ],
)
def test_focus(text, words, want):
    assert focus(text, words) == want


@pytest.mark.parametrize(
    ("text", "want"), [("a\r\nb \r\n\r\n", "b"), ("a\rb", "b"), ("x", "x"), ("\n", "")]
)
def test_last_line(text, want):
    assert last_line(text) == want


@pytest.mark.parametrize(
    ("text", "part", "want"),
    [
        ("it is lake baikal, in siberia", "lake baikal", True),
        ("lions", "ion", False),
        ("lions ion", "ion", True),
        ("ion_", "ion", False),
        ("ion2", "ion", False),
        ("\u00e9ion", "ion", False),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("us$5", "$5", False),
        ("about $5", "$5", True),
        ("anything", "", False),
        ("", "x", False),
    ],
)
def test_contains_whole(text, part, want):
    assert contains_whole(text, part) is want


@pytest.mark.parametrize(
    "text",
    [
        "answer" + " " * 1_000_000 + "b or c",
        "answer is" + "\t" * 1_000_000 + "!",
        "(" + " " * 1_000_000 + "bb",
        "answer " * 150_000,
        "a" * 1_000_000,
        " a" * 500_000,
    ],
)
def test_hostile_text_takes_linear_time(text):
    started = time.process_time()
    label(text, 26)
    focus(text, LABEL_WORDS)
    contains_whole(norm(text), "a a a b")
    contains_whole(norm(text), "a " * 5000 + "b")
    assert time.process_time() - started < 2


TOUCHED = {
    "in front": ("b" + "-a" * 500_000, "-a" * 5000 + "-"),
    "on both sides": ("b" + "-a" * 500_000 + "b", "-a" * 5000),
    "behind": ("a-" * 500_000 + "b", "a-" * 5000),
    "nowhere": ("a " * 500_000, "a " * 5000 + "b"),
    "signs": ("x" + "!" * 1_000_000 + "x", "!" * 10_000 + "x!"),
}


@pytest.mark.parametrize("case", TOUCHED)
def test_a_long_answer_is_looked_for_in_linear_time(case):
    text, part = TOUCHED[case]
    started = time.process_time()
    for _ in range(3):
        contains_whole(text, part)
    assert time.process_time() - started < 2
