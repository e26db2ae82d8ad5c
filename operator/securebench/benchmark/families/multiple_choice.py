"""multiple_choice: choose one of up to 26 texts (contract 14.1)."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.base import (
    AuditRules,
    Family,
    Field,
    FieldSection,
    TaskView,
    TextVerifier,
    collisions,
    passes,
)
from securebench.benchmark.resources import REDACTED, Lane
from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.benchmark.scorers.text import comparable, layers, norm, plain, read, typeset
from securebench.json_values import TEXT, TEXT_OR_NUMBER, Schema, described, non_empty_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = "multiple_choice"
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_AROUND = 200
"""Characters that may stand around the letter and the text of a choice."""

_LETTER = re.compile(r"[(\[]? ?([A-Za-z]) ?[)\]]? ?[.:,;]?")
_LETTER_AND_TEXT = re.compile(
    r"[(\[]? ?([A-Za-z]) ?(?:[)\]] ?(?:[.:] ?|- )?|[.:,] ?|- | |$)(.*)", re.DOTALL
)
_TEXT_AND_LETTER = re.compile(r"(.*[^ ]) ?[(\[]([A-Za-z])[)\]] ?[.]?", re.DOTALL)
_SO = r"(?:(?:so|thus|hence|therefore)[, ]+)?"
_WORD = r"(?:answer|choice|option)"
_CALLED = (
    r"(?:(?:it|this)(?:'s| is| must be| should be) )?(?:(?:the|my|our) )?"
    rf"(?:(?:final|correct|right|best) )?{_WORD} (.+)"
)
_CHOOSING = (
    r"(?:i|we)(?:'d|'ll| would| will| must)? (?:choose|chose|pick|select|go with|go for) "
    rf"(?:(?:the )?{_WORD} )?(.+)"
)
_CONFIRMED = rf"(?:{_WORD} )?(.+) is (?:the )?(?:correct|right|best)(?: {_WORD}| one)?[.]?"
_CHOSEN = tuple(re.compile(_SO + said, re.IGNORECASE) for said in (_CALLED, _CHOOSING, _CONFIRMED))
"""A last line that names an option without a label: "I choose B", "option B is correct"."""

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
    answer = hidden.get("answer")
    if not _expected(answer, choices) and not any(_own_words(answer, choices)):
        return "multiple_choice requires at least one valid answer"
    return None


def verify(
    candidate_text: str | None, public: Mapping[str, object], hidden: Mapping[str, object]
) -> VerificationResult:
    """Judge a candidate by the one choice that it names.

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
    own_words = tuple(_own_words(answer, choices))
    named = _named(text, _options((*choices, *own_words), len(choices)))
    expected = _expected(answer, choices) | set(range(len(choices), len(choices) + len(own_words)))
    return VerificationResult(
        passed=bool(named) and named <= expected,
        metadata={"verifier": NAME, "candidate_answer": text, "expected_answer": answer},
    )


def _choices(public: Mapping[str, object]) -> Sequence[str] | None:
    raw = public.get("choices")
    if not isinstance(raw, list | tuple) or not raw:
        return None
    if not all(isinstance(item, str) and item.strip() for item in raw):
        return None
    return raw


def _items(answer: object) -> Sequence[object]:
    return answer if isinstance(answer, list | tuple) else (answer,)


def _expected(answer: object, choices: Sequence[str]) -> set[int]:
    """Return the positions of the choices that an answer says are right."""
    return set().union(*(_positions(item, choices) for item in _items(answer)))


def _own_words(answer: object, choices: Sequence[str]) -> Iterator[str]:
    """Yield the answers that are no choice and can be given in their own words only."""
    for item in _items(answer):
        if isinstance(item, str) and norm(typeset(item)) and not _positions(item, choices):
            yield item


def _positions(answer: object, choices: Sequence[str]) -> set[int]:
    if isinstance(answer, str):
        return _named_by_author(answer, choices)
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return set()
    return {position for position in range(len(choices)) if position == answer}


def _named_by_author(answer: str, choices: Sequence[str]) -> set[int]:
    """Return the choice of a letter, else the choices of a text."""
    options = _options(tuple(choices), len(choices))
    for value in layers(plain(typeset(answer).strip())):
        letter = options.by_letter(value)
        if letter:
            return letter
    return _named(answer, options)


