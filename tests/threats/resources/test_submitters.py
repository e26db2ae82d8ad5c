"""F10: a submitter uses up what all runs of a namespace share."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from securebench.benchmark.files.bundle import BundleLimits
from securebench.cluster.client import ApiCluster, connect
from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller import lifecycle, packs
from securebench.errors import PackError, SpecError
from securebench.run.api.models import Pack, VolumePack
from securebench.run.decide.controls import Controls, DesiredState, Halt
from support.build import inline, question, write_pack
from support.operator_world import World
from support.release import Raw, benchmark_run
from support.stored_packs import freeze_stored
from threats.honest import APP, CHECK_ANSWER, WRITE_ANSWER, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch
from threats.kit.twin_crd import refusal

FLOOD = 120
MANY = 30
"""Enough in memory, where every run costs a second."""

ANSWER_SECONDS = 3.0
"""A server on the loopback answers within milliseconds."""

HERE = Batch("f10-flooded", "terminal_task", defaults=APP)
AFTER = HERE.task("after", agent=WRITE_ANSWER, grading=CHECK_ANSWER)
COMMAND: Raw = {"type": "command", "config": {"command": ["true"]}}


# A-340: connections


@asynccontextmanager
async def api_server() -> AsyncIterator[str]:
    """Serve watches that never end and one object, on the loopback."""
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"kind": "Pod", "metadata": {"name": "a"}})
        response = web.StreamResponse()
        await response.prepare(request)
        await over.wait()
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield str(site.name)
    finally:
        over.set()
        await runner.cleanup()


async def is_answered_beside(cluster: Cluster, watches: int) -> bool:
    """Return whether a request is answered while so many watches are open."""

    async def watch() -> None:
        async with aclosing(cluster.watch(ObjectKind.POD, "", "1")) as events:
            async for _ in events:
                pass

    tasks = [asyncio.create_task(watch()) for _ in range(watches)]
    try:
        await asyncio.sleep(1)
        async with asyncio.timeout(ANSWER_SECONDS):
            return await cluster.get(ObjectKind.POD, "a") is not None
    except TimeoutError:
        return False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def write_kubeconfig(path: Path, host: str) -> None:
    user = {"name": "u", "user": {"token": "t"}}
    there = {"name": "c", "cluster": {"server": host}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    body = {"clusters": [there], "users": [user], "contexts": [context], "current-context": "x"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **body}))


@asynccontextmanager
async def connected(host: str, kubeconfig: Path) -> AsyncIterator[Cluster]:
    """Connect as the operator does."""
    write_kubeconfig(kubeconfig, host)
    with mock.patch.dict("os.environ", {"KUBECONFIG": str(kubeconfig)}):
        async with connect("sb") as cluster:
            yield cluster


@pytest.mark.short
async def test_a_340_attack_on_the_connections(tmp_path: Path) -> None:
    async with api_server() as host, connected(host, tmp_path / "config") as cluster:
        assert await is_answered_beside(cluster, FLOOD)


async def test_a_340_twin_of_the_connections() -> None:
    """The same with watches that take their connections from the pool of all requests."""
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(api_server())
        api = await stack.enter_async_context(ApiClient(Configuration(host=host)))
        assert not await is_answered_beside(ApiCluster(api, "sb"), FLOOD)


@pytest.mark.short
async def test_a_340_honest_watches(tmp_path: Path) -> None:
    async with api_server() as host, connected(host, tmp_path / "config") as cluster:
        assert await is_answered_beside(cluster, 3)


# A-341: places, and what suspended runs hold


@contextmanager
def operator(folder: Path, **settings: object) -> Iterator[World]:
    with mock.patch.object(asyncio, "to_thread", inline):
        world = World(folder, **settings)
        yield world
        world.runner.run(world.supervisor.close())
        world.runner.close()


NO_WINDOW = {"firstPulls": None}
"""Every run begins its Pods at once, so that the slots alone bound how many have any."""


def at_work(world: World) -> int:
    """Return how many runs have Pods."""
    return len({name.split("-")[1] for name in world.pods()})


def flood(world: World, **spec: object) -> None:
    for number in range(MANY):
        world.apply(f"flood-{number}", **spec)
    world.wait(5)


@pytest.mark.short
def test_a_341_attack_by_active_runs(tmp_path: Path) -> None:
    with operator(tmp_path, max_active_runs=5, creation=NO_WINDOW) as world:
        flood(world)
        assert at_work(world) == 5
        assert "allows no more" in world.condition(name=f"flood-{MANY - 1}")["message"]


def test_a_341_twin_of_active_runs(tmp_path: Path) -> None:
    with operator(tmp_path, max_active_runs=10**6, creation=NO_WINDOW) as world:
        flood(world)
        assert at_work(world) == MANY


@pytest.mark.short
def test_a_341_attack_by_suspended_runs(tmp_path: Path) -> None:
    with operator(tmp_path, max_active_runs=5) as world:
        flood(world, suspend=True, isolation={"require": "Verified"})
        assert at_work(world) == 0
        assert world.cluster.requests["watch", ObjectKind.POD] == 0


def test_a_341_twin_of_suspended_runs(tmp_path: Path) -> None:
    """A gate and a loop that take no notice of the suspension: each has a watch and a canary."""

    async def enter(*_: object, **__: object) -> None:
        pass

    real = DesiredState.controls

    def controls(*given: Any, **named: Any) -> Controls:
        return replace(real(*given, **named), halt=Halt.NONE)

    with (
        mock.patch.object(lifecycle.RunLifecycle, "_admit", enter),
        mock.patch.object(DesiredState, "controls", controls),
        operator(tmp_path) as world,
    ):
        flood(world, suspend=True, isolation={"require": "Verified"})
        assert at_work(world) == MANY
        assert world.cluster.requests["watch", ObjectKind.POD] == MANY


@pytest.mark.short
def test_a_341_honest_run_beside_suspended_ones(tmp_path: Path) -> None:
    with operator(tmp_path, max_active_runs=1) as world:
        flood(world, suspend=True)
        uid = world.apply("honest")
        world.work(uid)
        assert world.condition(name="honest")["reason"] == "Completed"


def suspended_runs() -> list[Raw]:
    spec = {"suspend": True, "pack": {"volume": {"path": "any"}}, "harness": COMMAND}
    return [benchmark_run(f"hole-flood-{number}", spec) for number in range(FLOOD)]


def test_a_341_attack_on_a_node(arena: Arena) -> None:
    """The very attack: an honest run beside 120 suspended ones, and no Pod of theirs."""
    place = arena.place(HERE)
    runs = suspended_runs()
    place.release.create(*runs)
    try:
        arena.start([AFTER])
        assert_passed(arena, AFTER)
        labels = [each["metadata"].get("labels", {}) for each in place.pods.states()]
        named = {each.get("securebench.dev/run", "") for each in labels}
        assert [name for name in named if name.startswith("hole-flood-")] == []
        status = place.release.get("pod", "securebench-0")["status"]
        assert [each["restartCount"] for each in status["containerStatuses"]] == [0]
    finally:
        names = [each["metadata"]["name"] for each in runs]
        place.release.kubectl("delete", "brun", "--wait=false", *names)


# A-342: the copy of a pack


def hidden(path: str) -> Pack:
    """Return a pack source as the API server would refuse it."""
    return Pack.model_construct(
        volume=VolumePack.model_construct(path=path),
        config_map=None,
        secret=None,
        manifest="manifest.yaml",
        tasks="tasks.jsonl",
        digest=None,
    )


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with a frozen pack of somebody else."""
    write_pack(tmp_path / "packs/smoke", [question("a")])
    freeze_stored(tmp_path, hidden("smoke"))
    return tmp_path


