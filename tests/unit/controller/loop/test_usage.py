"""What launches asked their model provider that are ended while they run."""

import json

import pytest

from securebench.cluster.port import ObjectKind
from securebench.run.observe.pods import pod_view
from support.operator_world import opened
from unit.controller.loop.test_egress import EgressWorld

STOPS = {"cancel": {"cancel": "Immediate"}, "deadline": {"activeDeadlineSeconds": 60}}


@pytest.fixture
def world(tmp_path):
    with opened(EgressWorld, tmp_path) as world:
        yield world


@pytest.mark.parametrize("name", STOPS)
def test_what_a_cut_launch_asked_is_counted(name, world):
    world.begin_codex()
    world.gateway_up()
    (first,) = world.harnesses()
    launch = pod_view(world.cluster.objects(ObjectKind.POD)[first]).launch
    world.report(launch, closed=False)
    world.edit(**STOPS[name])
    world.wait(70)
    assert world.condition()["status"] == "False"
    cut, queued = world.records()
    assert cut["outcome"] == "cancelled"
    assert cut["producer_metadata"]["usage"]["input_tokens"] == 100
    assert queued["producer_metadata"]["usage"]["requests"] == 0
    summary = json.loads((world.folder() / "summary.json").read_text())
    assert summary["usage"]["requests"] == 2
    assert world.run()["status"]["usage"] == {
        "requests": 2,
        "inputTokens": 100,
        "cachedTokens": 0,
        "outputTokens": 5,
    }


def test_the_usage_is_kept_over_a_restart(world):
    world.begin_codex(parallelism=2)
    world.gateway_up()
    (first, _) = world.harnesses()
    launch = pod_view(world.cluster.objects(ObjectKind.POD)[first]).launch
    world.report(launch, closed=False)
    world.edit(cancel="Immediate")
    world.restart()
    world.observe(None)
    world.wait(70)
    assert world.run()["status"]["usage"]["requests"] == 2
