from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import REDACTED, Lane, Resource, ResourceBundle
from securebench.protocol.candidate import Extraction
from securebench.protocol.volume import PackAudit
from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import after_production
from securebench.run.plan.model import AttemptKey, TaskLimits
from securebench.run.records.record import (
    LABEL_CHARACTERS,
    MAX_TAGS,
    RecordTexts,
    candidate_record,
)
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import CommandReport, Finish, Loss, PodFacts, StreamInfo
from support.comparable import TIMING_FIELDS, without
from support.manifest_samples import (
    CHECK_COMMAND,
    HIDDEN_ANSWER,
    candidate,
    digest,
    pods,
    run_plan,
    terminal_task,
    text_task,
)
from support.records import (
    CHECK_VERIFICATION,
    CONTEXT,
    FACTS,
    PRODUCTION,
    STARTED_AT,
    TEXTS,
    VALIDATOR,
    VERIFICATION,
    WORKSPACE_PRODUCTION,
    checked,
    failed,
    history,
    record,
    unchecked,
)


class TestScored:
    def test_has_every_field_of_the_contract(self) -> None:
        made = record(history())

        assert made["run_id"] == "nightly 1"
        assert made["task_id"] == "geo/lake-1"
        assert made["benchmark_id"] == "geo-pack"
        assert made["task_type"] == "short_answer"
        assert made["verification_status"] == "passed"
        assert (made["passed"], made["score"]) == (True, 1.0)
        assert made["outcome"] == "scored"
        assert (made["attempt"], made["launches"]) == (1, 2)
        assert (made["run_ordinal"], made["resume_generation"]) == (3, 0)
        assert made["candidate_text"] == "Erie \n"
        assert made["candidate_patch"] is None
        assert made["candidate_workspace"] is None
        assert made["hidden_values"] == "<redacted>"
        assert made["pack_digest"] == digest("1")
        assert made["harness_digest"] == digest("2")
        assert made["verifier_version"] == "1"
        assert not {"failure_reason", "failure_phase", "failure_message"} & made.keys()

    def test_a_wrong_answer_needs_no_reason(self) -> None:
        finish = Finish(AttemptKey(0, 1), Outcome.SCORED, passed=False)
        made = record(history(finish=finish))

        assert made["verification_status"] == "failed"
        assert (made["passed"], made["score"]) == (False, 0.0)
        assert "failure_reason" not in made

    def test_producer_metadata(self) -> None:
        assert record(history())["producer_metadata"] == {
            "harness": "command",
            "exit_code": 3,
            "duration_seconds": 1.5,
            "task_file": "task.json",
            "artifact_path": None,
            "workspace_root": "workspaces/geo_lake-1-ddc3de26",
            "allowed_domains": [],
            "credentials": "none",
            "network": "none",
            "candidate_kind": "text",
            "candidate_extraction": "stdout",
            "candidate_sha256": digest("9"),
            "image_id": FACTS.image_id,
        }

    def test_file_candidates_name_their_file(self) -> None:
        task = text_task(extraction=Extraction(mode="file", kind="text", path="out/a.txt"))

        assert record(history(), task)["producer_metadata"]["candidate_path"] == "out/a.txt"

    def test_patches_have_their_own_field(self) -> None:
        task = text_task(extraction=Extraction(mode="stdout", kind="patch", path=None))
        made = unchecked(history(), task)

        assert (made["candidate_patch"], made["candidate_text"]) == ("Erie \n", None)

    def test_cut_streams_say_their_size(self) -> None:
        production = replace(PRODUCTION, stderr=StreamInfo(2_000_000, truncated=True))
        metadata = record(history(production=production))["producer_metadata"]

        assert metadata["stderr_truncated"] is True
        assert metadata["stderr_bytes"] == 2_000_000
        assert "stdout_bytes" not in metadata

    def test_text_metadata_has_the_trimmed_answer(self) -> None:
        metadata = record(history())["verifier_metadata"]

        assert metadata["candidate_answer"] == "Erie"
        assert metadata["match_strategy"] == "normalized_exact"
        assert metadata["image_id"] == "registry.example/pod@sha256:2"
        assert "expected_answer" not in metadata

    def test_multiple_choice_never_shows_the_expected_answer(self) -> None:
        resources = ResourceBundle(
            (
                Resource("question", Lane.PUBLIC, "text", "Which?"),
                Resource("choices", Lane.PUBLIC, "json", ["a", "b"]),
                Resource("answer", Lane.HIDDEN, "json", 1),
            )
        )
        task = text_task(task=SecureBenchTask("m", "p", "multiple_choice", {}, resources))
        verification = replace(VERIFICATION, metadata={"expected_answer": 1})
        made = record(history(verification=verification), task)

        assert made["verifier_metadata"]["expected_answer"] == "<redacted>"
        assert made["verifier_metadata"]["verifier"] == "multiple_choice"

    def test_timing_is_apart(self) -> None:
        made = record(history())

        assert made["timing"] == {
            "started_at": "2026-01-01T00:00:00Z",
            "finished_at": "2026-01-01T00:01:40Z",
            "duration_seconds": 100.25,
        }


