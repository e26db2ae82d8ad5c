"""F2: what a patch brings with it does not judge the patch."""

from __future__ import annotations

from typing import Any

import pytest

from threats.grading.counted_patches import (
    FORGERY,
    IMPORTS_FORGERY,
    OPEN,
    new_file,
    patch,
    uncounted,
)
from threats.grading.terminal_tasks import PASS_ALL
from threats.honest import REPO, assert_passed
from threats.kit.arena import Arena

HOOK = new_file("conftest.py", PASS_ALL)
HOOK_REFUSED = {
    path: patch(f"hook-{number}", new_file(path, PASS_ALL))
    for number, path in enumerate(["conftest.py", "tests/conftest.py", "pathspec/conftest.py"])
}
HOOK_SEEN = patch("hook-and-control", HOOK, candidate_policy=OPEN)
HOOK_TWIN = patch("hook-alone", HOOK, candidate_policy=OPEN, control=None)
FORGED_PATCH = new_file("pathspec/_early.py", FORGERY) + IMPORTS_FORGERY
FORGED = patch("forged", FORGED_PATCH)
FORGED_TWIN = uncounted("forged-alone", FORGED_PATCH, control=None)


def is_tampered(record: dict[str, Any]) -> bool:
    """Return whether the control showed that the tests' result says nothing."""
    return (record["passed"], record.get("failure_reason")) == (False, "evaluator_tampered")


@pytest.mark.trials(*HOOK_REFUSED.values())
@pytest.mark.parametrize("path", HOOK_REFUSED)
def test_a_018_attack_by_a_patch(arena: Arena, path: str) -> None:
    record = arena.record(HOOK_REFUSED[path])

    assert (record["outcome"], record["passed"]) == ("agent", False)
    assert record["failure_reason"] == "candidate_patch_policy_violation"
    assert not arena.pods(HOOK_REFUSED[path], "verifier")


@pytest.mark.trials(HOOK_SEEN)
def test_a_018_attack_that_the_policy_lets_pass(arena: Arena) -> None:
    assert is_tampered(arena.record(HOOK_SEEN))


@pytest.mark.trials(HOOK_TWIN)
def test_a_018_twin_by_a_patch(arena: Arena) -> None:
    record = arena.record(HOOK_TWIN)

    assert record["passed"] is True
    assert not is_tampered(record)


@pytest.mark.short
@pytest.mark.trials(FORGED)
def test_a_032_attack(arena: Arena) -> None:
    record = arena.record(FORGED)

    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert record["labels"]["grading"] == "tests"
    (pod,) = arena.pods(FORGED, "verifier")
    ended = {
        each["name"]: each["state"].get("terminated", {}).get("exitCode")
        for field in ("initContainerStatuses", "containerStatuses")
        for each in pod["status"][field]
    }
    assert ended["control-check"] == 0
    assert ended["check"] == 1


@pytest.mark.trials(FORGED_TWIN)
def test_a_032_twin(arena: Arena) -> None:
    record = arena.record(FORGED_TWIN)

    assert record["passed"] is True
    assert not is_tampered(record)


@pytest.mark.short
@pytest.mark.trials(REPO)
def test_a_032_honest(arena: Arena) -> None:
    assert_passed(arena, REPO)
    (pod,) = arena.pods(REPO, "verifier")
    assert "control-check" in {each["name"] for each in pod["spec"]["initContainers"]}
