"""What tokens cost, in whole numbers: micro-dollars, and prices per million tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

PRICE_UNIT = 1_000_000
"""Tokens that a price is for."""

DOLLAR = 1_000_000
"""Micro-dollars of a dollar."""

NO_MODEL = "a model that is not recorded"


class Tokens(NamedTuple):
    """Use of a model provider."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens; cached ones are part of the input."""
        return self.input + self.output


class Price(NamedTuple):
    """Prices of a model, in micro-dollars per million tokens.

    Args:
        input: Price of input that did not come from the provider's cache.
        cached_input: Price of input from the cache.
        output: Price of output.
    """

    input: int
    cached_input: int
    output: int


class Use(NamedTuple):
    """Tokens of an attempt.

    Args:
        models: That it asked; empty if unknown.
        tokens: Sum of all of them together.
    """

    models: tuple[str, ...]
    tokens: Tokens


class Cost(NamedTuple):
    """The cost of attempts.

    Args:
        micro_dollars: Cost of what has a price.
        unpriced: Tokens that have none, by model, or by models that share them.
    """

    micro_dollars: int
    unpriced: Mapping[str, int]

    @property
    def summary(self) -> str:
        """The cost as text, with what it leaves out."""
        parts = [f"{count:,} tokens of {models}" for models, count in self.unpriced.items()]
        return dollars(self.micro_dollars) + (
            f" without {', '.join(parts)}, for which there is no price" if parts else ""
        )


def cost(uses: Iterable[Use], prices: Mapping[str, Price]) -> Cost:
    """Add up the cost of attempts; it is rounded once, half up to a micro-dollar.

    Tokens that several models share are priced if these have the same price.
    """
    exact, unpriced = 0, Counter[str]()
    for use in uses:
        known = {prices.get(model) for model in use.models}
        price = known.pop() if len(known) == 1 else None
        if price is not None:
            exact += _exact(use.tokens, price)
        elif use.tokens.total:
            unpriced[" and ".join(use.models) or NO_MODEL] += use.tokens.total
    return Cost((exact + PRICE_UNIT // 2) // PRICE_UNIT, dict(sorted(unpriced.items())))


def dollars(micro_dollars: int) -> str:
    """Return an amount with all its decimals; nothing is rounded."""
    whole, rest = divmod(micro_dollars, DOLLAR)
    return f"${whole:,}.{rest:06}"


def _exact(tokens: Tokens, price: Price) -> int:
    """Return the cost in micro-dollars, times ``PRICE_UNIT``."""
    cached = min(tokens.cached, tokens.input)
    fresh = tokens.input - cached
    return fresh * price.input + cached * price.cached_input + tokens.output * price.output
