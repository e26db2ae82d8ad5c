"""``securebench results RUN --why`` on the journal of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.controller.volume.journal import encode_all, first_link
from securebench.core.json_values import object_at, text_at
from securebench.run.api.outcomes import Outcome
from securebench.run.plan.keys import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import CommandReport, Finish, Lost, PodFacts, VerifierResult
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    LaunchLost,
    Produced,
    RunBound,
    Verified,
)
from securebench.run.state.evidence import ContainerEvidence, ContainerUsage, LaunchEvidence
from support.build import production
from support.cli_shell import Shell

NOW = 1_767_225_600.0
FIRST = LaunchKey(0, 1, Role.HARNESS, 1)
SECOND = LaunchKey(0, 1, Role.HARNESS, 2)
CHECK = LaunchKey(0, 1, Role.VERIFIER, 2)
UNFINISHED = LaunchKey(1, 1, Role.HARNESS, 1)
PASSED = LaunchKey(2, 1, Role.HARNESS, 1)
IMAGE = "registry.example/python@sha256:7777"
RESOURCES = "requests cpu=1, limits cpu=1 memory=1Gi"

KILLED = LaunchEvidence(
    "sb-1",
    node="node-1",
    created_at=NOW + 1,
    scheduled_at=NOW + 2,
    reason="Evicted",
    message="the node was low on memory",
    containers=(
        ContainerEvidence(
            "harness",
            image_id=IMAGE,
            started_at=NOW + 5,
            finished_at=NOW + 15,
            exit_code=137,
            reason="OOMKilled",
            requests={"cpu": "1"},
            limits={"cpu": "1", "memory": "1Gi"},
        ),
    ),
)
SLOW = LaunchEvidence(
    "sb-2",
    containers=(
        ContainerEvidence(
            "harness",
            exit_code=0,
            limits={"cpu": "1", "memory": "1Gi"},
            usage=ContainerUsage(500 * 1024**2, cpu_periods=100, cpu_throttled=40),
        ),
    ),
)
SECRET = VerifierResult(
    2, passed=False, metadata={"expected": "TOPSECRET"}, command=CommandReport(), facts=PodFacts()
)

ENTRIES = (
    LaunchBegun(FIRST, NOW),
    LaunchLost(Lost(FIRST, "pod_lost", "Pod sb-1 was evicted", NOW + 16), KILLED),
    LaunchBegun(SECOND, NOW + 20),
    Produced(AttemptKey(0, 1), production(launch=2), NOW + 40, SLOW),
    LaunchBegun(CHECK, NOW + 41),
    Verified(AttemptKey(0, 1), SECRET, NOW + 50),
    Finished(Finish(AttemptKey(0, 1), Outcome.SCORED, passed=False), "0" * 64, NOW + 51),
    LaunchBegun(UNFINISHED, NOW + 30),
    LaunchBegun(PASSED, NOW + 30),
    Finished(Finish(AttemptKey(2, 1), Outcome.SCORED, passed=True), "1" * 64, NOW + 60),
)


@pytest.fixture
def told(shell: Shell, finished: str) -> str:
    """Give the run a journal and two records, and return its name."""
    folder = _journal(shell, ENTRIES)
    said = {"verifier_metadata": {"exit_code": 1}, "verifier_stderr": "No such file\n"}
    _write_record(folder, 0, {"task_id": "a", "outcome": "scored", "passed": False, **said})
    _write_record(folder, 2, {"task_id": "c", "outcome": "scored", "passed": True})
    return finished


def _journal(shell: Shell, entries: Sequence[Entry]) -> Path:
    """Give the run a journal whose last line is not written yet, and return the run's folder."""
    (run,) = shell.namespace.runs()
    uid = text_at(object_at(run, "metadata"), "uid")
    folder = shell.namespace.root / "runs" / uid
    lines, _ = encode_all([RunBound(uid, "sha256:1"), *entries], first_link(uid))
    (folder / "journal.jsonl").write_bytes(lines + b"00000000 cut")
    return folder


def _write_record(folder: Path, task: int, record: dict[str, object]) -> None:
    attempt = folder / "tasks" / str(task) / "attempts" / "1"
    attempt.mkdir(parents=True)
    (attempt / "record.json").write_text(json.dumps(record))


