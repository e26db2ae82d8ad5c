import json

import pytest

from securebench.run.observe.termination import (
    BadMessageError,
    collected_streams,
    command_report,
    decode,
    kernel_release,
    sealed_candidate,
    text_verdict,
    verdicts_digest,
)
from securebench.run.state.attempts import CommandReport, DiffReport, Loss, StreamInfo
from support.build import (
    KERNEL,
    collect_message,
    seal_message,
    sealed,
    supervise_message,
    text_message,
)

BAD = {
    "empty": "",
    "no JSON": "panic: runtime error",
    "cut": '{"v":1,"code":0',
    "trailing bytes": '{"v":1} {"v":1}',
    "no object": "[1]",
    "a number": "1",
    "no version": "{}",
    "another version": '{"v":2}',
    "a version of another type": '{"v":true}',
    "a text for a version": '{"v":"1"}',
    "duplicate key": '{"v":1,"v":1}',
    "duplicate key inside": '{"v":1,"stdout":{"bytes":1,"bytes":2}}',
    "not a number": '{"v":1,"score":NaN}',
    "infinite": '{"v":1,"score":-Infinity}',
    "infinite by size": '{"v":1,"duration_seconds":1e999}',
    "a lone surrogate": '{"v":1,"error":"\\ud800"}',
    "a lone surrogate in a key": '{"v":1,"\\udfff":0}',
    "nested too deep": '{"v":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("name", BAD)
def test_the_decoder_refuses(name):
    with pytest.raises(BadMessageError):
        decode(BAD[name])


def test_the_decoder_reads():
    assert decode('{"v":1,"metadata":{"a":[1.5,null,"\\u00e9"]}}') == {
        "v": 1,
        "metadata": {"a": [1.5, None, "é"]},
    }


def test_a_command_report():
    found = command_report(supervise_message(124, exit_code=137, error="killed"))
    assert found == CommandReport(
        exit_code=137, timed_out=True, duration_seconds=1.5, phase="harness", error="killed"
    )


@pytest.mark.parametrize(
    ("diff", "want"),
    [
        (
            {"baseline": "clean", "bytes": 3, "exit_code": 0, "stderr": ""},
            DiffReport(0, "", "clean"),
        ),
        ({"baseline": "committed"}, DiffReport(None, "", "committed")),
        ({"baseline": "/etc"}, DiffReport(None, "")),
        (
            {"exit_code": 128, "stderr": "fatal: \x1b\0\ufffd"},
            DiffReport(128, "fatal: \x1b\0\ufffd"),
        ),
        ({"exit_code": None, "stderr": "no folder"}, DiffReport(None, "no folder")),
        ({"exit_code": True, "stderr": ["x"]}, DiffReport(None, "")),
        ([0], None),
        ("clean", None),
        (None, None),
    ],
)
def test_how_a_diff_was_made_is_read(diff, want):
    report = command_report(json.dumps({"v": 1, "diff": diff}))
    assert (report.diff, report.exit_code) == (want, None)


@pytest.mark.parametrize("message", ["", '{"v":3}', "x" * 4096])
def test_evidence_that_cannot_be_read_is_empty(message):
    assert command_report(message) == CommandReport(error="supervise left no readable report")


def test_a_report_of_odd_types_is_empty():
    body = {"v": 1, "exit_code": True, "timed_out": "true", "duration_seconds": False, "phase": 3}
    assert command_report(json.dumps(body)) == CommandReport()


def test_what_of_a_workspace_was_lost():
    given = [{"path": "pipe", "reason": "a FIFO"}, {"path": "x\x1b[2J" * 100, "reason": "a\nb"}]
    wanted = (Loss("pipe", "a FIFO"), Loss(("x?[2J" * 100)[:200], "a?b"))
    found, _, _ = sealed_candidate(seal_message(dropped=given), 1)
    assert found.dropped == wanted
    report = command_report(supervise_message(0, dropped=given, dropped_entries=7))
    assert (report.dropped, report.dropped_entries) == (wanted, 7)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (None, 0),
        ("pipe", 0),
        ([1, None, "x", {}, {"path": 3, "reason": "x"}, {"path": "x"}, ["path"]], 0),
        ([{"path": "x", "reason": "y"}] * 1000, 20),
    ],
)
def test_losses_of_odd_types_or_numbers(given, want):
    found, _, _ = sealed_candidate(seal_message(dropped=given), 1)
    assert len(found.dropped) == want


