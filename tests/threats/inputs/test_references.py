"""F9: a run names only what is meant for runs, and whoever creates runs creates nothing else."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import binding, packs, policy_from_settings
from securebench.controller.binding import prepare
from securebench.controller.context import FrozenPack, run_object
from securebench.controller.packs import keyed_files
from securebench.errors import SecureBenchError, SpecError
from securebench.run.api.models import KeyedPack, Pack
from securebench.run.plan.model import RunPlan
from support.build import FakeClock, context_of, question, run_body, write_pack
from support.fake_cluster import FakeCluster
from support.release import CommandError, Raw, Release, benchmark_run, call, condition, keyed_pack
from threats.honest import APP, CHECK_ANSWER, WRITE_ANSWER, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import RUN_AGENT, Batch, Weakening
from threats.kit.canaries import canary, hits
from threats.kit.cells import WHOLE_VOLUME, text
from threats.kit.specs import replaced
from threats.kit.twin_crd import refusal, twin_crd, twin_run

HERE = Batch("f9-here", "terminal_task", defaults=APP)
THERE = Batch("f9-there", "terminal_task", defaults=APP, weakening=Weakening(()))
"""Name the two namespaces; nothing runs in these batches."""
FOREIGN = ("kube-system/keys", "../keys", "keys/../../kube-system", "..", "/keys", "a%2Fkeys", "A")
COMMAND = {"type": "command", "config": {"command": "true"}}
AGENT = {"type": "codex", "config": {"model": "m"}}
ON_VOLUME = {"volume": {"path": "smoke"}}
REFERENCES = {
    "pack on the volume": lambda name: {"pack": {"volume": {"path": name}}},
    "pack in a ConfigMap": lambda name: {"pack": {"configMap": {"name": name}}},
    "pack in a Secret": lambda name: {"pack": {"secret": {"name": name}}},
    "harness secret": lambda name: {
        "harness": {**COMMAND, "env": ["KEY"], "secretRef": {"name": name}}
    },
    "provider secret": lambda name: {"harness": AGENT, "provider": {"secretRef": {"name": name}}},
    "pull secret": lambda name: {"podTemplate": {"imagePullSecrets": [{"name": name}]}},
    "earlier run": lambda name: {"resumeFrom": {"run": name}},
}
PATHS = {"pack on the volume"}


def spec_naming(field: str, name: str) -> Raw:
    return {"pack": ON_VOLUME, "harness": COMMAND, **REFERENCES[field](name)}


def steps_out(field: str) -> list[str]:
    """Return the foreign names that a field must refuse; a path may have parts."""
    return [name for name in FOREIGN if field not in PATHS or name.startswith((".", "/"))]


@pytest.fixture(scope="session")
def without_rules() -> Iterator[None]:
    with twin_crd():
        yield


@pytest.mark.short
@pytest.mark.parametrize("field", REFERENCES)
def test_a_184_attack_by_a_foreign_name(arena: Arena, field: str) -> None:
    release = arena.place(HERE).release
    names = steps_out(field)

    assert [
        name
        for name in names
        if not refusal(release, benchmark_run("named", spec_naming(field, name)))
    ] == []


@pytest.mark.usefixtures("without_rules")
@pytest.mark.parametrize("field", REFERENCES)
def test_a_184_twin_of_a_foreign_name(arena: Arena, field: str) -> None:
    release = arena.place(THERE).release

    for name in steps_out(field):
        assert refusal(release, twin_run("named", spec_naming(field, name))) == ""


@pytest.mark.short
@pytest.mark.parametrize("field", REFERENCES)
def test_a_184_honest_name(arena: Arena, field: str) -> None:
    release = arena.place(HERE).release
    assert refusal(release, benchmark_run("named", spec_naming(field, "keys.own"))) == ""


SECRET = canary()
USABLE = {"securebench.dev/usable-by-runs": "true"}
SHOW_KEY = """\
import hashlib, os
print(hashlib.sha256(os.environ.get("KEY", "").encode()).hexdigest())
"""
"""The value itself would be taken out of what is kept."""
TAKES_KEY: Raw = {
    "harness": {
        "type": "command",
        "config": {"command": ["python3", "-c", RUN_AGENT]},
        "env": ["KEY"],
        "secretRef": {"name": "f9-keys"},
    }
}
STOLEN = Batch("f9-stolen", "terminal_task", defaults=APP, spec=TAKES_KEY, ended="False")
GIVEN = Batch("f9-given", "terminal_task", defaults=APP, spec=TAKES_KEY, weakening=Weakening(()))
STEAL = STOLEN.task("key", agent=SHOW_KEY, grading={"checker": {"command": "true"}})
GIVE = GIVEN.task("key", agent=SHOW_KEY, grading={"checker": {"command": "true"}})


def secret_object(name: str, labels: Raw) -> Raw:
    metadata = {"name": name, "labels": labels}
    value = base64.b64encode(SECRET.encode()).decode()
    data = {"KEY": value, "OPENAI_API_KEY": value}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.fixture(scope="session")
def stolen(arena: Arena) -> Arena:
    """The same Secret in both places; only that of the twin is marked for runs."""
    arena.place(STOLEN).release.create(secret_object("f9-keys", {}))
    arena.place(GIVEN).release.create(secret_object("f9-keys", USABLE))
    arena.start([STEAL, GIVE])
    return arena


@pytest.mark.short
def test_a_184_attack_by_an_unmarked_secret(stolen: Arena) -> None:
    ended = condition(stolen.run(STOLEN))

    assert ended["reason"] == "InvalidSpec"
    assert "f9-keys" in ended["message"]
    assert "usable-by-runs" in ended["message"]
    states = stolen.place(STOLEN).pods.states()
    named = [each for each in states if "f9-keys" in json.dumps(each["spec"])]
    assert named == []
    assert [each for each in states if hits(text(each), SECRET)] == []


def test_a_184_twin_of_an_unmarked_secret(stolen: Arena) -> None:
    assert stolen.record(GIVE)["producer_stdout"].strip() == sha256(SECRET.encode()).hexdigest()
    assert stolen.record(GIVE)["labels"]["credentials"] == "exposed"


OTHER_SECRETS = {
    "pack in a Secret": "PackInvalid",
    "provider secret": "InvalidSpec",
    "pull secret": "InvalidSpec",
}
AS_PACK = {"securebench.dev/usable-by-runs": "pack"}


@pytest.mark.parametrize("field", OTHER_SECRETS)
async def test_a_184_attack_by_other_unmarked_secrets(tmp_path: Path, field: str) -> None:
    said = await refused(tmp_path, {}, **REFERENCES[field]("f9-keys"))
    assert "usable-by-runs" in said


BY_GATEWAY = {"securebench.dev/usable-by-runs": "gateway"}


@pytest.mark.parametrize("field", ["pack in a Secret", "harness secret", "pull secret"])
async def test_a_184_attack_on_the_key_of_a_gateway(tmp_path: Path, field: str) -> None:
    said = await refused(tmp_path, BY_GATEWAY, **REFERENCES[field]("f9-keys"))
    assert "usable-by-runs" in said


async def test_a_184_honest_key_of_a_gateway(tmp_path: Path) -> None:
    said = await refused(tmp_path, BY_GATEWAY, **REFERENCES["provider secret"]("f9-keys"))
    assert "usable-by-runs" not in said


@pytest.mark.parametrize("field", OTHER_SECRETS)
async def test_a_184_twin_of_other_unmarked_secrets(tmp_path: Path, field: str) -> None:
    labels = AS_PACK if field == "pack in a Secret" else USABLE
    said = await refused(tmp_path, labels, **REFERENCES[field]("f9-keys"))
    assert "usable-by-runs" not in said


# A-469: another shape of a pack


@pytest.mark.short
@pytest.mark.parametrize("field", ["harness secret", "provider secret", "pull secret"])
async def test_a_469_attack_by_a_pack_as_values(tmp_path: Path, field: str) -> None:
    """The names of an agent's variables may be those of a pack's files."""
    said = await refused(tmp_path, AS_PACK, **REFERENCES[field]("f9-keys"))
    assert "usable-by-runs" in said


@pytest.mark.parametrize("field", ["harness secret", "pull secret"])
async def test_a_469_twin_of_a_pack_as_values(tmp_path: Path, field: str) -> None:
    """With one value of the label for every use, the Secret goes into the agent's Pod."""
    with mock.patch.object(policy_from_settings, "is_usable", return_value=True):
        said = await refused(tmp_path, AS_PACK, **REFERENCES[field]("f9-keys"))
    assert "usable-by-runs" not in said


