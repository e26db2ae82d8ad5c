"""F8: who may do what."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from support.release import Raw, Release, benchmark_run, condition
from threats import honest
from threats.honest import APP, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Weakening

HERE = Batch("f8-here", "terminal_task", defaults=APP)
THERE = Batch("f8-there", "terminal_task", defaults=APP, weakening=Weakening(()))
"""Name the two namespaces; nothing runs in these batches."""
ALL = (honest.TEXT, honest.CHOICE, honest.CODE, honest.TERMINAL, honest.REPO)
REACH = (
    *(("create", f"pods/{name}") for name in ("exec", "attach", "portforward", "proxy")),
    *(("get", f"pods/{name}") for name in ("exec", "attach", "portforward", "proxy", "log")),
    *((verb, "pods/ephemeralcontainers") for verb in ("update", "patch")),
    *((verb, "pods") for verb in ("get", "list", "create", "update", "patch")),
    *(("get", name) for name in ("secrets", "configmaps", "persistentvolumeclaims")),
    ("impersonate", "serviceaccounts"),
    ("create", "serviceaccounts/token"),
)
GOLDEN = [
    {
        "apiGroups": ["securebench.dev"],
        "resources": ["benchmarkruns"],
        "verbs": ["create", "get", "list", "watch", "delete"],
    },
    {
        "apiGroups": ["securebench.dev"],
        "resources": ["benchmarksuites"],
        "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
    },
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "resourceNames": ["securebench-viewers-0"],
        "verbs": ["get"],
    },
    {
        "apiGroups": [""],
        "resources": ["pods/exec"],
        "resourceNames": ["securebench-viewers-0"],
        "verbs": ["get", "create"],
    },
]


def may(release: Release, user: str, verb: str, resource: str) -> bool:
    name, _, part = resource.partition("/")
    words = [verb, name, *([f"--subresource={part}"] if part else [])]
    done = subprocess.run(
        ["kubectl", "-n", release.namespace, "auth", "can-i", *words, f"--as={user}"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    answer = done.stdout.decode().strip()
    assert answer in {"yes", "no"}, done.stderr
    return answer == "yes"


def bind(release: Release, name: str, role: str, user: Raw) -> None:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    body = {**kind, "metadata": {"name": name}, "roleRef": reference, "subjects": [user]}
    release.create(body)


def widen(release: Release, name: str, user: Raw) -> None:
    """Give a user the rights whose lack the cases are about."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    verbs = {"verbs": ["create", "get", "list", "update", "patch", "impersonate"]}
    names = sorted({resource for _, resource in REACH})
    release.create(
        {
            **kind,
            "metadata": {"name": name},
            "rules": [{**verbs, "apiGroups": [""], "resources": names}],
        }
    )
    bind(release, name, name, user)


def person(name: str) -> Raw:
    return {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


@pytest.fixture(scope="session")
def submitter(arena: Arena) -> Callable[[str, str], bool]:
    """Return whether a submitter of the release may do something."""
    release = arena.place(HERE).release
    bind(release, "a-submitter", "securebench-submitter", person("a-submitter"))
    return lambda verb, resource: may(release, "a-submitter", verb, resource)


@pytest.mark.short
def test_a_163_attack(arena: Arena, submitter: Callable[[str, str], bool]) -> None:
    assert [right for right in REACH if submitter(*right)] == []
    role = arena.place(HERE).release.get("role", "securebench-submitter")
    assert role["rules"] == GOLDEN


def test_a_163_twin(arena: Arena) -> None:
    release = arena.place(HERE).release
    widen(release, "a-wide-submitter", person("a-wide-submitter"))

    assert all(may(release, "a-wide-submitter", *right) for right in REACH)


@pytest.mark.short
def test_a_163_honest(arena: Arena, submitter: Callable[[str, str], bool]) -> None:
    release = arena.place(HERE).release
    rights = [("create", "benchmarkruns.securebench.dev"), ("get", "benchmarkruns.securebench.dev")]
    assert all(submitter(*right) for right in rights)

    spec = {
        "pack": {"volume": {"path": "absent"}},
        "harness": {"type": "command", "config": {"command": "true"}},
    }
    body = json.dumps(benchmark_run("of-a-submitter", spec)).encode()
    release.kubectl("create", "--as=a-submitter", "-f", "-", stdin=body)
    assert condition(release.wait_ended("of-a-submitter"))["reason"] == "PackInvalid"


EXEC = (("create", "pods/exec"), ("get", "pods/exec"), ("create", "pods/attach"))


def operator(release: Release) -> str:
    return f"system:serviceaccount:{release.namespace}:securebench"


def test_a_169_attack(arena: Arena) -> None:
    release = arena.place(HERE).release
    assert [right for right in EXEC if may(release, operator(release), *right)] == []


def test_a_169_twin(arena: Arena) -> None:
    release = arena.place(THERE).release
    account = {"kind": "ServiceAccount", "name": "securebench", "namespace": release.namespace}
    widen(release, "a-wide-operator", account)

    assert all(may(release, operator(release), *right) for right in EXEC)


@pytest.mark.trials(*ALL)
def test_a_169_honest(arena: Arena) -> None:
    for trial in ALL:
        assert_passed(arena, trial)
