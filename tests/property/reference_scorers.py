"""Verdicts of text answers by construction: the content is known before it is written down.

It shares nothing with the product. A case begins with what an answer means (a number, a set of
choices, a sentence); the notation, the marks and the lines around it come last and decide nothing.
The other implementation reads the text and has to find the meaning again.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import NamedTuple

Row = dict[str, dict[str, object]]


class Case(NamedTuple):
    """A row, a candidate's text, and whether the content of the text is right."""

    row: Row
    text: str
    want: bool


INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0f"
BLANKS = " \u00a0\u2003\u2009\u202f\u3000"
DASHES = "-\u2010\u2011\u2013\u2212\uff0d"
MARKS = (
    ("", ""), ("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$", "$"), ("$$", "$$"),
    ("\\(", "\\)"), ("\\text{", "}"), ("$\\mathrm{", "}$"), ("<b>", "</b>"), ("**`", "`**"),
)  # fmt: skip
BRACKETS = (
    ("", ""),
    ("(", ")"),
    ("[", "]"),
    ('"', '"'),
    ("\u201c", "\u201d"),
    ("\u00ab", "\u00bb"),
)
LEADS = (
    *("Answer: ", "ANSWER: ", "**Answer:** ", "The answer is ", "Final answer: ", "- Answer: "),
    *("### Answer\n\n", "so the correct answer is ", "Answer\uff1a", "Answer (short): "),
)
THOUGHTS = ("", "Let me think.\n", "First I read it.\n\nThen I read it again.\n")
AFTER = ("", ".", "\n", "\n\nThat is all.\n")


def marked(rng: Random, text: str) -> str:
    """Put balanced formatting marks around."""
    before, behind = rng.choice(MARKS)
    return before + text + behind


def stated(rng: Random, text: str) -> str:
    """Say it on a labelled line, or alone on the last line."""
    thoughts = rng.choice(THOUGHTS)
    if rng.random() < 0.6:
        return thoughts + rng.choice(LEADS) + text + rng.choice(AFTER)
    return thoughts + text + rng.choice(AFTER[:3])


def disturbed(rng: Random, text: str) -> str:
    """Write the same with other widths and quotes, and with invisible characters between."""
    out = []
    for sign in text:
        if rng.random() < 0.05:
            out.append(rng.choice(INVISIBLE))
        if sign == " ":
            out.append(rng.choice(BLANKS))
        elif sign == "'":
            out.append(rng.choice("'\u2019\u02bc"))
        elif rng.random() < 0.05 and sign.isalnum() and sign.isascii():
            out.append(chr(ord(sign) + 0xFEE0))
        else:
            out.append(sign)
    return "".join(out)


# numbers


def grouped(digits: str, sign: str) -> str:
    """Put a sign between groups of three."""
    first = len(digits) % 3 or 3
    return sign.join(
        [digits[:first], *(digits[at : at + 3] for at in range(first, len(digits), 3))]
    )


def decimal(rng: Random, units: int, places: int) -> str:
    """Write units / 10^places, not negative."""
    digits = str(units).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    if len(whole) > 3 and rng.random() < 0.5:
        whole = grouped(whole, rng.choice([",", " ", "'", "_", "\u202f"]))
    part += "0" * rng.choice([0, 0, 1, 2]) if part else ""
    return whole + ("." + part if part else "")