@pytest.mark.short
def test_a_342_attack_by_the_folder_of_copies(volume: Path) -> None:
    before = sorted((volume / "packs/.content").rglob("*"))
    with (
        mock.patch.object(packs, "copy_folder", side_effect=AssertionError),
        pytest.raises(PackError, match="begin with a dot"),
    ):
        freeze_stored(volume, hidden(".content"))
    assert sorted((volume / "packs/.content").rglob("*")) == before


@pytest.mark.short
def test_a_342_attack_at_the_api_server(arena: Arena) -> None:
    spec = {"pack": {"volume": {"path": ".content"}}, "harness": COMMAND}
    said = refusal(arena.place(HERE).release, benchmark_run("hole-content", spec))
    assert "begin with '.'" in said


def test_a_342_twin_of_the_folder_of_copies(volume: Path) -> None:
    """Without the rule on names the folder lands in itself, with every pack of everybody."""
    seen = list[str]()

    def copy(source: Path, target: Path, *_: object) -> None:
        shutil.copytree(source, target, symlinks=True, ignore=_not_below(target))
        seen.extend(path.name for path in target.rglob("*"))

    with (
        mock.patch.object(packs, "HIDDEN_NAME", "$^"),
        mock.patch.object(packs, "copy_folder", copy),
        pytest.raises(PackError, match="no such file"),
    ):
        freeze_stored(volume, hidden(".content"))
    assert "manifest.yaml" in seen
    assert any(name.startswith(".incoming-") for name in seen)


