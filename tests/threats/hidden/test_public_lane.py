"""F1: hidden material stays away from the producer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from securebench.controller.volume.folders import INSTALLED_TOOLS
from support.release import Raw
from threats import honest
from threats.honest import APP, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.canaries import PREFIX, SEARCH, canary, hits
from threats.kit.cells import WHOLE_VOLUME, Mount, mounts, text, untrusted

PROBE = f"""{SEARCH}
def read(path):
    with open(path) as file:
        return file.read()
seen = set()
for place in found:
    if os.path.isfile(place):
        with open(place, "rb") as file:
            seen |= set(re.findall(prefix + rb"-[0-9a-f]{{32}}", file.read()))
told = {{"found": found, "canaries": sorted(map(bytes.decode, seen))}}
told["mounts"] = read("/proc/self/mountinfo")
print(json.dumps(told), file=sys.stderr)
"""
"""Tells where canaries can be read, which, and what is mounted."""
ANSWER = f"{PROBE}print('4')\n"
PATCH = f"{PROBE}sys.stdout.write({honest.GOLD_PATCH!r})\n"

SECRETS: Mapping[str, str] = {
    name: canary()
    for name in (
        "accepted_answers",
        "checker",
        "expected_state",
        "gold_patch",
        "reference_answer",
        "reference_solution",
        "rubric",
        "test_file",
        "tests",
        "metadata",
    )
}
MORE = {"metadata": {"solution": SECRETS["metadata"]}}
CHECK = f"# {SECRETS['test_file']}\nexit 0\n".encode()

SHORT = Batch("f1-short", "short_answer").task(
    "short", agent=ANSWER, grading={"accepted_answers": [SECRETS["accepted_answers"]]}, **MORE
)
FREE = Batch("f1-free", "free_response").task(
    "free",
    agent=ANSWER,
    grading={
        "rubric": {"accepted_answers": [SECRETS["rubric"]]},
        "reference_answer": SECRETS["reference_answer"],
    },
    **MORE,
)
CHOICE = Batch("f1-choice", "multiple_choice").task(
    "choice", agent=ANSWER, given={"choices": ["3", "4"]}, grading={"answer": "B"}, **MORE
)
CODE = Batch("f1-code", "code_completion").task(
    "code",
    agent=ANSWER,
    grading={
        "tests": {"source": "inline", "code": f"assert answer(6) == '{SECRETS['tests']}'\n"},
        "reference_solution": f"# {SECRETS['reference_solution']}",
    },
    **MORE,
)
GRADED = {
    "checker": {"command": f"sh securebench/evaluation_inputs/check.sh {SECRETS['checker']}"},
    "test_files": {"path": "check.sh"},
    "expected_state": SECRETS["expected_state"],
}
FILES = {"hidden/check.sh": CHECK}
TERMINALS = Batch("f1-terminal", "terminal_task", defaults=APP, files=FILES)
TERMINAL = TERMINALS.task("terminal", agent=PROBE, grading=GRADED, **MORE)
LEAKED = canary()
IN_PUBLIC = TERMINALS.task(
    "in-public", agent=PROBE, given={"context": f"note {LEAKED}"}, grading=GRADED, **MORE
)
WITH_VOLUME = Batch(
    "f1-with-volume",
    "terminal_task",
    defaults=APP,
    files=FILES,
    weakening=Weakening((WHOLE_VOLUME,)),
).task("terminal", agent=PROBE, grading=GRADED, **MORE)
REPO = Batch("f1-repo", "repo_patch", defaults=honest.REPO_DEFAULTS).task(
    "repo",
    agent=PATCH,
    given=honest.REPO_INPUT,
    grading={**honest.REPO_ROW["eval"], "gold_patch": SECRETS["gold_patch"]},
    **MORE,
)
HONEST = {
    "short": honest.TEXT,
    "choice": honest.CHOICE,
    "code": honest.CODE,
    "terminal": honest.TERMINAL,
    "repo": honest.REPO,
}
PROBED = {
    "short": SHORT,
    "free": FREE,
    "choice": CHOICE,
    "code": CODE,
    "terminal": TERMINAL,
    "repo": REPO,
}

NAME, TASK = canary(), canary()
NAMED = Batch(NAME, "terminal_task", defaults=APP, files=FILES).task(
    TASK, agent=PROBE, grading=GRADED, **MORE
)
HOST = Weakening((f'[JSONPatch{{op: "replace", path: "/spec/hostname", value: "{TASK}"}}]',))
WITH_HOST = Batch(f"{NAME}-host", "terminal_task", defaults=APP, files=FILES, weakening=HOST).task(
    TASK, agent=PROBE, grading=GRADED, **MORE
)


def told(arena: Arena, trial: Trial) -> Raw:
    seen: Raw = json.loads(arena.record(trial)["producer_stderr"])
    return seen


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=(pytest.mark.trials(trial), *marks))
        for name, trial in PROBED.items()
        for marks in [(pytest.mark.short,) if name == "terminal" else ()]
    ],
)
def test_a_001_attack(arena: Arena, family: str) -> None:
    trial = PROBED[family]
    (pod,) = arena.pods(trial, "harness")

    assert told(arena, trial)["found"] == []
    leaked = {name: hits(text(pod), secret) for name, secret in SECRETS.items()}
    assert not any(leaked.values()), leaked
    assert PREFIX not in text(pod).decode()


@pytest.mark.trials(IN_PUBLIC, TERMINAL)
def test_a_001_twin(arena: Arena) -> None:
    seen = told(arena, IN_PUBLIC)
    (verifier,) = arena.pods(TERMINAL, "verifier")

    assert seen["canaries"] == [LEAKED]
    assert "/app/task.json" in seen["found"]
    assert hits(text(verifier), SECRETS["checker"])


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=(pytest.mark.trials(trial), *marks))
        for name, trial in HONEST.items()
        for marks in [(pytest.mark.short,) if name == "terminal" else ()]
    ],
)
def test_a_001_honest(arena: Arena, family: str) -> None:
    assert_passed(arena, HONEST[family])


def common(arena: Arena, trial: Trial) -> set[str]:
    """Return what of a run lies both in the agent's container and in one that grades.

    The installed programs lie in both: they are read-only, and no run's.
    """
    (harness,) = arena.pods(trial, "harness")
    (verifier,) = arena.pods(trial, "verifier")
    grading = [path for item in verifier["spec"]["containers"] for path in volume_paths(item)]
    return {
        str(path)
        for item in untrusted(harness)
        for path in volume_paths(item)
        if path.parts[:1] != (INSTALLED_TOOLS,)
        and any(path.is_relative_to(other) or other.is_relative_to(path) for other in grading)
    }


def volume_paths(container: Raw) -> list[PurePosixPath]:
    return [PurePosixPath(item.sub_path) for item in mounts(container) if item.volume == "results"]


def public_lane(arena: Arena, trial: Trial) -> str:
    (pod,) = arena.pods(trial, "harness")
    index = pod["metadata"]["annotations"]["securebench.dev/task-index"]
    uid = pod["metadata"]["labels"]["securebench.dev/run-uid"]
    return f"runs/{uid}/tasks/{index}/lanes/public"


FROM_KUBELET = ("/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log")
FROM_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"})


def unexplained_mounts(arena: Arena, trial: Trial) -> list[str]:
    """Return the mounts seen inside that the Pod object does not promise for the public lane."""
    (pod,) = arena.pods(trial, "harness")
    lane = public_lane(arena, trial)
    by_place = {item.place: item for item in mounts(pod["spec"]["containers"][0])}
    return [
        line
        for line in told(arena, trial)["mounts"].splitlines()
        if not _is_explained(line, by_place, lane)
    ]


def _is_explained(line: str, by_place: Mapping[str, Mount], lane: str) -> bool:
    before, _, after = line.partition(" - ")
    root, place = before.split()[3:5]
    mount = by_place.get(place)
    if mount is not None and mount.volume == "results":
        is_promised = mount.sub_path.startswith((lane, f"{INSTALLED_TOOLS}/"))
        return is_promised and root.endswith(mount.sub_path)
    kind = after.split()[0]
    is_of_runtime = place.startswith(("/dev", "/proc/", "/sys/")) and "/runs/" not in root
    known = mount is not None or place in FROM_KUBELET or kind in FROM_KERNEL or is_of_runtime
    return known and "/lanes" not in root


@pytest.mark.short
@pytest.mark.trials(TERMINAL)
def test_a_002_attack(arena: Arena) -> None:
    assert common(arena, TERMINAL) == {public_lane(arena, TERMINAL)}
    assert unexplained_mounts(arena, TERMINAL) == []


@pytest.mark.trials(*PROBED.values())
def test_a_002_attack_of_every_family(arena: Arena) -> None:
    for trial in PROBED.values():
        assert common(arena, trial) <= {public_lane(arena, trial)}
        assert unexplained_mounts(arena, trial) == []


@pytest.mark.trials(WITH_VOLUME)
def test_a_002_twin(arena: Arena) -> None:
    assert common(arena, WITH_VOLUME) == {".", public_lane(arena, WITH_VOLUME)}
    (line,) = unexplained_mounts(arena, WITH_VOLUME)
    assert " /twin " in line
    assert SECRETS["test_file"] in told(arena, WITH_VOLUME)["canaries"]


@pytest.mark.short
@pytest.mark.trials(NAMED)
def test_a_010_attack(arena: Arena) -> None:
    assert told(arena, NAMED)["found"] == []


@pytest.mark.trials(WITH_HOST)
def test_a_010_twin(arena: Arena) -> None:
    found = set(told(arena, WITH_HOST)["found"])

    assert {"environ", "/etc/hosts", "/etc/hostname"} <= found
