"""Shared steps of the text scorers (contract 14.0)."""

import time

import pytest

from securebench.benchmark.scorers.text import contains_whole, layers, norm, plain, read, typeset


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
    assert norm(typeset(text)) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a\u00ad\u200bb\x00\ufe0f", "ab"),
        ("a\r\nb\u2028c\x85d", "a\n\nb\nc\nd"),
        ("x\u00b2\u207b\u00b9 y\u00b2\u00b3z 10\u00b23", "x^2-1 y^23z 10^2 3"),
        ("H\u2082O log\u20828", "H2O log\u20828"),
        ("\u00bd 2\u00be", "1/2 2 3/4"),
        ("\u2460 \u0665 \u2102 e\u0301", "\u2460 \u0665 \u2102 \u00e9"),
        ("1939 \u2013 1945, 5 - x", "1939-1945, 5 - x"),
    ],
)
def test_typeset(text, want):
    assert typeset(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("**a** __b__ *c* _d_ `e` ***f***", "a b c d e f"),
        ("**_a_** *__b__*", "a b"),
        ("2*3*4 2**3 snake_case_x **open", "2*3*4 2**3 snake_case_x **open"),
        ("**a\nb**", "**a\nb**"),
        ("$a$ $$b$$ \\(c\\) \\[d\\]", "a b c d"),
        ("$5 and $6", "$5 and $6"),
        ("\\text{a \\textbf{b}} {c} \\frac{x}{y}", "a b {c} (x)/(y)"),
        ("\\boxed{a}", "\x02a\x03"),
        ("\\boxed{a", "\\boxed{a"),
        ("x^{10} y^{z} a_{2} \\left(b\\right)", "x^10 y^z a2 (b)"),
        ("<b>a</b> <i>b <b>c</i> x<sup>2</sup>", "a b <b>c x^2"),
        ("<answer>a</answer>b<br>c", "\nAnswer: a\nb\nc"),
        ("```text\na\n```\nb", "\na\n\nb"),
        ("~~a~~ \\pi 30^\\circ \\} }", "~~a~~ \u03c030\u00b0 \\} }"),
    ],
)
def test_plain(text, want):
    assert plain(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Let me think.\nMy option: (b)", "(b)"),
        ("Final answer: 12.9 m", "12.9 m"),
        ("The ANSWER Is - b\n\n  \n", "- b"),
        ("answer island", None),
        ("answer is island", "island"),
        ("The answer is:", None),
        ("The answer is as follows:\n\n---\nx", "x"),
        ("my_answer: 3", None),
        ("\u00e9answer: 3", None),
        ("answer: 3\nno more", "3"),
        ("answer: 3\nanswer: 4", "4"),
        ("so \\boxed{a} and \\boxed{b}", "a and b"),
        ("it is not \\boxed{a}", "not a"),
        ("-\\boxed{5}", "-5"),
        ("Answer:\n\\boxed{a}", "a"),
        ("#### 1,234 km", "1,234 km"),
        ("#### Step 3: add", None),
        ("the wrong answer is b; the right answer is a", "a"),
        ("the wrong answer is b", None),
        ("", None),
        (" \n ", None),
    ],
)
def test_the_last_labelled_line_states_the_answer(text, want):
    assert read(text).stated == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("(b)", ["(b)", "b"]),
        ('["b"].', ['["b"].', '"b"', "b"]),
        ("> - Option: (b)", ["> - Option: (b)", "b"]),
        ("(a) and (b)", ["(a) and (b)"]),
        ("- 5", ["- 5"]),
        ("\u2705 b", ["b"]),
        ("", [""]),
    ],
)
def test_layers(text, want):
    assert list(layers(text)) == want


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
        ("x^2", "x", False),
        ("0.5 km or 5 km", "5 km", True),
        ("0.5 km, 15 km, -5 km, 3-5 km", "5 km", False),
        ("top 10.5", "top 10", False),
        ("top 10%", "top 10", False),
        ("the top 10.", "top 10", True),
    ],
)
def test_contains_whole(text, part, want):
    assert contains_whole(text, part) is want


HOSTILE = [
    "answer" + " " * 1_000_000 + "b or c",
    "answer is" + "\t" * 1_000_000 + "!",
    "(" + " " * 1_000_000 + "bb",
    "answer " * 150_000,
    "a" * 1_000_000,
    " a" * 500_000,
    "**a " * 250_000,
    "\\text{" * 160_000,
    "$a" * 500_000,
    "<b>" * 300_000,
    "\\frac{" * 160_000,
    "answer (" * 120_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_takes_linear_time(text):
    started = time.process_time()
    given = read(text)
    list(layers(given.last_line))
    contains_whole(norm(given.text), "a a a b")
    contains_whole(norm(given.text), "a " * 5000 + "b")
    assert time.process_time() - started < 3


TOUCHED = {
    "in front": ("b" + "-a" * 500_000, "-a" * 5000 + "-"),
    "on both sides": ("b" + "-a" * 500_000 + "b", "-a" * 5000),
    "behind": ("a-" * 500_000 + "b", "a-" * 5000),
    "nowhere": ("a " * 500_000, "a " * 5000 + "b"),
    "signs": ("x" + "!" * 1_000_000 + "x", "!" * 10_000 + "x!"),
    "digits": ("1.5 " * 250_000, "5"),
}


@pytest.mark.parametrize("case", TOUCHED)
def test_a_long_answer_is_looked_for_in_linear_time(case):
    text, part = TOUCHED[case]
    started = time.process_time()
    for _ in range(3):
        contains_whole(text, part)
    assert time.process_time() - started < 3
