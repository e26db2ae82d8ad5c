"""Gates on rewards: what has none is lost, and never decides."""

import pytest

from securebench.suite.api import Gates
from securebench.suite.gates import JudgedCell, judge, read_results
from securebench.suite.progress import suite_run
from support.result_folders import result_line


def rewarded(*scores, grading="reward-file", **changes):
    for number, score in enumerate(scores):
        made = result_line(f"t{number}", passed=None if score is None else score >= 1)
        labels = {**made["labels"], "grading": grading}
        yield {**made, "labels": labels} | ({} if score is None else {"score": score}) | changes


def status(gates, *records):
    cell = JudgedCell("c", read_results("run", records), None)
    return judge(Gates.parse(gates), [cell])


CASES = {
    "enough": ("0.5", (1.0, 0.25), "reward-file", "True"),
    "exactly": ("0.625", (1.0, 0.25), "reward-file-root", "True"),
    "too little": ("0.7", (1.0, 0.25), "reward-file", "False"),
    "beyond 0 and 1": ("-3", (-9.0, 4.0), "reward-file", "True"),
    "no rewards": ("0.5", (1.0, 1.0), "exit-code", "Unknown"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_least_mean_reward(name):
    least, scores, grading, want = CASES[name]
    found = status({"minMeanReward": least}, *rewarded(*scores, grading=grading))
    assert found.status == want
    assert found.message.startswith("minMeanReward: ")


LOST = {
    "no reward": ("verifier", "reward_missing", "False"),
    "a broken one": ("verifier", "reward_invalid", "False"),
    "a script that hangs": ("verifier", "verifier_timeout", "False"),
    "a row that cannot be checked": ("verifier", "verifier_configuration", "True"),
}


@pytest.mark.parametrize("name", LOST)
def test_an_attempt_without_a_reward_is_lost(name):
    outcome, reason, want = LOST[name]
    lost = rewarded(None, outcome=outcome, failure_reason=reason)
    kept = [{**each, "task_id": f"k{number}"} for number, each in enumerate(rewarded(1.0, 1.0))]
    assert status({"maxLostShare": "0.1"}, *lost, *kept).status == want


def test_the_status_of_a_cell_has_its_mean_reward():
    shown = {"value": "0.5", "low": "-1", "high": "2"}
    body = {
        "metadata": {"name": "r", "uid": "u"},
        "status": {"score": {"passed": 0, "meanReward": shown}},
    }
    assert suite_run(body).mean_reward == shown
    assert suite_run({**body, "status": {}}).mean_reward == {}
