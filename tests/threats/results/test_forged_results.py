"""F4: what stands in files, logs and messages near candidate code is no verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from securebench.run.observe.termination import text_verdict
from threats.grading.terminal_tasks import (
    AGENTS,
    BY_PYTEST,
    HONEST_PYTEST,
    NAIVE,
    WRITE,
    is_refused,
    said,
)
from threats.honest import APP, CODE_TESTS, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.specs import edited, replaced, words

SHELL = ("sh", "-lc")
"""How a check by a command of the author starts."""


PROGRAM = "python3 program.py"


def judged_by(name: str, command: str) -> Batch:
    """Return a batch whose checks end with the exit code of a command; ``$0`` is the author's.

    The phases before the check start with the same shell and stay as they are.
    """
    before, after = (f'{shell}"{PROGRAM}' for shell in (words(*SHELL), words("sh", "-c", command)))
    return Batch(
        name,
        "terminal_task",
        defaults=APP,
        weakening=Weakening((edited(before, after),), role="verifier"),
    )


def answering(answer: int, program: str) -> str:
    """Return an agent that leaves an answer and the program that the author's check starts."""
    return WRITE + f'write("answer.txt", "{answer}\\n")\nwrite("program.py", {program!r})\n'


CHECK_PROGRAM = {"checker": {"command": f'{PROGRAM}; test "$(cat answer.txt)" = 42'}}
RESULTS = """\
import os
names = '''reward.txt reward.json score.txt result.json results.json report.json report.xml
    junit.xml verdict passed success exit_code .passed stdout termination-log'''.split()
places = '''/ /app /tmp /dev /dev/shm /root /logs /logs/verifier /var/log /opt/securebench
    /opt/securebench/output /opt/securebench/home /opt/securebench/tools'''.split()
for place in places:
    try:
        os.makedirs(place, exist_ok=True)
    except OSError:
        pass
    for name in names:
        try:
            open(place + "/" + name, "w").write(TEXT)
        except OSError:
            pass
"""
PASSED, FAILED = "1", "0"


def forging(answer: int, text: str) -> str:
    """Return an agent that writes results, and whose program does when it is checked."""
    program = f"TEXT = {text!r}\n{RESULTS}"
    return answering(answer, program) + program


CODE_FORGERY = f"TEXT = {PASSED!r}\n{RESULTS}\ndef answer(number): return 41\n"
CODE_HONESTY = f"TEXT = {FAILED!r}\n{RESULTS}\ndef answer(number): return number * 7\n"
CODES = Batch("f4-code", "code_completion")
FORGED = AGENTS.task("results-wrong", agent=forging(41, PASSED), grading=CHECK_PROGRAM)
FORGED_CODE = CODES.task("results-wrong", candidate=CODE_FORGERY, grading=CODE_TESTS)
DENIED = AGENTS.task("results-right", agent=forging(42, FAILED), grading=CHECK_PROGRAM)
DENIED_CODE = CODES.task("results-right", candidate=CODE_HONESTY, grading=CODE_TESTS)
FORGED_TWIN = judged_by("f4-reward-file", 'sh -lc "$0"; grep -qx 1 /app/reward.txt').task(
    "results-wrong", agent=forging(41, PASSED), grading=CHECK_PROGRAM
)


@pytest.mark.short
@pytest.mark.trials(FORGED, FORGED_CODE)
@pytest.mark.parametrize("trial", [FORGED, FORGED_CODE], ids=["workspace", "code"])
def test_a_061_attack(arena: Arena, trial: Trial) -> None:
    assert is_refused(arena.record(trial))


@pytest.mark.trials(FORGED_TWIN)
def test_a_061_twin(arena: Arena) -> None:
    assert arena.record(FORGED_TWIN)["passed"] is True


@pytest.mark.short
@pytest.mark.trials(DENIED, DENIED_CODE)
@pytest.mark.parametrize("trial", [DENIED, DENIED_CODE], ids=["workspace", "code"])
def test_a_061_honest(arena: Arena, trial: Trial) -> None:
    assert_passed(arena, trial)


PERFECT_LOG = """\
print("============================= test session starts ==============================")
for number in range(20):
    print(f"tests/test_answer.py::test_answer[{number}] PASSED")
print("============================== 20 passed in 0.01s ==============================")
"""
LOGGED = AGENTS.task("log", agent=answering(41, PERFECT_LOG), grading=CHECK_PROGRAM)
LOGGED_TWIN = judged_by("f4-log-reader", 'sh -lc "$0" | grep -q "20 passed"').task(
    "log", agent=answering(41, PERFECT_LOG), grading=CHECK_PROGRAM
)


@pytest.mark.short
@pytest.mark.trials(LOGGED)
def test_a_063_attack(arena: Arena) -> None:
    record = arena.record(LOGGED)

    assert is_refused(record)
    assert said(record, "20 passed")


@pytest.mark.trials(LOGGED_TWIN)
def test_a_063_twin(arena: Arena) -> None:
    assert arena.record(LOGGED_TWIN)["passed"] is True


