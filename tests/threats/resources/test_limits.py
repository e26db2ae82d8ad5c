"""F10: memory, disk and time that run out are never a pass."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from unittest.mock import ANY

import pytest

from support.node import is_local
from support.release import Raw, call
from threats.honest import APP, CODE, RIGHT_CODE, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.outcomes import not_applicable
from threats.kit.program import TIMED_OUT, run_supervise
from threats.resources.small_memory import EATS, MEBIBYTE, SMALL_MEMORY

FILLS = "head -c 56m /dev/zero > /dev/shm/held"
"""Little memory of its own: the largest process beside it is the supervisor."""
CODE_TESTS = {"tests": {"source": "inline", "code": "assert answer(6) == 42\n"}}
CODE_EATS = RIGHT_CODE.replace("return", f"{EATS}\n    return")
CODE_BECOMES_SMALL = f"""\
import os
def answer(number):
    os.execv("/bin/sh", ["sh", "-c", "{FILLS}"])
"""
CODE_FILLS_AND_ANSWERS = f"""\
import os
def answer(number):
    if os.system("{FILLS}"):
        os.abort()
    return number * 7
"""
LEAVE = 'open("work.sh", "w").write({text!r})\n'
RUN_WORK = {"checker": {"command": "exec sh work.sh"}}
CHECK_EATS = f'exec python3 -c "{EATS}"\n'
CHECK_FILLS = f"exec {FILLS}\n"


def memory_trials(name: str, spec: Raw) -> tuple[dict[str, Trial], dict[str, Trial]]:
    """Return candidates that need more memory than 48 MiB, for code and for a workspace."""
    code = Batch(f"{name}-code", "code_completion", spec=spec)
    shell = Batch(f"{name}-check", "terminal_task", defaults=APP, spec=spec)
    codes = {"worker": CODE_EATS, "files": CODE_FILLS_AND_ANSWERS}
    checks = {"worker": CHECK_EATS, "supervisor": CHECK_FILLS}
    return (
        {key: code.task(key, candidate=text, grading=CODE_TESTS) for key, text in codes.items()},
        {
            key: shell.task(key, agent=LEAVE.format(text=text), grading=RUN_WORK)
            for key, text in checks.items()
        },
    )


CODE_SMALL, CHECK_SMALL = memory_trials("f10-memory", {"resources": SMALL_MEMORY})
CODE_LARGE, CHECK_LARGE = memory_trials("f10-enough", {})
CODE_SUPERVISOR = CODE_SMALL["worker"].batch.task(
    "supervisor", candidate=CODE_BECOMES_SMALL, grading=CODE_TESTS
)


def ends(arena: Arena, trial: Trial, container: str) -> list[tuple[str, int]]:
    """Return reason and exit code of a container's ends in a trial's verifier Pod.

    The kubelet tells them; a native sidecar that died may have been started again.
    """
    (pod,) = arena.pods(trial, "verifier")
    status = pod["status"]
    found = [*status["initContainerStatuses"], *status["containerStatuses"]]
    its = next(each for each in found if each["name"] == container)
    states = [its[key].get("terminated") for key in ("state", "lastState")]
    return [(end["reason"], end["exitCode"]) for end in states if end]


@pytest.mark.short
@pytest.mark.trials(*CODE_SMALL.values(), *CHECK_SMALL.values())
@pytest.mark.parametrize(
    ("trial", "container"),
    [
        *((trial, "candidate") for trial in CODE_SMALL.values()),
        (CHECK_SMALL["worker"], "check"),
    ],
    ids=["code", "code-files", "check"],
)
def test_a_197_attack_on_a_worker(arena: Arena, trial: Trial, container: str) -> None:
    """A dead child whose parent lives is judged by its result (contract 21.10)."""
    record = arena.record(trial)

    assert record["outcome"] in ("scored", "resource")
    assert record["passed"] is False
    assert ("OOMKilled", ANY) in ends(arena, trial, container)


@pytest.mark.trials(CODE_SUPERVISOR, CHECK_SMALL["supervisor"])
@pytest.mark.parametrize(
    ("trial", "container"),
    [(CODE_SUPERVISOR, "candidate"), (CHECK_SMALL["supervisor"], "check")],
    ids=["code", "check"],
)
def test_a_197_attack_on_the_supervisor(arena: Arena, trial: Trial, container: str) -> None:
    record = arena.record(trial)

    assert (record["outcome"], record["failure_reason"]) == ("resource", "oom_killed")
    assert "memory" in record["failure_message"]
    assert ("OOMKilled", 137) in ends(arena, trial, container)


@pytest.mark.trials(*CODE_LARGE.values(), *CHECK_LARGE.values())
@pytest.mark.parametrize(
    "trial", [*CODE_LARGE.values(), *CHECK_LARGE.values()], ids=lambda each: each.batch.name
)
def test_a_197_twin(arena: Arena, trial: Trial) -> None:
    assert_passed(arena, trial)


HOARD = """\
import os, time
with open({path!r}, "wb") as file:
    os.posix_fallocate(file.fileno(), 0, {size})