class TestRedaction:
    def test_hidden_values_stay_out_of_what_the_verifier_says(self) -> None:
        verification = replace(VERIFICATION, metadata={"note": f"want {HIDDEN_ANSWER}!"})
        texts = replace(TEXTS, verifier_stderr=f"got x, want {HIDDEN_ANSWER}\n")
        finish = failed(Outcome.SCORED, "verifier_timeout", "checker", message=HIDDEN_ANSWER)
        made = unchecked(history(verification=verification, finish=finish), texts=texts)

        assert made["verifier_metadata"]["note"] == "want <redacted>!"
        assert made["verifier_stderr"] == "got x, want <redacted>\n"
        assert made["failure_message"] == "<redacted>"
        assert HIDDEN_ANSWER not in b"".join(record_line(made, TaskLimits())).decode()

    def test_what_the_agent_said_stays_as_it_is(self) -> None:
        texts = RecordTexts(producer_stdout=HIDDEN_ANSWER, candidate=HIDDEN_ANSWER)
        made = record(history(), texts=texts)

        assert made["candidate_text"] == HIDDEN_ANSWER
        assert made["producer_stdout"] == HIDDEN_ANSWER
        assert made["verifier_metadata"]["candidate_answer"] == "<redacted>"

    def test_values_of_other_lanes_are_named_only(self) -> None:
        assert record(history())["resource_summary"] == [
            {
                "name": "question",
                "visibility": "public",
                "kind": "text",
                "value": "Which lake is the largest?",
            },
            {"name": "accepted_answers", "visibility": "hidden", "kind": "json", "redacted": True},
        ]


LOSSES = (Loss("pipe", "a FIFO"), Loss("suid", "without its set-id bits"))
REFUSED = Loss("answer.txt", "a link to a folder of the framework")


def lossy(*, passed: bool, message: str = "", **candidate_changes: Any) -> dict[str, Any]:
    """Return the record of a workspace of which sealing and staging left something out."""
    past = checked()
    production = past.history.production
    assert production is not None
    assert production.candidate is not None
    changes = {"dropped_entries": 1, "dropped": LOSSES, **candidate_changes}
    candidate = replace(production.candidate, **changes)
    command = replace(CHECK_VERIFICATION.command, dropped_entries=1, dropped=(REFUSED,))
    finish = Finish(AttemptKey(7, 1), Outcome.SCORED, passed=passed, message=message)
    past = past.but(
        production=replace(production, candidate=candidate),
        verification=replace(CHECK_VERIFICATION, command=command),
        finish=finish,
    )
    return record(past, terminal_task())


class TestLosses:
    def test_both_sides_are_counted_and_named(self) -> None:
        made = lossy(passed=True)["producer_metadata"]

        assert made["candidate_dropped_entries"] == 2
        assert made["candidate_dropped_paths"] == [
            {"path": loss.path, "reason": loss.reason} for loss in (*LOSSES, REFUSED)
        ]

    def test_a_failure_names_them(self) -> None:
        lost = "the check did not get all that the agent left: pipe (a FIFO), "
        lost += "suid (without its set-id bits), answer.txt (a link to a folder of the framework)"

        assert lossy(passed=False)["failure_message"] == lost
        assert lossy(passed=False, message="too slow")["failure_message"] == f"too slow; {lost}"

    def test_a_pass_is_no_failure(self) -> None:
        assert "failure_message" not in lossy(passed=True)

    def test_five_are_named_and_the_others_counted(self) -> None:
        many = tuple(Loss(f"p{number}", "a FIFO") for number in range(20))
        made = lossy(passed=False, dropped_entries=1000, dropped=many)

        assert made["failure_message"].endswith("p4 (a FIFO), 996 more")
        assert len(made["producer_metadata"]["candidate_dropped_paths"]) == 21


