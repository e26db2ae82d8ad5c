"""A suite whose run is worked on by the run's own loop: names, index and records fit together."""

from __future__ import annotations

from typing import Any

from securebench.cluster.port import ObjectKind
from support.suite_world import HARNESSES, PACKS, SuiteWorld

SUITE: dict[str, Any] = {
    "matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[1:]},
    "template": {"isolation": {"require": "Declared"}},
    "gates": {"minPassRate": "0.5"},
}


def test_a_real_run_is_recognised_with_and_without_its_object(world: SuiteWorld) -> None:
    world.apply_suite(**SUITE)
    (name,) = world.run_names()
    world.observe("ADDED", name)
    world.work(world.run(name)["metadata"]["uid"], rounds=4)
    assert world.condition("Succeeded", name)["reason"] == "Completed"
    world.settle(5)
    assert world.said()[:2] == ("True", "Completed")
    assert world.said("GatesPassed")[0] == "True"
    (result,) = world.suite_status()["results"]
    assert result["run"] == name
    assert result["passRate"]["value"] == "1.0000"
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    world.restart_suites()
    assert world.run_names() == []
    assert world.said()[:2] == ("True", "Completed")
    assert world.said("GatesPassed")[0] == "True"
