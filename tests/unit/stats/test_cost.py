import pytest

from securebench.stats.cost import NO_MODEL, Cost, Price, Tokens, Use, cost, dollars

PRICES = {
    "big": Price(1_250_000, 125_000, 10_000_000),
    "small": Price(1, 1, 1),
    "twin": Price(1, 1, 1),
    "free": Price(0, 0, 0),
}
MILLION = 1_000_000

COSTS = {
    "each kind": ([Use(("big",), Tokens(1, 3 * MILLION, MILLION, MILLION))], 12_625_000, {}),
    "rounded once, half up": ([Use(("small",), Tokens(1, 250_000, 0, 0))] * 2, 1, {}),
    "less than half": ([Use(("small",), Tokens(1, 499_999, 0, 0))], 0, {}),
    "more cached than input": ([Use(("big",), Tokens(1, MILLION, 9 * MILLION, 0))], 125_000, {}),
    "equal prices": ([Use(("small", "twin"), Tokens(1, MILLION, 0, MILLION))], 2, {}),
    "free": ([Use(("free",), Tokens(1, MILLION, 0, MILLION))], 0, {}),
    "no price": ([Use(("other",), Tokens(1, 5, 2, 7))], 0, {"other": 12}),
    "one of two": ([Use(("big", "other"), Tokens(1, 5, 0, 0))], 0, {"big and other": 5}),
    "other prices": ([Use(("big", "small"), Tokens(1, 5, 0, 0))], 0, {"big and small": 5}),
    "no model": ([Use((), Tokens(1, 5, 0, 0))], 0, {NO_MODEL: 5}),
    "no tokens": ([Use(("other",), Tokens())], 0, {}),
    "nothing": ([], 0, {}),
}


@pytest.mark.parametrize("case", COSTS)
def test_cost(case):
    uses, want_micro_dollars, want_unpriced = COSTS[case]
    assert cost(uses, PRICES) == Cost(want_micro_dollars, want_unpriced)


def test_amounts_have_all_their_decimals():
    assert dollars(0) == "$0.000000"
    assert dollars(1_234_567_000_001) == "$1,234,567.000001"


def test_what_has_no_price_is_said():
    assert Cost(5, {}).summary == "$0.000005"
    want = "$0.000005 without 1,200 tokens of other, for which there is no price"
    assert Cost(5, {"other": 1200}).summary == want
