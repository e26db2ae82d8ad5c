import json

import pytest

from scale.budgets import Findings, plot, rows
from scale.restart import Restart
from scale.sessions import Measured, Shape


def measured(tasks=100, **changes):
    known = Measured(
        shape=Shape(tasks, 10),
        seconds=12.0,
        working_seconds=10.0,
        cpu_ms=20.0,
        requests={"create Pod": 1.0, "get BenchmarkRun": 0.001},
        peak_mib=100.0,
        decision_ms=0.2,
        slow_share=0.0,
        changes=2.0,
        whole_ms=3.0,
        status_bytes=2048,
        status_writes=6,
        status_gap=2.5,
        in_flight=10,
    )
    return known._replace(**changes)


def verdicts(found):
    return {row.what.strip(): row.is_met for row in rows(found) if row.is_met is not None}


def test_the_ratio_comes_first_and_is_taken_round_by_round():
    found = Findings(ours=[8.0, 9.0], bare=[10.0, 9.0], compared=100, sizes=[measured()])
    first = next(rows(found))
    assert first.measured == "0.90 (0.80 to 1.00)"
    assert first.is_met


@pytest.mark.parametrize(
    ("changes", "want_missed"),
    [
        ({}, set()),
        ({"peak_mib": 201.0}, {"operator memory"}),
        ({"decision_ms": 5.1}, {"decision after an event"}),
        ({"status_bytes": 33 * 1024}, {"status"}),
    ],
)
def test_what_is_over_its_budget_is_missed(changes, want_missed):
    found = verdicts(Findings(sizes=[measured(**changes)]))
    assert {what for what, is_met in found.items() if not is_met} == want_missed


@pytest.mark.parametrize(("cpu_ms", "want"), [(22.0, True), (22.2, False)])
def test_cost_is_that_of_the_largest_run_beside_the_smallest(cpu_ms, want):
    sizes = [measured(), measured(1000, cpu_ms=99.0), measured(10_000, cpu_ms=cpu_ms)]
    assert verdicts(Findings(sizes=sizes))["CPU per task, 10000 tasks beside 100"] is want


def test_a_restart_counts_from_the_start_of_the_process():
    found = verdicts(Findings(restart=Restart(10, 5, 4.0, 5.5, 90.0)))
    assert found == {"decides again after a kill, 10 finished and 5 live": False}


def test_everything_is_in_the_json():
    found = Findings(sizes=[measured()], restart=Restart(10, 5, 1.0, 2.0, 90.0))
    told = json.loads(json.dumps(found.as_json()))
    assert told["measured"][0]["per_second"] == 10.0
    assert told["restart"]["seconds"] == 2.0


def test_the_plot_names_machine_and_date(tmp_path):
    plot([measured(), measured(1000)], tmp_path / "plot.svg", "2026-01-01, a machine")
    assert "2026-01-01, a machine" in (tmp_path / "plot.svg").read_text()
