"""Contract 14.5.1 and 21.4: what the operator says of a patch, and of a check without a verdict."""

import hashlib
import json

import pytest

from securebench.errors import DigestMismatchError
from securebench.protocol.messages import PHASES, Code
from securebench.run.state.attempts import CommandReport
from securebench.run.verification.patch import CHANGED_BYTES, PatchStep, failed_step, seal_patch
from support.build import verification
from support.left import LeftIn
from support.manifest_samples import patch_task
from support.places import candidate_in

PLAN = patch_task().verification.patch
GOOD = "diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\r\n+b\r\n"
DOCS = "diff --git a/docs/x b/docs/x\nold mode 100644\nnew mode 100755\n"
LINK = (
    "diff --git a/src/l b/src/l\nnew file mode 120000\n--- /dev/null\n+++ b/src/l\n"
    "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
)


def digest_of(path):
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_a_good_patch_is_written_for_the_check(tmp_path):
    candidate, folder = candidate_in(tmp_path)
    (folder / "candidate.txt").write_bytes((GOOD + DOCS + LINK).encode())
    patch = seal_patch(PLAN, candidate)
    assert patch.problem == ""
    assert (folder / "applied.patch").read_bytes() == (GOOD + LINK).encode()
    declared = json.loads((folder / "declared.json").read_bytes())
    assert declared == {"version": 1, "changed": ["src/l", "src/x"], "links": {"src/l": "x"}}
    assert patch.applied_digest == digest_of(folder / "applied.patch")
    assert patch.declared_digest == digest_of(folder / "declared.json")
    assert seal_patch(PLAN, candidate) == patch


@pytest.mark.parametrize(
    ("text", "problem", "phase"),
    [
        (" \n", "empty_candidate_patch", "candidate_patch"),
        ("sorry", "noncanonical_candidate_patch", "candidate_policy"),
        (DOCS, "empty_filtered_candidate_patch", "candidate_policy"),
        (GOOD.replace("src", "lib"), "candidate_patch_policy_violation", "candidate_policy"),
    ],
)
def test_a_bad_patch_is_judged_without_a_pod(text, problem, phase, tmp_path):
    candidate, folder = candidate_in(tmp_path)
    (folder / "candidate.txt").write_bytes(text.encode())
    patch = seal_patch(PLAN, candidate)
    assert (patch.problem, patch.phase) == (problem, phase)
    assert patch.message
    assert [path.name for path in folder.iterdir()] == ["candidate.txt"]


BASE = verification(passed=False, command=CommandReport(phase="x", error="git said no"))


@pytest.mark.parametrize(
    ("number", "problem", "outcome", "phase"),
    [
        (0, "base_commit_unreadable", "verifier", "base_commit"),
        (1, "base_commit_mismatch", "verifier", "base_commit"),
        (2, "setup_patch_failed", "verifier", "setup_patch"),
        (3, "test_patch_failed", "verifier", "test_patch"),
        (4, "candidate_patch_apply_failed", "agent", "candidate_patch"),
        (5, "candidate_patch_path_mismatch", "agent", "candidate_policy"),
        (6, "test_patch_failed", "scored", "test_patch"),
        (7, "test_patch_failed", "scored", "test_patch"),
    ],
)
def test_every_step_has_its_end(number, problem, outcome, phase, tmp_path):
    end = failed_step(PLAN, BASE, LeftIn(tmp_path, Code.PHASE_FAILED + number))
    assert (end.problem, end.outcome, end.phase) == (problem, outcome, phase)
    assert end.message
    assert not end.passed


def test_the_steps_are_all_and_fit_between_the_codes():
    assert [step.code - Code.PHASE_FAILED for step in PatchStep] == list(range(8))
    assert all(step.code in PHASES for step in PatchStep)


def test_a_forged_success_is_scored_and_fails(tmp_path):
    end = failed_step(PLAN, BASE, LeftIn(tmp_path, Code.TAMPERED))
    assert (end.problem, end.outcome, end.passed) == ("evaluator_tampered", "scored", False)


def test_an_unknown_step_is_the_verifiers_error(tmp_path):
    end = failed_step(PLAN, BASE, LeftIn(tmp_path, Code.PHASE_FAILED + 20))
    assert (end.problem, end.outcome) == ("verifier_error", "")
    assert "git said no" in end.message


@pytest.mark.parametrize(
    ("changed", "problem", "denied"),
    [
        ({"src/x": None, "src/y": None}, "candidate_patch_path_mismatch", None),
        ({"src/x": None, "tests/y": None}, "candidate_patch_policy_violation", ["tests/y"]),
        ({"src/l": "/etc/passwd"}, "candidate_patch_policy_violation", ["src/l"]),
    ],
)
def test_other_paths_than_declared_are_judged(changed, problem, denied, tmp_path):
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    end = failed_step(PLAN, BASE, LeftIn(tmp_path, PatchStep.PATHS.code))
    assert end.problem == problem
    assert end.metadata["actual_candidate_patch_paths"] == sorted(changed)
    assert end.metadata.get("denied_candidate_patch_paths") == denied


@pytest.mark.parametrize("text", ["[]", "{", "\udcff"])
def test_a_damaged_list_of_changes_loses_the_launch(text, tmp_path):
    (tmp_path / "changed.json").write_text(text, errors="surrogateescape")
    with pytest.raises(DigestMismatchError):
        failed_step(PLAN, BASE, LeftIn(tmp_path, PatchStep.PATHS.code))


def test_a_list_of_changed_paths_that_is_too_long_is_the_candidates(tmp_path):
    (tmp_path / "changed.json").write_text(" " * (CHANGED_BYTES + 1))
    base = verification(passed=False)
    found = failed_step(PLAN, base, LeftIn(tmp_path, PatchStep.PATHS.code))
    assert (found.problem, found.outcome) == ("candidate_patch_path_mismatch", "agent")
    assert found.metadata == {}