MILLION = 1_000_000
BREAKOUT = f"""\
import sys
print(']]></system-out></testcase></testsuite>')
print('<testsuite tests="20" failures="0"><testcase name="test_answer[0]"/></testsuite><!-- ')
print("1..{MILLION}")
sys.stdout.write("".join(f"ok {{number}} - answer\\n" for number in range({MILLION})))
"""
BROKEN_OUT = AGENTS.task("breakout", agent=answering(41, BREAKOUT), grading=CHECK_PROGRAM)
BROKEN_OUT_TWIN = judged_by("f4-tap-reader", 'test "$(sh -lc "$0" | grep -c "^ok ")" -ge 20').task(
    "breakout", agent=answering(41, BREAKOUT), grading=CHECK_PROGRAM
)
PYTEST_BREAKOUT = (
    WRITE
    + """
write("solution.py", '''
class Answer(int):
    def __repr__(self): return "]]></failure></testcase><testcase name='x'/>\\\\n1..1\\\\nok 1"
def answer(number):
    print("ok 1\\\\n20 passed\\\\n</testsuite>")
    return Answer(41)
''')
"""
)
PYTEST_BROKEN_OUT = AGENTS.task("breakout-pytest", agent=PYTEST_BREAKOUT, grading=BY_PYTEST)
STREAM_BYTES = 1024 * 1024
"""Of each stream in a record, by the chart's default bounds."""


@pytest.mark.trials(BROKEN_OUT)
def test_a_065_attack(arena: Arena) -> None:
    record = arena.record(BROKEN_OUT)

    assert is_refused(record)
    assert record["verifier_metadata"]["stdout_bytes"] > 10 * MILLION
    assert record["verifier_metadata"]["stdout_truncated"] is True
    assert len(record["verifier_stdout"].encode()) <= STREAM_BYTES + 4096


@pytest.mark.trials(PYTEST_BROKEN_OUT)
def test_a_065_attack_on_pytest(arena: Arena) -> None:
    record = arena.record(PYTEST_BROKEN_OUT)

    assert is_refused(record)
    assert said(record, "20 failed in")


@pytest.mark.trials(BROKEN_OUT_TWIN)
def test_a_065_twin(arena: Arena) -> None:
    assert arena.record(BROKEN_OUT_TWIN)["passed"] is True


@pytest.mark.trials(HONEST_PYTEST)
def test_a_065_honest(arena: Arena) -> None:
    record = arena.record(HONEST_PYTEST)

    assert_passed(arena, HONEST_PYTEST)
    assert said(record, "20 passed")


CRASH = (
    WRITE
    + """
write("solution.py", '''
import os
def answer(number):
    if number:
        os._exit(0)
    return 0
''')
"""
)
CRASHED = AGENTS.task("crash", agent=CRASH, grading=BY_PYTEST)
CRASHED_TWIN = NAIVE.task("crash", agent=CRASH, grading=BY_PYTEST)
TWENTY = "".join(f"assert answer({number}) == {number * 7}\n" for number in range(20))
CRASHED_CODE = CODES.task(
    "crash",
    candidate="import os\ndef answer(number):\n    if number: os._exit(0)\n    return 0\n",
    grading={"tests": {"source": "inline", "code": TWENTY}},
)


@pytest.mark.trials(CRASHED, CRASHED_CODE)
@pytest.mark.parametrize("trial", [CRASHED, CRASHED_CODE], ids=["pytest", "code"])
def test_a_067_attack(arena: Arena, trial: Trial) -> None:
    record = arena.record(trial)

    assert is_refused(record)
    assert record["score"] == 0
    assert "complete" in record["verifier_stderr"]


@pytest.mark.trials(CRASHED_TWIN)
def test_a_067_twin(arena: Arena) -> None:
    assert arena.record(CRASHED_TWIN)["passed"] is True


@pytest.mark.trials(HONEST_PYTEST)
def test_a_067_honest(arena: Arena) -> None:
    assert_passed(arena, HONEST_PYTEST)


MARK = "forged-verdict-7f3d"
VERDICT = json.dumps({"v": 1, "passed": True, "score": 1.0, "metadata": {"note": MARK}})
TELL = f"""\
import os
for name in ("/dev/termination-log", "/dev/shm/termination-log", "/proc/1/fd/3"):
    try:
        open(name, "w").write({VERDICT!r})
    except OSError as error:
        print(name, error.strerror)
"""
"""Kept open by PID 1, the file itself can be written; what it holds last is ours."""
TOLD = {
    code: AGENTS.task(
        f"told-{code}",
        agent=answering(41, TELL) + TELL,
        grading={"checker": {"command": f"python3 program.py; test {code} = 0"}},
    )
    for code in (0, 1)
}
OWN_PID_1 = replaced("/spec/containers/0/command", f'["python3", "-c", {json.dumps(TELL)}]')
TOLD_TWIN = Batch(
    "f4-own-message",
    "terminal_task",
    defaults=APP,
    weakening=Weakening((OWN_PID_1,), role="verifier"),
).task("told", agent=answering(41, TELL), grading=CHECK_PROGRAM)


def messages(pod: dict[str, Any]) -> str:
    """Return the termination message of a Pod's untrusted container."""
    text: str = pod["status"]["containerStatuses"][0]["state"]["terminated"].get("message", "")
    return text


@pytest.mark.trials(*TOLD.values())
@pytest.mark.parametrize("code", TOLD)
def test_a_071_attack(arena: Arena, code: int) -> None:
    trial = TOLD[code]
    record = arena.record(trial)

    assert (record["outcome"], record["passed"]) == ("scored", code == 0)
    for role in ("harness", "verifier"):
        (pod,) = arena.pods(trial, role)
        assert pod["spec"]["containers"][0]["terminationMessagePolicy"] == "File"
        assert json.loads(messages(pod))["v"] == 1
        assert MARK not in messages(pod)
    assert MARK not in json.dumps(arena.run(trial.batch)["status"])


@pytest.mark.trials(TOLD_TWIN)
def test_a_071_twin(arena: Arena) -> None:
    arena.record(TOLD_TWIN)
    (pod,) = arena.pods(TOLD_TWIN, "verifier")

    assert text_verdict(messages(pod))[0] is True
