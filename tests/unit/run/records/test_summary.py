from __future__ import annotations

import pytest

from securebench.run.records.summary import RecordFacts, record_facts, run_summary
from securebench.run.state.entries import ResourceNoise
from support.records import history, record


class TestSummary:
    PASSED = RecordFacts("t1", "passed", passed=True, score=1.0, outcome="scored")
    FAILED = RecordFacts("t2", "failed", passed=False, score=0.0, outcome="agent")
    PENDING = RecordFacts("t3", "pending", passed=None, score=None, outcome=None)

    @pytest.mark.parametrize(
        ("facts", "want"),
        [
            ([], "complete"),
            ([PENDING], "pending"),
            ([PASSED, FAILED], "complete"),
            ([PASSED, PENDING], "partial"),
        ],
        ids=["empty", "nothing verified", "all verified", "some verified"],
    )
    def test_status(self, facts: list[RecordFacts], want: str) -> None:
        assert run_summary("r", facts).verification_status == want

    def test_counts(self) -> None:
        other = self.PASSED._replace(task="t4")
        found = run_summary("r", [self.PASSED, self.FAILED, self.PENDING, other])

        assert found.to_json("/out", "/out/candidates.jsonl") == {
            "run_id": "r",
            "output_dir": "/out",
            "output_path": "/out/candidates.jsonl",
            "total": 4,
            "verified": 3,
            "passed": 2,
            "score_sum": 2.0,
            "verification_status": "partial",
            "outcomes": {"agent": 1, "null": 1, "scored": 2},
            "pass_rate": {"value": 0.666667, "low": 0.20766, "high": 0.938508},
        }

    def test_lost_launches_are_there_where_there_are_some(self) -> None:
        body = run_summary("r", [], losses={"pod_lost": 2, "image_pull_failed": 1}).to_json("", "")

        assert body["lost_launches"] == {"image_pull_failed": 1, "pod_lost": 2}
        assert "lost_launches" not in run_summary("r", []).to_json("", "")

    def test_launches_that_met_a_limit_are_there_where_there_are_some(self) -> None:
        noise = {ResourceNoise.NEAR_MEMORY_LIMIT: 2, ResourceNoise.CPU_THROTTLED: 1}
        body = run_summary("r", [], noise=noise).to_json("", "")

        assert body["noisy_launches"] == {"cpu_throttled": 1, "near_memory_limit": 2}
        assert "noisy_launches" not in run_summary("r", []).to_json("", "")

    def test_what_verdicts_rest_on_is_counted_where_records_say_it(self) -> None:
        graded = [self.PASSED._replace(grading=word) for word in ("values", "tests", "values", "")]

        assert run_summary("r", graded).to_json("", "")["grading"] == {"tests": 1, "values": 2}

    def test_a_run_with_rewards_has_their_mean(self) -> None:
        facts = [
            self.PASSED._replace(score=2.5, grading="reward-file-root"),
            self.FAILED._replace(score=-0.25, grading="reward-file-root", outcome="scored"),
            self.FAILED._replace(task="t4"),
            self.PENDING._replace(grading="reward-file-root"),
        ]
        found = run_summary("r", facts).to_json("", "")

        assert found["score_sum"] == 2.25
        assert found["mean_reward"]["value"] == 0.75
        assert -0.25 <= found["mean_reward"]["low"] < 0.75 < found["mean_reward"]["high"] <= 2.5
        assert "mean_reward" not in run_summary("r", [self.PASSED]).to_json("", "")

    def test_rewards_have_few_digits_whatever_their_size(self) -> None:
        facts = [
            self.PASSED._replace(task=str(n), score=1e300 / 3, grading="reward-file")
            for n in range(3)
        ]
        found = run_summary("r", facts).to_json("", "")

        assert found["mean_reward"]["value"] == 3.33333e299

    def test_several_attempts(self) -> None:
        again = [self.PASSED, self.PASSED, self.FAILED, self.FAILED._replace(passed=True)]
        found = run_summary("r", again).to_json("/out", "/out/candidates.jsonl")

        chances = found["pass_at_k"]
        assert [(each["k"], each["tasks"], each["value"]) for each in chances] == [
            (1, 2, 0.75),
            (2, 2, 1.0),
        ]
        assert found["pass_rate"]["value"] == 0.75
        wide = found["pass_rate"]["high"] - found["pass_rate"]["low"]
        assert wide > 0.69

    def test_nothing_verified_has_no_rate(self) -> None:
        assert "pass_rate" not in run_summary("r", [self.PENDING]).to_json("/o", "/o/c")

    def test_facts_of_a_record(self) -> None:
        made = record(history())

        assert record_facts(made) == self.PASSED._replace(task=made["task_id"])

    def test_a_bool_is_no_score(self) -> None:
        made = {
            "task_id": "t",
            "verification_status": "passed",
            "passed": 1,
            "score": True,
            "outcome": "scored",
        }

        assert record_facts(made) == RecordFacts("t", "passed", None, None, "scored")
