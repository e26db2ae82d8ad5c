"""A suite with a token budget, on an operator in memory."""

from __future__ import annotations

import json
from typing import Any

from securebench.cluster.port import ObjectKind
from securebench.controller.volume.folders import run_folder
from securebench.protocol.gateway import LaunchReport, RelayReport, encode
from support.suite_world import PACKS, SuiteWorld

PROVIDER = {"url": "https://models.example.org/v1"}
MATRIX = {
    "packs": PACKS[:1],
    "harnesses": [
        {
            "name": name,
            "harness": {"type": "command", "config": {"command": name, "provider": PROVIDER}},
        }
        for name in "abc"
    ],
}


def begin(world: SuiteWorld, tokens: int = 90, **spec: object) -> None:
    world.apply_suite(matrix=MATRIX, budget={"tokens": tokens}, maxConcurrentRuns=1, **spec)


def going(world: SuiteWorld) -> str:
    (name,) = world.going().values()
    return name


def budget(world: SuiteWorld) -> int:
    raw: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[going(world)]
    return int(raw["spec"]["budget"]["tokens"])


def spend(world: SuiteWorld, *reports: RelayReport, reason: str = "Completed") -> None:
    """End the run that goes on; its gateway said this of its launches."""
    name = going(world)
    raw: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
    folder = world.root / run_folder(raw["metadata"]["uid"]) / "gateway/launches"
    folder.mkdir(parents=True)
    for number, relay in enumerate(reports):
        report = LaunchReport(f"pod-{number}", "uid", closed=True, relay=relay)
        (folder / f"pod-{number}.json").write_bytes(encode(report))
    world.end(name, reason)


def test_what_a_run_leaves_goes_to_the_next_one_also_after_a_restart(world: SuiteWorld) -> None:
    begin(world)
    assert budget(world) == 30
    world.restart_suites()
    spend(world, RelayReport(input_tokens=4, output_tokens=1), RelayReport(reserved_tokens=5))
    assert budget(world) == 40
    spend(world)
    assert budget(world) == 80
    spend(world, RelayReport(input_tokens=80))
    assert world.said()[:2] == ("True", "Completed")
    want = {"tokens": 90, "usedTokens": 90, "allottedTokens": 0}
    assert world.suite_status()["budget"] == want


def test_a_damaged_report_counts_with_all_that_was_allowed(world: SuiteWorld) -> None:
    begin(world)
    spend(world, RelayReport(input_tokens=-50))
    assert budget(world) == 30


def test_cells_that_the_budget_does_not_reach_fail(world: SuiteWorld) -> None:
    begin(world)
    spend(world, RelayReport(input_tokens=95), reason="BudgetExhausted")
    assert world.going() == {}
    ready, reason, message = world.said()
    assert (ready, reason) == ("False", "CellsFailed")
    assert "smoke/b: the budget of the suite, 90 tokens, is used up: 95 were used" in message
    begin(world, tokens=200)
    assert budget(world) == 52


def test_a_round_that_is_asked_for_again_has_its_own_budget(world: SuiteWorld) -> None:
    begin(world)
    spend(world, RelayReport(input_tokens=95), reason="BudgetExhausted")
    world.annotate("again")
    assert budget(world) == 30


def test_a_state_of_an_earlier_version_has_no_allowances(world: SuiteWorld) -> None:
    begin(world)
    (path,) = world.root.glob("suites/*/state.json")
    state = json.loads(path.read_text())
    del state["allowances"]
    path.write_text(json.dumps(state))
    world.restart_suites()
    assert world.said()[1] == "Running"