def notation(rng: Random, units: int, places: int) -> str:
    """Write units / 10^places in any notation."""
    minus = rng.choice(DASHES[2:] if rng.random() < 0.5 else "-") if units < 0 else ""
    size = abs(units)
    match rng.randrange(6):
        case 0:
            return f"{minus}{size}e{-places}"
        case 1:
            times = rng.choice(["\u00d7", " x ", "*", " \\times ", "\u00b7"])
            return f"{minus}{size}{times}10^{{{-places}}}"
        case 2:
            raised = str(-places).translate(str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹"))
            return f"{minus}{size} \u00d7 10{raised}"
        case 3 if size and places:
            return f"{minus}\\frac{{{size}}}{{{10**places}}}"
        case _:
            return minus + decimal(rng, size, places)


def short_answer(rng: Random) -> Case:
    """A number against a number, or a name against a name."""
    if rng.random() < 0.3:
        return name_case(rng)
    places = rng.choice([0, 0, 0, 1, 2, 3])
    wanted = rng.choice([rng.randint(-20, 20), rng.randint(-(10**6), 10**6)])
    near = rng.choice([wanted, wanted, wanted, -wanted, wanted * 10, wanted + 1, wanted * 1000])
    tolerance = rng.choice([None, None, 0, 1, 0.5])
    accepted: str | int | float = notation(rng, wanted, places)
    if rng.random() < 0.4:
        accepted = wanted if places == 0 else float(f"{wanted}e{-places}")
    difference = abs(Fraction(wanted) - near) / 10**places
    text = stated(
        rng, marked(rng, notation(rng, near, places)) + rng.choice(["", " km", " apples"])
    )
    row: Row = {"input": {}, "eval": {"accepted_answers": [accepted], "tolerance": tolerance}}
    return Case(row, text, difference <= Fraction(str(tolerance or 0)))


NAMES = (
    "Lake Baikal",
    "O'Brien",
    "Carolina",
    "caf\u00e9 Central",
    "well-known",
    "1939-1945",
    "x_1",
)


def name_case(rng: Random) -> Case:
    """A name, and another one or one that is longer or shorter by a letter."""
    wanted = rng.choice(NAMES)
    given = rng.choice([wanted, wanted, *NAMES, wanted + "s", wanted[:-1]])
    text = disturbed(rng, given).replace("-", rng.choice(DASHES[:4]))
    row: Row = {"input": {}, "eval": {"accepted_answers": [wanted], "tolerance": None}}
    return Case(row, stated(rng, marked(rng, text)), given == wanted)


# choices

TEXTS = ("Mercury", "Venus", "the red planet", "2 pi", "pi", "does not increase", "increase", "B2",
         "x^2", "-5", "5", "(0, 1)", "[0, 1]", "Earth's moon")  # fmt: skip
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def multiple_choice(rng: Random) -> Case:
    """One choice named by letter, text or both; or two, or a letter with another's text."""
    choices = rng.sample(TEXTS, rng.randint(2, 6))
    right = rng.randrange(len(choices))
    named = right if rng.random() < 0.6 else rng.randrange(len(choices))
    other = (named + 1) % len(choices)
    want = named == right
    letter, text = ALPHABET[named], choices[named]
    match rng.randrange(7):
        case 0 | 1:
            before, behind = rng.choice(BRACKETS)
            said = before + rng.choice([letter, letter.lower()]) + behind
        case 2:
            said = disturbed(rng, text)
        case 3 | 4:
            said = letter + rng.choice([") ", ". ", ": ", " - "]) + text
        case 5:
            said, want = f"{letter}) {choices[other]}", False
        case _:
            said, want = (
                f"{letter}{rng.choice([' or ', ', ', ' and ', '/'])}{ALPHABET[other]}",
                False,
            )
    answer = rng.choice([right, ALPHABET[right], choices[right]])
    row: Row = {"input": {"choices": choices}, "eval": {"answer": answer}}
    return Case(row, stated(rng, marked(rng, said)), want)


# sentences

WORDS = ("bees", "share", "directions", "dance", "copper", "rusts", "green", "Paris", "caf\u00e9",
         "don't", "-5", "5", "0.5", "50", "H2O", "well-known")  # fmt: skip


def free_response(rng: Random) -> Case:
    """A sentence that holds all words of the accepted one in order, or lacks one."""
    wanted = [rng.choice(WORDS) for _ in range(rng.randint(2, 5))]
    given, want = list(wanted), True
    if rng.random() < 0.5:
        place = rng.randrange(len(given))
        given[place] = rng.choice([word for word in WORDS if word != given[place]])
        want = False
    refused = rng.random() < 0.2
    if refused:
        given += ["wrong", "thing"]
    sentence = " ".join(marked(rng, word) if rng.random() < 0.3 else word for word in given)
    rubric = {"accepted_answers": [" ".join(wanted)], "rejected_answers": ["wrong thing"]}
    text = rng.choice(["", "I think ", "So: "]) + sentence + rng.choice(["", ".", "!"])
    want = want or sorted(given) == sorted(wanted)
    return Case(
        {"input": {}, "eval": {"rubric": rubric}}, disturbed(rng, text), want and not refused
    )


CASES = {
    "multiple_choice": multiple_choice,
    "short_answer": short_answer,
    "free_response": free_response,
}
