"""F8: a Pod is a cell: what the containers of live Pods see and may do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from support.release import Raw, call
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import RUN_AGENT, Batch, Trial, Weakening
from threats.kit.canaries import canary, hits
from threats.kit.cells import containers, mounts, text, trusted, untrusted
from threats.kit.outcomes import not_applicable

KERNEL = """\
import ctypes, json, os
names = ("unshare", "bpf", "io_uring_setup", "keyctl", "perf", "mount")
numbers = dict(zip(names, {
    "x86_64": (272, 321, 425, 250, 298, 165),
    "aarch64": (97, 280, 425, 219, 241, 40),
}[os.uname().machine]))
arguments = {"unshare": (0x10000000,), "io_uring_setup": (1, 0), "keyctl": (0, -3, 1)}
arguments["perf"] = (0, 0, -1, -1, 0)
libc = ctypes.CDLL(None, use_errno=True)
def answer(name):
    given = map(ctypes.c_long, (numbers[name], *arguments.get(name, (0, 0, 0, 0, 0))))
    done = libc.syscall(*given) >= 0
    return "done" if done else os.strerror(ctypes.get_errno())
tell = {name: answer(name) for name in numbers}
tell["release"] = os.uname().release
with open("/proc/self/uid_map") as file:
    tell["uid_map"] = file.read().split()
print(json.dumps(tell))
"""
CALLS = ("unshare", "bpf", "io_uring_setup", "keyctl", "perf", "mount")
REFUSED = {"Operation not permitted", "Function not implemented"}
ASK_KERNEL = {"checker": {"command": f"python3 - <<'END'\n{KERNEL}END\n"}}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
SEEK_TOKEN = f"""\
import json, os
seen = os.path.exists({TOKEN!r})
json.dump({{"token": seen}}, open("seen.json", "w"))
"""
SHOW = {"checker": {"command": f"cat seen.json; test -e {TOKEN} && echo here; test -e seen.json"}}
VERIFIED = {"isolation": {"require": "Verified"}}
AGENTS = Batch("f8-agents", "terminal_task", defaults=APP)
TOKEN_SOUGHT = AGENTS.task("token", agent=SEEK_TOKEN, grading=SHOW)
PROVEN = Batch("f8-proven", "terminal_task", defaults=APP, spec=VERIFIED).task(
    "proven", agent=KERNEL, grading=ASK_KERNEL
)
WITH_TOKEN = Batch(
    "f8-with-token",
    "terminal_task",
    defaults=APP,
    weakening=Weakening(
        ('[JSONPatch{op: "replace", path: "/spec/automountServiceAccountToken", value: true}]',)
    ),
).task("token", agent=SEEK_TOKEN, grading=SHOW)


def pods_of_run(arena: Arena, trial: Trial) -> Iterator[Raw]:
    """Yield every state of every Pod of a trial's run, canary and control included."""
    arena.records(trial)
    for state in arena.place(trial.batch).pods.states():
        if state["metadata"].get("labels", {}).get("securebench.dev/run") == trial.batch.name:
            yield state


def rights(namespace: str, account: str) -> set[str]:
    """Return the resources with which a service account may do anything."""
    user = f"system:serviceaccount:{namespace}:{account}"
    words = ("auth", "can-i", "--list", "--no-headers", f"--as={user}", "-n", namespace)
    lines = call("kubectl", *words).decode().splitlines()
    return {line.split()[0] for line in lines if not line.startswith(" ")}


SELF_REVIEW = {
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
}


@pytest.mark.short
@pytest.mark.trials(TOKEN_SOUGHT)
def test_a_155_attack(arena: Arena) -> None:
    (pod,) = arena.pods(TOKEN_SOUGHT, "harness")

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert TOKEN not in json.dumps(pod)
    assert json.loads(arena.record(TOKEN_SOUGHT)["verifier_stdout"]) == {"token": False}


@pytest.mark.trials(PROVEN)
def test_a_155_attack_on_every_container(arena: Arena) -> None:
    roles = set()
    for pod in pods_of_run(arena, PROVEN):
        roles.add(pod["metadata"]["labels"]["securebench.dev/role"])
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not any("projected" in volume for volume in pod["spec"]["volumes"])
        for container in containers(pod):
            assert not any(mount.place.startswith("/var/run") for mount in mounts(container))
    assert roles == {"harness", "verifier", "canary", "control"}


