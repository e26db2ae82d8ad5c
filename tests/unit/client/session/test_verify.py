import pytest

from securebench.benchmark.pack.task import task_from_spec
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.benchmark.scorers.result import (
    CandidateArtifact,
    VerificationResult,
    VerifierConfigurationError,
)
from securebench.client.verify import candidate_record, verify_candidate
from securebench.errors import ConfigError

ANSWER = "Lake Superior"


def resource(name, lane, value):
    return {"name": name, "visibility": lane, "kind": "json", "value": value}


def spec(task_type, *resources):
    return task_from_spec(
        {"id": "t/1", "benchmark_id": "b", "task_type": task_type, "resources": list(resources)}
    )


SHORT_ANSWER = spec(
    "short_answer",
    resource("question", "public", "Which lake?"),
    resource("accepted_answers", "hidden", [ANSWER]),
)


def terminal_task(*needed):
    return spec(
        "terminal_task",
        resource("instructions", "public", "Do it"),
        resource("checker", "evaluation_inputs", {"command": "true"}),
        resource("needed_commands", "evaluation_inputs", list(needed)),
    )


TEXT_TASKS = {
    "multiple_choice": (
        spec(
            "multiple_choice",
            resource("question", "public", "Which?"),
            resource("choices", "public", ["Mercury", "Venus"]),
            resource("answer", "hidden", 1),
        ),
        "My option: (b)",
        "A",
    ),
    "short_answer": (SHORT_ANSWER, "It is lake superior.", "Lake Huron"),
    "free_response": (
        spec(
            "free_response",
            resource("prompt", "public", "Why?"),
            resource("rubric", "hidden", {"accepted_answers": ["green"]}),
        ),
        "Copper rusts green",
        "Copper rusts",
    ),
}


@pytest.mark.parametrize("family", TEXT_TASKS)
def test_text_families_are_judged_at_once(family):
    task, right, wrong = TEXT_TASKS[family]
    passed = verify_candidate(task, CandidateArtifact(text=right))
    failed = verify_candidate(task, CandidateArtifact(text=wrong))
    assert (passed.passed, failed.passed) == (True, False)
    assert {passed.task_id, failed.task_id} == {"t/1"}
    assert passed.metadata["verifier"] == family


def test_an_empty_candidate_fails():
    assert not verify_candidate(SHORT_ANSWER, CandidateArtifact()).passed


@pytest.mark.parametrize("family", ["tool_call", "code_generation"])
def test_a_family_without_verifier_gives_none(family):
    assert verify_candidate(spec(family), CandidateArtifact(text="x")) is None


def test_a_check_needs_a_pod():
    for policy in (None, VerificationPolicy(disallow_dangerous_commands=False)):
        with pytest.raises(ConfigError, match=r"'t/1': the verifier of terminal_task runs .* Pod"):
            verify_candidate(
                terminal_task(), CandidateArtifact(workspace="w"), verification_policy=policy
            )


def test_the_policy_denies_without_a_pod():
    candidate = CandidateArtifact(workspace="w")
    denied = verify_candidate(terminal_task("chroot"), candidate)
    assert (denied.status, denied.task_id) == ("failed", "t/1")
    assert denied.metadata["failure_reason"] == "verifier_dangerous_command_denied"
    with pytest.raises(ConfigError, match="Pod"):
        verify_candidate(
            terminal_task("chroot"),
            candidate,
            verification_policy=VerificationPolicy(disallow_dangerous_commands=False),
        )


def test_a_row_that_cannot_be_judged_is_a_config_error():
    task = spec(
        "free_response",
        resource("prompt", "public", "Why?"),
        resource("rubric", "hidden", "be kind"),
    )
    with pytest.raises(VerifierConfigurationError, match="structured rubric"):
        verify_candidate(task, CandidateArtifact(text="x"))


def test_a_pending_record_has_no_verdict():
    candidate = CandidateArtifact(
        text="x", stdout="out", stderr="err", metadata={"candidate_kind": "text"}
    )
    assert candidate_record("run", SHORT_ANSWER, candidate) == {
        "run_id": "run",
        "task_id": "t/1",
        "benchmark_id": "b",
        "task_type": "short_answer",
        "verification_status": "pending",
        "candidate_text": "x",
        "candidate_patch": None,
        "candidate_workspace": None,
        "producer_stdout": "out",
        "producer_stderr": "err",
        "producer_metadata": {"candidate_kind": "text"},
        "resource_summary": [
            {
                "name": "question",
                "visibility": "public",
                "kind": "json",
                "value": "Which lake?",
            },
            {
                "name": "accepted_answers",
                "visibility": "hidden",
                "kind": "json",
                "redacted": True,
            },
        ],
        "hidden_values": "<redacted>",
    }


@pytest.mark.parametrize(
    ("passed", "status", "score"), [(True, "passed", 1.0), (False, "failed", 0.0)]
)
def test_a_verified_record_is_redacted(passed, status, score):
    verification = VerificationResult(
        passed=passed,
        stdout=f"want {ANSWER}\n",
        stderr=f"{ANSWER}\n",
        metadata={"verifier": "short_answer", "seen": ANSWER, "expected_answer": 7},
    )
    record = candidate_record("run", SHORT_ANSWER, CandidateArtifact(text=ANSWER), verification)
    assert (record["verification_status"], record["passed"], record["score"]) == (
        status,
        passed,
        score,
    )
    assert record["candidate_text"] == ANSWER
    assert record["verifier_stdout"] == "want <redacted>\n"
    assert record["verifier_stderr"] == "<redacted>"
    assert record["verifier_metadata"] == {
        "verifier": "short_answer",
        "seen": "<redacted>",
        "expected_answer": "<redacted>",
    }


def test_the_record_of_a_judged_candidate_hides_the_answer():
    task, right, _ = TEXT_TASKS["multiple_choice"]
    candidate = CandidateArtifact(text=right)
    record = candidate_record("run", task, candidate, verify_candidate(task, candidate))
    assert record["verifier_metadata"]["expected_answer"] == "<redacted>"
    assert record["passed"] is True
