"""F5: what is folded and unwrapped makes no wrong answer right."""

from __future__ import annotations

import re

import pytest

from securebench.benchmark.families import multiple_choice, short_answer
from threats.honest import CHOICE, TEXT, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch

INSIDE = ("-5", "0.5", "15", "5,000", "5/2", "5^2", "5e5", "3-5", "12:5", "not 5", "\u221a5", "5x")
NUMBERED = Batch("f5-inside", "short_answer")
LONGER = NUMBERED.task("longer", candidate="5,000\n", grading={"accepted_answers": ["5"]})


@pytest.mark.short
@pytest.mark.parametrize("text", INSIDE)
def test_a_445_attack(text):
    for said in (text, f"Answer: {text}", f"**{text}**", f"$\\boxed{{{text}}}$"):
        assert not short_answer.verify(said, {}, {"accepted_answers": ["5"]}).passed, said


@pytest.mark.trials(LONGER)
def test_a_445_attack_in_a_record(arena: Arena) -> None:
    assert arena.record(LONGER)["passed"] is False


@pytest.mark.parametrize("text", [text for text in INSIDE if text != "15"])
def test_a_445_twin(text):
    """A comparison as text finds the answer as a whole word, or as its first digits."""
    assert re.search(r"(?<!\w)5(?!\w)", text) or text.startswith("5")


@pytest.mark.trials(TEXT)
def test_a_445_honest(arena: Arena) -> None:
    assert_passed(arena, TEXT)
    for text in ("5", "5.0", "Answer: **5**", "$\\boxed{5}$", "5 apples", "10/2"):
        assert short_answer.verify(text, {}, {"accepted_answers": ["5"]}).passed, text


TURNS = {"choices": ["pi", "2 pi", "4 pi", "no solution"]}
TWO = ("2\npi", "4\npi", "A or B", "A) 2 pi", "\\boxed{A} \\boxed{B}", "Answer: A\nAnswer: A, B")


@pytest.mark.short
@pytest.mark.parametrize("text", TWO)
def test_a_446_attack(text):
    """Whatever is right, a text that names two choices does not pass."""
    for answer in range(4):
        assert not multiple_choice.verify(text, TURNS, {"answer": answer}).passed


@pytest.mark.parametrize("text", TWO)
def test_a_446_twin(text):
    """Readings of which any may match name two."""
    readings = {
        " ".join(text.split()),
        text.split("\n")[-1],
        *re.findall(r"\b[AB]\b|\d? ?pi", text),
    }
    assert len(readings) > 1


@pytest.mark.trials(CHOICE)
def test_a_446_honest(arena: Arena) -> None:
    assert_passed(arena, CHOICE)
    for text in ("B", "2 pi", "B) 2 pi", "Answer: A\nAnswer: **B**", "\\boxed{\\text{B}}"):
        assert multiple_choice.verify(text, TURNS, {"answer": 1}).passed, text


MARKED = {
    "interval": ("(0, 1)", "[0, 1]"),
    "power": ("x^2", "x2"),
    "product": ("2*3*4", "234"),
    "name": ("snake_case", "snakecase"),
    "accent": ("caf\u00e9", "cafe"),
    "apostrophe": ("it's", "its"),
    "hyphen": ("re-sign", "resign"),
    "script": ("Carolina", "C\u0430rolina"),
    "code": ("007", "7"),
}


@pytest.mark.short
@pytest.mark.parametrize("name", MARKED)
def test_a_447_attack(name):
    right, wrong = MARKED[name]
    for said in (wrong, f"Answer: {wrong}", f"**{wrong}**", f"`{wrong}`"):
        assert not short_answer.verify(said, {}, {"accepted_answers": [right]}).passed, said


@pytest.mark.parametrize("name", [name for name in MARKED if name not in ("script", "code")])
def test_a_447_twin(name):
    """A comparison that drops all signs and accents takes them for one."""
    right, wrong = (re.sub(r"[^a-z0-9]", "", text.replace("\u00e9", "e")) for text in MARKED[name])
    assert right == wrong


@pytest.mark.trials(TEXT)
def test_a_447_honest(arena: Arena) -> None:
    assert_passed(arena, TEXT)
    for right, _ in MARKED.values():
        for said in (right, f"Answer: {right}", f"**{right}**", f"`{right}`", f"\u200b{right}"):
            assert short_answer.verify(said, {}, {"accepted_answers": [right]}).passed, said