@pytest.mark.trials(TOKEN_SOUGHT)
def test_a_155_attack_with_the_account(arena: Arena) -> None:
    release = arena.place(AGENTS).release
    (pod,) = arena.pods(TOKEN_SOUGHT, "harness")
    account = pod["spec"]["serviceAccountName"]

    assert rights(release.namespace, account) == SELF_REVIEW
    assert release.get("serviceaccount", account).get("automountServiceAccountToken") is False


@pytest.mark.trials(WITH_TOKEN)
def test_a_155_twin(arena: Arena) -> None:
    (pod,) = arena.pods(WITH_TOKEN, "harness")
    namespace = arena.place(WITH_TOKEN.batch).release.namespace

    assert TOKEN in json.dumps(pod)
    assert json.loads(arena.record(WITH_TOKEN)["verifier_stdout"]) == {"token": True}
    assert rights(namespace, "securebench") > SELF_REVIEW


LOOK_AROUND = """\
import json, os, socket
def read(path):
    with open(path, errors="replace") as file:
        return file.read()
own = socket.create_server(("127.0.0.1", 0))
ports = []
for kind in ("tcp", "tcp6", "udp", "udp6"):
    try:
        rows = [line.split() for line in read(f"/proc/net/{kind}").splitlines()[1:]]
    except OSError:
        continue
    ports += [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] in ("0A", "07")]
pids = filter(str.isdigit, os.listdir("/proc"))
processes = [read(f"/proc/{pid}/cmdline").replace("\\0", " ") for pid in pids]
tell = {"own": own.getsockname()[1], "ports": ports, "processes": processes}
json.dump(tell, open("seen.json", "w"))
print(json.dumps(tell))
"""
SECRET = canary()
NEIGHBOURS = AGENTS.task(
    "neighbours",
    agent=LOOK_AROUND,
    grading={"checker": {"command": "test -e seen.json"}, "expected_state": SECRET},
)
SHARED_PROCESSES = Batch(
    "f8-shared-processes",
    "terminal_task",
    defaults=APP,
    weakening=Weakening(
        ('[JSONPatch{op: "add", path: "/spec/shareProcessNamespace", value: true}]',)
    ),
).task("neighbours", agent=LOOK_AROUND, grading={"checker": {"command": "true"}})


def around(arena: Arena, trial: Trial) -> Raw:
    seen: Raw = json.loads(arena.record(trial)["producer_stdout"])
    return seen


def sees_neighbours(seen: Raw) -> bool:
    return any("courier" in process for process in seen["processes"])


@pytest.mark.trials(NEIGHBOURS)
def test_a_160_attack(arena: Arena) -> None:
    (pod,) = arena.pods(NEIGHBOURS, "harness")
    seen = around(arena, NEIGHBOURS)

    assert not pod["spec"].get("shareProcessNamespace", False)
    assert [item["name"] for item in untrusted(pod)] == ["harness"]
    (courier,) = trusted(pod)
    assert courier.get("env", []) == courier.get("envFrom", []) == courier.get("ports", []) == []
    assert hits(text(pod), SECRET) == []
    assert not sees_neighbours(seen)
    assert len(seen["processes"]) == 2
    assert seen["ports"] == [seen["own"]]


@pytest.mark.trials(SHARED_PROCESSES)
def test_a_160_twin(arena: Arena) -> None:
    assert sees_neighbours(around(arena, SHARED_PROCESSES))


