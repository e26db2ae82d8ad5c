from __future__ import annotations

import pytest

from securebench.run.records.summary import RecordFacts, record_facts, run_summary
from support.records import history, record


class TestSummary:
    PASSED = RecordFacts("passed", passed=True, score=1.0, outcome="scored")
    FAILED = RecordFacts("failed", passed=False, score=0.0, outcome="agent")
    PENDING = RecordFacts("pending", passed=None, score=None, outcome=None)

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
        found = run_summary("r", [self.PASSED, self.FAILED, self.PENDING, self.PASSED])

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
        }

    def test_lost_launches_are_there_where_there_are_some(self) -> None:
        body = run_summary("r", [], losses={"pod_lost": 2, "image_pull_failed": 1}).to_json("", "")

        assert body["lost_launches"] == {"image_pull_failed": 1, "pod_lost": 2}
        assert "lost_launches" not in run_summary("r", []).to_json("", "")

    def test_facts_of_a_record(self) -> None:
        assert record_facts(record(history())) == self.PASSED

    def test_a_bool_is_no_score(self) -> None:
        made = {"verification_status": "passed", "passed": 1, "score": True, "outcome": "scored"}

        assert record_facts(made) == RecordFacts("passed", None, None, "scored")
