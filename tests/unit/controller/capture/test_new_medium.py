"""A medium of artifacts of its own, which lives in this file alone: no module of the product knows
it. Its Pods mount no claim; what they take and give is in the memory of this process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import securebench
from securebench.controller.attempt_keeper import LaneKeeper
from securebench.controller.capture import SecretMatcher, capture
from securebench.controller.process import installed_tools
from securebench.controller.volume.artifacts import ArtifactStore
from securebench.controller.volume.store import RunStore, read_texts
from securebench.digests import content_digest, listing_digest
from securebench.files import tree_digest
from securebench.protocol.grading import encode_verdicts
from securebench.protocol.supervise import CourierSpec
from securebench.run.artifacts import (
    Artifact,
    Attached,
    Given,
    Lanes,
    LaunchPart,
    MountProbe,
    Part,
    PodMedium,
    Taken,
    TaskPrograms,
)
from securebench.run.decide.attempt import Capture
from securebench.run.observe.stage import Ended
from securebench.run.plan.model import LaunchKey, Role, member_name
from securebench.run.pods.harness import harness_pod
from securebench.run.state.entries import LaunchLost, Produced, Verified
from support import manifest_samples as samples
from support.build import (
    HARNESS,
    KEY,
    NOW,
    VERIFIER,
    FakeClock,
    ended,
    harness_done,
    history_of,
    pod_status,
    seal_message,
    text_message,
    view_of,
)
from support.manifest_samples import FACTS, RUN_UID, patch_task, pods, run_plan, text_task

NOTHING = SecretMatcher()
IMAGE = "fetch:1"


class Memory:
    """Both sides of the medium."""

    def __init__(self) -> None:
        self.files: dict[Artifact, dict[str, bytes]] = {}

    def attach(self, wanted: Sequence[Taken | Given]) -> Attached:
        artifacts = list(dict.fromkeys(each.artifact for each in wanted))
        names = {artifact: f"artifact-{number}" for number, artifact in enumerate(artifacts)}
        taken = {each.artifact for each in wanted if isinstance(each, Taken)}
        fetched = [{"name": names[each], "mountPath": f"/in/{names[each]}"} for each in names]
        fetch = {
            "name": "fetch",
            "image": IMAGE,
            "command": ["fetch", *sorted(map(repr, taken))],
            "volumeMounts": [
                mount for mount, each in zip(fetched, names, strict=True) if each in taken
            ],
        }
        volumes: list[dict[str, object]] = [
            {"name": name, "emptyDir": {"sizeLimit": "1Gi"}} for name in names.values()
        ]
        return Attached([_mounted(each, names) for each in wanted], volumes, [fetch])

    def courier(self, spec: CourierSpec, given: Sequence[Given]) -> CourierSpec:
        sent = tuple(each.path.rpartition("/")[2] for each in given)
        return replace(spec, folders=(*spec.folders, *(f"sent-{name}" for name in sent)))

    def install(self, source: Path, now: float) -> TaskPrograms:  # noqa: ARG002 - keeps all
        programs = TaskPrograms(tree_digest(source))
        with self.filling(programs) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
        return programs

    @contextlib.contextmanager
    def filling(self, artifact: Artifact) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
            found = (path for path in Path(name).rglob("*") if path.is_file())
            self.files[artifact] = {
                str(path.relative_to(name)): path.read_bytes() for path in found
            }

    def prepare(self, artifact: Artifact, folder: str = "") -> None:  # noqa: ARG002 - has no folders
        self.files.setdefault(artifact, {})

    def put(self, artifact: Artifact, name: str, pieces: Iterable[bytes]) -> None:
        self.files[artifact][name] = b"".join(pieces)

    @contextlib.contextmanager
    def opened(self, artifact: Artifact, name: str) -> Iterator[BinaryIO]:
        content = self.files.get(artifact, {}).get(name)
        if content is None:
            raise FileNotFoundError(name)
        yield io.BytesIO(content)

    def names(self, artifact: Artifact, folder: str) -> list[str]:
        found = (Path(name) for name in self.files.get(artifact, {}))
        return sorted(path.name for path in found if path.parent == Path(folder))

    def remove(self, artifact: Artifact) -> None:
        self.files.pop(artifact, None)


def _mounted(wanted: Taken | Given, names: dict[Artifact, str]) -> dict[str, object]:
    mount: dict[str, object] = {"name": names[wanted.artifact], "mountPath": wanted.path}
    if isinstance(wanted, Taken):
        return {**mount, "readOnly": True, **({"subPath": wanted.part} if wanted.part else {})}
    return mount


def test_it_has_both_sides_of_the_port() -> None:
    medium = Memory()
    pod_side: PodMedium = medium
    store: ArtifactStore = medium
    assert pod_side is store


def test_a_new_medium_touches_its_own_module_and_the_choice_of_its_sides() -> None:
    product = Path(securebench.__file__).parent
    knowing = {
        str(path.relative_to(product))
        for path in product.rglob("*.py")
        if re.search("SharedVolume|VolumeArtifacts", path.read_text())
    }
    assert knowing == {"controller/policy_from_settings.py", "controller/volume/artifacts.py"}


# Pods

POD_NAMES = sorted(name for name, each in samples.golden().items() if each["kind"] == "Pod")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    medium = Memory()
    monkeypatch.setattr(samples, "SharedVolume", lambda _: medium)
    monkeypatch.setattr(samples, "PLACED_PODS", replace(samples.PLACED_PODS, medium=medium))
    return samples.golden()


def _places(pod: Any) -> dict[str, list[tuple[str, bool]]]:
    spec = pod["spec"]
    return {
        each["name"]: [
            (mount["mountPath"], mount.get("readOnly", False)) for mount in each["volumeMounts"]
        ]
        for each in (*spec.get("initContainers", ()), *spec["containers"])
    }


@pytest.mark.parametrize("name", POD_NAMES)
def test_no_pod_mounts_a_claim_and_every_container_has_its_places(
    name: str, built: dict[str, Any]
) -> None:
    spec = built[name]["spec"]
    places = _places(built[name])
    del places["fetch"]

    assert "persistentVolumeClaim" not in json.dumps(built[name])
    assert spec["initContainers"][0]["name"] == "fetch"
    assert places == _places(samples.yaml.safe_load((samples.FOLDER / f"{name}.yaml").read_text()))
    volumes = {each["name"] for each in spec["volumes"]}
    mounts = [
        mount
        for each in (*spec["initContainers"], *spec["containers"])
        for mount in each["volumeMounts"]
    ]
    assert {mount["name"] for mount in mounts} == volumes


def test_a_pod_asks_for_what_it_takes_and_nothing_else(built: dict[str, Any]) -> None:
    def taken(name: str) -> list[str]:
        return built[name]["spec"]["initContainers"][0]["command"][1:]

    tools = TaskPrograms(samples.digest("7"))
    candidate = LaunchPart(RUN_UID, 0, 1, 1, Part.CANDIDATE)
    assert taken("text_harness") == sorted(map(repr, (tools, Lanes(RUN_UID, 0))))
    assert taken("text_verifier") == sorted(map(repr, (candidate, Lanes(RUN_UID, 0))))
    assert taken("canary") == [repr(MountProbe(RUN_UID))]


def test_it_says_what_couriers_do_besides(built: dict[str, Any]) -> None:
    def work(name: str) -> Any:
        init = built[name]["spec"]["initContainers"]
        (courier,) = (each for each in init if each["name"] == "courier")
        return json.loads(courier["command"][-1])

    assert work("text_harness")["folders"] == ["sent-candidate", "sent-producer"]
    assert work("patch_verifier")["folders"][-1] == "sent-verification"


# The operator's side


async def test_the_programs_of_task_containers_are_put_by_their_digest(
    medium: Memory, tmp_path: Path
) -> None:
    (tmp_path / "supervise").write_bytes(b"#!")
    digest = await installed_tools(medium, tmp_path, FakeClock())

    assert medium.files[TaskPrograms(digest)] == {"supervise": b"#!"}


def test_what_the_last_launches_printed_is_got_by_name(
    store: RunStore, medium: Memory, tmp_path: Path
) -> None:
    again = HARNESS._replace(launch=2)
    store.make_launch_folders(again)
    left(store, medium, b"B\n", stdout=b"first", stderr=b"noise")
    medium.put(store.part(VERIFIER, Part.VERIFICATION), "stderr", [b"checked"])
    medium.put(store.part(again, Part.PRODUCER), "stdout", [b"second"])

    assert store.launches(KEY) == [1, 2]
    found = store.streams(KEY)
    assert found == {"producer/stdout": b"second", "verification/stderr": b"checked"}
    assert not _named(tmp_path, "stdout")


@pytest.fixture
def medium() -> Memory:
    return Memory()


@pytest.fixture
def store(medium: Memory, tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path, RUN_UID, artifacts=medium)
    store.create({})
    for launch in (HARNESS, VERIFIER):
        store.make_launch_folders(launch)
    return store


def _named(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name))


def left(store: RunStore, medium: Memory, text: bytes, **streams: bytes) -> Capture:
    """Leave what the Pod of a harness gives, and return its end."""
    medium.put(store.part(HARNESS, Part.CANDIDATE), "candidate.txt", [text])
    for name, content in streams.items():
        medium.put(store.part(HARNESS, Part.PRODUCER), name, [content])
    seal = seal_message(digest=f"sha256:{hashlib.sha256(text).hexdigest()}")
    return Capture(HARNESS, view_of(HARNESS, harness_done(0, seal)), Ended(0))


async def test_lanes_are_put_where_the_harness_pod_takes_them(
    store: RunStore, medium: Memory, tmp_path: Path
) -> None:
    keeper = LaneKeeper(store, tmp_path, "task.json", {})
    task = text_task()

    lanes = await keeper.lanes(task)
    name = Lanes(RUN_UID, task.index)
    assert {path.split("/")[0] for path in medium.files[name]} >= {"public", "hidden"}
    public = [
        (path.removeprefix("public/").encode(), hashlib.sha256(content).hexdigest())
        for path, content in sorted(medium.files[name].items())
        if path.startswith("public/")
    ]
    assert listing_digest(public) == lanes.public_digest
    pod: Any = harness_pod(run_plan(task, pods=pods(medium=medium)), task, HARNESS, lanes, FACTS)
    places = {each["mountPath"]: each for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert places["/opt/securebench/public"]["subPath"] == "public"
    await keeper.remove(task.index)
    assert name not in medium.files
    assert not await asyncio.to_thread(_named, tmp_path, "public")


def test_what_a_harness_gave_is_got_by_name_and_digest(
    store: RunStore, medium: Memory, tmp_path: Path
) -> None:
    job = left(store, medium, b"B\n", stdout=b"key=hunter2-hunter2", stderr=b"a\nlast\n")
    entry = capture(store, text_task(), job, NOW, exposed=SecretMatcher([b"hunter2-hunter2"]))

    assert isinstance(entry, Produced)
    assert entry.production.candidate is not None
    assert entry.production.last_words == "last"
    texts = read_texts(store, history_of(KEY, production=entry.production))
    assert (texts.candidate, texts.producer_stdout) == ("B\n", b"key=" + b"*" * 15)
    assert not _named(tmp_path, "candidate.txt") + _named(tmp_path, "stdout")


def test_what_was_changed_afterwards_is_no_candidate(store: RunStore, medium: Memory) -> None:
    job = left(store, medium, b"B\n")
    medium.put(store.part(HARNESS, Part.CANDIDATE), "candidate.txt", [b"C\n"])
    entry = capture(store, text_task(), job, NOW, exposed=NOTHING)
    assert isinstance(entry, LaunchLost)
    assert "the courier sealed" in entry.lost.message


def test_the_operator_puts_beside_a_patch_what_the_check_applies(
    store: RunStore, medium: Memory
) -> None:
    patch = b"diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n"
    entry = capture(store, patch_task(), left(store, medium, patch), NOW, exposed=NOTHING)
    assert isinstance(entry, Produced)
    assert entry.production.candidate is not None
    sealed = entry.production.candidate.patch
    assert sealed is not None
    files = medium.files[store.part(HARNESS, Part.CANDIDATE)]
    assert content_digest(files["applied.patch"]) == sealed.applied_digest


def test_verdicts_of_a_shared_pod_are_got_by_their_digest(store: RunStore, medium: Memory) -> None:
    other = LaunchKey(5, 1, Role.VERIFIER, 1)
    verdicts = encode_verdicts({member_name(each): text_message() for each in (VERIFIER, other)})
    medium.put(store.part(VERIFIER, Part.VERIFICATION), "verdicts.json", [verdicts])
    message = json.dumps({"v": 1, "verdicts": content_digest(verdicts)})
    view = view_of(VERIFIER, pod_status("Succeeded", ended("verifier", 0, message=message)))
    job = Capture(VERIFIER, view, Ended(0), VERIFIER)
    entry = capture(store, text_task(), job, NOW, exposed=NOTHING)
    assert isinstance(entry, Verified)
    assert entry.verification.passed