DOLLARS = "$(KUBERNETES_SERVICE_HOST) $$(X) $(PATH) $$"
READ_DOLLARS = f"""\
# {DOLLARS}
import json, sys
json.dump(sys.argv[1:], open("argv.json", "w"))
with open("task.json") as file:
    print(json.load(file)["instructions"].splitlines()[0].removeprefix("# "))
print(sys.argv[1])
"""
WITH_DOLLARS: Mapping[str, Raw] = {
    "harness": {
        "type": "command",
        "config": {"command": ["python3", "-c", RUN_AGENT, DOLLARS]},
    }
}
SAY_DOLLARS = {"checker": {"command": f"printf '%s' '{DOLLARS}'"}}
QUOTED = Batch("f8-dollars", "terminal_task", defaults=APP, spec=WITH_DOLLARS).task(
    "dollars", agent=READ_DOLLARS, grading=SAY_DOLLARS
)
UNQUOTE = (
    '[JSONPatch{op: "replace", path: "/spec/containers/0/command/3", value:'
    " object.spec.containers[0].command[3].replace('\\\\u0024', '$')}]"
)
EXPANDED = Batch(
    "f8-expanded",
    "terminal_task",
    defaults=APP,
    spec=WITH_DOLLARS,
    weakening=Weakening((UNQUOTE,)),
).task("dollars", agent=READ_DOLLARS, grading=SAY_DOLLARS)


@pytest.mark.trials(QUOTED)
def test_a_165_attack(arena: Arena) -> None:
    record = arena.record(QUOTED)

    assert record["producer_stdout"] == f"{DOLLARS}\n{DOLLARS}\n"
    assert record["verifier_stdout"] == DOLLARS


@pytest.mark.trials(EXPANDED)
def test_a_165_twin(arena: Arena) -> None:
    in_text, in_command = arena.record(EXPANDED)["producer_stdout"].splitlines()

    assert in_text == DOLLARS
    assert in_command != DOLLARS
    assert "$(KUBERNETES_SERVICE_HOST)" not in in_command
    assert " $(X) " in in_command


UNCONFINE = (
    '[JSONPatch{op: "replace", path: "/spec/containers/0/securityContext/seccompProfile/type",'
    ' value: "Unconfined"}]'
)
SYSTEM_CALLS = AGENTS.task("calls", agent=KERNEL, grading=ASK_KERNEL)
UNCONFINED = Batch(
    "f8-unconfined",
    "terminal_task",
    defaults=APP,
    weakening=Weakening((UNCONFINE,)),
).task("calls", agent=KERNEL, grading=ASK_KERNEL)


def answers(arena: Arena, trial: Trial, stream: str = "producer_stdout") -> Raw:
    seen: Raw = json.loads(arena.record(trial)[stream])
    return seen


def unrefused(seen: Raw) -> list[str]:
    return [name for name in CALLS if seen[name] not in REFUSED]


@pytest.mark.short
@pytest.mark.trials(SYSTEM_CALLS)
@pytest.mark.parametrize("stream", ["producer_stdout", "verifier_stdout"])
def test_a_168_attack(arena: Arena, stream: str) -> None:
    assert unrefused(answers(arena, SYSTEM_CALLS, stream)) == []


@pytest.mark.trials(UNCONFINED)
def test_a_168_twin(arena: Arena) -> None:
    assert {"unshare", "keyctl"} <= set(unrefused(answers(arena, UNCONFINED)))


AS_ROOT = Batch(
    "f8-as-root",
    "terminal_task",
    defaults=APP,
    spec=VERIFIED,
    weakening=Weakening(('[JSONPatch{op: "replace", path: "/spec/hostUsers", value: true}]',)),
).task("calls", agent=KERNEL, grading=ASK_KERNEL)


def has_own_users(arena: Arena, trial: Trial) -> bool:
    """Return whether root in a trial's agent is somebody else outside."""
    inside, outside, _ = answers(arena, trial)["uid_map"]
    return inside == "0" and outside != "0"


def require_user_namespaces(arena: Arena) -> None:
    record = arena.record(PROVEN)
    if not record["labels"]["user_namespace"]:
        not_applicable("the canary Pod with hostUsers: false did not start on this node")


@pytest.mark.trials(PROVEN)
def test_a_171_attack(arena: Arena) -> None:
    require_user_namespaces(arena)
    for role in ("harness", "verifier"):
        (pod,) = arena.pods(PROVEN, role)
        assert pod["spec"]["hostUsers"] is False
    assert has_own_users(arena, PROVEN)


@pytest.mark.trials(AS_ROOT, PROVEN)
def test_a_171_twin(arena: Arena) -> None:
    require_user_namespaces(arena)
    assert not has_own_users(arena, AS_ROOT)
    assert arena.record(AS_ROOT)["labels"]["user_namespace"] is False
