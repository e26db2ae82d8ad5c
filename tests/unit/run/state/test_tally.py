import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Finish
from securebench.run.state.history import tally
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
