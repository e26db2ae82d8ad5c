"""Runs whose pack is an image in a registry, from the BenchmarkRun to its records."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import packs as admission
from securebench.controller.packs import fetch_pack
from securebench.controller.suite_results import PackReader
from securebench.errors import RegistryUnavailableError
from securebench.run.api.models import Pack
from securebench.suite.api import SuitePack
from support.build import FakeClock, context_of
from support.fake_cluster import FakeCluster
from support.operator_world import World, opened
from support.pack_registry import (
    Answer,
    PackImage,
    PackServer,
    blob_path,
    create_secret,
    pack_image,
    pack_server,
    secret_data,
    settings_for,
)
from support.servers import free_port
from support.stored_packs import freeze_stored


@pytest.fixture
def server() -> Iterator[PackServer]:
    with pack_server() as known:
        yield known


@pytest.fixture
def image(tmp_path: Path) -> PackImage:
    (tmp_path / "source").mkdir()
    return pack_image(tmp_path / "source", "a", "b")


@contextmanager
def pulling_world(root: Path, server: PackServer, **settings: object) -> Iterator[World]:
    """An operator whose time is not that of the registry: it pulls on an event loop of its own."""
    real = admission._pull

    async def pulled(*arguments: Any) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, real(*arguments)).result()

    with (
        mock.patch.object(admission, "_pull", pulled),
        opened(World, root, **settings_for(server, secret="packs"), **settings) as known,
    ):
        known.runner.run(create_secret(known.cluster, server))
        yield known


@pytest.fixture
def world(tmp_path: Path, server: PackServer) -> Iterator[World]:
    with pulling_world(tmp_path / "volume", server) as known:
        yield known


def test_a_run_reaches_its_records(world: World, server: PackServer, image: PackImage) -> None:
    reference = server.put(image)
    uid = world.apply(pack={"image": reference})
    world.work(uid)

    assert world.condition()["reason"] == "Completed"
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["task_id"] for record in records] == ["a", "b"]
    folder = Pack.parse({"volume": {"path": "smoke"}})
    assert {record["pack_digest"] for record in records} == {
        freeze_stored(world.root, folder).digest
    }
    binding = json.loads((world.root / "runs" / uid / "run.json").read_text())
    assert binding["spec"]["pack"]["image"] == reference


def test_a_bound_run_needs_no_registry(world: World, server: PackServer, image: PackImage) -> None:
    uid = world.apply(pack={"image": server.put(image)})
    server.answers.clear()
    world.restart()
    world.observe(None)
    world.work(uid)

    assert world.condition()["reason"] == "Completed"


def leading_to(place: str) -> Answer:
    return Answer(status=307, headers={"Location": place})


ENDS: Mapping[str, tuple[Answer, str]] = {
    "401": (Answer(status=401), "the registry answers 401; the administrator gives credentials"),
    "403": (Answer(status=403), "the registry answers 403; the administrator gives credentials"),
    "404": (Answer(status=404), "the registry has no such content (404); push it with"),
    "405": (Answer(status=405), "the registry answers 405, which is no answer to this request"),
    "another manifest": (Answer(b"{}"), "sent another manifest than sha256:"),
    "a place that is no URL": (leading_to("http://[x"), "leads to a place that is no URL"),
    "another scheme": (leading_to("file:///etc/passwd"), "leads to file://"),
    "with a user": (leading_to("http://a:b@127.0.0.1/x"), "which is not among its otherHosts"),
    "a circle": (leading_to(""), "more than 3 redirects"),
    "a large manifest": (Answer(b" " * 100_000), "the answer has more than 65536 bytes"),
}


@pytest.mark.parametrize("case", ENDS)
def test_what_cannot_mend_itself_ends_the_run(
    world: World, server: PackServer, image: PackImage, case: str
) -> None:
    answer, message = ENDS[case]
    reference = server.put(image)
    server.answers[image.manifest_path] = answer
    world.apply(pack={"image": reference})
    world.wait(70)

    condition = world.condition()
    assert (condition["status"], condition["reason"]) == ("False", "PackInvalid")
    assert f"registry {server.host}, repository team/smoke" in condition["message"]
    assert message in condition["message"]
    assert "\n" not in condition["message"]


def test_a_pack_that_is_not_there_yet_is_asked_for_less_and_less_often(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    server.answers.clear()
    with pulling_world(tmp_path / "volume", server, input_wait_seconds=600) as world:
        uid = world.apply(pack={"image": reference})
        world.wait(130)

        condition = world.condition()
        assert (condition["status"], condition["reason"]) == ("Unknown", "InputMissing")
        assert condition["message"].endswith(
            "no such content (404); the run waits for it for up to 600 seconds; the registry is"
            " asked again after 2 seconds, then with doubled pauses of at most 60 seconds"
        )
        assert len(server.asked) == 7  # at 0, 2, 6, 14, 30, 62 and 122 s
        server.put(image)
        world.wait(60)
        world.work(uid)
        assert world.condition()["reason"] == "Completed"


def test_a_cancel_ends_the_pause_before_the_registry_is_asked_again(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    server.answers.clear()
    with pulling_world(tmp_path / "volume", server, input_wait_seconds=600) as world:
        world.apply(pack={"image": reference})
        world.wait(70)
        world.edit(cancel="Immediate")
        world.wait(1)
        assert world.condition()["reason"] == "PackInvalid"


def test_the_registry_is_asked_at_the_end_of_the_wait(
    world: World, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    server.answers.clear()
    world.apply(pack={"image": reference})
    world.wait(59)
    assert world.condition()["reason"] == "InputMissing"
    server.put(image)
    world.wait(1.1)
    assert world.condition()["reason"] == "Starting"


def test_a_registry_that_is_not_listed(world: World, image: PackImage) -> None:
    world.apply(pack={"image": f"elsewhere.example/team/smoke@{image.digest}"})
    world.wait(1)

    condition = world.condition()
    assert (condition["status"], condition["reason"]) == ("False", "PackInvalid")
    assert "elsewhere.example/team/smoke is not among the chart's" in condition["message"]


OUTAGES = {
    "500": Answer(status=500),
    "429": Answer(status=429),
    "half a manifest": Answer(b"{", length=1000),
}


@pytest.mark.parametrize("case", OUTAGES)
def test_an_outage_is_waited_out(
    world: World, server: PackServer, image: PackImage, case: str
) -> None:
    reference = server.put(image)
    server.answers[image.manifest_path] = OUTAGES[case]
    uid = world.apply(pack={"image": reference})
    world.wait(100)

    condition = world.condition()
    assert (condition["status"], condition["reason"]) == ("Unknown", "RegistryUnavailable")
    assert f"registry {server.host}" in condition["message"]
    server.put(image)
    world.wait(60)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_run_can_be_cancelled_in_an_outage(
    world: World, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    server.answers.clear()
    server.answers[image.manifest_path] = Answer(status=503)
    world.apply(pack={"image": reference})
    world.wait(30)
    world.edit(cancel="Immediate")
    world.wait(61)

    condition = world.condition()
    assert (condition["status"], condition["reason"]) == ("False", "Cancelled")
    assert "the registry answers 503" in condition["message"]


def test_credentials_are_waited_for(world: World, server: PackServer, image: PackImage) -> None:
    world.cluster.edit(ObjectKind.SECRET, "packs", {"data": {".dockerconfigjson": ""}})
    uid = world.apply(pack={"image": server.put(image)})
    world.wait(30)

    assert world.condition()["reason"] == "RegistryUnavailable"
    assert "Secret packs (settings.packRegistries.secret) does not" in world.condition()["message"]
    assert server.asked == []
    world.cluster.edit(ObjectKind.SECRET, "packs", secret_data(server))
    world.wait(60)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


# Without the operator's loop


async def test_credentials_go_to_the_registry_and_its_token_service(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    given = dict(server.answers)
    challenge = f'Bearer realm="http://{server.host}/token",service="packs",scope="pull"'
    refusal = Answer(status=401, headers={"WWW-Authenticate": challenge})
    server.answers = dict.fromkeys(given, refusal)
    server.answers["/token?service=packs&scope=pull"] = Answer(b'{"token": "t"}')
    server.when["Bearer t"] = given
    cluster, settings = FakeCluster(), settings_for(server, secret="packs")
    context = context_of(cluster, FakeClock(), tmp_path / "volume", **settings)
    await create_secret(cluster, server)

    await fetch_pack(context, Pack(image=reference))

    basic = "Basic " + base64.b64encode(b"operator:right").decode()
    assert [item.authorization for item in server.asked] == [
        "", basic, "Bearer t", "Bearer t", "Bearer t"
    ]  # fmt: skip


async def test_a_registry_that_falls_silent(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    reference = server.put(image)
    server.silent.add(blob_path(next(iter(image.layers))))
    settings = settings_for(server, timeoutSeconds=1)
    context = context_of(FakeCluster(), FakeClock(), tmp_path / "volume", **settings)

    async with asyncio.timeout(10):
        with pytest.raises(RegistryUnavailableError, match="was not pulled within 1 seconds"):
            await fetch_pack(context, Pack(image=reference))


async def test_another_host_that_cannot_be_reached_is_named(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    reference, absent = server.put(image), f"127.0.0.1:{free_port()}"
    server.answers[image.manifest_path] = leading_to(f"http://{absent}/x")
    listed = {"host": server.host, "plainHttp": True, "otherHosts": [absent]}
    settings = {"pack_registries": {"registries": [listed]}}
    context = context_of(FakeCluster(), FakeClock(), tmp_path / "volume", **settings)

    with pytest.raises(RegistryUnavailableError) as raised:
        await fetch_pack(context, Pack(image=reference))

    want = f"registry {server.host}, which leads to {absent}: no connection: connection refused"
    assert str(raised.value) == want


async def test_runs_that_start_together_pull_once(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    pack = Pack(image=server.put(image))
    context = context_of(FakeCluster(), FakeClock(), tmp_path / "volume", **settings_for(server))

    await asyncio.gather(*(fetch_pack(context, pack) for _ in range(10)))

    assert len(server.asked) == 3


async def test_a_suite_reads_an_image_once(
    tmp_path: Path, server: PackServer, image: PackImage
) -> None:
    context = context_of(FakeCluster(), FakeClock(), tmp_path / "volume", **settings_for(server))
    items = [
        SuitePack(name=name, pack=Pack(image=reference))
        for name, reference in {
            "good": server.put(image),
            "bad": f"elsewhere.example/x@{image.digest}",
        }.items()
    ]
    reader = PackReader(context)
    first = await reader.read(items)
    server.answers.clear()

    assert await reader.read(items) == first
    assert "not among the chart's settings.packRegistries" in str(first["bad"])
    assert len(server.asked) == 3
