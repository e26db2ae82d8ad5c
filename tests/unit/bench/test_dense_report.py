import io
import json

import pytest
from rich.console import Console

from bench.cpu import Reading
from bench.model_calls import Added, Span
from bench.pod_memory import PodMemory
from outside.dense_report import MIB, Measured, Sample, figures_table, problems, report


def launch(harness, sidecar, agent):
    return PodMemory({"harness": harness * MIB, "egress-proxy": sidecar * MIB}, agent * MIB, MIB)


def sample(at, machine, **launches):
    return Sample(at, launches, Reading(machine, 0.0, {}), load=at / 10)


def record(task, **more):
    return {"task_id": task, "passed": True, "launches": 1, **more}


SPANS = {"one": [Span(0, 4), Span(10, 20)], "two": [Span(2, 3), Span(29, 30)]}


@pytest.fixture
def measured():
    samples = [
        sample(5, 10.0, a=launch(100, 9, 90), b=launch(50, 4, 40)),
        sample(15, 30.0, a=launch(120, 6, 115)),
    ]
    added = [Added(span, 0.01) for each in SPANS.values() for span in each]
    return Measured(33.3, samples, [record("one"), record("two")], SPANS, added, [])


def test_each_launch_counts_at_its_greatest_moment(measured):
    found = report(measured, 2)["memory_mib_per_launch"]
    assert found == {
        "beside the agent": {"median": 16.5, "max": 19.0},
        "harness": {"median": 10.0, "max": 10.0},
        "egress-proxy": {"median": 6.5, "max": 9.0},
        "containerd's shim, outside of the Pod": {"median": 1.0, "max": 1.0},
        "the agent's processes": {"median": 65.0, "max": 90.0},
    }


def test_at_once_is_counted_in_three_ways(measured):
    assert report(measured, 2)["at_once"] == {
        "agents between first and last call": 2,
        "calls that waited for the provider": 2,
        "agents seen running": 2,
    }


def test_figures_while_all_went_on_are_apart(measured):
    found = report(measured, 2)
    assert found["seconds_all_at_once"] == 18
    assert found["gateway_added_ms"]["all calls"]["calls"] == 4
    assert found["gateway_added_ms"]["while all agents went on"]["calls"] == 2
    assert found["busy_cores"]["while all agents went on"]["all"] == 2.0
    assert found["load_average_max"] == 1.5


PROBLEMS = {
    "none": ({}, []),
    "lost": ({"launches": 3}, ["2 launches were lost"]),
    "not passed": (
        {"passed": False, "failure_reason": "provider_quota"},
        ["two: provider_quota"],
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_makes_a_run_worthless_is_named(measured, case):
    more, want = PROBLEMS[case]
    found = measured._replace(records=[record("one"), record("two", **more)])
    assert problems(found, 2) == want


def test_agents_that_did_not_go_on_at_once_show_nothing(measured):
    found = measured._replace(spans={"one": [Span(0, 1)], "two": [Span(2, 3)]})
    assert problems(found, 2) == ["at most 1 agents at once were between their first and last call"]
    assert report(found, 2)["busy_cores"]["while all agents went on"] == {}


def test_missing_records_are_named(measured):
    assert "2 records of 3 agents" in problems(measured, 3)


def test_the_report_is_printed_with_its_budgets(measured):
    told = json.loads(json.dumps(report(measured, 2)))
    text = io.StringIO()
    Console(width=120, file=text).print(figures_table(told))
    (line,) = (each for each in text.getvalue().splitlines() if "beside the agent" in each)
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "MiB of a launch: beside the agent",
        "16.5 (at most 19.0)",
        "25",
    ]