class _Options(NamedTuple):
    """The choices as candidates may write them.

    Attributes:
        texts: The positions that an exact and a plain form of a text stand for.
        lettered: Number of options with a letter.
        longest: Characters of the longest text.
    """

    texts: Mapping[str, frozenset[int]]
    lettered: int
    longest: int

    def by_text(self, value: str) -> set[int]:
        return set(self.texts.get(comparable(value), ()))

    def by_letter(self, value: str) -> set[int]:
        letter = _LETTER.fullmatch(value)
        return self._position(letter[1]) if letter else set()

    def by_both(self, value: str) -> set[int]:
        """Return the option whose letter and text a value has, in either order."""
        first, last = _LETTER_AND_TEXT.fullmatch(value), _TEXT_AND_LETTER.fullmatch(value)
        return (self._if_its(first[1], first[2]) if first else set()) | (
            self._if_its(last[2], last[1]) if last else set()
        )

    def _if_its(self, letter: str, text: str) -> set[int]:
        """Return the option of a letter if the text is its text."""
        position = self._position(letter)
        is_its = any(position & self.by_text(layer) for layer in layers(text))
        return position if is_its else set()

    def _position(self, letter: str) -> set[int]:
        return {ALPHABET.index(letter.upper())} & set(range(self.lettered))


@lru_cache(maxsize=64)
def _options(texts: tuple[str, ...], count: int) -> _Options:
    known: dict[str, set[int]] = defaultdict(set)
    for position, text in enumerate(texts):
        exact = typeset(text)
        for form in {comparable(exact), comparable(plain(exact))}:
            if form:
                known[form].add(position)
    longest = max(map(len, known), default=0)
    return _Options({form: frozenset(found) for form, found in known.items()}, count, longest)


def _named(text: str, options: _Options) -> set[int]:
    """Return the choices that a candidate names: one, or none, or several that are no answer."""
    given = read(text)
    if "\n" not in given.raw:
        exact = options.by_text(given.raw)
        if exact:
            return exact | options.by_letter(given.raw)
    if given.stated is not None:
        return _of_value(given.stated, options)
    chosen = [found[1] for form in _CHOSEN if (found := form.fullmatch(given.last_line))]
    values = (" ".join(given.lines), given.last_line, *chosen)
    return set().union(*(_of_value(value, options) for value in values))


def _of_value(value: str, options: _Options) -> set[int]:
    """Return what the first layer of a value that names something names."""
    if len(value) > options.longest + _AROUND:
        return set()
    for layer in layers(value):
        named = options.by_letter(layer) | options.by_both(layer) | options.by_text(layer)
        if named:
            return named
    return set()


SCORER = TextVerifier(verify, configuration_problem)


def _matching_no_choice(task: TaskView) -> Iterator[str]:
    """Yield the answers that are no choice: only their own words pass, which nobody can know."""
    choices = _choices(task.resources.agent_payload()) or ()
    if not 0 < len(choices) <= len(ALPHABET):
        return
    answer = task.resources.hidden_payload().get("answer")
    last = ALPHABET[len(choices) - 1]
    letters = "letter A" if last == "A" else f"letter A to {last}"
    for index, item in enumerate(_items(answer)):
        if not _positions(item, choices):
            name = "eval.answer" if item is answer else f"eval.answer[{index}]"
            yield f"{name} is no {letters}, text or position (a number from 0) of a choice"


def _colliding(task: TaskView) -> Iterator[str]:
    """Yield options that the scorer does not keep apart.

    A right option must pass by its letter and by its text, alone and together; a wrong one must
    not, nor when its words stand in two lines.
    """
    choices = (_choices(task.resources.agent_payload()) or ())[: len(ALPHABET)]
    letters = ALPHABET[: len(choices)]
    right = _expected(task.resources.hidden_payload().get("answer"), choices)
    alike: dict[str, list[int]] = defaultdict(list)
    for index, choice in enumerate(choices):
        alike[comparable(plain(typeset(choice)))].append(index)
    collided: set[int] = set()
    for same in alike.values():
        if len(same) > 1 and not right.issuperset(same):
            collided.update(same)
            named = " and ".join(letters[index] for index in same)
            yield f"the options {named} are the same for the scorer"
    for index in (index for index in range(len(choices)) if index not in collided):
        kind = "right" if index in right else "wrong"
        for what, text in _spelled(letters[index], choices[index]):
            if passes(SCORER, task.resources, text) is not (index in right):
                said = "does not pass" if index in right else "passes"
                yield f"the {what} of the {kind} option {letters[index]} {said}"


def _spelled(letter: str, choice: str) -> Iterator[tuple[str, str]]:
    yield "letter", letter
    yield "text", choice
    yield "letter with the text", f"Answer: {letter}) {choice}"


FAMILY = Family(
    name=NAME,
    candidate_kind="text",
    verification="text",
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
