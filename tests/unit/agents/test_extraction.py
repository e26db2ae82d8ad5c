"""What is taken as the candidate (contract 12.2, 13.1)."""

import pytest

from securebench.agents.harness import CommandHarness, extraction_for
from securebench.agents.registry import harness_config

TEXT = ["multiple_choice", "short_answer", "free_response"]
STDOUT = CommandHarness(command="x")
FILE = CommandHarness(command="x", artifact_path="out/a.txt")
CHECKOUT = CommandHarness(command="x", extraction="git_diff")
PROVIDERS = [harness_config("codex", {"model": "m"}), harness_config("claude_code", {})]


def taken(family, harness):
    extraction = extraction_for(family, harness)
    return extraction.mode, extraction.kind, extraction.path


@pytest.mark.parametrize(
    ("family", "want"),
    [
        *((family, ("stdout", "text", None)) for family in TEXT),
        ("code_completion", ("stdout", "code", None)),
        ("repo_patch", ("stdout", "patch", None)),
        ("terminal_task", ("workspace", "workspace", None)),
    ],
)
def test_commands(family, want):
    assert taken(family, STDOUT) == want
    kind = "text" if want[1] == "workspace" else want[1]
    assert taken(family, FILE) == ("file", kind, "out/a.txt")


@pytest.mark.parametrize("family", [*TEXT, "code_completion", "repo_patch", "terminal_task"])
def test_a_command_may_hand_in_what_it_changed_in_a_checkout(family):
    want = taken(family, STDOUT) if family != "repo_patch" else ("git_diff", "patch", None)
    assert taken(family, CHECKOUT) == want


@pytest.mark.parametrize("harness", PROVIDERS)
@pytest.mark.parametrize(
    ("family", "want"),
    [
        *((family, ("file", "text", "candidate.txt")) for family in TEXT),
        ("code_completion", ("file", "code", "candidate.py")),
        ("repo_patch", ("git_diff", "patch", None)),
        ("terminal_task", ("workspace", "workspace", None)),
    ],
)
def test_provider_tools_never_hand_in_on_stdout(family, want, harness):
    assert taken(family, harness) == want


@pytest.mark.parametrize("harness", [STDOUT, FILE, *PROVIDERS])
@pytest.mark.parametrize("family", ["tool_call", "code_generation", "anything"])
def test_nothing_is_taken_for_families_without_contract(family, harness):
    assert taken(family, harness) == ("unsupported", "none", None)
