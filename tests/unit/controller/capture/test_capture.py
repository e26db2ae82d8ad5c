import hashlib
import shutil
from dataclasses import replace

import pytest

from securebench.controller.capture import SecretMatcher, capture
from securebench.controller.volume.store import RunStore
from securebench.protocol.gateway import encode
from securebench.run.decide.attempt import Capture
from securebench.run.observe.stage import Ended
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import CommandReport, StreamInfo, Usage
from securebench.run.state.entries import LaunchLost, Produced, Verified
from support.build import (
    HARNESS,
    KERNEL,
    NOW,
    VERIFIER,
    batch_done,
    check_task,
    collect_message,
    egress_report,
    ended,
    harness_done,
    pod_status,
    relayed,
    seal_message,
    supervise_message,
    text_message,
    verifier_done,
    view_of,
)
from support.manifest_samples import text_task
from support.places import gateway_place, launch_place

NOTHING = SecretMatcher()
UID = "3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77"
TEXT = b"B\n"
POD = "sb-3f2a9c1e5b7d-0-1h1"
DIGEST = f"sha256:{hashlib.sha256(TEXT).hexdigest()}"


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path, UID)
    store.make_launch_folders(HARNESS)
    return store


def leave(store, data=TEXT, name="candidate.txt"):
    (launch_place(store, HARNESS) / "candidate" / name).write_bytes(data)


def harness(store, seal=None, code=0, problem="", **report):
    status = harness_done(code, seal_message(digest=DIGEST) if seal is None else seal, **report)
    job = Capture(HARNESS, view_of(HARNESS, status), Ended(code, problem))
    return capture(store, text_task(), job, NOW, exposed=NOTHING)


def verifier(status, code=0, problem="", task=None):
    job = Capture(VERIFIER, view_of(VERIFIER, status), Ended(code, problem, "why"))
    found = capture(RunStore.__new__(RunStore), task or text_task(), job, NOW, exposed=NOTHING)
    assert isinstance(found, Verified)
    return found.verification


def produced(found):
    assert isinstance(found, Produced)
    return found.production


def lost(found):
    assert isinstance(found, LaunchLost)
    assert (found.lost.launch, found.lost.at) == (HARNESS, NOW)
    return found.lost.reason


# Harness


def test_a_candidate_is_taken_and_hashed_again(store):
    leave(store)
    found = produced(harness(store, exit_code=3))
    assert found.launch == 1
    assert found.candidate is not None
    assert (found.candidate.digest, found.candidate.is_blank) == (DIGEST, False)
    assert found.command == CommandReport(exit_code=3, duration_seconds=1.5, phase="harness")
    assert (found.stdout, found.problem) == (StreamInfo(10), "")
    assert found.facts.kernel == KERNEL


@pytest.mark.parametrize(
    ("stderr", "want"),
    [
        (b"start\n\x1b[31mTraceback\n  KeyError: 'x'\r\n\n \n", "KeyError: 'x'"),
        (b"\x1b[31mno\xff\n", "\ufffd[31mno\ufffd"),
        (b"a" * 20_000, "a" * 300 + "…"),
        (b"\n \n", ""),
        (b"", ""),
        (None, ""),
    ],
)
def test_the_last_line_of_stderr_is_kept_with_the_result(store, stderr, want):
    leave(store)
    if stderr is not None:
        (launch_place(store, HARNESS) / "producer" / "stderr").write_bytes(stderr)
    assert produced(harness(store)).last_words == want


def test_the_last_line_of_stderr_is_without_exposed_values(store):
    leave(store)
    (launch_place(store, HARNESS) / "producer" / "stderr").write_bytes(b"key is hunter2-hunter2\n")
    status = harness_done(0, seal_message(digest=DIGEST), error="no hunter2-hunter2")
    job = Capture(HARNESS, view_of(HARNESS, status), Ended(0))
    values = SecretMatcher([b"hunter2-hunter2"])
    found = produced(capture(store, text_task(), job, NOW, exposed=values))
    assert found.last_words == f"key is {'*' * 15}"
    assert found.command.error == f"no {'*' * 15}"


@pytest.mark.parametrize(
    ("reason", "said", "want"),
    [("Completed", 0, 0), ("Completed", 2, 2), ("OOMKilled", 0, 1), ("OOMKilled", 2, 2)],
)
def test_processes_killed_for_memory_are_counted(store, reason, said, want):
    leave(store)
    status = pod_status(
        "Succeeded",
        ended("courier", 0, message=seal_message(digest=DIGEST)),
        ended("harness", 0, reason, message=supervise_message(memory_kills=said)),
    )
    job = Capture(HARNESS, view_of(HARNESS, status), Ended(0))
    found = produced(capture(store, text_task(), job, NOW, exposed=NOTHING))
    assert found.command.memory_kills == want


def test_a_blank_candidate_is_known_as_such(store):
    leave(store, b" \n\t")
    digest = f"sha256:{hashlib.sha256(b' ' + bytes([10, 9])).hexdigest()}"
    found = produced(harness(store, seal_message(digest=digest)))
    assert found.candidate is not None
    assert found.candidate.is_blank