REMAP = {"items": [{"key": "hidden--want.txt", "path": "assets/data.txt"}]}
PACK_FILES = {"hidden--want.txt": "the answer", "assets--data.txt": "a question"}


async def files_of_pack(fields: Raw) -> dict[str, str]:
    """Return the files of a pack in a ConfigMap, as a stored run with further fields names it."""
    cluster = FakeCluster()
    await cluster.create(
        ObjectKind.CONFIG_MAP,
        {"kind": "ConfigMap", "metadata": {"name": "pack"}, "data": PACK_FILES},
    )
    keyed = KeyedPack.model_construct(name="pack", **fields)
    found = await keyed_files(cluster, Pack.model_construct(secret=None, config_map=keyed))
    return {path: data.decode() for path, data in found.items()}


@pytest.mark.short
async def test_a_469_attack_by_paths_of_the_run() -> None:
    with pytest.raises(SpecError, match="items"):
        Pack.parse({"configMap": {"name": "pack", **REMAP}})
    assert (await files_of_pack(REMAP))["assets/data.txt"] == "a question"


async def test_a_469_twin_of_paths_of_the_run() -> None:
    """With the run's paths taken for the author's, the hidden file is a public one."""
    places = {item["key"]: item["path"] for item in REMAP["items"]} | {"assets--data.txt": "x"}
    with mock.patch.object(packs, "_places", return_value=places):
        assert (await files_of_pack(REMAP))["assets/data.txt"] == "the answer"