def test_every_launch_of_what_did_not_pass(shell: Shell, told: str) -> None:
    shown = shell("results", told, "--why")

    assert (shown.code, "TOPSECRET" in shown.stdout) == (0, False)
    assert shown.stdout.splitlines()[:6] == [
        "a attempt 1: not passed: checks_failed: exit code 1; stderr: No such file",
        "  harness launch 1 at 2026-01-01T00:00:00Z: lost: pod_lost: Pod sb-1 was evicted",
        "    node node-1",
        "    queued 1.0 s, scheduled 1.0 s, images and containers 3.0 s, ran 10.0 s",
        "    Pod: Evicted: the node was low on memory",
        f"    container harness: exit code 137, killed for memory, {IMAGE}, {RESOURCES}",
    ]
    assert "  harness launch 2 at 2026-01-01T00:00:20Z: captured: exit code 0" in shown.stdout
    assert (
        "    container harness: exit code 0, peak memory 500.0 MiB, CPU throttled in 40 of 100 "
        "periods, near its limits, limits cpu=1 memory=1Gi"
    ) in shown.stdout
    assert "#1 attempt 1: no record yet" in shown.stdout
    assert "c attempt 1" not in shown.stdout
    assert shown.stderr.splitlines() == [
        "securebench: launches lost: 1 of 4 (pod_lost 1)",
        "securebench: launches with something killed for memory: 1 of 4",
        "securebench: launches near their memory limit or throttled much: 1 of 4",
    ]


def test_a_named_task_is_shown_also_when_it_passed(shell: Shell, told: str) -> None:
    for name in ("c", "#2"):
        shown = shell("results", told, "--why", name)
        assert (shown.code, shown.stdout.splitlines()[0]) == (0, "c attempt 1: passed")

    unknown = shell("results", told, "--why", "none")
    assert unknown.code == 1
    assert "the run has launched no task 'none'" in unknown.last


CUT_AT = NOW + 20
WORKING = replace(
    KILLED,
    reason="",
    message="",
    containers=(
        ContainerEvidence(
            "harness", image_id=IMAGE, started_at=NOW + 5, limits={"cpu": "1", "memory": "1Gi"}
        ),
    ),
)
PULLING = replace(
    WORKING,
    containers=(
        ContainerEvidence("harness", image="no/such", reason="ImagePullBackOff", message="no"),
    ),
)

CUTS = {
    "while it worked": (
        WORKING,
        "queued 1.0 s, scheduled 1.0 s, images and containers 3.0 s, ran 15.0 s until it {}",
        f"container harness: {IMAGE}, limits cpu=1 memory=1Gi",
    ),
    "while its image was pulled": (
        PULLING,
        "queued 1.0 s, scheduled 1.0 s, images and containers 18.0 s until it {}",
        "container harness: ImagePullBackOff, no, no/such",
    ),
}
"""The Pod, the line with its stages up to what cut the launch short, and that of the container."""


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("cut", ["ended", "was lost"])
def test_a_launch_that_was_cut_short_says_where_and_in_which_stage(
    cut: str, name: str, shell: Shell, finished: str
) -> None:
    evidence, want_stages, want_container = CUTS[name]
    end: Entry = LaunchLost(Lost(FIRST, "pod_lost", "Pod sb-1 was evicted", CUT_AT), evidence)
    if cut == "ended":
        finish = Finish(FIRST.attempt_key, Outcome.CANCELLED, "cancelled")
        end = Finished(finish, "0" * 64, CUT_AT, evidence=evidence)
    folder = _journal(shell, [LaunchBegun(FIRST, NOW), end])
    _write_record(folder, 0, {"task_id": "a", "outcome": "cancelled"})

    shown = shell("results", finished, "--why")

    assert shown.stdout.splitlines()[2:] == [
        "    node node-1",
        f"    {want_stages.format(cut)}",
        f"    {want_container}",
    ]


def test_json_has_one_attempt_a_line(shell: Shell, told: str) -> None:
    shown = shell("results", told, "--why", "-o", "json")

    first, second = map(json.loads, shown.stdout.splitlines())
    ends = [(each["role"], each["end"]) for each in first["launches"]]
    assert ends == [("harness", "lost"), ("harness", "captured"), ("verifier", "captured")]
    assert first["launches"][0]["evidence"]["containers"][0]["limits"]["memory"] == "1Gi"
    assert (second["task"], second["task_id"], second["launches"][0]["end"]) == (1, None, "running")


@pytest.mark.parametrize("words", [("a",), ("-o", "xml"), ("--why", "-o", "xml")])
def test_wrong_usage(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("results", "run", *words).code == 2
