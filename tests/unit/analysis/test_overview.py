import pytest

from securebench.analysis.results import GROUPS, overview, provenance_sentence, read_results, spread
from securebench.stats.cost import Tokens
from securebench.stats.intervals import wilson
from support.result_folders import result_folder, result_line


def figures(folder, *lines):
    return overview(read_results(result_folder(folder, lines), "r"))


def test_one_attempt_per_task(tmp_path):
    found = figures(
        tmp_path,
        result_line("a"),
        result_line("b", passed=False),
        result_line("c", passed=None, outcome="infrastructure", failure_reason="node_lost"),
    )
    assert (found.tasks, found.verified, found.passed) == (3, 2, 1)
    assert found.score == wilson(1, 2)
    assert found.pass_at_k == found.breakdowns == found.flakiest == ()
    assert found.outcomes == {"scored": 2, "infrastructure": 1}
    assert found.reasons == {"wrong_answer": 1, "node_lost": 1}


def rewarded(task_id, score, grading="reward-file"):
    made = result_line(task_id, passed=score >= 1, score=score)
    return {**made, "labels": {**made["labels"], "grading": grading}}


def test_rewards_have_a_mean_where_a_record_says_that_it_has_one(tmp_path):
    failed = result_line("c", passed=False, outcome="agent", failure_reason="candidate_missing")
    found = figures(tmp_path / "r", rewarded("a", 2.5), rewarded("b", 0.5), failed)
    assert found.mean_reward.value == 1
    assert found.score == wilson(1, 3)
    assert figures(tmp_path / "e", rewarded("a", 2.5, "exit-code")).mean_reward is None


def test_slow_are_attempts_that_were_launched(tmp_path):
    seconds = {"a": 5.0, "b": 9.0, "c": 7.0}
    found = figures(
        tmp_path,
        *(result_line(name, timing={"duration_seconds": each}) for name, each in seconds.items()),
        result_line("d", passed=None, outcome="cancelled", launches=0),
    )
    assert [entry.task_id for entry in found.slowest] == ["b", "c", "a"]
    assert (found.seconds.least, found.seconds.most) == (5.0, 9.0)


def test_many_tags_are_cut(tmp_path):
    lines = [result_line(f"t{n}", tags=["all", f"tag {n:02}"]) for n in range(GROUPS + 2)]
    (tags,) = figures(tmp_path, *lines).breakdowns
    assert (tags.by, len(tags.groups), tags.left_out) == ("tag", GROUPS, 3)
    assert tags.groups[0] == ("all", GROUPS + 2, wilson(GROUPS + 2, GROUPS + 2))


def test_several_attempts(tmp_path):
    found = figures(
        tmp_path,
        *(result_line("even", passed=number % 2 == 0, attempt=number) for number in range(1, 5)),
        *(result_line("rare", passed=number == 1, attempt=number) for number in range(1, 5)),
    )
    assert [each.k for each in found.pass_at_k] == [1, 2, 3, 4]
    assert [round(each.estimate.value, 3) for each in found.pass_at_k] == [0.375, 0.667, 0.875, 1.0]
    assert [task.task_id for task in found.flakiest] == ["even", "rare"]


def test_families_and_tokens(tmp_path):
    usage = {"requests": 1, "input_tokens": 10, "cached_tokens": 4, "output_tokens": 2}
    found = figures(
        tmp_path,
        result_line("a", task_type="repo_patch", producer_metadata={"usage": usage}),
        result_line("b", task_type="short_answer", producer_metadata={"usage": usage}),
        result_line("c", task_type="short_answer", passed=False),
    )
    (families,) = found.breakdowns
    assert families.by == "family"
    assert [(group.name, group.tasks) for group in families.groups] == [
        ("repo_patch", 1),
        ("short_answer", 2),
    ]
    assert found.tokens == Tokens(2, 20, 8, 4)
    assert found.tokens.total == 24


def test_spread():
    assert spread([2.0]) == (2.0,) * 5
    assert spread([float(each) for each in range(101)]) == (0.0, 50.0, 90.0, 99.0, 100.0)


TRUST = {
    "one condition": (
        [{"isolation": "verified", "network": "none", "grading": "values"}],
        "the first task; agents had no network; verdicts rest on tests that compared plain values",
    ),
    "mixed": (
        [
            {"isolation": "declared", "network": "egress"},
            {"isolation": "declared", "network": "none"},
        ],
        "gateway as their only way to the network (1 of 2) or no network (1 of 2).",
    ),
    "what verdicts rest on": (
        [*[{"grading": "tests"}] * 2, {"grading": "exit-code"}, {"grading": "objects"}],
        "have run (2 of 4) or the exit code of a command alone (1 of 4) or tests that went",
    ),
    "old records": ([{}], "Isolation was unknown; agents had unknown."),
}


@pytest.mark.parametrize("case", TRUST)
def test_what_a_score_rests_on(case, tmp_path):
    labels, said = TRUST[case]
    lines = [result_line(f"t{number}", labels=each) for number, each in enumerate(labels)]
    assert said in provenance_sentence(read_results(result_folder(tmp_path, lines), "r").provenance)
