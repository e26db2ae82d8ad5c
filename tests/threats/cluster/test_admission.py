"""F8: what nobody may ask for."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import lint_pack
from support.release import CommandError, Raw, benchmark_run, call, namespace
from threats import honest
from threats.honest import APP, CHECK_ANSWER, WRITE_ANSWER, assert_passed
from threats.kit.arena import PRIVILEGED, Arena
from threats.kit.batch import IMAGE, Batch, Trial, Weakening
from threats.kit.cells import containers, mounts, untrusted

TRUSTED: Raw = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER: Raw = {"name": "main", "image": IMAGE, "securityContext": TRUSTED}
HOST_PATH: Raw = {"name": "host", "hostPath": {"path": "/"}}
IN_POD: Mapping[str, Raw] = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostPath": {"volumes": [HOST_PATH]},
    "runtime socket": {
        "volumes": [{"name": "host", "hostPath": {"path": "/run/containerd/containerd.sock"}}]
    },
    "sysctl": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}},
}
IN_CONTAINER: Mapping[str, Raw] = {
    "privileged": {"privileged": True, "allowPrivilegeEscalation": True},
    "capability": {"capabilities": {"add": ["SYS_ADMIN"]}},
    "raw sockets": {"capabilities": {"add": ["NET_RAW"]}},
    "seccomp": {"seccompProfile": {"type": "Unconfined"}},
    "apparmor": {"appArmorProfile": {"type": "Unconfined"}},
    "selinux": {"seLinuxOptions": {"user": "system_u"}},
}
HOST_PORT: Raw = {"ports": [{"containerPort": 80, "hostPort": 80}]}
ONLY_RESTRICTED: Mapping[str, Raw] = {
    "escalation": {"allowPrivilegeEscalation": True},
    "root": {"runAsUser": 0, "runAsNonRoot": False},
}
FIELDS = (*IN_POD, *IN_CONTAINER, "hostPort")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def hand_made(field: str) -> Raw:
    """Return a Pod that is fine but for one field."""
    container = copy.deepcopy(CONTAINER)
    spec: Raw = {"restartPolicy": "Never", **IN_POD.get(field, {}), "containers": [container]}
    container["securityContext"] |= IN_CONTAINER.get(field, ONLY_RESTRICTED.get(field, {}))
    if field == "hostPort":
        container |= HOST_PORT
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made"}, "spec": spec}


def refusal(where: str, pod: Raw) -> str:
    """Return why a namespace refuses a Pod; empty where it does not."""
    try:
        words = ("kubectl", "-n", where, "create", "--dry-run=server", "-f", "-")
        call(*words, stdin=json.dumps(pod).encode())
    except CommandError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def restricted() -> Iterator[str]:
    with namespace("sb-restricted", RESTRICTED) as name:
        yield name


@pytest.fixture(scope="session")
def privileged() -> Iterator[str]:
    with namespace("sb-privileged", PRIVILEGED) as name:
        yield name


HOSTILE: Raw = {
    "volumes": [HOST_PATH],
    "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    "hostPath": "/",
    "docker_socket": "/var/run/docker.sock",
    "persistentVolumeClaim": "securebench-results",
    "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
    "privileged": True,
    "hostNetwork": True,
    "hostPID": True,
    "podSpec": {"hostIPC": True},
}
"""Keys that a pack could try, in manifest and rows; in an ``environment`` they are refused."""
ASKING = {"environment": APP["environment"], **HOSTILE}
ASKED = Batch("f8-asked", "terminal_task", defaults=ASKING).task(
    "asked",
    agent=WRITE_ANSWER,
    grading=CHECK_ANSWER,
    **HOSTILE,
)
SPECS: Mapping[str, Raw] = {
    "podTemplate": {"podTemplate": HOSTILE},
    "spec": HOSTILE,
    "pack": {"pack": {"volume": {"path": "x"}, "hostPath": {"path": "/"}}},
    "pack on a claim": {"pack": {"persistentVolumeClaim": {"claimName": "x"}}},
    "resources": {"resources": {"limits": {"memory": "1Gi"}, "claims": [{"name": "gpu"}]}},
}


def spec_with(more: Raw) -> Raw:
    spec: Raw = {
        "pack": {"volume": {"path": "x"}},
        "harness": {"type": "command", "config": {"command": "true"}},
        **more,
    }
    return benchmark_run("asks", spec)


def breaches(pod: Raw) -> list[str]:
    """Return what of a Pod goes beyond the cell that every Pod of a run is."""
    spec = pod["spec"]
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += ["processes"] if spec.get("shareProcessNamespace") else []
    found += [f"volume {item['name']}" for item in spec.get("volumes", ()) if _is_foreign(item)]
    known = {"seccompProfile": {"type": "RuntimeDefault"}}
    found += ["security"] if spec.get("securityContext") != known else []
    for item in containers(pod):
        found += [f"{item['name']}: {breach}" for breach in _breaches_of(item)]
    return found


def _is_foreign(volume: Raw) -> bool:
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    return "emptyDir" not in volume and claim != "securebench-results"


def _breaches_of(container: Raw) -> Iterator[str]:
    security = dict(container.get("securityContext", {}))
    user = (security.pop("runAsUser", None), security.pop("runAsGroup", None))
    security.pop("runAsNonRoot", None)
    security.pop("readOnlyRootFilesystem", None)
    cell = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if security != cell:
        yield f"security {security}"
    if user not in {(None, None), (65530, 65530), (65531, 65531), (65532, 65532)}:
        yield f"user {user}"
    for name in ("ports", "volumeDevices", "envFrom"):
        if container.get(name):
            yield name


def broken(pod: Raw, field: str) -> Raw:
    """Return a live Pod's object with one forbidden field more."""
    result = copy.deepcopy(pod)
    spec, container = result["spec"], result["spec"]["containers"][0]
    more = copy.deepcopy(dict(IN_POD.get(field, {})))
    spec["volumes"] = [*spec["volumes"], *more.pop("volumes", [])]
    spec |= more
    container["securityContext"] |= IN_CONTAINER.get(field, ONLY_RESTRICTED.get(field, {}))
    if field == "hostPort":
        container |= HOST_PORT
    return result


