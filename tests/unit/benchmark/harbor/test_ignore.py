"""Patterns of an ignore file; which files Harbor leaves out is in the recorded cases."""

import pytest

from securebench.benchmark.harbor.ignore import IgnoreRules, PatternError


@pytest.mark.parametrize(
    ("pattern", "path", "want"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/down/a.log", True),
        ("/*.log", "deep/a.log", None),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a", None),
        ("a/**", "a/b", True),
        ("**/a", "a", True),
        ("*a*b*c", "xaybzc", True),
        ("*a*b*c", "xcba", None),
        ("a*b", "ab", True),
        ("[!a]b", "cb", True),
        ("[!a]b", "ab", None),
        ("a?c", "a/c", None),
        ("!a", "a", False),
        ("\\*", "*", True),
        ("\\*", "a", None),
        ("a.c", "abc", None),
        ("[&&x]", "&", True),
        ("[]x]", "]", True),
        ("[\\x]", "\\", True),
    ],
)
def test_a_pattern(pattern, path, want):
    assert IgnoreRules([pattern]).verdict(path, is_folder=False) is want


def test_the_last_pattern_that_matches_counts():
    rules = IgnoreRules(["*", "!keep", "keep/"])
    assert rules.verdict("keep", is_folder=False) is False
    assert rules.verdict("keep", is_folder=True) is True
    assert rules.verdict("else", is_folder=False) is True


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "b", "a" * 250),
        ("**/" * 60 + "b", "/".join("a" * 120)),
        ("*" * 200 + "b", "a" * 250),
        ("**/*a/" * 60 + "b", "/".join("a" * 120)),
    ],
)
def test_no_pattern_takes_time_that_grows_exponentially(pattern, path):
    # With backtracking none of these ends within the time limit of a test.
    assert IgnoreRules([pattern]).verdict(path, is_folder=False) is None


@pytest.mark.parametrize("pattern", ["a\\", "[z-a]", "[a--z]"])
def test_what_is_no_pattern_has_its_line(pattern):
    with pytest.raises(PatternError) as error:
        IgnoreRules(["fine", pattern])
    assert error.value.line == 2


def test_a_file_has_a_bounded_number_of_patterns():
    with pytest.raises(PatternError) as error:
        IgnoreRules(["a"] * 1001)
    assert error.value.line == 1001
