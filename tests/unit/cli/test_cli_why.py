"""``securebench results RUN --why`` on the journal of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.clock import rfc3339
from securebench.controller import exec_watching
from securebench.controller.volume.journal import encode_all, first_link
from securebench.json_values import object_at, text_at
from securebench.protocol.volume import encode_waits, shared_waits
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, pod_name
from securebench.run.state.attempts import (
    CommandReport,
    Finish,
    Lost,
    PodFacts,
    ProducerNetwork,
    Usage,
    VerifierResult,
)
from securebench.run.state.entries import (
    CandidateKept,
    ContainerEvidence,
    ContainerUsage,
    Entry,
    Finished,
    LaunchBegun,
    LaunchEvidence,
    LaunchLost,
    Produced,
    RunBound,
    Verified,
)
from support.build import production, verification
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


LEADER = LaunchKey(5, 1, Role.VERIFIER, 2)
MEMBERS = (LaunchKey(3, 1, Role.VERIFIER, 2), LaunchKey(4, 1, Role.VERIFIER, 2), LEADER)
"""Launches of one batch, in the order of the pack; the last one is the first of the batch."""

OF_BATCH = LaunchEvidence(
    "sb-5",
    node="node-5",
    containers=(ContainerEvidence("verifier", image_id=IMAGE, exit_code=0, reason="Completed"),),
)
OF_NOISY_BATCH = replace(
    OF_BATCH, containers=(replace(OF_BATCH.containers[0], reason="OOMKilled"),)
)

BATCH = (
    *(
        CandidateKept(each.attempt_key, production(), NOW, Usage(), ProducerNetwork(), "earlier")
        for each in MEMBERS
    ),
    *(LaunchBegun(each, NOW, LEADER) for each in MEMBERS),
    *(
        Verified(
            each.attempt_key,
            verification(launch=2, passed=each == LEADER, facts=PodFacts(image_id=IMAGE)),
            NOW + 9,
            OF_BATCH if each == LEADER else None,
        )
        for each in MEMBERS
    ),
)
NOISY_BATCH = [
    replace(each, evidence=OF_NOISY_BATCH) if getattr(each, "evidence", None) else each
    for each in BATCH
]
OF_POD = ["    node node-5", f"    container verifier: exit code 0, Completed, {IMAGE}"]


@pytest.fixture
def judged_together(shell: Shell, finished: str) -> str:
    """Give the run a batch whose first launch passed and whose others did not; return its name."""
    _judge(shell, passed={LEADER})
    return finished


def _judge(shell: Shell, passed: Collection[LaunchKey], entries: Sequence[Entry] = BATCH) -> None:
    folder = _journal(shell, entries)
    for each in MEMBERS:
        record = {"task_id": f"t{each.task}", "outcome": "scored", "passed": each in passed}
        _write_record(folder, each.task, record)


def test_the_pod_of_a_batch_is_shown_though_its_first_launch_passed(
    shell: Shell, judged_together: str
) -> None:
    shown = shell("results", judged_together, "--why")

    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("t")] == ["t3", "t4"]
    assert (lines[2:4], lines[6:8]) == (OF_POD, OF_POD)


def test_a_batch_whose_pod_met_a_limit_counts_once(shell: Shell, finished: str) -> None:
    _judge(shell, {LEADER}, NOISY_BATCH)

    shown = shell("results", finished, "--why")

    assert [line for line in shown.stdout.splitlines() if line.startswith("t5")] == [
        "t5 attempt 1: passed"
    ]
    assert "launches with something killed for memory: 1 of 3" in shown.stderr


def test_a_batch_has_its_pod_also_when_its_first_launch_does_not_fit(
    shell: Shell, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _judge(shell, {LEADER}, NOISY_BATCH)
    whole = len(shell("results", finished, "--why", "-o", "json").stdout)
    monkeypatch.setattr(exec_watching, "MAX_ANSWER_BYTES", whole - 1)

    shown = shell("results", finished, "--why")

    assert "1 more attempts did not fit" in shown.stderr
    assert shown.stdout.splitlines()[2] == OF_POD[0]


def test_an_operator_that_sends_no_attempts_that_passed_sends_the_others(
    shell: Shell, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securebench.client.volume.NEAR_LIMITS", "of a later version")

    shown = shell("results", told, "--why")

    assert (shown.code, shown.stdout.count(" attempt 1: ")) == (0, 2)


MET_A_LIMIT = {
    "throttled": (SLOW, 0, "launches near their memory limit or throttled much: 1 of 2"),
    "killed": (None, 2, "launches with something killed for memory: 1 of 2"),
}


@pytest.mark.parametrize("name", MET_A_LIMIT)
def test_a_launch_that_met_a_limit_is_shown_also_when_it_passed(
    name: str, shell: Shell, finished: str
) -> None:
    evidence, kills, want = MET_A_LIMIT[name]
    command = CommandReport(memory_kills=kills)
    entries = (
        LaunchBegun(FIRST, NOW),
        Produced(FIRST.attempt_key, production(command=command), NOW + 40, evidence),
        LaunchBegun(UNFINISHED, NOW),
        LaunchBegun(PASSED, NOW),
        Produced(PASSED.attempt_key, production(), NOW + 40),
    )
    folder = _journal(shell, entries)
    for task, task_id in ((0, "a"), (2, "c")):
        _write_record(folder, task, {"task_id": task_id, "outcome": "scored", "passed": True})

    shown = shell("results", finished, "--why")

    heads = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]
    assert heads == ["#1 attempt 1: no record yet", "a attempt 1: passed"]
    assert shown.stderr.splitlines() == [f"securebench: {want}"]
    assert shell("why", finished).stdout.count("attempt") == 0


@pytest.mark.parametrize("task", ["t3", "t4", "#4", "t5"])
def test_the_pod_of_a_batch_is_shown_for_each_task_that_is_named(
    task: str, shell: Shell, judged_together: str
) -> None:
    assert shell("results", judged_together, "--why", task).stdout.splitlines()[2:] == OF_POD


@pytest.mark.parametrize(
    ("passed", "words", "want_task"),
    [({LEADER}, (), 3), ({LEADER}, ("t4",), 4), ((), (), 3)],
    ids=["first passed", "one is named", "none passed"],
)
def test_of_a_batch_one_launch_that_is_sent_has_the_evidence(
    passed: Collection[LaunchKey],
    words: tuple[str, ...],
    want_task: int,
    shell: Shell,
    finished: str,
) -> None:
    _judge(shell, passed)

    shown = shell("results", finished, "--why", *words, "-o", "json")

    attempts = list(map(json.loads, shown.stdout.splitlines()))
    assert [each["task"] for each in attempts if each["launches"][0]["evidence"]] == [want_task]


def test_json_has_one_attempt_a_line(shell: Shell, told: str) -> None:
    shown = shell("results", told, "--why", "-o", "json")

    first, second = map(json.loads, shown.stdout.splitlines())
    ends = [(each["role"], each["end"]) for each in first["launches"]]
    assert ends == [("harness", "lost"), ("harness", "captured"), ("verifier", "captured")]
    assert first["launches"][0]["evidence"]["containers"][0]["limits"]["memory"] == "1Gi"
    assert (second["task"], second["task_id"], second["launches"][0]["end"]) == (1, None, "running")


UNDER_WAY: dict[str, tuple[float, bool | None, str]] = {
    "its Pod waits": (60.0, False, "cannot pull b:1"),
    "its agent waits": (60.0, True, "running, cannot pull b:1"),
    "it works": (60.0, None, "running"),
    "it may wait": (1.0, None, "starting"),
}
"""Age of a launch, whether its container has begun of which a wait is told, and what is shown."""


@pytest.mark.parametrize("name", UNDER_WAY)
@pytest.mark.parametrize("command", [("results", "--why"), ("why", "#1")], ids=lambda it: it[0])
def test_a_launch_under_way_says_what_it_waits_for(
    command: tuple[str, str], name: str, shell: Shell, finished: str
) -> None:
    age, has_begun, want = UNDER_WAY[name]
    begun_at = float(int(time.time() - age))
    folder = _journal(shell, [LaunchBegun(UNFINISHED, begun_at)])
    pods = [] if has_begun is None else [pod_name(folder.name, UNFINISHED)]
    waits = encode_waits(shared_waits({("cannot pull b:1", bool(has_begun)): pods}))
    (folder / "launch-waits.json").write_text(json.dumps(waits))

    shown = shell(command[0], finished, command[1]).stdout.splitlines()

    assert shown[1] == f"  harness launch 1 at {rfc3339(begun_at)}: {want}"


@pytest.mark.parametrize("words", [("--diff",), ("-o", "xml"), ("--why", "-o", "xml")])
def test_wrong_usage(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("results", "run", *words).code == 2


def test_a_task_alone_asks_for_its_launches(shell: Shell, finished: str) -> None:
    assert shell("results", finished, "a") == shell("results", finished, "a", "--why")


def test_one_attempt_of_a_task(shell: Shell, told: str) -> None:
    assert shell("why", told, "a", "--attempt", "1") == shell("why", told, "a")
    missing = shell("why", told, "a", "--attempt", "2")
    assert (missing.code, missing.last) == (
        1,
        "securebench: error: there is no attempt 2; there is 1",
    )
    assert shell("results", told, "--attempt", "1").code == 2
    assert shell("logs", told, "a", "--attempt", "1", "--follow").code == 2