@pytest.mark.short
async def test_a_469_honest_keys() -> None:
    assert await files_of_pack({}) == {
        "hidden/want.txt": "the answer",
        "assets/data.txt": "a question",
    }


async def refused(root: Path, labels: Raw, **spec: Any) -> str:
    """Return what the operator says of a run that names a Secret with these labels."""
    clock = FakeClock()
    cluster = FakeCluster(clock=clock)
    await cluster.create(ObjectKind.SECRET, secret_object("f9-keys", labels))
    write_pack(root / "packs/smoke", [question("a")])
    try:
        await prepare(context_of(cluster, clock, root), run_of(spec))
    except SecureBenchError as error:
        return str(error)
    return ""


def run_of(spec: Raw) -> Any:
    body = run_body("named", **spec)
    body["metadata"] |= {"uid": UID, "namespace": "bench", "generation": 1}
    return run_object(body)


UID = "11111111-0000-4000-8000-000000000000"


def everywhere(release: Release, user: str) -> str:
    words = ("auth", "can-i", "get", "secrets", "-A", f"--as={user}")
    try:
        return release.kubectl(*words).strip()
    except CommandError as error:
        return str(error).strip().splitlines()[-1]


@pytest.mark.short
def test_a_184_attack_by_the_operator(arena: Arena) -> None:
    release = arena.place(HERE).release
    user = f"system:serviceaccount:{release.namespace}:securebench"

    assert everywhere(release, user) == "no"


def test_a_184_twin_of_the_operator(arena: Arena) -> None:
    release = arena.place(THERE).release
    name = f"{release.namespace}-reads-all"
    call("kubectl", "create", "clusterrole", name, "--verb=get", "--resource=secrets")
    try:
        call(
            "kubectl",
            "create",
            "clusterrolebinding",
            name,
            f"--clusterrole={name}",
            f"--user={name}",
        )
        assert everywhere(release, name) == "yes"
    finally:
        call("kubectl", "delete", "clusterrole,clusterrolebinding", name)