@pytest.mark.parametrize("number", [2**63, -(2**63), 10**400])
def test_numbers_that_nothing_counts_are_none(number):
    body = {"v": 1, "exit_code": number, "memory_kills": number, "diff": {"exit_code": number}}
    assert command_report(json.dumps(body)) == CommandReport(diff=DiffReport(None, ""))


@pytest.mark.parametrize("code", [-1, 256])
def test_what_is_no_exit_code_is_none(code):
    assert command_report(json.dumps({"v": 1, "exit_code": code})) == CommandReport()


def test_a_sealed_candidate():
    candidate, stdout, stderr = sealed_candidate(seal_message(), 2)
    assert candidate == sealed(launch=2)
    assert (stdout, stderr) == (StreamInfo(10), StreamInfo(0))


def test_a_candidate_with_a_problem():
    message = seal_message(problem="candidate_too_large", file=None, message="2 MiB", stdout=None)
    candidate, stdout, _ = sealed_candidate(message, 1)
    assert (candidate.problem, candidate.file, candidate.message) == (
        "candidate_too_large",
        None,
        "2 MiB",
    )
    assert stdout == StreamInfo()


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "../../../0/candidate.txt"},
        {"file": ""},
        {"file": ["candidate.txt"]},
        {"problem": "oom_killed"},
        {"problem": 0},
    ],
)
def test_a_courier_says_nothing_else(changes):
    with pytest.raises(BadMessageError, match="nothing that a courier says"):
        sealed_candidate(seal_message(**changes), 1)


def test_collected_streams():
    assert collected_streams(collect_message()) == (StreamInfo(5, truncated=True), StreamInfo(0))
    with pytest.raises(BadMessageError):
        collected_streams("")


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (seal_message(), KERNEL),
        (collect_message(), KERNEL),
        (collect_message(kernel="k" * 100), "k" * 64),
        (collect_message(kernel=["gvisor"]), ""),
        ('{"v":1}', ""),
        ("", ""),
    ],
)
def test_the_kernel_below_a_courier(message, want):
    assert kernel_release(message) == want


@pytest.mark.parametrize("passed", [True, False])
def test_a_text_verdict(passed):
    assert text_verdict(text_message(passed=passed)) == (passed, {"matched": passed})


@pytest.mark.parametrize("changes", [{"passed": 1}, {"passed": None}, {"metadata": [1]}])
def test_a_verdict_needs_its_parts(changes):
    with pytest.raises(BadMessageError, match="needs passed and metadata"):
        text_verdict(json.dumps(json.loads(text_message()) | changes))


@pytest.mark.parametrize("field", ["Passed", "PASSED", "code"])
def test_our_own_programs_say_nothing_unknown(field):
    for read, message in {
        text_verdict: text_message(**{field: True}),
        collected_streams: collect_message(**{field: True}),
        (lambda text: sealed_candidate(text, 1)): seal_message(**{field: True}),
    }.items():
        with pytest.raises(BadMessageError, match=f"unknown fields: {field}"):
            read(message)


ODD_USAGE = {
    "measured": {"memory_peak_bytes": 5_000, "cpu_periods": 30, "cpu_throttled": 4},
    "nonsense": {"memory_peak_bytes": "much", "cpu_periods": -1, "cpu_throttled": [10**30]},
}


@pytest.mark.parametrize("name", ODD_USAGE)
def test_what_a_container_says_of_its_usage_changes_no_result(name):
    usage = ODD_USAGE[name]
    assert sealed_candidate(seal_message(**usage), 2)[0] == sealed(launch=2)
    assert collected_streams(collect_message(**usage)) == collected_streams(collect_message())
    assert text_verdict(text_message(**usage)) == (True, {"matched": True})
    assert verdicts_digest(json.dumps({"v": 1, "verdicts": "sha256:1"} | usage)) == "sha256:1"
