"""Contract 14.5.1 and 15: what a record says of a candidate patch."""

import json
from dataclasses import replace

import pytest

from securebench.digests import content_digest
from securebench.protocol.candidate import Extraction
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import TaskLimits
from securebench.run.records.record import RecordTexts, candidate_record
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import CommandReport, DiffReport, Finish, SealedPatch
from support.build import KEY, history_of, production, sealed, verification
from support.manifest_samples import BASE_COMMIT, PATCH, TEST_PATCH, patch_task, run_plan
from support.records import CONTEXT, VALIDATOR

TASK = patch_task(index=0)
GOOD = "diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n"
DOCS = "diff --git a/docs/x b/docs/x\nold mode 100644\nnew mode 100755\n"
REPORT = CommandReport(exit_code=0, phase="checks", commit=BASE_COMMIT, duration_seconds=1.5)


def record_of(text, finish, patch=PATCH, checked=None, *, task=TASK, **changes):
    made = production(candidate=sealed(patch=patch), **changes)
    history = history_of(production=made, verification=checked, launches=1)
    texts = RecordTexts(candidate=text, verifier_stdout=f"before {TEST_PATCH} after")
    record = candidate_record(run_plan(task), task, history, finish, texts, CONTEXT)
    VALIDATOR.validate(json.loads(b"".join(record_line(record, TaskLimits()))))
    return record


def test_what_the_verdict_of_counted_tests_rests_on():
    check = replace(TASK.verification.check, command=("python3", "-m", "pytest"))
    task = replace(TASK, verification=replace(TASK.verification, check=check))
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    counted = record_of(GOOD, finish, checked=verification(command=REPORT), task=task)
    assert counted["labels"]["grading"] == "tests"


def test_a_passed_patch():
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    record = record_of(GOOD + DOCS, finish, checked=verification(command=REPORT))
    assert record["candidate_patch"] == GOOD + DOCS
    assert record["labels"]["grading"] == "exit-code"
    assert record["verifier_stdout"] == "before <redacted> after"
    metadata = record["verifier_metadata"]
    assert metadata.pop("image_id")
    assert metadata == {
        "verifier": "repo_patch",
        "image": TASK.environment.image,
        "workdir": "/testbed",
        "base_commit": BASE_COMMIT,
        "image_commit": BASE_COMMIT,
        "command": "<redacted>",
        "exit_code": 0,
        "duration_seconds": 1.5,
        "timed_out": False,
        "timeout_seconds": 120.0,
        "phase": "checks",
        "candidate_patch_paths": ["src/x", "docs/x"],
        "stripped_candidate_patch_paths": ["docs/x"],
        "applied_candidate_patch_paths": ["src/x"],
        "applied_candidate_patch_sha256": content_digest(GOOD.encode()),
        "actual_candidate_patch_paths": ["src/x"],
        "candidate_allow_paths_configured": True,
        "containment_profile": "shared_runtime",
        "hidden_test_runtime_secrecy": False,
    }


ANY_PATCH = replace(TASK.verification.patch, policy={})
DROPPING = replace(TASK, verification=replace(TASK.verification, patch=ANY_PATCH))
SCRATCH = "".join(
    f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    "@@ -0,0 +1 @@\n+x\n"
    for path in ("zz-1.0.dist-info/entry_points.txt", "repro.sh")
)


def test_what_was_dropped_is_in_the_record():
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    checked = verification(command=REPORT)
    record = record_of(GOOD + SCRATCH, finish, checked=checked, task=DROPPING)
    assert record["candidate_patch"] == GOOD + SCRATCH
    metadata = record["verifier_metadata"]
    assert metadata["patch_dropped_paths"] == ["zz-1.0.dist-info/entry_points.txt", "repro.sh"]
    assert metadata["patch_dropped_reasons"] == ["a tool loads or obeys it without being asked"] * 2
    assert metadata["applied_candidate_patch_paths"] == ["src/x"]
    assert metadata["applied_candidate_patch_sha256"] == content_digest(GOOD.encode())


