import pytest

from securebench.analysis.results import excerpt, visible

VISIBLE = {
    "plain text": ("a\tb\nc é 漢 😀", "a\tb\nc é 漢 😀"),
    "terminal escape": ("\x1b[31mred", "<U+001B>[31mred"),
    "bidirectional override": ("\u202eevil", "<U+202E>evil"),
    "zero width": ("a\u200bb\ufeff", "a<U+200B>b<U+FEFF>"),
    "half of a surrogate pair": ("\ud800", "<U+D800>"),
    "line separator": ("a\u2028b", "a<U+2028>b"),
    "carriage return": ("a\rb", "a<U+000D>b"),
}


@pytest.mark.parametrize("case", VISIBLE)
def test_visible(case):
    text, shown = VISIBLE[case]
    assert visible(text) == shown


def test_an_excerpt_says_what_was_left_out():
    assert excerpt("abc", 3) == "abc"
    assert excerpt("a" * 2000, 3) == "aaa\n… 1,997 more characters in the record"
