"""F8: the Pod from which submitters and viewers fetch results."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from securebench.client import results as command
from support.cli_fixtures import finished, interrupt, shell
from support.cli_shell import Shell
from support.release import CommandError, Raw, Release
from support.waiting import KUBECTL_TIMEOUT
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import Batch

__all__ = ["finished", "interrupt", "shell"]

POD = "securebench-viewers-0"
TWIN = "viewers-of-everything"
CANARY = "canary-5f1d-of-a-hidden-test"
TOLD = Batch("f8-told", "terminal_task", defaults=APP).task(
    "told", agent="pass", grading={"checker": {"command": f"echo {CANARY}; true"}}
)
"""Its check prints what is hidden: the tester's record has it."""

SEEK = f"""\
import json, os, socket
needle = {CANARY.encode()!r}
found = []
for top, folders, files in os.walk("/"):
    folders[:] = [one for one in folders if os.path.join(top, one) not in ("/proc", "/sys", "/dev")]
    for name in files:
        try:
            with open(os.path.join(top, name), "rb") as file:
                text = file.read()
        except OSError:
            continue
        if needle in text:
            found.append((top, name))
def reached(host, port):
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True
def written(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
account = "/var/run/secrets/kubernetes.io/serviceaccount/token"
host = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
print(json.dumps({{
    "hidden": bool(found),
    "token": os.path.exists(account),
    "network": reached(*host),
    "written": written("/var/lib/securebench/runs/mine") or written("/tmp/mine"),
}}))
"""
NOTHING = {"hidden": False, "token": False, "network": False, "written": False}


def seen(release: Release, pod: str, *flags: str) -> Raw:
    """Return what a program finds out in a Pod."""
    words = ("exec", *flags, pod, "--", "python3", "-c", SEEK)
    found: Raw = json.loads(release.kubectl(*words).splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def viewer(arena: Arena) -> str:
    """Return a user with the role viewer in the release."""
    release = arena.place(TOLD.batch).release
    words = ("rolebinding", "f8-viewer", "--role=securebench-viewer", "--user=f8-viewer")
    release.kubectl("create", *words)
    return "f8-viewer"


@pytest.mark.short
@pytest.mark.trials(TOLD)
def test_a_350_attack(arena: Arena, viewer: str) -> None:
    assert CANARY in arena.record(TOLD)["verifier_stdout"]
    release = arena.place(TOLD.batch).release
    assert seen(release, POD, f"--as={viewer}") == NOTHING
    with pytest.raises(CommandError, match="forbidden"):
        seen(release, "securebench-0", f"--as={viewer}")


@pytest.mark.trials(TOLD)
def test_a_350_twin(arena: Arena) -> None:
    """Mount the whole volume where the released Pod mounts one folder of it."""
    assert arena.record(TOLD)["passed"]
    release = arena.place(TOLD.batch).release
    template = release.get("statefulset", "securebench-viewers")["spec"]["template"]
    spec = copy.deepcopy(template["spec"])
    (container,) = spec["containers"]
    (mount,) = container["volumeMounts"]
    del mount["subPath"]
    mount["mountPath"] = "/all"
    container |= {"command": ["sleep", "600"], "args": []}
    release.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": TWIN, "labels": template["metadata"]["labels"]},
            "spec": spec,
        }
    )
    release.kubectl("wait", "--for=condition=Ready", f"pod/{TWIN}", KUBECTL_TIMEOUT)
    assert seen(release, TWIN) == {**NOTHING, "hidden": True}
    release.kubectl("delete", "pod", TWIN, "--wait=false")


@pytest.mark.short
@pytest.mark.trials(TOLD)
def test_a_350_honest(arena: Arena, viewer: str) -> None:
    release = arena.place(TOLD.batch).release
    uid = arena.run(TOLD.batch)["metadata"]["uid"]
    ask = ("securebench", "viewer-io", "--", "get-run", uid, "candidates.jsonl")
    fetched = release.kubectl("exec", f"--as={viewer}", POD, "--", *ask)
    (record,) = map(json.loads, fetched.splitlines())
    assert (record["task_id"], record["passed"]) == ("told", True)


def tamper(shell: Shell) -> None:
    """Let the Pod answer as if the second task had passed."""
    shell.is_viewer = True
    (path,) = (shell.namespace.root / "published").glob("*/candidates.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [{**line, "passed": True, "verification_status": "passed"} for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))


def passed(folder: Path) -> int:
    found: int = json.loads((folder / "summary.json").read_text())["passed"]
    return found


@pytest.mark.short
def test_a_351_attack(shell: Shell, finished: str) -> None:
    tamper(shell)
    assert shell("results", finished).code == 1
    assert list((shell.folder / finished).iterdir()) == []


def test_a_351_twin(shell: Shell, finished: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_require_genuine", lambda *_: None)
    tamper(shell)
    assert shell("results", finished).code == 0
    assert passed(shell.folder / finished) == 3


@pytest.mark.short
def test_a_351_honest(shell: Shell, finished: str) -> None:
    shell.is_viewer = True
    assert shell("results", finished).code == 0
    assert passed(shell.folder / finished) == 2