def test_a_candidate_that_was_changed_after_sealing_is_no_candidate(store):
    leave(store, b"C\n")
    assert lost(harness(store)) == "extraction_failed"


@pytest.mark.parametrize("seal", ["", "{}", '{"v": 1, "file": "../x"}'])
def test_a_courier_that_says_nothing_sealed_nothing(store, seal):
    leave(store)
    assert lost(harness(store, seal)) == "extraction_failed"


def test_a_sealed_file_that_is_not_there(store):
    assert lost(harness(store)) == "extraction_failed"


def test_a_problem_of_the_candidate_is_a_result(store):
    seal = seal_message(problem="candidate_missing", file=None, digest="", message="no file")
    found = produced(harness(store, seal))
    assert found.candidate is not None
    assert (found.candidate.problem, found.candidate.message) == ("candidate_missing", "no file")


def test_the_time_limit_is_told_by_the_exit_code_alone(store):
    leave(store)
    assert produced(harness(store, code=124, timed_out=False)).command.timed_out
    assert not produced(harness(store, code=0, timed_out=True)).command.timed_out


def test_a_limit_that_left_no_word_has_no_candidate(store):
    found = produced(harness(store, "", 137, "oom_killed"))
    assert (found.candidate, found.problem) == (None, "oom_killed")
    assert found.facts.kernel == ""


def test_a_limit_keeps_what_was_sealed(store):
    leave(store)
    found = produced(harness(store, None, 137, "oom_killed"))
    assert found.candidate is not None
    assert found.problem == "oom_killed"


# The gateway's word


def connected(store, report, problem="", code=0, since=0.0):
    """Capture a launch with egress whose gateway, which is there since then, left this."""
    folder = gateway_place(store) / "launches"
    folder.mkdir(parents=True, exist_ok=True)
    if report is not None:
        content = report if isinstance(report, bytes) else encode(report)
        (folder / f"{POD}.json").write_bytes(content)
    leave(store)
    status = harness_done(code, seal_message(digest=DIGEST))
    job = Capture(HARNESS, view_of(HARNESS, status), Ended(code, problem))
    return capture(store, text_task(), job, NOW, gateway_since=since, exposed=NOTHING)


def test_the_last_word_of_the_gateway_is_kept(store):
    report = relayed(failure="provider_auth", stripped_tools=("web_search",))
    assert produced(connected(store, report)).egress == report


def test_without_a_way_out_no_report_is_looked_for(store):
    leave(store)
    assert produced(harness(store)).egress is None


REPORTS = {
    "none": None,
    "open": relayed(),
    "of another Pod of the name": egress_report(pod_uid="other"),
    "of another name": egress_report(pod="other"),
    "cut": encode(relayed())[:-20],
    "not JSON": b"closed",
    "an unknown field": encode(relayed())[:-2] + b',"verdict":true}',
    "a field twice": encode(relayed())[:-2] + b',"closed":true}',
    "another type": encode(relayed()).replace(b'"requests": 4', b'"requests": "4"'),
    "below zero": relayed(requests=-1),
    "an unknown failure": relayed(failure="verifier_error"),
    "too long": encode(relayed())[:-1] + b" " * 70_000,
}
REPORTS["open"] = replace(REPORTS["open"], closed=False)


@pytest.mark.parametrize("name", REPORTS)
def test_without_its_last_word_a_launch_is_lost(store, name):
    assert lost(connected(store, REPORTS[name])) == "egress_report_missing"


@pytest.mark.parametrize(("after", "is_lost"), [(-1, False), (0, False), (1, True)])
def test_a_launch_whose_gateway_was_replaced_meanwhile_is_lost(store, after, is_lost):
    created = view_of(HARNESS, harness_done(0, "")).created_at
    found = connected(store, relayed(), since=created + after)
    if is_lost:
        assert lost(found) == "egress_setup_failed"
        assert found.lost.usage == Usage(4, 1000, 200, 50)
    else:
        produced(found)


def test_a_lost_launch_keeps_what_it_asked(store):
    found = connected(store, replace(relayed(), closed=False))
    assert found.lost.usage == Usage(4, 1000, 200, 50)
    found = connected(store, b"damaged")
    assert found.lost.usage == Usage()


@pytest.mark.parametrize("report", [None, replace(relayed(), closed=False)])
def test_an_eviction_for_the_disk_may_have_no_last_word(store, report):
    found = produced(connected(store, report, "disk_limit_exceeded", 137))
    assert (found.problem, found.egress) == ("disk_limit_exceeded", report)


# Verifier


@pytest.mark.parametrize("passed", [True, False])
def test_a_text_verdict(passed):
    found = verifier(verifier_done(passed=passed))
    assert (found.passed, found.metadata, found.problem) == (passed, {"matched": passed}, "")


