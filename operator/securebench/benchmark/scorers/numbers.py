"""Numbers in texts: exact, in the notations that people write (contract 14.0).

A place that looks like a number and cannot be read for certain (``2x``, ``1.2.3``, ``not 5``,
``< 5``, ``5!``) equals nothing: where the answer stands beside it, the text has no number. Digits
of a name (``CO2``, ``x_1``, ``GPT-4``) and of an exponent (``m^2``) are no numbers.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DIGITS = 1_000
"""Digits of the longest number, with those that its exponent adds; a longer one is not read."""

_WINDOW = 40
"""Characters before and behind a run of digits that decide what it is."""
_LETTER = r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""A letter of a script that writes words with blanks between them."""
_GROUPED = r"[0-9]{1,3}(?: [0-9]{3})+(?![0-9])(?:[.,][0-9]+)?"
_DIGITS = re.compile(rf"{_GROUPED}|\.?[0-9]+(?:[.,'_:][0-9]+)*")
_FORMS = (
    (re.compile(r"[0-9]*\.?[0-9]+"), "", "."),
    (re.compile(r"(?!0)[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"), ",", "."),
    (re.compile(r"(?!0)[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]+)?"), ",", "."),
    (re.compile(r"[0-9]{1,3}(?:[ '_][0-9]{3})+(?:\.[0-9]+)?"), " '_", "."),
    (re.compile(r"[0-9]{1,3}(?:[ '_][0-9]{3})+,[0-9]+"), " '_", ","),
    (re.compile(r"(?!0)[0-9]{1,3}(?:\.[0-9]{3}){2,}"), ".", ","),
    (re.compile(r"(?!0)[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+"), ".", ","),
    (re.compile(r"[0-9]+,[0-9]+"), "", ","),
)
"""How digits are written: a form, its signs between groups, its sign before decimals."""

_NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|except|than|without|wrong|incorrect)|n't|\u4e0d\u662f)"
    rf"(?: {_LETTER}{{1,12}}){{0,2}} ?[\"'(\[:]*\Z",
    re.IGNORECASE,
)
_NO_OPERAND = re.compile(
    r"(?:[<\u2264\u2265\u2260\u00b1\u221a/]\{?|(?<![-=])>|!=|\w[(\[]|[-+][(\[]"
    r"|\b(?:ln|log(?:_[0-9]+)?|sin|cos|tan|exp|sqrt|minus|plus|between|under|over|below|above|twice"
    r"|at least|at most|up to|half of|root of|anything but|all but)) ?\Z",
    re.IGNORECASE,
)
_OF_A_NAME = re.compile(rf"(?:{_LETTER}-?|[_^]|\^-|\d)\Z")
_MONEY = re.compile(r"[$\u20ac\u00a3\u00a5\u20b9] ?\Z")
_SIGN = re.compile(r"(?:(?<![\w)\]%.+-])[+-]|[=:(,] ?- ?)\Z")
_MINUS_IN_WORDS = re.compile(r"(?<![0-9)\]%] )\b(?:minus|negative) \Z", re.IGNORECASE)
_UNCERTAIN_SIGN = re.compile(r"(?:[+-]|(?:\A|\n) *[+-] |\bis - |[^\n ] ?[+*/^\u00d7\u00b7] ?)\Z")

_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,6})(?!\w)(?!\.[0-9])")
_POWER = r"(?:\^|\*\*) ?(?:\(([+-]?[0-9]{1,6})\)|([+-]?[0-9]{1,6}))(?![0-9])(?!\.[0-9])"
_TIMES_TEN = re.compile(rf" ?[\u00d7xX*\u00b7] ?10 ?{_POWER}")
_TO_THE = re.compile(rf" ?{_POWER}")
_MIXED = re.compile(r" ([0-9]{1,9})/([0-9]{1,9})(?![/\d])(?![.,][0-9])")
_OVER = re.compile(r" ?/ ?([0-9]{1,20})(?![/\d])(?![.,][0-9])")
_PERCENT = re.compile(r" ?(?:%|per ?cent\b)", re.IGNORECASE)
_SCALE = re.compile(r" (hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_UNITS = (
    "s|m|g|l|L|h|t|N|J|W|V|A|K|C|F|km|cm|mm|nm|\u03bcm|kg|mg|ms|min|hrs?|ft|in|lbs?|oz|mi|mph|kph"
    "|k?Hz|[MG]Hz|[km]?W|MW|kWh|m[lL]|kJ|k?Pa|mol|eV|px|pt|[kKMGT]B|st|nd|rd|th|[ap]m|[AP]M|USD|EUR|[kM]?\u03a9"
)
_OPERATOR = r"[+*\u00d7\u00b7\u00f7^/\u221a\u03c0]"
_GOES_ON = re.compile(
    rf"(?!(?:{_UNITS})(?!\w)){_LETTER}|\d|[!(\u2030]|\+(?!\w)"
    r"| ?(?:squared|cubed|factorial|below|plus|minus|divided)(?!\w)| of [0-9]"
    rf"| ?{_OPERATOR} ?(?:[\d(\u221a\u03c0\\]|[A-Za-z](?!\w))"
    r"| ?(?:\u221a|\u03c0|pi\b|sqrt\b)| ?- ?(?:\d|[A-Za-z]\b(?!'))"
    r"| ?[<>\u2264\u2265\u2260\u00b1]| [xyznie](?![\w'])"
    r"| ?(?:dozen|[kKM]|[mb]n|lakh|crore)(?!\w)| ?[\u4e07\u4ebf\u5104\u842c\u5343\u767e]"
)
"""What makes of a number a part of something else: an expression, a range, a bound, a scale."""