print("4", flush=True)
time.sleep({seconds})
"""
ANSWER_4: Raw = {"accepted_answers": ["4"]}
LONG = {"environment": {"timeout_seconds": 150}}
EVICTION_SECONDS = 120
"""The kubelet looks every ten seconds and kills with the grace period; a slow node needs more."""
SMALL_DISK = {"resources": {"workspace": "64Mi"}}
FULL = Batch("f10-full", "short_answer", defaults=LONG, spec=SMALL_DISK)
HOARDS = {
    place: FULL.task(
        place,
        agent=HOARD.format(path=path, size=size * MEBIBYTE, seconds=EVICTION_SECONDS),
        grading=ANSWER_4,
    )
    for place, (path, size) in {
        "workspace": ("held", 128),
        "tmp": ("/tmp/held", 1200),
        "output": ("/opt/securebench/output/held", 128),
    }.items()
}
WITHOUT_SIZES = Weakening(
    tuple(
        f'[JSONPatch{{op: "replace", path: "{path}", value: "8Gi"}}]'
        for path in (
            "/spec/volumes/1/emptyDir/sizeLimit",
            "/spec/containers/0/resources/limits/ephemeral-storage",
        )
    )
)
UNLIMITED = Batch(
    "f10-unlimited", "short_answer", defaults=LONG, spec=SMALL_DISK, weakening=WITHOUT_SIZES
).task(
    "workspace",
    agent=HOARD.format(path="held", size=128 * MEBIBYTE, seconds=40),
    grading=ANSWER_4,
)
BOUNDED = """\
import errno, json, os
done = {}
for path in ("/held", "/etc/held", "/opt/held", "/opt/securebench/tools/held", "/dev/shm/held"):
    try:
        with open(path, "wb") as file:
            while file.tell() < 1 << 27:
                file.write(b"x" * (1 << 20))
    except OSError as error:
        done[path] = [errno.errorcode[error.errno], os.path.exists(path) and os.stat(path).st_size]
open("seen.json", "w").write(json.dumps(done))
"""
MANY = "import os\nfor n in range(101_000):\n    os.close(os.open(str(n), os.O_CREAT))\n"
PLACES = Batch("f10-places", "terminal_task", defaults=APP)
SHOW = {"checker": {"command": "cat seen.json"}}
OTHER_PLACES = PLACES.task("bounded", agent=BOUNDED, grading=SHOW)
FLOODS = """\
import sys
for stream in (sys.stdout, sys.stderr):
    for _ in range(100):
        stream.buffer.write(b"x" * (1 << 20))
