"""Random rows and candidates for the text scorers, made to be almost right or almost wrong."""

from __future__ import annotations

from random import Random

BLANKS = ["", " ", "  ", "\t", "\n", "\r\n", "\v", "\x85", "\u00a0", "\u2028", "\x1f"]
SIGNS = [*"\"'`.,;:!?*()[]-_/+#", "\u2019", "\u2212", "\ufe63", "\uff0d", "\u200b", "\u0301"]
_WORDS = (
    "final answer choice option is Is IS Final FINAL Answer ANSWER Choice Option finalanswer"
    " final_answer answers an\u017fwer opt\u0131on opt\u0130on an swer its isle The the of to"
    " mercury Venus EARTH venus a A b B c C z Z u.s. U.S. u.s u.s.a menu.s. united states bees bee"
    " share directions dance lake baikal ion lions 3 3.0 \u0663 \u00b2 x_1 stra\u00dfe STRASSE"
    " \u0130stanbul \u212aelvin \u01c5 \u6771\u4eac \u00e9t\u00e9 e\u0301te\u0301 true null nan inf"
)
_NUMBERS = (
    "12 12.5 .5 -.5 -3 +3 +-3 --3 1,234 1,2,3 12. 1.2.3 4e2 0x1F 1e-9 -0 00 0.1 12.9 12.4"
    " 0.30000000000000004 1,000.5 -1,0 99999999999999999999 1000000000 1000000001 3,-"
    " ,5 .,5 5, 3-4 a-3 -,3 3.-4 \u06633 \uff11\uff12 \u22123 \ufe632 \uff0d\uff15 1\uff0e5"
    " 10\u00b2 \u2460 \u2469 \u00bd \U0001d7d9.\U0001d7da \u22121,\uff10 x\u2082"
)
WORDS = _WORDS.split()
NUMBERS = [*_NUMBERS.split(), "9" * 400]
LEADS = [
    "", "", "answer", "Answer: ", "final answer is ", "FINAL ANSWER - ", "option", "choice:",
    "My choice is: ", "the answer is ", "is ", ": ", "-", "Answer answer: ", "preanswer ",
    "final  answer: ", "answer is: -", "answeris ", "option choice ",
]  # fmt: skip
GOOD_LEADS = ["Answer: ", "final answer is ", "My choice - ", "option "]
QUOTES = ["", "", "", "", '"', "'", "`", "(", "[", "**", "_"]
ONLY_SIGNS = ["...", ".", "'", '"', "`", ". .", ": ;", "''", ".\u00a0."]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ["
BROKEN = [
    *(None, [], {}, "", " ", 0, 1.5, -0.1, True, False, "contains_all", "a", 1.0),
    *(["a", " "], ["a", 1], [[]]),
]

Case = tuple[dict[str, dict[str, object]], str]


def piece(rng: Random) -> str:
    if rng.random() < 0.03:
        return chr(rng.choice([rng.randrange(256), rng.randrange(0x3000), rng.randrange(0xD800)]))
    return rng.choice(rng.choice([WORDS, WORDS, WORDS, NUMBERS, SIGNS, BLANKS]))


def some_text(rng: Random, most: int = 7) -> str:
    return rng.choice(["", " "]).join(piece(rng) for _ in range(rng.randint(0, most)))


def an_answer(rng: Random) -> str:
    if rng.random() < 0.05:
        return rng.choice(ONLY_SIGNS)
    text = rng.choice(WORDS) if rng.random() < 0.4 else some_text(rng, 5)
    return text if text.strip() else an_answer(rng)


def answers(rng: Random, most: int) -> list[str]:
    return [an_answer(rng) for _ in range(rng.randint(1, most))]


def close_to(rng: Random, answer: str) -> str:
    """Return an answer as somebody might give it, or nearly so."""
    change = rng.choice([str, str, str, str.lower, str.upper, str.title, str.swapcase, str.strip])
    text = change(answer)
    place = rng.randint(0, len(text))
    match rng.randrange(12):
        case 0:
            return text[:place] + text[place + 1 :]
        case 1:
            return text[:place] + text[max(place - 1, 0) :]
        case 2:
            return text[:place] + rng.choice([*SIGNS, *BLANKS, *"aZ0_"]) + text[place:]
        case 3:
            return text.replace(" ", rng.choice(BLANKS))
        case _:
            return text


def stated(rng: Random, answer: str) -> str:
    """Put text of all kinds around an answer."""
    if rng.random() < 0.5:
        lead = rng.choice(["", "So\n", "I say: "]) + rng.choice(["", *GOOD_LEADS])
        return lead + close_to(rng, answer) + rng.choice(["", "", ".", ")", "!", "\n"])
    quote = rng.choice(QUOTES)
    close = {"(": ")", "[": "]"}.get(quote, quote)
    before = some_text(rng, 4) if rng.random() < 0.3 else ""
    after = (
        some_text(rng, 3) if rng.random() < 0.3 else rng.choice(["", "", ".", ")", " ", "]:", "!"])
    )
    end = rng.choice(["", "", "", "\n", "\n\n  ", "\r", "\x85"])
    core = rng.choice(LEADS) + quote + close_to(rng, answer) + close
    return before + rng.choice(["", "", "\n", " "]) + core + after + end


def candidate(rng: Random, hints: list[str]) -> str:
    if rng.random() < 0.15:
        return some_text(rng)
    return stated(rng, rng.choice(hints))


def multiple_choice(rng: Random) -> Case:
    count = rng.randint(24, 27) if rng.random() < 0.1 else rng.randint(1, 5)
    choices = [an_answer(rng) for _ in range(count)]
    if count > 1 and rng.random() < 0.2:
        choices[-1] = close_to(rng, choices[0]).strip() or "x"
    answer: object = one_choice(rng, choices)
    if rng.random() < 0.3:
        several = [one_choice(rng, choices) for _ in range(rng.randint(1, 3))]
        answer = [1 if isinstance(item, bool) else item for item in several]
    given = answer if isinstance(answer, list) else [answer]
    likely = [hint for item in given for hint in spelled(item, choices)]
    hints = [*likely * 3, rng.choice(choices), "A", "b", "(C)", rng.choice(LETTERS)]
    return {"input": {"choices": choices}, "eval": {"answer": answer}}, candidate(rng, hints)


def spelled(answer: object, choices: list[str]) -> list[str]:
    if isinstance(answer, int) and 0 <= answer < len(choices) <= 26:
        return [LETTERS[answer], LETTERS[answer].lower(), choices[answer]]
    return [str(answer)]


def one_choice(rng: Random, choices: list[str]) -> object:
    match rng.randrange(8):
        case 0 | 1:
            return rng.randint(-1, len(choices))
        case 2:
            odd = [0.5, 1e300, -0.0, 2**70, True, False, float(len(choices)), 1.0]
            return rng.choice(odd)
        case 3:
            return rng.choice(LETTERS[:5] + LETTERS[:5].lower() + "[")
        case 4:
            return stated(rng, rng.choice(LETTERS[:6])).strip() or "B"
        case 5 | 6:
            return close_to(rng, rng.choice(choices)).strip() or "x"
        case _:
            return an_answer(rng)


def short_answer(rng: Random) -> Case:
    accepted = [one_accepted(rng) for _ in range(rng.randint(1, 3))]
    evaluation: dict[str, object] = {"accepted_answers": accepted}
    if rng.random() < 0.6:
        known = [0, 0.0, 0.5, 1, 0.01, 1e-9, 100, None]
        evaluation["tolerance"] = rng.choice([*known, rng.uniform(0, 10)])
    hints = [str(near) for answer in accepted for near in (answer, answer, *beside(answer))]
    return {"input": {}, "eval": evaluation}, candidate(rng, hints)


def one_accepted(rng: Random) -> str | float:
    match rng.randrange(6):
        case 0:
            return rng.randint(-30, 30)
        case 1:
            return round(rng.uniform(-50, 50), 2)
        case 2:
            return rng.choice([12.5, 3, 3.0, 1e20, 1e-7, 0.3, 10**9, 10**30, -0.0, 1e308])
        case 3:
            return rng.choice(NUMBERS)
        case _:
            return an_answer(rng)


def beside(answer: str | float) -> list[float]:
    """Return numbers at and just beyond what a tolerance allows."""
    if isinstance(answer, str):
        return []
    return [answer + step for step in (0.5, -0.5, 0.51, 1, 0.01)] + [answer * (1 + 9e-10)]


def free_response(rng: Random) -> Case:
    accepted, rejected = sentences(rng), sentences(rng)
    if rng.random() < 0.3:
        rejected[0] = close_to(rng, rng.choice(accepted)).strip() or "x"
    rubric: dict[str, object] = {"accepted_answers": accepted}
    if rng.random() < 0.6:
        rubric["rejected_answers"] = rng.choice([rejected, rejected, None])
    if rng.random() < 0.7:
        known = [0, 1, 0.5, 0.6, 0.75, 0.8, 2 / 3, 0.4, 0.7, 4 / 7]
        rubric["min_token_f1"] = rng.choice([*known, rng.random()])
    if rng.random() < 0.5:
        rubric["type"] = "contains_any"
    hints = [*accepted, *rejected]
    words = [word for text in hints for word in text.split()] + ["of", "x"]
    mixed = " ".join(rng.choice(words) for _ in range(rng.randint(0, 7)))
    text = mixed if rng.random() < 0.4 else candidate(rng, hints)
    return {"input": {}, "eval": {"rubric": maybe_broken(rng, rubric)}}, text


def sentences(rng: Random) -> list[str]:
    if rng.random() < 0.4:
        return answers(rng, 3)
    count = rng.randint(1, 3)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 7))) for _ in range(count)]


def maybe_broken(rng: Random, rubric: dict[str, object]) -> object:
    """Return the rubric, and rarely one that no verifier can work with, or only nearly so."""
    if rng.random() < 0.9:
        return rubric
    key = rng.choice(["type", "accepted_answers", "rejected_answers", "min_token_f1"])
    return rng.choice(
        [rubric | {key: rng.choice(BROKEN)}, rubric | {key: rng.choice(BROKEN)}, "x", [rubric], {}]
    )


CASES = {
    "multiple_choice": multiple_choice,
    "short_answer": short_answer,
    "free_response": free_response,
}