class Number(NamedTuple):
    """A number as written.

    Attributes:
        value: Of a percentage the number before the sign.
    """

    value: Fraction
    is_percent: bool = False

    def is_near(self, given: Number, tolerance: Fraction) -> bool:
        """Tell whether a candidate's number is this one, in the unit of this one.

        Beside an accepted number above 1 a percent sign is a unit like others (``42%`` for 42);
        beside one from -1 to 1 it divides by 100 (``50%`` for 0.5, and ``0.5%`` is not 0.5).
        """
        other = given.value
        if self.is_percent and not given.is_percent:
            other *= 100
        elif given.is_percent and not self.is_percent and abs(self.value) <= 1:
            other /= 100
        return abs(self.value - other) <= tolerance


class Place(NamedTuple):
    """A place of a text that holds a number, or something that equals none (None)."""

    number: Number | None
    start: int
    end: int


def places(text: str) -> Iterator[Place]:
    """Yield what looks like a number, in order; names and exponents are left out.

    Args:
        text: Plain text.
    """
    position = 0
    while (digits := _DIGITS.search(text, position)) is not None:
        start, end = digits.span()
        before, after = text[max(start - _WINDOW, 0) : start], text[end : end + _WINDOW]
        position = end
        if _OF_A_NAME.search(before) is None:
            number, signs, more = _read(before, digits[0], after)
            position = end + more
            yield Place(number, start - signs, position)


def sole_number(text: str) -> Place | None:
    """Return the last place of the only number in a plain text; None where there are two or none.

    Places that cannot be read count as another number.
    """
    found: Place | None = None
    for place in places(text):
        if place.number is None or (found is not None and found.number != place.number):
            return None
        found = place
    return found


def whole_number(text: str) -> Number | None:
    """Return the number that a whole plain text is; ``007`` is none, nor is ``42 km``."""
    text = text.strip()
    found = sole_number(text)
    is_code = re.match(r"[+-]?0[0-9]", text) is not None
    if found is None or is_code or (found.start, found.end) != (0, len(text)):
        return None
    return found.number


@lru_cache(maxsize=1024)
def _read(before: str, digits: str, after: str) -> tuple[Number | None, int, int]:
    """Return the number or None, how long its sign is, and how much behind the digits belongs."""
    money = _MONEY.search(before)
    signed = before[: money.start()] if money else before
    sign = _SIGN.search(signed) or _MINUS_IN_WORDS.search(signed)
    lead = signed[: sign.start()] if sign else signed
    if sign and sign[0][0] in "=:(,":
        lead += sign[0][0]
    signs = 0 if sign is None or money else len(sign[0].lstrip("=:(, "))
    value = _decimal(digits)
    if value is None:
        return None, signs, 0
    value, more = _with_exponent(value, digits, after)
    scale = _SCALE.match(after, more)
    if value is not None and scale is not None:
        value, more = value * _SCALES[scale[1].lower()], scale.end()
    percent = _PERCENT.match(after, more)
    more = percent.end() if percent else more
    is_uncertain = (
        _NEGATED.search(lead)
        or _NO_OPERAND.search(lead)
        or (sign is None and _UNCERTAIN_SIGN.search(signed))
        or _GOES_ON.match(after, more)
    )
    if value is None or is_uncertain:
        return None, signs, more
    is_minus = sign is not None and "+" not in sign[0]
    return Number(-value if is_minus else value, percent is not None), signs, more


def _decimal(digits: str) -> Fraction | None:
    if len(digits) > MAX_DIGITS:
        return None
    for form, between, point in _FORMS:
        if form.fullmatch(digits):
            plain = digits.translate(dict.fromkeys(map(ord, between)))
            return Fraction(plain.replace(point, "."))
    return None


def _with_exponent(value: Fraction, digits: str, after: str) -> tuple[Fraction | None, int]:
    """Return the value with the exponent or denominator behind the digits, and their length."""
    ten = _EXPONENT.match(after) or _TIMES_TEN.match(after)
    if ten is not None:
        exponent = int(ten[1] or ten[2])
        is_short = len(digits) + abs(exponent) <= MAX_DIGITS
        return value * Fraction(10) ** exponent if is_short else None, ten.end()
    power = _TO_THE.match(after)
    if power is not None:
        exponent = int(power[1] or power[2])
        is_possible = len(digits) * abs(exponent) <= MAX_DIGITS and (value or exponent > 0)
        return value**exponent if is_possible else None, power.end()
    mixed, over = _MIXED.match(after), _OVER.match(after)
    if mixed is not None:
        under = int(mixed[2])
        return value + Fraction(int(mixed[1]), under) if under else None, mixed.end()
    if over is not None:
        under = int(over[1])
        return value / under if under else None, over.end()
    return value, 0