def test_a_denied_patch_has_no_pod():
    patch = SealedPatch("candidate_patch_policy_violation", "candidate_policy", "denied")
    finish = Finish(
        KEY, Outcome.AGENT, patch.problem, patch.phase, patch.message, passed=False,
        metadata={"phase": patch.phase, "failure_reason": patch.problem},
    )  # fmt: skip
    record = record_of(GOOD.replace("src", "lib"), finish, patch)
    metadata = record["verifier_metadata"]
    assert metadata["denied_candidate_patch_paths"] == ["lib/x"]
    assert metadata["failure_reason"] == "candidate_patch_policy_violation"
    assert (metadata["phase"], metadata["exit_code"]) == ("candidate_policy", None)
    assert "lib/x: allow_paths does not list it" in record["verifier_stderr"]
    assert "image_commit" not in metadata


@pytest.mark.parametrize(
    ("end", "checked", "want"),
    [
        (
            (Outcome.VERIFIER, "setup_patch_failed", "setup_patch"),
            verification(
                passed=False, problem="setup_patch_failed", outcome="verifier", phase="setup_patch"
            ),
            {"phase": "setup_patch", "failure_reason": "setup_patch_failed"},
        ),
        (
            (Outcome.SCORED, "verifier_timeout", "checks"),
            verification(passed=False, command=CommandReport(timed_out=True, phase="checks")),
            {"phase": "checks", "exit_code": 124, "timed_out": True},
        ),
    ],
)
def test_what_really_changed_is_said_only_when_it_is_known(end, checked, want):
    passed = None if end[0] is Outcome.VERIFIER else False
    finish = Finish(KEY, *end, "m", passed=passed)
    metadata = record_of(GOOD, finish, checked=checked)["verifier_metadata"]
    assert {key: metadata[key] for key in want} == want
    assert "actual_candidate_patch_paths" not in metadata


BY_GIT = replace(TASK, extraction=Extraction("git_diff", "patch"))
DIFF_KEYS = ("candidate_diff_exit_code", "candidate_diff_stderr")


@pytest.mark.parametrize(
    ("task", "diff", "want"),
    [
        (BY_GIT, DiffReport(0, ""), (0, "")),
        (BY_GIT, DiffReport(128, "\x1b[2J\0\ufffd"), (128, "\x1b[2J\0\ufffd")),
        (BY_GIT, DiffReport(None, "no folder"), (None, "no folder")),
        (BY_GIT, None, None),
        (TASK, DiffReport(0, ""), None),
    ],
)
def test_how_the_diff_was_made_decides_nothing(task, diff, want):
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    command = CommandReport(exit_code=0, diff=diff)
    checked = verification(command=REPORT)
    record = record_of(GOOD, finish, checked=checked, task=task, command=command)
    metadata = record["producer_metadata"]
    found = {name: metadata[name] for name in DIFF_KEYS if name in metadata}
    assert found == ({} if want is None else dict(zip(DIFF_KEYS, want, strict=True)))
    assert record["passed"] is True


def test_a_record_of_long_lists_is_one_without_lists():
    patch = SealedPatch("candidate_patch_policy_violation", "candidate_policy", "denied")
    finish = Finish(
        KEY, Outcome.AGENT, patch.problem, patch.phase, patch.message, passed=False,
        metadata={"phase": patch.phase, "failure_reason": patch.problem},
    )  # fmt: skip
    names = [f"lib/{number}" + "x" * 900 for number in range(1000)]
    text = "".join(f"diff --git a/{name} b/{name}\nnew file mode 100644\n" for name in names)
    record = record_of(text.encode(), finish, patch)
    assert record["verifier_metadata"]["denied_candidate_patch_paths_total"] == 1000
    line = b"".join(record_line(record, TaskLimits(record_bytes=60_000)))
    found = json.loads(line)
    VALIDATOR.validate(found)
    assert len(line) < 6000
    assert found["record_truncated"] is True
    assert found["failure_reason"] == "candidate_patch_policy_violation"
    assert found["verifier_metadata"]["denied_candidate_patch_paths"] == []
