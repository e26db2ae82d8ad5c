"""free_response: a text judged by a rubric of accepted and rejected answers (contract 14.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from securebench.benchmark.families.base import (
    Advice,
    AuditRules,
    Family,
    Field,
    FieldSection,
    TaskView,
    TextVerifier,
    collisions,
)
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.benchmark.scorers.text import contains_whole, fold, plain, strip_ends, typeset
from securebench.json_values import TEXT, TEXT_OR_OBJECT, described
from securebench.text import did_you_mean

NAME = "free_response"
RUBRIC_TYPE = "contains_any"
RUBRIC_KEYS = frozenset({"type", "accepted_answers", "rejected_answers", "min_token_f1"})

_STOP_TEXT = (
    "a an and are as at be because been before being by did do does due for from how if in into is"
    " it its no not of on or over that the their this through to was were what when where which"
    " who whom whose why with you your"
)
STOP_WORDS = frozenset(_STOP_TEXT.split())

_TOKEN = re.compile(
    r"(?:(?<![\w)\]%+-])-)?(?<![^\W_])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?"
    r"|(?:(?<![\w)\]%+-])-)?(?<![^\W_])[0-9]+(?:\.[0-9]+)?(?![^\W_])|[^\W_]+"
)
"""A number with its sign and decimals, or a run of letters and digits."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A rubric that passed all checks.

    Args:
        accepted: At least one answer.
        rejected: Answers that must not be given; may be empty.
        min_token_f1: Least overlap that counts as given, 0 to 1.
    """

    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    min_token_f1: float


class Best(NamedTuple):
    """The answer with the greatest overlap; no position when nothing overlaps."""

    position: int | None
    f1: float


def configuration_problem(public: Mapping[str, object], hidden: Mapping[str, object]) -> str | None:
    """Return why this verifier cannot work with the row, or None."""
    del public
    try:
        _parse_rubric(hidden.get("rubric"))
    except VerifierConfigurationError as error:
        return str(error)
    return None


def verify(
    candidate_text: str | None, public: Mapping[str, object], hidden: Mapping[str, object]
) -> VerificationResult:
    """Judge a candidate by containment first and by token overlap second.

    Returns:
        The verdict: an accepted answer is given and no rejected one is.

    Raises:
        VerifierConfigurationError: The rubric is none that this verifier understands.
    """
    del public
    rubric = _parse_rubric(hidden.get("rubric"))
    text = (candidate_text or "").strip()
    given = _as_plain(text)
    accepted = _best(given, rubric.accepted)
    rejected = _best(given, rubric.rejected)
    matched_index = _contained(given, rubric.accepted)
    if matched_index is None and accepted.f1 >= rubric.min_token_f1:
        matched_index = accepted.position
    rejected_index = _contained(given, rubric.rejected)
    if rejected_index is None and rejected.f1 >= max(rubric.min_token_f1, accepted.f1):
        rejected_index = rejected.position
    return VerificationResult(
        passed=matched_index is not None and rejected_index is None,
        metadata={
            "verifier": NAME,
            "rubric_type": RUBRIC_TYPE,
            "candidate_answer": text,
            "accepted_answer_count": len(rubric.accepted),
            "rejected_answer_count": len(rubric.rejected),
            "matched_answer_index": matched_index,
            "rejected_answer_index": rejected_index,
            "accepted_token_f1": accepted.f1,
            "rejected_token_f1": rejected.f1,
            "min_token_f1": rubric.min_token_f1,
        },
    )


def token_f1(candidate: Counter[str], answer: Counter[str]) -> float:
    """Return the harmonic mean of precision and recall over two token multisets.

    ``2PR / (P + R)`` in a form with a single rounding, so that a whole-number ratio such
    as 0.6 is not missed by the last bit.
    """
    # Not ``candidate & answer``, which looks at every token of a candidate of 1 MiB.
    overlap = sum(min(count, candidate[token]) for token, count in answer.items())
    if overlap == 0:
        return 0.0
    return 2 * overlap / (candidate.total() + answer.total())


def tokens(text: str) -> Counter[str]:
    """Return the numbers and the runs of letters and digits of a plain text, without stop words."""
    found = (token.replace(",", "") for token in _TOKEN.findall(_expand(text.lower())))
    return Counter(token for token in found if token not in STOP_WORDS)


def _best(text: str, answers: Sequence[str]) -> Best:
    best = Best(None, 0.0)
    given = tokens(text)
    for index, answer in enumerate(answers):
        f1 = token_f1(given, tokens(_as_plain(answer)))
        if f1 > best.f1:
            best = Best(index, f1)
    return best


def _contained(text: str, answers: Sequence[str]) -> int | None:
    given = _normalized(text)
    hits = (i for i, answer in enumerate(answers) if _holds(text, given, answer))
    return next(hits, None)


def _holds(text: str, given: str, answer: str) -> bool:
    """Tell whether an answer is given; one of signs only has to be the whole text (21.17)."""
    plain_answer = _as_plain(answer)
    wanted = _normalized(plain_answer)
    return contains_whole(given, wanted) if wanted else bool(text) and text == plain_answer


def _as_plain(text: str) -> str:
    return plain(typeset(text).strip()).strip()


def _normalized(text: str) -> str:
    return strip_ends(_expand(fold(text)))


def _expand(lowered: str) -> str:
    return lowered.replace("u.s.", "united states")


def _parse_rubric(raw: object) -> Rubric:
    """Return the rubric.

    Raises:
        VerifierConfigurationError: It is none that this verifier understands.
    """
    if not isinstance(raw, dict):
        raise VerifierConfigurationError("free_response requires a structured rubric (an object)")
    if raw.get("type", RUBRIC_TYPE) != RUBRIC_TYPE:
        raise VerifierConfigurationError(f"free_response rubric type must be {RUBRIC_TYPE}")
    accepted = _answers(raw.get("accepted_answers"))
    if accepted is None:
        raise VerifierConfigurationError(
            "free_response rubric accepted_answers must be a list of non-blank strings"
        )
    rejected = raw.get("rejected_answers")
    checked = () if rejected is None else _answers(rejected)
    if checked is None:
        raise VerifierConfigurationError(
            "free_response rubric rejected_answers must be a non-empty list of non-blank strings"
        )
    least = raw.get("min_token_f1", 1.0)
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise VerifierConfigurationError(
            "free_response rubric min_token_f1 must be a number from 0 to 1"
        )
    return Rubric(accepted, checked, float(least))


def _answers(raw: object) -> tuple[str, ...] | None:
    if not isinstance(raw, list | tuple) or not raw:
        return None
    if not all(isinstance(item, str) and item.strip() for item in raw):
        return None
    return tuple(raw)


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    """Yield the keys of a rubric that nothing reads (contract 21.18)."""
    rubric, known = row_eval.get("rubric"), RUBRIC_KEYS
    if isinstance(rubric, Mapping):
        for key in sorted(rubric.keys() - known):
            yield Advice(
                "unknown-key", f"unknown key eval.rubric.{key}{did_you_mean([key], known)}"
            )


def _colliding(task: TaskView) -> Iterator[str]:
    """Yield accepted and rejected answers that are one text for the scorer.

    An accepted answer may quote a rejected one; that is no collision.
    """
    try:
        rubric = _parse_rubric(task.resources.value("rubric"))
    except VerifierConfigurationError:
        return
    rejected = [_normalized(_as_plain(text)) for text in rubric.rejected]
    for index, text in enumerate(rubric.accepted):
        same = _normalized(_as_plain(text))
        if same in rejected:
            other = f"rejected_answers[{rejected.index(same)}]"
            yield f"accepted_answers[{index}] and {other} of the rubric are the same for the scorer"


FAMILY = Family(
    name=NAME,
    candidate_kind="text",
    verification="text",
    input=FieldSection(
        "input",
        (
            Field(
                "prompt",
                described(TEXT, "What is asked.", "Why do honey bees dance?"),
                required=True,
            ),
            Field(
                "context",
                described(
                    TEXT_OR_OBJECT,
                    "A passage or data that the question is about.",
                    "Bees live in hives.",
                ),
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "rubric",
                described(
                    TEXT_OR_OBJECT,
                    "How answers are judged: an object with `accepted_answers`, and optionally"
                    " `rejected_answers`, `min_token_f1` (0 to 1, default 1) and `type`"
                    " (`contains_any`). No answer can be judged by a text.",
                    {
                        "type": "contains_any",
                        "accepted_answers": ["to tell where food is"],
                        "rejected_answers": ["they are happy"],
                        "min_token_f1": 0.6,
                    },
                ),
                required=True,
                lane=Lane.HIDDEN,
            ),
            Field(
                "reference_answer",
                described(
                    TEXT,
                    "A full answer, for people; it never scores.",
                    "They show other bees where food is.",
                ),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    scorer=TextVerifier(verify, configuration_problem),
    advice=_advice,
    audit=AuditRules(rules=(collisions(_colliding),), asks=("prompt",)),
)
