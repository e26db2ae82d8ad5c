"""kopf delivers; it must not reconcile (design 2.4)."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from unittest import mock

import kopf
import pytest

from securebench.controller import handlers
from securebench.controller.handlers import Operator
from securebench.controller.lifecycle import Supervisor
from support.build import FakeClock, context_of, run_body, settings_of
from support.fake_cluster import FakeCluster


@pytest.fixture
def operator(tmp_path):
    return Operator(settings_of(tmp_path), FakeCluster(), None)


def test_one_event_handler_a_kind_and_nothing_that_needs_a_finalizer_or_an_annotation(operator):
    registry = operator.registry()
    watching = registry._watching.get_all_handlers()
    assert {handler.fn: handler.selector.any_name for handler in watching} == {
        operator.event: "benchmarkruns",
        operator.suite_event: "benchmarksuites",
    }
    for handler in watching:
        assert (handler.selector.group, handler.selector.version) == ("securebench.dev", "v1alpha1")
    for other in (registry._changing, registry._spawning, registry._indexing):
        assert list(other.get_all_handlers()) == []


def test_the_process_starts_and_stops_by_itself(operator):
    activities = operator.registry()._activities.get_all_handlers()
    assert {(handler.activity.value, handler.fn) for handler in activities} == {
        ("startup", operator.startup),
        ("cleanup", operator.cleanup),
        ("authentication", operator.login),
    }


async def started(operator, tmp_path):
    context = context_of(FakeCluster(), FakeClock(), tmp_path)
    settings = kopf.OperatorSettings()
    with mock.patch.object(handlers, "make_context", return_value=context):
        await operator.startup(settings=settings, logger=None)
    return settings


async def test_the_start_sets_what_the_style_guide_says(operator, tmp_path):
    settings = await started(operator, tmp_path)
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.watching.server_timeout == 300
    assert settings.watching.client_timeout == 330
    assert settings.queueing.worker_limit is None
    await operator.cleanup()


async def test_every_event_goes_to_the_supervisor_and_returns_nothing(operator, tmp_path):
    await started(operator, tmp_path)
    body = run_body(nonsense=1)
    body["metadata"] |= {"uid": "u", "generation": 1, "namespace": "bench"}
    seen = mock.patch.object(Supervisor, "observe")
    with seen as observe:
        for kind in (None, "ADDED", "MODIFIED", "DELETED"):
            found = await operator.event(type=kind, body=kopf.Body(body), patch=None, logger=None)
            assert found is None
    assert [call.args[0] for call in observe.call_args_list] == [
        None,
        "ADDED",
        "MODIFIED",
        "DELETED",
    ]
    assert observe.call_args.args[1]["metadata"]["uid"] == "u"
    await operator.cleanup()


async def test_a_background_task_that_fails_ends_the_process(operator, tmp_path):
    failed = mock.AsyncMock(side_effect=OSError(98, "Address already in use"))
    with mock.patch.object(handlers, "note_loops", failed), mock.patch("os.kill") as kill:
        await started(operator, tmp_path)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    kill.assert_called_once_with(os.getpid(), signal.SIGTERM)
    await operator.cleanup()


async def test_an_event_before_the_start_is_left_to_the_listing_after_it(operator, tmp_path):
    body = run_body()
    body["metadata"] |= {"uid": "u", "generation": 1, "namespace": "bench"}
    with mock.patch.object(Supervisor, "observe") as observe:
        await operator.event(type="ADDED", body=kopf.Body(body))
        await started(operator, tmp_path)
        assert observe.call_args_list == []
        await operator.event(type=None, body=kopf.Body(body))
        assert [call.args[0] for call in observe.call_args_list] == [None]
    await operator.cleanup()


SCRIPT = """
import asyncio, json, sys
import kopf
from support.build import settings_of
from pathlib import Path
from securebench.controller.handlers import Operator

seen = []

class Recorder(Operator):
    async def startup(self, settings, **_):
        seen.append("startup")
        settings.scanning.disabled = True

    async def cleanup(self, **_):
        seen.append("cleanup")

async def main():
    stop, ready = asyncio.Event(), asyncio.Event()
    registry = Recorder(settings_of(Path(".")), None, None).registry()
    run = asyncio.create_task(kopf.operator(
        registry=registry, standalone=True, namespaces=["bench"], clusterwide=False,
        stop_flag=stop, ready_flag=ready,
    ))
    await asyncio.wait({run, asyncio.create_task(asyncio.sleep(3))}, return_when="FIRST_COMPLETED")
    stop.set()
    await asyncio.gather(run, return_exceptions=True)
    print(json.dumps(seen))

asyncio.run(main())
"""


def test_kopf_accepts_the_registry_in_a_process_of_its_own(tmp_path):
    """Without a cluster the login fails; the life cycle runs all the same."""
    environment = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "KUBECONFIG": "/absent"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == ["startup", "cleanup"], done.stderr
