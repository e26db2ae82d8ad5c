"""multiple_choice: choose one of up to 26 texts (contract 14.1)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from securebench.benchmark.families.audit_rules import AuditRules, collisions
from securebench.benchmark.families.base import Family, TaskView
from securebench.benchmark.families.fields import Field, FieldSection
from securebench.benchmark.families.verification import TextVerifier, passes
from securebench.benchmark.resources import REDACTED, Lane
from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.benchmark.scorers.text import ALPHABET, LABEL_WORDS, comparable, focus, label, norm
from securebench.core.json_schema import TEXT, TEXT_OR_NUMBER, Schema, described, non_empty_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = "multiple_choice"

_CHOICE: Schema = {
    **TEXT,
    "description": "a text: choices must contain only non-empty strings",
}
_ANSWER: Schema = {
    "type": ["string", "number", "array"],
    "pattern": "\\S",
    "minItems": 1,
    "items": TEXT_OR_NUMBER,
    "description": "a non-empty string, a number or a non-empty array of those",
}


def configuration_problem(public: Mapping[str, object], hidden: Mapping[str, object]) -> str | None:
    """Return why this verifier cannot work with the row, or None."""
    choices = _choices(public)
    if choices is None:
        return "multiple_choice choices must contain only non-empty strings"
    if len(choices) > len(ALPHABET):
        count = len(choices)
        return f"multiple_choice has {count} input.choices; at most {len(ALPHABET)} have a letter"
    if not _expected(hidden.get("answer"), choices):
        return "multiple_choice requires at least one valid answer"
    return None


def verify(
    candidate_text: str | None, public: Mapping[str, object], hidden: Mapping[str, object]
) -> VerificationResult:
    """Judge a candidate against the accepted letters and texts.

    Returns:
        The verdict, with the raw expected answer in the metadata.

    Raises:
        VerifierConfigurationError: The row names no answer that could be given.
    """
    problem = configuration_problem(public, hidden)
    choices = _choices(public)
    if problem is not None or choices is None:
        raise VerifierConfigurationError(problem or "multiple_choice has no choices")
    text = (candidate_text or "").strip()
    answer = hidden.get("answer")
    return VerificationResult(
        passed=not _expected(answer, choices).isdisjoint(_given(text, len(choices))),
        metadata={"verifier": NAME, "candidate_answer": text, "expected_answer": answer},
    )


def _choices(public: Mapping[str, object]) -> Sequence[str] | None:
    raw = public.get("choices")
    if not isinstance(raw, list | tuple) or not raw:
        return None
    if not all(isinstance(item, str) and item.strip() for item in raw):
        return None
    return raw


def _expected(answer: object, choices: Sequence[str]) -> set[str]:
    if isinstance(answer, list | tuple):
        return set().union(*(_accepted(item, choices) for item in answer))
    return _accepted(answer, choices)


def _accepted(answer: object, choices: Sequence[str]) -> set[str]:
    if isinstance(answer, str):
        return _accepted_text(answer, choices)
    if isinstance(answer, float) and answer.is_integer():
        return _accepted_index(int(answer), choices)
    if isinstance(answer, int) and not isinstance(answer, bool):
        return _accepted_index(answer, choices)
    return set()


def _accepted_text(answer: str, choices: Sequence[str]) -> set[str]:
    letter = label(answer, len(choices))
    if letter is not None:
        return _accepted_index(ALPHABET.index(letter), choices)
    wanted = comparable(answer)
    same = {ALPHABET[i] for i, choice in enumerate(choices) if comparable(choice) == wanted}
    return same | _non_empty(wanted if same else norm(answer))


def _accepted_index(index: int, choices: Sequence[str]) -> set[str]:
    if not 0 <= index < len(choices):
        return set()
    return {ALPHABET[index]} | _non_empty(comparable(choices[index]))


def _given(text: str, count: int) -> set[str]:
    stated = focus(text, LABEL_WORDS)
    labels = (label(stated, count), label(text, count))
    return _non_empty(comparable(text), comparable(stated), *labels)


def _non_empty(*values: str | None) -> set[str]:
    return {value for value in values if value}


SCORER = TextVerifier(verify, configuration_problem)


def _matching_no_choice(task: TaskView) -> Iterator[str]:
    """Yield the answers that are no choice: only their own words pass, which nobody can know."""
    choices = _choices(task.resources.agent_payload()) or ()
    if not 0 < len(choices) <= len(ALPHABET):
        return
    answer = task.resources.hidden_payload().get("answer")
    items = answer if isinstance(answer, list | tuple) else (answer,)
    last = ALPHABET[len(choices) - 1]
    letters = "letter A" if last == "A" else f"letter A to {last}"
    for index, item in enumerate(items):
        if _accepted(item, choices).isdisjoint(ALPHABET):
            name = f"eval.answer[{index}]" if items is answer else "eval.answer"
            yield f"{name} is no {letters}, text or position (a number from 0) of a choice"


def _colliding(task: TaskView) -> Iterator[str]:
    """Yield options that are alike, and wrong ones that the scorer takes for a right one.

    A letter in brackets is read as a letter only, so it tells which options are right. Right ones
    may be alike: they are one answer.
    """
    choices = (_choices(task.resources.agent_payload()) or ())[: len(ALPHABET)]
    letters = ALPHABET[: len(choices)]
    is_right = [passes(SCORER, task.resources, f"({letter})") for letter in letters]
    alike: dict[str, list[int]] = defaultdict(list)
    for index, choice in enumerate(choices):
        alike[norm(choice)].append(index)
    for same in alike.values():
        if len(same) > 1 and not all(is_right[index] for index in same):
            named = " and ".join(letters[index] for index in same)
            yield f"the options {named} are the same for the scorer"
    for index, choice in enumerate(choices):
        if is_right[index] or len(alike[norm(choice)]) > 1:
            continue
        for what, text in (("letter", letters[index]), ("text", choice)):
            if passes(SCORER, task.resources, text):
                yield f"the {what} of the wrong option {letters[index]} passes"


FAMILY = Family(
    name=NAME,
    candidate_kind="text",
    input=FieldSection(
        "input",
        (
            Field(
                "question",
                described(TEXT, "What is asked.", "Which planet is nearest to the sun?"),
                required=True,
            ),
            Field(
                "choices",
                described(
                    non_empty_list(_CHOICE),
                    "The choices, at most 26; the first is A.",
                    ["Mercury", "Venus", "Earth"],
                ),
                required=True,
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "answer",
                described(
                    _ANSWER,
                    "The right choice: its letter, its text, or its position from 0; a list where"
                    " any of several is right.",
                    "A",
                ),
                required=True,
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    scorer=SCORER,
    required_resources=("question", "choices", "answer"),
    record_metadata=lambda _task: {"expected_answer": REDACTED},
    answer_problems=_matching_no_choice,
    audit=AuditRules(rules=(collisions(_colliding),), asks=("question",)),
)
