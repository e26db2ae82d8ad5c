"""multiple_choice (contract 14.1)."""

import pytest

from securebench.benchmark.families.multiple_choice import configuration_problem, verify
from securebench.benchmark.scorers.result import VerifierConfigurationError
from securebench.errors import ConfigError

PLANETS = {"question": "Which?", "choices": ["Mercury", "Venus", "Earth"]}


@pytest.mark.parametrize(
    ("text", "want_passed"),
    [
        ("My option: (b)", True),
        ('"Venus".', True),
        ("venus", True),
        ("b", True),
        ("B)", True),
        ("Some thoughts.\nFinal answer: Venus", True),
        ("The answer is B", True),
        ("choice is b", True),
        ("Venus!", False),
        ("B or C", False),
        ("Mercury", False),
        ("A", False),
        ("1", False),
        ("I think it is Venus", False),
        ("", False),
        ("...", False),
        (None, False),
    ],
)
def test_contract_examples(text, want_passed):
    result = verify(text, PLANETS, {"answer": 1})
    assert result.passed is want_passed
    assert result.score == (1.0 if want_passed else 0.0)
    assert result.status == ("passed" if want_passed else "failed")


@pytest.mark.parametrize(
    ("answer", "passing", "failing"),
    [
        (1, "b", "a"),
        (1.0, "venus", "earth"),
        ("b", "B", "C"),
        ("option c", "earth", "venus"),
        ("venus", "B", "C"),
        ("Pluto", "pluto.", "A"),
        ([0, "earth"], "C", "B"),
        ([99, 2], "C", "A"),
        ([True, 2], "C", "B"),
    ],
)
def test_expected_answers(answer, passing, failing):
    assert verify(passing, PLANETS, {"answer": answer}).passed
    assert not verify(failing, PLANETS, {"answer": answer}).passed


def test_digit_string_is_text():
    numbers = {"choices": ["3", "1", "2"]}
    assert verify("B", numbers, {"answer": "1"}).passed
    assert not verify("A", numbers, {"answer": "1"}).passed


def test_choices_with_the_same_text_share_their_letters():
    twins = {"choices": ["Zero", "one", " zero."]}
    assert verify("C", twins, {"answer": "zero"}).passed
    assert verify("A", twins, {"answer": "zero"}).passed


def test_empty_normal_form_never_matches():
    signs = {"choices": [";", "x"]}
    assert not verify("...", signs, {"answer": ";"}).passed
    assert verify("A", signs, {"answer": ";"}).passed


def test_metadata():
    result = verify("  b \n", PLANETS, {"answer": [1]})
    assert result.metadata == {
        "verifier": "multiple_choice",
        "candidate_answer": "b",
        "expected_answer": [1],
    }


@pytest.mark.parametrize(
    ("answer", "text", "want"),
    [
        (1, '"', True),
        (1, 'the answer is "', True),
        (1, "'", False),
        (1, "b", True),
        (0, "...", True),
        (0, "..", False),
        ("...", "...", True),
        ("...", "a", True),
        ("...", "b", False),
        ("...", "'", False),
    ],
)
def test_choices_of_signs_match_themselves_only(answer, text, want):
    choices = {"choices": ["...", '"', "'", "Earth"]}
    assert verify(text, choices, {"answer": answer}).passed is want


@pytest.mark.parametrize(
    "answer",
    [3, -1, 0.5, True, None, "...", [], [7, False], float("inf"), float("nan"), {"a": 1}],
)
def test_no_valid_answer(answer):
    problem = configuration_problem(PLANETS, {"answer": answer})
    assert problem is not None
    assert "requires at least one valid answer" in problem
    with pytest.raises(VerifierConfigurationError, match="requires at least one valid answer"):
        verify("b", PLANETS, {"answer": answer})


@pytest.mark.parametrize("choices", [None, [], ["a", ""], ["a", 1], "ab"])
def test_unusable_choices(choices):
    with pytest.raises(VerifierConfigurationError, match="must contain only non-empty strings"):
        verify("b", {"choices": choices}, {"answer": 0})


def test_letters_end_at_z():
    choices = [f"item {number}" for number in range(27)]
    assert verify("z", {"choices": choices[:26]}, {"answer": 25}).passed
    with pytest.raises(VerifierConfigurationError, match=r"27 input\.choices"):
        verify("a", {"choices": choices}, {"answer": 0})


def test_configuration_error_is_a_config_error():
    assert issubclass(VerifierConfigurationError, ConfigError)
    assert configuration_problem(PLANETS, {"answer": 1}) is None
