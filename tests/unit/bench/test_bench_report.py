import io
import json

import pytest
from rich.console import Console

from bench.cpu import MACHINE, OPERATOR
from bench.report import OURS, Rounds, Sample, cpu_table, medians, ratio_table, request_table
from bench.spread import Spread, ratios, spread


def sample(seconds, working=0.0, cpu=1.0, requests=3.0):
    spent = {MACHINE: cpu, OPERATOR: 0.03}
    return Sample(seconds, working or seconds, spent, {"create Pod": requests})


@pytest.fixture
def rounds():
    return Rounds(
        "text",
        8,
        32,
        {
            "two": [sample(1.0), sample(2.0), sample(4.0)],
            OURS: [sample(3.0, 2.0), sample(4.0, 3.0), sample(6.0, 5.0)],
        },
    )


def test_a_spread_is_the_median_and_the_ends():
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([1.0, 2.0]) == Spread(1.5, 1.0, 2.0)
    assert spread([1.0, 2.0]).text() == "1.50 (1.00 to 2.00)"


def test_ratios_are_taken_round_by_round():
    """The ratio of the medians would be 2.0 as well, the one of the sums 1.86."""
    assert ratios([3.0, 4.0, 6.0], [1.0, 2.0, 4.0]) == Spread(2.0, 1.5, 3.0)


def test_a_round_without_its_floor_is_no_ratio():
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0])


def test_rounds_have_both_ratios(rounds):
    assert rounds.ratio("two") == Spread(2.0, 1.5, 3.0)
    assert rounds.working_ratio("two") == Spread(1.5, 1.25, 2.0)


def test_medians_count_what_a_round_lacks_as_nothing():
    found = medians([{"a": 1.0}, {"a": 3.0, "b": 9.0}, {"a": 2.0}])
    assert found == {"a": 2.0, "b": 0.0}


def test_the_object_holds_every_round(rounds):
    found = json.loads(json.dumps(rounds.as_json()))
    assert found["ratio"] == {"two": {"median": 2.0, "low": 1.5, "high": 3.0}}
    assert found["seconds_per_task"] == {"two": [1.0, 2.0, 4.0], OURS: [3.0, 4.0, 6.0]}
    assert found["requests_per_task"][OURS] == {"create Pod": 3.0}


def shown(table):
    text = io.StringIO()
    Console(width=200, file=text).print(table)
    return text.getvalue()


def test_the_ratio_comes_first(rounds):
    lines = shown(ratio_table([rounds], OPERATOR)).splitlines()
    (line,) = (line for line in lines if "32 text" in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[:4] == ["32 text", "8", "2.00 (1.50 to 3.00)", "1.50 (1.25 to 2.00)"]
    assert cells[-2:] == ["3.0", "30"]


def test_seconds_and_requests_stand_beside_each_other(rounds):
    assert "operator" in shown(cpu_table(rounds))
    assert "create Pod" in shown(request_table([rounds]))