def launches(arena: Arena, trial: Trial) -> list[Raw]:
    return [pod for role in ("harness", "verifier") for pod in arena.pods(trial, role)]


@pytest.mark.trials(ASKED)
def test_a_158_attack_by_a_pack(arena: Arena) -> None:
    for pod in launches(arena, ASKED):
        assert breaches(pod) == []


def test_a_158_attack_by_a_pack_is_told(tmp_path: Path) -> None:
    for name, content in ASKED.batch.pack([ASKED.row]).items():
        (tmp_path / name).write_bytes(content)
    checked = check_pack(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")

    said = [finding.message for finding in lint_pack(checked)]

    for key in HOSTILE:
        assert f"unknown manifest key 'defaults.{key}'" in said
        assert any(message.endswith(f"unknown row key {key!r}") for message in said)


@pytest.mark.parametrize("asked", SPECS)
def test_a_158_attack_by_a_run(arena: Arena, asked: str) -> None:
    release, body = arena.place(ASKED.batch).release, json.dumps(spec_with(SPECS[asked])).encode()

    with pytest.raises(CommandError, match=r"unknown field|exactly one"):
        release.kubectl("create", "--dry-run=server", "-f", "-", stdin=body)


def test_a_158_attack_with_unchecked_fields(arena: Arena) -> None:
    release = arena.place(ASKED.batch).release
    words = ("create", "--validate=ignore", "--dry-run=server", "-o", "json", "-f", "-")
    made = {}
    for name in ("podTemplate", "spec"):
        body = json.dumps(spec_with(SPECS[name])).encode()
        made[name] = json.loads(release.kubectl(*words, stdin=body))["spec"]

    assert not set(HOSTILE) & set(made["podTemplate"].get("podTemplate", {}))
    assert not set(HOSTILE) & set(made["spec"])


@pytest.mark.parametrize("field", ["hostPath", "runtime socket"])
def test_a_158_attack_by_hand(arena: Arena, field: str) -> None:
    said = refusal(arena.place(ASKED.batch).release.namespace, hand_made(field))
    assert "hostPath" in said


MOUNT_HOST = (
    '[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "host",'
    ' hostPath: Object.spec.volumes.hostPath{path: "/etc"}}},'
    ' JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-", value:'
    ' Object.spec.containers.volumeMounts{name: "host", mountPath: "/host", readOnly: true}}]'
)
WITH_HOST_PATH = Batch(
    "f8-host-path", "terminal_task", defaults=APP, weakening=Weakening((MOUNT_HOST,))
).task("asked", agent=WRITE_ANSWER, grading=CHECK_ANSWER)


@pytest.mark.trials(WITH_HOST_PATH)
def test_a_158_twin(arena: Arena) -> None:
    (pod,) = arena.pods(WITH_HOST_PATH, "harness")

    assert breaches(pod) == ["volume host"]
    where = arena.place(WITH_HOST_PATH.batch).release.namespace
    assert refusal(where, hand_made("hostPath")) == ""


@pytest.mark.trials(ASKED)
def test_a_158_honest(arena: Arena) -> None:
    assert_passed(arena, ASKED)


@pytest.mark.short
@pytest.mark.parametrize("field", FIELDS)
def test_a_159_attack_by_hand(arena: Arena, field: str) -> None:
    said = refusal(arena.place(ASKED.batch).release.namespace, hand_made(field))
    assert "violates PodSecurity" in said


@pytest.mark.parametrize("field", [*FIELDS, *ONLY_RESTRICTED])
def test_a_159_attack_by_hand_in_a_restricted_namespace(restricted: str, field: str) -> None:
    assert "violates PodSecurity" in refusal(restricted, hand_made(field))


@pytest.mark.parametrize("field", [*FIELDS, *ONLY_RESTRICTED])
def test_a_159_attack_by_a_run(arena: Arena, field: str) -> None:
    release = arena.place(ASKED.batch).release
    body = json.dumps(spec_with({"podTemplate": hand_made(field)["spec"]})).encode()

    with pytest.raises(CommandError, match="unknown field"):
        release.kubectl("create", "--dry-run=server", "-f", "-", stdin=body)


@pytest.mark.short
@pytest.mark.trials(ASKED, honest.TERMINAL)
def test_a_159_attack_on_live_pods(arena: Arena) -> None:
    for trial in (ASKED, honest.TERMINAL):
        for pod in launches(arena, trial):
            assert breaches(pod) == []


ALL = (honest.TEXT, honest.CHOICE, honest.CODE, honest.TERMINAL, honest.REPO)


@pytest.mark.trials(*ALL)
def test_a_159_attack_on_live_pods_of_all_families(arena: Arena) -> None:
    for trial in ALL:
        for pod in launches(arena, trial):
            assert breaches(pod) == []


@pytest.mark.parametrize("field", [*FIELDS, *ONLY_RESTRICTED])
def test_a_159_twin(privileged: str, field: str) -> None:
    assert refusal(privileged, hand_made(field)) == ""


@pytest.mark.trials(ASKED)
@pytest.mark.parametrize("field", [*FIELDS, *ONLY_RESTRICTED])
def test_a_159_twin_on_live_pods(arena: Arena, field: str) -> None:
    (pod,) = arena.pods(ASKED, "harness")
    assert breaches(broken(pod, field)) != []


@pytest.mark.trials(*ALL)
def test_a_159_honest_in_all_families(arena: Arena) -> None:
    for trial in ALL:
        assert_passed(arena, trial)


def reached_sub_paths(pod: Raw) -> list[str]:
    """Return the sub-path mounts of which untrusted code could exchange a component."""
    writable = [mount for item in untrusted(pod) for mount in mounts(item) if not mount.read_only]
    return [
        f"{mount.container} {mount.place}"
        for item in containers(pod)
        for mount in mounts(item)
        if mount.sub_path
        for other in writable
        if other.volume == mount.volume
        and PurePosixPath(other.sub_path) in PurePosixPath(mount.sub_path).parents
    ]


DIGEST = re.compile(r"[0-9a-f]{64}")


def strange_sub_paths(pod: Raw) -> list[str]:
    """Return the sub-paths that are not put together from constants and numbers of ours."""
    words = {
        *("runs", "tasks", "lanes", "attempts", "launches", "probe", "assets", "results"),
        "tools",
        *("public", "evaluation_inputs", "hidden", "candidate", "producer", "verification"),
        pod["metadata"]["labels"]["securebench.dev/run-uid"],
    }
    return [
        mount.sub_path
        for item in containers(pod)
        for mount in mounts(item)
        for part in PurePosixPath(mount.sub_path).parts
        if part not in words and not part.isdecimal() and not DIGEST.fullmatch(part)
    ]


@pytest.mark.trials(*ALL, ASKED)
def test_a_166_attack(arena: Arena) -> None:
    for trial in (*ALL, ASKED):
        for pod in launches(arena, trial):
            assert reached_sub_paths(pod) == []
            assert strange_sub_paths(pod) == []


MOUNT_ABOVE = (
    '[JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-", value:'
    ' Object.spec.containers.volumeMounts{name: "beside", mountPath: "/above"}}]'
)
WITH_PARENT = Batch(
    "f8-with-parent",
    "terminal_task",
    defaults=APP,
    weakening=Weakening((MOUNT_ABOVE,), role="verifier"),
).task("asked", agent=WRITE_ANSWER, grading=CHECK_ANSWER)


@pytest.mark.trials(WITH_PARENT)
def test_a_166_twin(arena: Arena) -> None:
    (pod,) = arena.pods(WITH_PARENT, "verifier")
    assert reached_sub_paths(pod) == ["check /app/securebench"]