class TestCheck:
    def test_metadata(self) -> None:
        made = record(checked(), terminal_task(), RecordTexts(verifier_stdout="1 failed"))

        assert made["candidate_workspace"] == "workspaces/lab_reset-3-51993a23"
        assert made["producer_metadata"]["candidate_dropped_entries"] == 4
        assert made["producer_metadata"]["candidate_workspace"] == made["candidate_workspace"]
        assert made["verifier_stdout"] == "1 failed"
        assert made["verifier_metadata"] == {
            "verifier": "terminal_task",
            "image": "python:3.11-slim",
            "image_id": "registry.example/pod@sha256:2",
            "workspace_root": made["candidate_workspace"],
            "workdir": "/app",
            "command": "<redacted>",
            "exit_code": 1,
            "duration_seconds": 2.0,
            "phase": "checker",
            "timed_out": False,
            "timeout_seconds": 300.0,
            "stdout_truncated": True,
            "stdout_bytes": 3_000_000,
        }
        assert CHECK_COMMAND not in b"".join(record_line(made, TaskLimits())).decode()

    def test_every_word_of_an_argv_is_redacted(self) -> None:
        base = terminal_task()
        resources = ResourceBundle(
            (
                Resource("instructions", Lane.PUBLIC, "text", "Do."),
                Resource(
                    "checker", Lane.EVALUATION_INPUTS, "json", {"command": ["python3", "t.py"]}
                ),
            )
        )
        task = terminal_task(task=replace(base.task, resources=resources))

        metadata = record(checked(), task)["verifier_metadata"]
        assert metadata["command"] == ["<redacted>", "<redacted>"]

    def test_time_limit_of_the_check(self) -> None:
        verification = replace(
            CHECK_VERIFICATION, command=CommandReport(exit_code=None, timed_out=True)
        )
        finish = failed(Outcome.SCORED, "verifier_timeout", "checker")
        made = record(checked().but(verification=verification, finish=finish), terminal_task())

        assert made["outcome"] == "scored"
        assert made["failure_reason"] == "verifier_timeout"
        assert made["verifier_metadata"]["exit_code"] == 124
        assert made["verifier_metadata"]["timed_out"] is True

    def test_a_denial_speaks_without_a_pod(self) -> None:
        metadata = {
            "verifier": "terminal_task",
            "denied_command": "chroot",
            "verifier_stderr": "securebench: verifier commands refused\n",
            "phase": "checker",
            "exit_code": None,
        }
        finish = failed(
            Outcome.AGENT, "verifier_dangerous_command_denied", "checker", metadata=metadata
        )
        made = record(
            history(production=WORKSPACE_PRODUCTION, verification=None, finish=finish),
            terminal_task(),
        )

        assert made["verification_status"] == "failed"
        assert made["verifier_stderr"] == "securebench: verifier commands refused\n"
        assert made["verifier_metadata"]["denied_command"] == "chroot"
        assert "verifier_stderr" not in made["verifier_metadata"]


