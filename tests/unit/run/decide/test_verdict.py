"""The words at the end of a run."""

from securebench.run.api.field_types import Outcome
from securebench.run.decide.controls import end_reason
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Finish
from support.build import history_of


def attempts(*ends):
    keys = [AttemptKey(number, 1) for number in range(len(ends))]
    return [history_of(key, finish=Finish(key, *end)) for key, end in zip(keys, ends, strict=True)]


def message(*ends):
    return end_reason(None, None, attempts(*ends)).message


LOST = (Outcome.INFRASTRUCTURE, "pod_lost", "producer", "gone")
PULL = (Outcome.INFRASTRUCTURE, "image_pull_failed", "producer", "first words")
PULL_LATER = (Outcome.INFRASTRUCTURE, "image_pull_failed", "producer", "later words")


def test_the_commonest_trouble_has_the_words_of_its_first_attempt():
    assert message(LOST, PULL, PULL_LATER) == (
        "3 of 3 attempts have no verdict; image_pull_failed (2): first words"
    )


def test_the_words_of_a_verifier_stay_out():
    broken = (Outcome.VERIFIER, "verifier_error", "verification", "hidden: 42")
    assert message(broken) == "1 of 1 attempts have no verdict"
