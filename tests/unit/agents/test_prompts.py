import pytest

from securebench.agents.harness import ProviderHarness, extraction_for, task_prompt
from securebench.protocol.candidate import Extraction

HAND_IN = {
    "multiple_choice": ("candidate.txt", "Write your final answer"),
    "short_answer": ("candidate.txt", "Write your final answer"),
    "free_response": ("candidate.txt", "Write your final answer"),
    "code_completion": ("candidate.py", "Python source code"),
    "repo_patch": ("checkout", "Leave your changes"),
    "terminal_task": ("state of the workspace", "when you have finished"),
}


def prompt(family, workspace="/workspace"):
    extraction = extraction_for(family, ProviderHarness(type="codex", model="m"))
    return task_prompt(extraction, workspace, "task.json")


@pytest.mark.parametrize("family", HAND_IN)
def test_a_prompt_says_where_the_task_is_and_how_to_hand_in(family):
    text = prompt(family)
    assert "/workspace/task.json" in text
    assert "nothing but" in text
    for words in HAND_IN[family]:
        assert words in text


@pytest.mark.parametrize("family", HAND_IN)
def test_only_a_repository_comes_with_its_rules(family):
    rules = ("do not clone", "implementation files only", "tests", "lock")
    assert all((rule in prompt(family)) == (family == "repo_patch") for rule in rules)


def test_a_family_without_a_contract_is_only_asked_to_solve():
    text = task_prompt(Extraction("unsupported", "none"), "/app/", "in/t.json")
    assert "/app/in/t.json" in text
    assert "candidate" not in text


def test_names_with_braces_are_names():
    text = task_prompt(Extraction("file", "text", "a"), "/app", "{path}.json")
    assert "/app/{path}.json" in text
