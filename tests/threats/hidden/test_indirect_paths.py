"""F1: what else could carry an answer: history, earlier attempts, the network, other runs."""

from __future__ import annotations

import json
import re

import pytest

from support.release import Raw
from support.waiting import KUBECTL_TIMEOUT
from threats import honest
from threats.honest import APP, CHECK_ANSWER
from threats.kit.arena import Arena
from threats.kit.batch import IMAGE, Batch, Trial, Weakening
from threats.kit.canaries import SEARCH, canary, hits
from threats.kit.cells import WHOLE_VOLUME
from threats.kit.published import published

GIT = """\
import json, os, shutil, subprocess, sys
place = "/testbed"
def git(*words, stdin=b""):
    call = ["git", "-c", "safe.directory=*", "-C", place, *words]
    done = subprocess.run(call, input=stdin, capture_output=True, check=True)
    return done.stdout.decode().splitlines()
"""
PLANT = """\
place = "/tmp/unprepared"
shutil.copytree("/testbed/.git", place + "/.git")
fix = git("hash-object", "-w", "--stdin", stdin=b"the fix of tomorrow\\n")[0]
tree = git("mktree", stdin=f"100644 blob {fix}\\tfix.py\\n".encode())[0]
for who in ("AUTHOR", "COMMITTER"):
    os.environ.update({f"GIT_{who}_NAME": "x", f"GIT_{who}_EMAIL": "x"})
git("tag", "later", git("commit-tree", tree, "-p", "HEAD", "-m", "fix")[0])
git("remote", "add", "origin", "https://example.org/upstream")
"""
WALK = """\
every = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
reachable = {line.split()[0] for line in git("rev-list", "--objects", "HEAD")}
head = git("rev-parse", "HEAD")[0]
tell = {
    "objects": len(every),
    "unreachable": sorted(set(every) - reachable),
    "blobs": [name[:7] for name in every],
    "refs": sorted(set(git("for-each-ref", "--format=%(objectname)")) - {head}),
    "reflog": git("reflog", "--all"),
    "remotes": git("remote", "-v"),
    "stash": git("stash", "list"),
}
print(json.dumps(tell), file=sys.stderr)
"""
CLEAN = {"unreachable": [], "refs": [], "remotes": [], "stash": []}
REPOS = Batch("f1-history", "repo_patch", defaults=honest.REPO_DEFAULTS)
REPO = {"given": honest.REPO_INPUT, "grading": honest.REPO_ROW["eval"]}
HISTORY = REPOS.task("history", agent=GIT + WALK, **REPO)
WITH_HISTORY = REPOS.task("with-history", agent=GIT + PLANT + WALK, **REPO)


def history(arena: Arena, trial: Trial) -> Raw:
    seen: Raw = json.loads(arena.record(trial)["producer_stderr"])
    return seen


@pytest.mark.trials(HISTORY)
def test_a_003_attack(arena: Arena) -> None:
    seen = history(arena, HISTORY)
    patched = re.findall(r"^index [0-9a-f]+\.\.([0-9a-f]{7})", honest.GOLD_PATCH, re.MULTILINE)

    assert {name: seen[name] for name in CLEAN} == CLEAN
    assert len(seen["reflog"]) <= 1
    assert seen["objects"] > 0
    assert patched
    assert not set(patched) & set(seen["blobs"])


@pytest.mark.trials(WITH_HISTORY)
def test_a_003_twin(arena: Arena) -> None:
    seen = history(arena, WITH_HISTORY)

    assert len(seen["unreachable"]) == 3
    assert all(seen[name] for name in ("refs", "remotes"))


TOLD = canary()
SEEK = f"{SEARCH}\nprint(json.dumps(found))\n"
TWICE = {"attempts": 2, "parallelism": 1}
TELLS = {"checker": {"command": f"echo expected {TOLD}; exit 1"}}
SECOND = Batch("f1-second", "terminal_task", defaults=APP, spec=TWICE)
SECOND_TRY = SECOND.task("second", agent=SEEK, grading=TELLS)
SECOND_CODE = Batch("f1-second-code", "code_completion", spec=TWICE).task(
    "second-code",
    agent=SEEK,
    grading={"tests": {"source": "inline", "code": f"assert 0, 'expected {TOLD}'\n"}},
)
SECOND_ANSWER = Batch("f1-second-answer", "short_answer", spec=TWICE).task(
    "second-answer", agent=SEEK, grading={"accepted_answers": [TOLD]}
)
SECONDS = {"terminal": SECOND_TRY, "code": SECOND_CODE, "answer": SECOND_ANSWER}
WITH_FIRST = Batch(
    "f1-with-first",
    "terminal_task",
    defaults=APP,
    spec=TWICE,
    weakening=Weakening((WHOLE_VOLUME,)),
).task("second", agent=SEEK, grading=TELLS)
FIRST_OUTPUT = "{task}/attempts/1/launches/1/verification/%s"


def second_search(arena: Arena, trial: Trial) -> list[str]:
    first, second = arena.records(trial)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["passed"] is second["passed"] is False
    found: list[str] = json.loads(second["producer_stdout"])
    return found


@pytest.mark.trials(*SECONDS.values())
@pytest.mark.parametrize("family", SECONDS)
def test_a_007_attack(arena: Arena, family: str) -> None:
    trial = SECONDS[family]

    assert second_search(arena, trial) == []
    assert hits(published(arena.place(trial.batch).release, trial.batch.name), TOLD) == []


@pytest.mark.trials(SECOND_TRY, SECOND_CODE)
@pytest.mark.parametrize(("family", "stream"), [("terminal", "stdout"), ("code", "stderr")])
def test_a_007_attack_has_something_to_find(arena: Arena, family: str, stream: str) -> None:
    assert hits(arena.file(SECONDS[family], FIRST_OUTPUT % stream), TOLD) == ["plain"]