"""
FLOODING = PLACES.task("streams", agent=FLOODS, grading={"checker": {"command": "true"}})
MANY_FILES = PLACES.task("files", agent=MANY, grading={"checker": {"command": "true"}})


@pytest.mark.trials(*HOARDS.values())
@pytest.mark.parametrize("place", HOARDS)
def test_a_198_attack(arena: Arena, place: str) -> None:
    record = arena.record(HOARDS[place])

    assert (record["outcome"], record["passed"]) == ("resource", False)
    assert record["failure_reason"] == "disk_limit_exceeded"


@pytest.mark.trials(UNLIMITED)
def test_a_198_twin(arena: Arena) -> None:
    assert_passed(arena, UNLIMITED)


@pytest.mark.trials(OTHER_PLACES)
def test_a_198_attack_on_other_places(arena: Arena) -> None:
    seen = json.loads(arena.record(OTHER_PLACES)["verifier_stdout"])
    memory = seen.pop("/dev/shm/held")
    assert memory[0] == "ENOSPC"
    assert memory[1] <= 64 * MEBIBYTE
    assert {each[0] for each in seen.values()} == {"EROFS"}


@pytest.mark.trials(OTHER_PLACES, CODE)
def test_a_198_attack_on_what_has_no_size(arena: Arena) -> None:
    pods = [*arena.pods(OTHER_PLACES, "harness"), *arena.pods(OTHER_PLACES, "verifier")]
    for pod in [*pods, *arena.pods(CODE, "verifier")]:
        spec = pod["spec"]
        for volume in spec["volumes"]:
            assert "persistentVolumeClaim" in volume or "sizeLimit" in volume["emptyDir"]
        for container in [*spec["containers"], *spec["initContainers"]]:
            assert "ephemeral-storage" in container["resources"]["limits"], container["name"]


@pytest.mark.trials(FLOODING)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_198_attack_by_a_stream(arena: Arena, stream: str) -> None:
    record = arena.record(FLOODING)
    kept = arena.file(FLOODING, "{task}/attempts/1/launches/1/producer/" + stream)

    assert record["producer_metadata"][f"{stream}_bytes"] == 100 * MEBIBYTE
    assert record["producer_metadata"][f"{stream}_truncated"] is True
    assert len(kept) < MEBIBYTE + 1000


@pytest.mark.trials(MANY_FILES)
def test_a_198_attack_by_many_files(arena: Arena) -> None:
    record = arena.record(MANY_FILES)

    assert (record["outcome"], record["failure_reason"]) == ("agent", "candidate_too_large")


@pytest.mark.trials(OTHER_PLACES)
def test_a_198_attack_by_many_files_elsewhere(arena: Arena) -> None:
    """Nothing counts a Pod's files outside the workspace; the kubelet's threshold ends it."""
    (pod,) = arena.pods(OTHER_PLACES, "harness")
    node = pod["spec"]["nodeName"]
    told = json.loads(call("kubectl", "get", "--raw", f"/api/v1/nodes/{node}/proxy/configz"))
    thresholds = told["kubeletconfig"]["evictionHard"]
    has_threshold = thresholds.get("nodefs.inodesFree", "0%") not in ("0", "0%")

    if not has_threshold and not is_local():
        not_applicable(f"the kubelet of {node} has no threshold for files: {thresholds}")
    assert has_threshold, thresholds


STUBBORN = """\
import os, signal, sys, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("before the end", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
"""
STAYS = STUBBORN + "while True:\n    time.sleep(1)\n"
NAIVE_READER = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
time.sleep(1)
child.kill()
child.communicate()
"""
LIMIT_SECONDS, GRACE_SECONDS = 4, 15
SHORT_TIME = {"environment": {**APP["environment"], "timeout_seconds": LIMIT_SECONDS}}
STUBBORN_AGENT = Batch("f10-time", "terminal_task", defaults=SHORT_TIME).task(
    "agent", agent=STAYS, grading={"checker": {"command": "true"}}
)
STUBBORN_CODE = Batch("f10-code-time", "code_completion").task(
    "code",
    candidate=f"def answer(number):\n    exec({STAYS!r})\n",
    grading={"tests": {**CODE_TESTS["tests"], "timeout_seconds": LIMIT_SECONDS}},
)
_CHECKS = Batch("f10-check-time", "terminal_task", defaults=APP)
STUBBORN_CHECK = _CHECKS.task(
    "check",
    agent=f'open("work.py", "w").write({STAYS!r})\n',
    grading={"checker": {"command": "exec python3 work.py", "timeout_seconds": LIMIT_SECONDS}},
)
LEFT_BEHIND = _CHECKS.task(
    "left-behind",
    agent=f'open("work.py", "w").write({STUBBORN!r})\n',
    grading={"checker": {"command": "exec python3 work.py"}},
)


def lasted(pod: Raw, container: str) -> float:
    """Return how many seconds a container ran, as the kubelet says."""
    found = next(each for each in pod["status"]["containerStatuses"] if each["name"] == container)
    ended = found["state"]["terminated"]
    begin, end = (datetime.fromisoformat(ended[key]) for key in ("startedAt", "finishedAt"))
    return (end - begin).total_seconds()


@pytest.mark.short
@pytest.mark.trials(STUBBORN_AGENT)
def test_a_201_attack_of_an_agent(arena: Arena) -> None:
    record = arena.record(STUBBORN_AGENT)

    assert (record["outcome"], record["failure_reason"]) == ("agent", "producer_timeout")
    assert record["producer_stdout"] == "before the end\n"
    (pod,) = arena.pods(STUBBORN_AGENT, "harness")
    assert lasted(pod, "harness") <= LIMIT_SECONDS + GRACE_SECONDS


@pytest.mark.trials(STUBBORN_CODE, STUBBORN_CHECK)
@pytest.mark.parametrize(
    ("trial", "container"), [(STUBBORN_CODE, "verifier"), (STUBBORN_CHECK, "check")]
)
def test_a_201_attack_of_a_candidate(arena: Arena, trial: Trial, container: str) -> None:
    record = arena.record(trial)

    assert (record["outcome"], record["failure_reason"]) == ("scored", "verifier_timeout")
    assert record["passed"] is False
    (pod,) = arena.pods(trial, "verifier")
    assert lasted(pod, container) <= LIMIT_SECONDS + GRACE_SECONDS


@pytest.mark.trials(LEFT_BEHIND)
def test_a_201_attack_by_an_inherited_pipe(arena: Arena) -> None:
    assert arena.record(LEFT_BEHIND)["verifier_stdout"] == "before the end\n"
    (pod,) = arena.pods(LEFT_BEHIND, "verifier")
    assert lasted(pod, "check") <= GRACE_SECONDS


def test_a_201_attack_on_the_supervisor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAYS]
    phase = {"name": "main", "command": command, "timeout_seconds": 1, "workdir": "/"}
    streams = {"folder": str(tmp_path), "head_bytes": 1000, "tail_bytes": 0}

    ended = run_supervise({"phases": [phase], "streams": streams}, seconds=20)

    assert ended.code == TIMED_OUT
    assert ended.seconds < 5
    assert (tmp_path / "stdout").read_text() == "before the end\n"


def test_a_201_twin() -> None:
    """Who ends the child alone and then reads to the end of the pipe waits for its heirs."""
    command = [sys.executable, "-c", NAIVE_READER, STAYS]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        os.killpg(process.pid, signal.SIGKILL)