class TestOther:
    def test_producer_timeout(self) -> None:
        production = replace(
            PRODUCTION, command=CommandReport(timed_out=True, duration_seconds=60.0)
        )
        finish = failed(Outcome.AGENT, "producer_timeout", "producer")
        made = record(history(production=production, verification=None, finish=finish))

        assert made["verification_status"] == "failed"
        assert (made["passed"], made["score"]) == (False, 0.0)
        assert made["candidate_text"] is None
        assert made["producer_stdout"] == "Erie \n"
        assert made["producer_metadata"]["timed_out"] is True
        assert made["producer_metadata"]["timeout_seconds"] == 60
        assert made["producer_metadata"]["command"] == 'python3 agent.py "$(pwd)" $$'
        assert made["producer_metadata"]["exit_code"] == 124
        assert made["producer_metadata"]["phase"] == "producer"
        assert "candidate_sha256" not in made["producer_metadata"]
        assert not {"verifier_stdout", "verifier_stderr", "verifier_metadata"} & made.keys()

    def test_missing_candidate(self) -> None:
        production = replace(
            PRODUCTION, candidate=candidate(None, problem="candidate_missing", message="gone")
        )
        finish = failed(Outcome.AGENT, "candidate_missing", "candidate_extraction")
        made = record(
            history(production=production, verification=None, finish=finish),
            texts=RecordTexts(),
        )

        assert made["candidate_text"] is None
        assert "candidate_sha256" not in made["producer_metadata"]
        assert made["failure_phase"] == "candidate_extraction"

    @pytest.mark.parametrize(
        ("command", "reason", "status"),
        [
            ({"exit_code": 3}, "harness_failed", "failed"),
            ({"exit_code": 127, "unstarted": True, "error": "x"}, "harness_not_started", "failed"),
            ({"exit_code": 0, "memory_kills": 1}, "oom_killed", "failed"),
        ],
    )
    def test_why_nothing_was_handed_in(
        self, command: dict[str, Any], reason: str, status: str
    ) -> None:
        blank = replace(candidate("candidate.txt"), is_blank=True)
        production = replace(
            PRODUCTION, command=CommandReport(**command), candidate=blank, last_words="no model"
        )
        finish = after_production(text_task(), AttemptKey(0, 1), production)
        made = record(history(production=production, verification=None, finish=finish))

        assert (made["failure_reason"], made["verification_status"]) == (reason, status)
        assert made["failure_phase"] == "producer"
        assert ("no model" in made["failure_message"]) == (reason != "harness_not_started")
        kills = command.get("memory_kills")
        assert made["producer_metadata"].get("memory_kills") == kills

    def test_no_workspace_without_a_file(self) -> None:
        production = replace(PRODUCTION, candidate=candidate(None, problem="candidate_too_large"))
        finish = failed(Outcome.AGENT, "candidate_too_large", "candidate_extraction")
        past = history(production=production, verification=None, finish=finish)

        assert record(past, terminal_task())["candidate_workspace"] is None

    @pytest.mark.parametrize(
        ("outcome", "reason"),
        [
            (Outcome.INFRASTRUCTURE, "pod_lost"),
            (Outcome.CANCELLED, "cancelled"),
            (Outcome.PROVIDER, "provider_quota"),
            (Outcome.VERIFIER, "verifier_configuration"),
        ],
    )
    def test_without_a_verdict_there_is_no_score(self, outcome: Outcome, reason: str) -> None:
        finish = Finish(AttemptKey(0, 1), outcome, reason, "producer", "it is gone")
        past = history(production=None, verification=None, finish=finish, started_at=None)
        made = record(past, texts=RecordTexts())

        assert made["verification_status"] == "pending"
        assert not {"passed", "score"} & made.keys()
        assert made["outcome"] == outcome.value
        assert made["producer_metadata"]["exit_code"] is None
        assert "image_id" not in made["producer_metadata"]
        assert made["timing"]["duration_seconds"] == 0.0

    def test_family_without_verifier(self) -> None:
        task = text_task(
            verification=None,
            extraction=Extraction(mode="unsupported", kind="none", path=None),
        )
        production = replace(PRODUCTION, candidate=None)
        finish = Finish(AttemptKey(0, 1), Outcome.NOT_VERIFIED)
        made = record(
            history(production=production, verification=None, finish=finish),
            task,
            RecordTexts(producer_stdout="hello"),
        )

        assert made["outcome"] is None
        assert made["verification_status"] == "pending"
        assert "grading" not in made["labels"]
        assert made["producer_stdout"] == "hello"


GVISOR, ORDINARY = "4.19.0-gvisor", "6.1.0-30-amd64"


