"""Registry of the verifiers (contract 14)."""

import pytest

from securebench.benchmark.families.registry import text_verifier, verifier_for_task_type
from securebench.benchmark.scorers.result import VERIFIER_VERSION

TEXT = ["multiple_choice", "short_answer", "free_response"]
EXECUTING = ["code_completion", "repo_patch", "terminal_task"]


@pytest.mark.parametrize("family", TEXT)
def test_text_families_have_a_scorer_of_their_name(family):
    verifier = verifier_for_task_type(family)
    assert verifier is not None
    assert verifier.name == family
    assert not verifier.is_executing
    assert verifier.scorer is text_verifier(family)


def test_scorers_are_told_apart():
    scorer = text_verifier("short_answer")
    assert scorer is not None
    assert scorer.verify("7", {}, {"accepted_answers": [7]}).metadata["verifier"] == "short_answer"


@pytest.mark.parametrize("family", EXECUTING)
def test_executing_families_have_none(family):
    verifier = verifier_for_task_type(family)
    assert verifier is not None
    assert verifier.is_executing
    assert text_verifier(family) is None


@pytest.mark.parametrize("name", ["tool_call", "code_generation", "", "text"])
def test_other_names_have_no_verifier(name):
    assert verifier_for_task_type(name) is None
    assert text_verifier(name) is None


def test_version_is_a_plain_string():
    assert VERIFIER_VERSION == "3"