@pytest.mark.trials(WITH_FIRST)
def test_a_007_twin(arena: Arena) -> None:
    found = second_search(arena, WITH_FIRST)

    assert any(path.endswith("/attempts/1/launches/1/verification/stdout") for path in found)


SERVE = "mkdir /tmp/www; cd /tmp/www; echo 42 > answers; exec python3 -u -m http.server 8000"
HOST: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "answers", "labels": {"app": "answers"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "answers",
                "image": IMAGE,
                "command": ["sh", "-c", SERVE],
                "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
            }
        ],
    },
}
FETCH = """\
import urllib.request
with urllib.request.urlopen("http://%s:8000/answers?by=%s", timeout=5) as reply:
    open("answer.txt", "wb").write(reply.read())
"""
ANSWERS_HOST = "answers.example.org"
OFFLINE = Batch("f1-offline", "terminal_task", defaults=APP)
ONLINE = Batch("f1-online", "terminal_task", defaults=APP, weakening=Weakening(()))
LISTED = Batch(
    "f1-listed",
    "terminal_task",
    defaults=APP,
    spec={
        "harness": {
            "type": "command",
            "config": {"command": "true", "allowed_domains": [ANSWERS_HOST]},
        }
    },
).task("listed", grading=CHECK_ANSWER)


@pytest.fixture(scope="session")
def fetchers(arena: Arena) -> tuple[Trial, Trial]:
    """Return a trial without a network and one that a second policy lets reach the host."""
    here, there = arena.place(OFFLINE).release, arena.place(ONLINE).release
    here.create(HOST)
    here.kubectl("wait", "--for=condition=Ready", "pod/answers", KUBECTL_TIMEOUT)
    address = here.get("pod", "answers")["status"]["podIP"]
    there.create(_open(ONLINE.name, here.namespace))
    trials = tuple(
        batch.task("fetch", agent=FETCH % (address, batch.name), grading=CHECK_ANSWER)
        for batch in (OFFLINE, ONLINE)
    )
    arena.start(trials)
    return trials


def _open(run: str, namespace: str) -> Raw:
    named = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "podSelector": {"matchLabels": {"securebench.dev/run": run}},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": named}]}],
    }
    metadata = {"name": f"open-{run}"}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": metadata, "spec": spec}


def asked(arena: Arena, trial: Trial) -> bool:
    arena.records(trial)
    log = arena.place(OFFLINE).release.kubectl("logs", "answers")
    return f"by={trial.batch.name}" in log


def test_a_009_attack(arena: Arena, fetchers: tuple[Trial, Trial]) -> None:
    trial, _ = fetchers
    record = arena.record(trial)

    assert not asked(arena, trial)
    assert record["passed"] is False
    assert record["labels"]["network"] == "none"


@pytest.mark.trials(LISTED)
def test_a_009_attack_with_its_domain_listed(arena: Arena) -> None:
    record = arena.record(LISTED)

    assert record["passed"] is False
    assert record["labels"]["network"] == "egress"
    assert record["producer_metadata"]["allowed_domains"] == [ANSWERS_HOST]


def test_a_009_twin(arena: Arena, fetchers: tuple[Trial, Trial]) -> None:
    _, trial = fetchers

    assert asked(arena, trial)
    assert arena.record(trial)["passed"] is True


LEAVE = f"""\
import json, os, socket
note = "-".join(("canary", "7f3d")) + "-{1:032x}"
places = []
for top, folders, files in os.walk("/"):
    if top in ("/proc", "/sys"):
        folders[:] = []
        continue
    try:
        with open(os.path.join(top, "note"), "w") as file:
            file.write(note)
        places.append(top)
    except OSError:
        pass
print(json.dumps(places))
"""
SHARE = (
    '[JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-", value:'
    ' Object.spec.containers.volumeMounts{name: "results", mountPath: "/common",'
    ' subPath: "common"}}]'
)
COMMON = Weakening((SHARE,))
FIRST = Batch("f1-leaves", "terminal_task", defaults=APP).task(
    "leaves", agent=LEAVE, grading=CHECK_ANSWER
)
NEXT = Batch("f1-finds", "terminal_task", defaults=APP).task(
    "finds", agent=SEEK, grading=CHECK_ANSWER
)
FIRST_SHARED = Batch("f1-leaves-shared", "terminal_task", defaults=APP, weakening=COMMON).task(
    "leaves", agent=LEAVE, grading=CHECK_ANSWER
)
NEXT_SHARED = Batch("f1-finds-shared", "terminal_task", defaults=APP, weakening=COMMON).task(
    "finds", agent=SEEK, grading=CHECK_ANSWER
)


def passed_on(arena: Arena, first: Trial, second: Trial) -> tuple[list[str], list[str]]:
    """Run two runs one after the other; return where the first wrote and the second found."""
    wrote = json.loads(arena.record(first)["producer_stdout"])
    arena.start([second])
    return wrote, json.loads(arena.record(second)["producer_stdout"])


@pytest.mark.trials(FIRST)
def test_a_015_attack(arena: Arena) -> None:
    wrote, found = passed_on(arena, FIRST, NEXT)
    (first,), (second,) = arena.pods(FIRST, "harness"), arena.pods(NEXT, "harness")

    assert {"/app", "/tmp", "/dev/shm"} <= set(wrote)
    assert found == []
    assert first["spec"]["nodeName"] == second["spec"]["nodeName"]


@pytest.mark.trials(FIRST_SHARED)
def test_a_015_twin(arena: Arena) -> None:
    wrote, found = passed_on(arena, FIRST_SHARED, NEXT_SHARED)

    assert "/common" in wrote
    assert found == ["/common/note"]
