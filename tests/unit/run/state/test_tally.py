import pytest

from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Finish, Outcome
from securebench.run.state.tally import Interval, tally, wilson
from support.build import HARNESS, history_of, live


def finished(outcome, passed=None):
    key = AttemptKey(0, 1)
    return history_of(finish=Finish(key, outcome, passed=passed))


def test_counts():
    found = tally(
        [
            finished(Outcome.SCORED, passed=True),
            finished(Outcome.SCORED, passed=False),
            finished(Outcome.AGENT, passed=False),
            finished(Outcome.RESOURCE, passed=False),
            finished(Outcome.INFRASTRUCTURE),
            finished(Outcome.NOT_VERIFIED),
            live(HARNESS),
            history_of(),
        ]
    )
    assert (found.total, found.active, found.done) == (8, 1, 6)
    assert (found.verified, found.passed) == (4, 1)
    assert found.outcomes[Outcome.SCORED] == 2
    assert not found.has_all_verdicts


VERDICTS = {
    Outcome.SCORED: True,
    Outcome.AGENT: True,
    Outcome.RESOURCE: True,
    Outcome.NOT_VERIFIED: True,
    Outcome.VERIFIER: False,
    Outcome.PROVIDER: False,
    Outcome.INFRASTRUCTURE: False,
    Outcome.CANCELLED: False,
}


@pytest.mark.parametrize("outcome", Outcome)
def test_which_outcomes_are_verdicts(outcome):
    assert tally([finished(outcome)]).has_all_verdicts is VERDICTS[outcome]


def test_an_open_attempt_has_no_verdict():
    assert not tally([finished(Outcome.SCORED, passed=True), history_of()]).has_all_verdicts
    assert tally([]).has_all_verdicts


def rounded(interval):
    return None if interval is None else tuple(round(value, 4) for value in interval)


WILSON = {
    # R: prop.test(x, n, correct = FALSE)$conf.int
    (0, 10): (0.0, 0.0, 0.2775),
    (5, 10): (0.5, 0.2366, 0.7634),
    (10, 10): (1.0, 0.7225, 1.0),
    (81, 263): (0.308, 0.2553, 0.3662),
}


@pytest.mark.parametrize("counts", WILSON)
def test_wilson(counts):
    assert rounded(wilson(*counts)) == WILSON[counts]


def test_no_rate_without_verdicts():
    assert wilson(0, 0) is None


@pytest.mark.parametrize("verified", [1, 3, 100, 10_000])
def test_the_interval_holds_its_value(verified):
    for passed in {0, 1, verified // 2, verified}:
        interval = wilson(passed, verified)
        assert isinstance(interval, Interval)
        assert 0.0 <= interval.low <= interval.value + 1e-12
        assert interval.value <= interval.high + 1e-12 <= 1.0 + 2e-12