class TestLabels:
    def test_of_a_text_task(self) -> None:
        assert record(history())["labels"] == {
            "network": "none",
            "credentials": "none",
            "isolation": "verified",
            "node_reachable": False,
            "runtime": "unknown",
            "user_namespace": True,
            "external_tools": False,
            "audit": False,
            "pack_audit": "none",
        }

    def test_of_a_node_that_was_reached(self) -> None:
        task, context = text_task(), replace(CONTEXT, node_reachable=True)
        made = candidate_record(run_plan(task), task, *history(), TEXTS, context)
        VALIDATOR.validate(json.loads(b"".join(record_line(made, TaskLimits()))))
        assert made["labels"]["node_reachable"] is True

    @pytest.mark.parametrize("known", PackAudit)
    def test_of_an_audited_pack(self, known: PackAudit) -> None:
        assert record(history(), pack_audit=known)["labels"]["pack_audit"] == known.value

    def test_of_a_record_before_audits_left_results(self) -> None:
        made = record(history())
        del made["labels"]["pack_audit"]
        VALIDATOR.validate(json.loads(b"".join(record_line(made, TaskLimits()))))

    def test_of_an_audit(self) -> None:
        assert record(history(), audit=True)["labels"]["audit"] is True

    def test_of_a_check(self) -> None:
        production = replace(
            WORKSPACE_PRODUCTION, facts=PodFacts(runtime_class="gvisor", user_namespace=False)
        )
        made = record(checked().but(production=production), terminal_task())

        assert made["labels"]["grading"] == "exit-code"
        assert made["labels"]["user_namespace"] is False

    @pytest.mark.parametrize(
        ("harness", "verifier", "runtime"),
        [
            (GVISOR, GVISOR, "gvisor"),
            (GVISOR, "", "gvisor"),
            (GVISOR, ORDINARY, "runc"),
            (ORDINARY, GVISOR, "runc"),
            (ORDINARY, "", "runc"),
            ("", "", "unknown"),
        ],
    )
    def test_the_runtime_is_what_was_measured_whatever_the_class_says(
        self, harness: str, verifier: str, runtime: str
    ) -> None:
        past = checked()
        classed = PodFacts(runtime_class="gvisor")
        past = past.but(
            production=replace(WORKSPACE_PRODUCTION, facts=replace(classed, kernel=harness)),
            verification=replace(CHECK_VERIFICATION, facts=replace(classed, kernel=verifier)),
        )

        assert record(past, terminal_task())["labels"]["runtime"] == runtime

    def test_without_a_launch_no_runtime_was_seen(self) -> None:
        finish = Finish(AttemptKey(0, 1), Outcome.CANCELLED, "cancelled", "queued", "cancelled")
        past = history(production=None, verification=None, finish=finish)
        made = record(past, pods=pods(runtime_class="kata"))

        assert made["labels"]["runtime"] == "unknown"
        assert made["labels"]["user_namespace"] is False

    def test_forwarded_variables_are_exposed_credentials(self) -> None:
        harness = replace(run_plan().harness, env=("A",), secret="keys")
        made = record(history(), harness=harness)

        assert made["labels"]["credentials"] == "exposed"
        assert made["producer_metadata"]["credentials"] == "exposed"

    def test_digests(self) -> None:
        assert record(history())["digests"] == {
            "pack": digest("1"),
            "row": digest("d"),
            "harness": digest("2"),
            "verifier": "1",
            "policy": digest("3"),
            "images": {
                "harness": FACTS.image_id,
                "verifier": "registry.example/pod@sha256:2",
            },
        }


def without_timing(made: dict[str, Any]) -> dict[str, Any]:
    return without(made, *TIMING_FIELDS)


def test_only_timing_fields_depend_on_time() -> None:
    task = terminal_task()
    late = checked(started_at=STARTED_AT + 500).but(
        production=replace(
            WORKSPACE_PRODUCTION,
            command=replace(PRODUCTION.command, duration_seconds=7.0),
            facts=replace(FACTS, started_at=1.0, finished_at=9.0, node="other"),
        ),
        verification=replace(
            CHECK_VERIFICATION, command=replace(CHECK_VERIFICATION.command, duration_seconds=9.0)
        ),
    )
    context = replace(CONTEXT, finished_at=CONTEXT.finished_at + 700)
    first = candidate_record(run_plan(task), task, *checked(), TEXTS, CONTEXT)
    second = candidate_record(run_plan(task), task, *late, TEXTS, context)

    assert first != second
    assert without_timing(first) == without_timing(second)


LABELS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "both": (
        {"difficulty": "hard", "tags": ["git", "git", "files"]},
        {"difficulty": "hard", "tags": ["git", "files"]},
    ),
    "none": ({}, {}),
    "of another form": ({"difficulty": 3, "tags": "git"}, {}),
    "empty": ({"difficulty": " ", "tags": ["", 7]}, {}),
    "hidden": (
        {"difficulty": HIDDEN_ANSWER, "tags": [HIDDEN_ANSWER]},
        {"difficulty": REDACTED, "tags": [REDACTED]},
    ),
    "long": (
        {"difficulty": "x" * 99, "tags": [f"{n}{'x' * 99}" for n in range(99)]},
        {
            "difficulty": "x" * LABEL_CHARACTERS,
            "tags": [f"{n}{'x' * 99}"[:LABEL_CHARACTERS] for n in range(MAX_TAGS)],
        },
    ),
}


@pytest.mark.parametrize("case", LABELS)
def test_difficulty_and_tags_of_the_row(case: str) -> None:
    metadata, want = LABELS[case]
    task = text_task()
    labelled = replace(task, task=replace(task.task, metadata=metadata))
    made = record(history(), labelled)
    assert {name: made[name] for name in ("difficulty", "tags") if name in made} == want
