import base64
from dataclasses import replace

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.capture import (
    ExposedValues,
    capture,
    hide_values,
    losses_without_values,
)
from securebench.controller.volume.store import RunStore
from securebench.protocol.candidate import STREAMS
from securebench.run.decide.attempt import Capture
from securebench.run.observe.stage import Ended
from securebench.run.state.attempts import DiffReport, Loss
from support.build import HARNESS, NOW, VERIFIER, harness_done, plan_of, seal_message, view_of
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID, text_task
from support.places import launch_place

TOKEN = b"tk-5f3a9c1e5b7d"
PLAN = replace(plan_of().harness, env=("TOKEN", "UNSET"), secret="keys")


NEWER = b"tk-0c77d1a4b2ee"


async def put_secret(cluster, token):
    data = {"TOKEN": base64.b64encode(token).decode(), "OTHER": base64.b64encode(b"x" * 9)}
    await cluster.create(ObjectKind.SECRET, {"metadata": {"name": "keys"}, "data": data})


def written(stat):
    """Return what differs once a file was written, or replaced by another one."""
    return stat.st_ino, stat.st_mtime_ns


async def values(harness=PLAN, *, exists=True):
    cluster = FakeCluster()
    if exists:
        await put_secret(cluster, TOKEN)
    exposed = ExposedValues(cluster, harness)
    await exposed.refresh()
    return exposed.matcher, cluster.requests["get", ObjectKind.SECRET]


async def test_the_named_values_of_the_secret_are_looked_for():
    found, _ = await values()
    assert found.without(b"a " + TOKEN + b" z") == b"a " + b"*" * len(TOKEN) + b" z"
    assert found.without(b"x" * 9) == b"x" * 9


@pytest.mark.parametrize("changes", [{"env": ()}, {"secret": ""}])
async def test_no_secret_is_read_without_need(changes):
    found, requests = await values(replace(PLAN, **changes))
    assert (bool(found), requests) == (False, 0)


async def test_where_the_values_are_not_known_everything_is_masked():
    found, requests = await values(exists=False)
    assert (bool(found), requests) == (True, 1)
    assert found.without(b"a\n" + TOKEN) == b"*" * (2 + len(TOKEN))
    assert found.without(b"") == b""


async def test_a_value_that_was_replaced_stays_masked_like_the_new_one():
    cluster = FakeCluster()
    await put_secret(cluster, TOKEN)
    exposed = ExposedValues(cluster, PLAN)
    await exposed.refresh()
    cluster.remove(ObjectKind.SECRET, "keys")
    await put_secret(cluster, NEWER)
    assert NEWER in exposed.matcher.without(NEWER)
    await exposed.refresh()
    assert exposed.matcher.without(TOKEN + b" " + NEWER).strip(b"*") == b" "


async def test_a_secret_that_is_gone_later_leaves_what_was_seen():
    cluster = FakeCluster()
    await put_secret(cluster, TOKEN)
    exposed = ExposedValues(cluster, PLAN)
    await exposed.refresh()
    cluster.remove(ObjectKind.SECRET, "keys")
    await exposed.refresh()
    assert exposed.matcher.without(b"a " + TOKEN) == b"a " + b"*" * len(TOKEN)


@pytest.mark.parametrize(("launch", "folder"), [(HARNESS, "producer"), (VERIFIER, "verification")])
async def test_streams_on_the_volume_lose_the_values(tmp_path, launch, folder):
    found, _ = await values()
    store = RunStore(tmp_path, RUN_UID)
    store.make_launch_folders(launch)
    place = launch_place(store, launch)
    (place / folder / "stdout").write_bytes(b"key=" + TOKEN)
    (place / "candidate/candidate.txt").write_bytes(TOKEN)
    hide_values(store, launch, found)
    assert (place / folder / "stdout").read_bytes() == b"key=" + b"*" * len(TOKEN)
    assert not (place / folder / "stderr").exists()
    assert (place / "candidate/candidate.txt").read_bytes() == TOKEN


async def test_names_of_what_was_lost_lose_the_values():
    found, _ = await values()
    losses = (Loss(f"key-{TOKEN.decode()}", "a FIFO"),)
    hidden = "*" * len(TOKEN)
    assert losses_without_values(losses, found) == (Loss(f"key-{hidden}", "a FIFO"),)


@pytest.mark.parametrize("env", [(), ("TOKEN",)], ids=["no values", "not among them"])
async def test_streams_without_values_are_not_touched(tmp_path, env):
    found, _ = await values(replace(PLAN, env=env))
    store = RunStore(tmp_path, RUN_UID)
    store.make_launch_folders(HARNESS)
    streams = [launch_place(store, HARNESS) / "producer" / name for name in STREAMS]
    for stream in streams:
        stream.write_bytes(b"key=" + NEWER)
    before = [stream.stat() for stream in streams]
    hide_values(store, HARNESS, found)
    assert [stream.read_bytes() for stream in streams] == [b"key=" + NEWER] * len(STREAMS)
    assert [written(stream.stat()) for stream in streams] == [written(stat) for stat in before]


async def test_without_values_no_stream_is_read(tmp_path):
    """Folders in their places: reading one raises."""
    found, _ = await values(replace(PLAN, env=()))
    store = RunStore(tmp_path, RUN_UID)
    store.make_launch_folders(HARNESS)
    for name in STREAMS:
        (launch_place(store, HARNESS) / "producer" / name).mkdir()
    hide_values(store, HARNESS, found)


async def test_what_git_said_loses_the_values(tmp_path):
    found, _ = await values()
    store = RunStore(tmp_path, RUN_UID)
    store.make_launch_folders(HARNESS)
    (launch_place(store, HARNESS) / "producer/stdout").write_bytes(TOKEN)
    said = f"error: é{TOKEN.decode()}: short read"
    seal = seal_message(file=None, problem="candidate_invalid")
    status = harness_done(0, seal, diff={"exit_code": 128, "stderr": said})
    job = Capture(HARNESS, view_of(HARNESS, status), Ended(0))
    captured = capture(store, text_task(), job, NOW, exposed=found)
    want = said.replace(TOKEN.decode(), "*" * len(TOKEN))
    assert captured.production.command.diff == DiffReport(128, want)
    assert TOKEN not in (launch_place(store, HARNESS) / "producer/stdout").read_bytes()