MAKE = (
    "pods",
    "jobs.batch",
    "deployments.apps",
    "persistentvolumeclaims",
    "secrets",
    "configmaps",
    "serviceaccounts",
    "rolebindings.rbac.authorization.k8s.io",
)


def makes(release: Release, user: str) -> list[str]:
    def may(resource: str) -> bool:
        try:
            answer = release.kubectl("auth", "can-i", "create", resource, f"--as={user}")
        except CommandError as error:
            answer = str(error)
        return answer.strip().endswith("yes")

    return [resource for resource in MAKE if may(resource)]


def bound(release: Release, user: str, role: str) -> str:
    release.kubectl("create", "rolebinding", user, f"--role={role}", f"--user={user}")
    return user


@pytest.mark.short
def test_a_185_attack(arena: Arena) -> None:
    release = arena.place(HERE).release
    assert makes(release, bound(release, "f9-submitter", "securebench-submitter")) == []


def test_a_185_twin(arena: Arena) -> None:
    release = arena.place(THERE).release
    words = ("create", "role", "f9-maker", "--verb=create")
    release.kubectl(*words, f"--resource={','.join(MAKE)}")

    assert makes(release, bound(release, "f9-maker", "f9-maker")) == list(MAKE)


POD_FIELDS = {
    "serviceAccountName": "securebench",
    "volumes": [{"name": "all", "persistentVolumeClaim": {"claimName": "securebench-results"}}],
    "volumeMounts": [{"name": "results", "mountPath": "/all"}],
    "containers": [],
    "securityContext": {"privileged": True},
}


@pytest.mark.parametrize("key", POD_FIELDS)
async def test_a_185_attack_by_a_configuration(tmp_path: Path, key: str) -> None:
    config = {"command": "true", key: POD_FIELDS[key]}
    said = await refused(tmp_path, {}, harness={"type": "command", "config": config})

    assert key in said


SEEK = """\
import os
found = [top for top, _, _ in os.walk("/twin") if top.endswith("/lanes/hidden")]
print(found and "hidden lane")
"""
ACCOUNT = replaced("/spec/serviceAccountName", '"securebench"')
MOUNTED = Batch(
    "f9-mounted", "terminal_task", defaults=APP, weakening=Weakening((WHOLE_VOLUME, ACCOUNT))
).task("seek", agent=SEEK, grading={"checker": {"command": "true"}})
CLOSED = HERE.task("seek", agent=SEEK, grading={"checker": {"command": "true"}})


@pytest.mark.trials(CLOSED)
def test_a_185_attack_on_a_pod(arena: Arena) -> None:
    (pod,) = arena.pods(CLOSED, "harness")

    assert pod["spec"]["serviceAccountName"] == "securebench-runs"
    assert arena.record(CLOSED)["producer_stdout"] == "[]\n"


@pytest.mark.trials(MOUNTED)
def test_a_185_twin_on_a_pod(arena: Arena) -> None:
    (pod,) = arena.pods(MOUNTED, "harness")

    assert pod["spec"]["serviceAccountName"] == "securebench"
    assert arena.record(MOUNTED)["producer_stdout"] == "hidden lane\n"


CHANGES: Raw = {
    "runId": "other",
    "pack": {"volume": {"path": "other"}},
    "harness": {"type": "command", "config": {"command": "false"}},
    "verification": {"disallowDangerousCommands": False},
    "taskSelector": {"limit": 7},
    "attempts": 3,
    "infrastructureRetries": 9,
    "providerRetries": 9,
    "resources": {"workspace": "2Gi"},
    "podTemplate": {"runtimeClassName": "gvisor"},
    "isolation": {"require": "Declared"},
    "resumeFrom": {"run": "another"},
}
UNRUN: Raw = {"pack": ON_VOLUME, "harness": COMMAND, "suspend": True}