def _not_below(target: Path) -> object:
    """Stop after one level what would only stop at the longest path of the file system."""

    def ignore(folder: str, names: list[str]) -> list[str]:
        return names if Path(folder) == target.parent else []

    return ignore


FULL = BundleLimits(files=100, size_bytes=1024 * 1024)


@pytest.fixture
def full(volume: Path) -> Path:
    write_pack(volume / "packs/large", [question("b")])
    with (volume / "packs/large/filler").open("wb") as file:
        file.truncate(2 * FULL.size_bytes)
    return volume


@pytest.mark.short
def test_a_342_attack_by_a_large_folder(full: Path) -> None:
    with (
        mock.patch.object(shutil, "copy2", side_effect=AssertionError),
        pytest.raises(PackError, match="packBytes"),
    ):
        freeze_stored(full, hidden("large"), FULL)


def test_a_342_twin_of_a_large_folder(full: Path) -> None:
    copied = freeze_stored(full, hidden("large"), BundleLimits())
    assert (copied.folder / "filler").stat().st_size > FULL.size_bytes


@pytest.mark.short
def test_a_342_honest_folder(volume: Path) -> None:
    assert freeze_stored(volume, hidden("smoke"), FULL).tasks.is_file()


# A-343: which Secrets there are


LABEL = {"securebench.dev/usable-by-runs": "true"}
STATES: dict[str, Raw | None] = {"absent": None, "present": {}}
FIELDS: dict[str, Raw] = {
    "harness": {"harness": {**COMMAND, "env": ["KEY"], "secretRef": {"name": "keys"}}},
    "pull": {"podTemplate": {"imagePullSecrets": [{"name": "keys"}]}},
    "pack": {"pack": {"secret": {"name": "keys"}}},
}


def story(folder: Path, labels: Raw | None, spec: Raw) -> list[Raw]:
    """Return what the status of a run says, second by second."""
    with operator(folder) as world:
        if labels is not None:
            metadata = {"name": "keys", "labels": labels}
            world.runner.run(world.cluster.create(ObjectKind.SECRET, {"metadata": metadata}))
        world.apply(**spec)
        said = list[Raw]()
        for _ in range(70):
            world.wait(1)
            said.append(cast("Raw", {**world.condition(), "lastTransitionTime": ""}))
        return said


@pytest.mark.short
@pytest.mark.parametrize("field", FIELDS)
def test_a_343_attack(tmp_path: Path, field: str) -> None:
    absent, present = (
        story(tmp_path / name, labels, FIELDS[field]) for name, labels in STATES.items()
    )
    assert absent[-1]["status"] == "False"
    assert present == absent


@pytest.mark.parametrize("field", ["harness", "pull"])
def test_a_343_twin(tmp_path: Path, field: str) -> None:
    """With a look that says what it found, the stories differ."""

    async def look(cluster: Cluster, *_: object) -> None:
        found = await cluster.get(ObjectKind.SECRET, "keys")
        raise SpecError("it does not exist" if found is None else "it lacks its label")

    with mock.patch("securebench.controller.binding.check_secrets", look):
        absent, present = (
            story(tmp_path / name, labels, FIELDS[field]) for name, labels in STATES.items()
        )
    assert present != absent


@pytest.mark.short
@pytest.mark.parametrize("field", ["harness", "pull"])
def test_a_343_honest(tmp_path: Path, field: str) -> None:
    assert story(tmp_path, LABEL, FIELDS[field])[-1]["reason"] == "Starting"
