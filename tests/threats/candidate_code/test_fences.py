"""F2: a text in which code stands in fences hands in one module, or none."""

from __future__ import annotations

import pytest

from support.code_pair import judge
from threats.candidate_code.local_judging import ANSWER, WRONG, cases, weaken_runner
from threats.honest import RIGHT_CODE

LAST_COUNTS = (
    "from securebench_code import fences; fences.fenced_blocks ="
    " lambda text, found=fences.fenced_blocks: found(text)[-1:]"
)


def fenced(code: str, mark: str) -> str:
    return f"It may be this:\n\n```{mark}\n{code}```\n"


GUESSES = {
    f"marked {mark or 'not at all'}": fenced(WRONG, mark) + fenced(RIGHT_CODE, mark)
    for mark in ("", "python")
}


@pytest.mark.parametrize("name", cases(GUESSES, "marked python"))
def test_a_429_attack(name: str) -> None:
    judged = judge(GUESSES[name], ANSWER)
    assert judged.code == 1
    assert "2 fenced blocks" in judged.stderr


@pytest.mark.parametrize("name", GUESSES)
def test_a_429_twin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken_runner(monkeypatch, LAST_COUNTS)
    assert judge(GUESSES[name], ANSWER).code == 0


def test_a_429_honest() -> None:
    judged = judge(fenced(RIGHT_CODE, "python") + "Run it:\n\n```sh\npython3 it.py\n```\n", ANSWER)
    assert judged.code == 0, judged.stderr