def changed(release: Release, kind: str, field: str) -> str:
    """Return why a field of a stored run may not change, empty where it may."""
    patch = json.dumps({"spec": {field: CHANGES[field]}})
    words = ("patch", kind, "f9-stored", "--type=merge", "--dry-run=server", "-p", patch)
    try:
        release.kubectl(*words)
    except CommandError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def stored(arena: Arena) -> Release:
    release = arena.place(HERE).release
    release.create(benchmark_run("f9-stored", UNRUN))
    return release


@pytest.fixture(scope="session")
def twin_stored(arena: Arena) -> Release:
    release = arena.place(THERE).release
    release.create(twin_run("f9-stored", UNRUN))
    return release


@pytest.mark.short
@pytest.mark.parametrize("field", CHANGES)
def test_a_186_attack_by_a_patch(stored: Release, field: str) -> None:
    assert "is fixed once the run exists" in changed(stored, "benchmarkrun", field)


@pytest.mark.usefixtures("without_rules")
@pytest.mark.parametrize("field", CHANGES)
def test_a_186_twin_of_a_patch(twin_stored: Release, field: str) -> None:
    assert changed(twin_stored, "benchmarkruns.twins.securebench.dev", field) == ""


@pytest.mark.short
def test_a_186_honest_patch(stored: Release) -> None:
    patch = json.dumps({"spec": {"parallelism": 7, "activeDeadlineSeconds": 9}})
    words = ("patch", "benchmarkrun", "f9-stored", "--type=merge", "--dry-run=server", "-p", patch)

    assert "patched" in stored.kubectl(*words)


class Restarted:
    """An operator that starts again after somebody has edited the uploaded pack."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context = context_of(FakeCluster(), FakeClock(), root)
        write_pack(root / "packs/smoke", [question("a"), question("b")])

    async def bound(self) -> RunPlan:
        return await prepare(self.context, run_of({}))

    def edit(self) -> None:
        easier = copy.deepcopy(question("a"))
        easier["eval"] = {"answer": 0}
        write_pack(self.root / "packs/smoke", [easier, question("b")])


def answers(found: RunPlan) -> list[object]:
    return [task.row_digest for task in found.tasks.values()]


async def test_a_186_attack_on_a_pack(tmp_path: Path) -> None:
    world = Restarted(tmp_path)
    before = await world.bound()
    world.edit()

    after = await world.bound()

    assert answers(after) == answers(before)
    assert after.digest == before.digest


async def test_a_186_twin_of_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the frozen copy the second start would judge by other answers."""
    folder = tmp_path / "packs/smoke"

    def unfrozen(_: Path, digest: str) -> FrozenPack:
        return FrozenPack(folder, folder / "manifest.yaml", folder / "tasks.jsonl", digest)

    world = Restarted(tmp_path)
    before = await world.bound()
    world.edit()
    monkeypatch.setattr(binding, "frozen", unfrozen)

    assert answers(await world.bound()) != answers(before)


EDITED = Batch("f9-edited", "terminal_task", defaults=APP)


def test_a_186_attack_on_a_pack_in_use(arena: Arena) -> None:
    """Edited while its run waits for the agent: judged is by what was there at the start."""
    trial = EDITED.task(
        "edited", agent=f"import time\ntime.sleep(6)\n{WRITE_ANSWER}", grading=CHECK_ANSWER
    )
    release = arena.place(EDITED).release
    arena.start([trial])
    release.wait(EDITED.name, lambda run: bool(run.get("status", {}).get("resolved")))
    lies = EDITED.task("edited", agent="pass", grading={"checker": {"command": "false"}})
    pack, _ = keyed_pack("ConfigMap", f"{EDITED.name}-pack", EDITED.pack([lies.row]))
    release.kubectl("replace", "-f", "-", stdin=json.dumps(pack).encode())

    assert_passed(arena, trial)