@pytest.mark.parametrize("message", ["", '{"v":1,"passed":"true","metadata":{}}'])
def test_an_unreadable_verdict_of_a_verifier_that_ended_well_is_asked_for_again(store, message):
    status = pod_status("Succeeded", ended("verifier", 0, message=message))
    job = Capture(VERIFIER, view_of(VERIFIER, status), Ended(0))
    found = capture(store, text_task(), job, NOW, exposed=NOTHING)
    assert isinstance(found, LaunchLost)
    assert (found.lost.launch, found.lost.reason) == (VERIFIER, "extraction_failed")
    assert not found.lost.is_suspect
    assert found.lost.message.startswith("the text verifier ended well and its verdict was lost")


def test_a_problem_is_no_verdict_whatever_the_message_says():
    found = verifier(verifier_done(passed=True), 1, "verifier_error")
    assert (found.passed, found.problem, found.message) == (False, "verifier_error", "why")


FIRST = LaunchKey(0, 1, Role.VERIFIER, 1)
MEMBER = LaunchKey(3, 1, Role.VERIFIER, 1)


def member(store, messages, change=lambda _: None):
    """Capture a member of a batch after its verdict file was changed."""
    store.make_launch_folders(FIRST)
    status = batch_done(store.root, UID, {FIRST: text_message(passed=False), **messages})
    change(launch_place(store, FIRST) / "verification/verdicts.json")
    job = Capture(MEMBER, view_of(FIRST, status), Ended(0), FIRST)
    return capture(store, text_task(index=3), job, NOW, exposed=NOTHING)


def test_a_member_of_a_batch_has_its_own_verdict(store):
    found = member(store, {MEMBER: text_message(passed=True)})
    assert (found.key, found.verification.passed) == (MEMBER.attempt_key, True)
    assert found.verification.metadata == {"matched": True}


def a_link(path):
    path.rename(path.with_name("other"))
    path.symlink_to("other")


SPOILED = {
    "missing": lambda path: path.unlink(),
    "link": a_link,
    "edited": lambda path: path.write_bytes(path.read_bytes().replace(b"true", b"false")),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "huge": lambda path: path.write_bytes(b" " * (1 << 20)),
    "no folder": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("how", SPOILED)
def test_verdicts_that_somebody_changed_are_nobodys(store, how):
    found = member(store, {MEMBER: text_message(passed=True)}, SPOILED[how])
    assert (found.lost.reason, found.lost.is_shared) == ("extraction_failed", True)
    assert (found.lost.launch, found.lost.is_suspect) == (MEMBER, False)


@pytest.mark.parametrize(
    "messages",
    [{}, {MEMBER: '{"v":1,"error":"MemoryError"}'}, {MEMBER: ""}, {MEMBER: '{"v":1}'}],
)
def test_a_member_without_a_verdict_is_judged_again(store, messages):
    assert member(store, messages).lost.is_shared


def check(code, **report):
    message = supervise_message(code, **{"phase": "checker", "exit_code": code} | report)
    status = pod_status(
        "Failed", ended("courier", 0, message=collect_message()), ended("check", code, "", message)
    )
    return verifier(status, code, task=check_task())


@pytest.mark.parametrize(("code", "passed"), [(0, True), (1, False), (124, False)])
def test_a_check_is_judged_by_the_exit_code_of_supervise(code, passed):
    found = check(code, exit_code=0, timed_out=code != 124)
    assert (found.passed, found.problem) == (passed, "")
    assert found.command.timed_out is (code == 124)
    assert found.stdout == StreamInfo(5, truncated=True)
    assert found.facts.kernel == KERNEL


def test_a_phase_before_the_check_that_failed():
    found = check(64, error="the patch does not apply")
    assert (found.passed, found.problem) == (False, "verifier_error")
    assert found.message == "the check's preparation failed: the patch does not apply"


def test_what_is_found_before_the_candidate_is_the_packs_fault():
    found = check(95, phase="tests of the pack", error="test_a.py:1: SyntaxError: x")
    assert (found.passed, found.problem) == (False, "verifier_configuration")
    assert found.message == "tests of the pack: test_a.py:1: SyntaxError: x"
    assert check(95, phase="p", exit_code=1, error="").message == "p: exit code 1"


def test_a_check_without_a_courier_is_lost():
    status = pod_status("Succeeded", ended("check", 0, message=supervise_message()))
    job = Capture(VERIFIER, view_of(VERIFIER, status), Ended(0))
    found = capture(RunStore.__new__(RunStore), check_task(), job, NOW, exposed=NOTHING)
    assert isinstance(found, LaunchLost)


def test_the_evidence_of_the_pod_is_kept(store):
    leave(store)
    evidence = harness(store).evidence
    assert (evidence.pod, evidence.created_at) == (POD, NOW)
    assert [each.name for each in evidence.containers] == ["courier", "harness"]
    assert evidence.containers[1].exit_code == 0


def test_only_the_first_launch_of_a_batch_has_the_evidence(store):
    other = LaunchKey(5, 1, Role.VERIFIER, 1)
    for batch, is_kept in ((VERIFIER, True), (other, False)):
        store.make_launch_folders(VERIFIER)
        view = view_of(VERIFIER, verifier_done())
        job = Capture(VERIFIER, view, Ended(0, "verifier_error"), batch)
        entry = capture(store, text_task(), job, NOW, exposed=NOTHING)
        assert (entry.evidence is not None) is is_kept
