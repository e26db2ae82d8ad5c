from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import TaskLimits
from securebench.run.records.record import RecordTexts
from securebench.run.records.record_line import cut, record_line
from securebench.run.state.attempts import CommandReport
from support.manifest_samples import digest
from support.records import PRODUCTION, VALIDATOR, failed, history, record


class TestLine:
    def test_form(self) -> None:
        line = b"".join(record_line({"b": "ä", "a": [1, 2]}, TaskLimits()))

        assert line == b'{"a": [1, 2], "b": "\\u00e4"}'

    def big(self, **changes: Any) -> dict[str, Any]:
        texts = RecordTexts(
            producer_stdout="o" * 300_000,
            producer_stderr="small",
            verifier_stdout="ä" * 100_000,
            candidate="c" * 200_000,
        )
        return {**record(history(), texts=texts), **changes}

    def shortened(self, made: dict[str, Any], bound: int) -> dict[str, Any]:
        line = b"".join(record_line(made, TaskLimits(record_bytes=bound)))
        assert len(line) < bound
        result: dict[str, Any] = json.loads(line)
        VALIDATOR.validate(result)
        return result

    def test_a_line_that_fits_is_whole(self) -> None:
        made = self.big()

        assert json.loads(b"".join(record_line(made, TaskLimits()))) == made

    def test_outputs_go_first(self) -> None:
        found = self.shortened(self.big(), 800_000)

        assert found["record_truncated"] is True
        assert len(found["producer_stdout"].encode()) < 66_000
        assert "[securebench: 234464 of 300000 bytes omitted]" in found["producer_stdout"]
        assert found["producer_metadata"]["stdout_bytes"] == 300_000
        assert found["producer_metadata"]["stdout_truncated"] is True
        assert found["producer_stderr"] == "small"
        assert found["verifier_stdout"].startswith("ää")
        assert found["verifier_metadata"]["candidate_answer_truncated"] is True
        assert found["candidate_text"] == "c" * 200_000

    def test_the_real_size_survives_a_second_cut(self) -> None:
        made = self.big()
        made["producer_metadata"] = {
            **made["producer_metadata"],
            "stdout_truncated": True,
            "stdout_bytes": 9_000_000,
        }
        found = self.shortened(made, 800_000)

        assert "of 9000000 bytes omitted]" in found["producer_stdout"]
        assert found["producer_metadata"]["stdout_bytes"] == 9_000_000

    def test_public_values_go_second(self) -> None:
        summary = [
            {"name": "q", "visibility": "public", "kind": "text", "value": "q" * 200_000},
            {"name": "a", "visibility": "hidden", "kind": "text", "redacted": True},
        ]
        found = self.shortened(self.big(resource_summary=summary), 700_000)

        assert found["resource_summary"] == [
            {**summary[0], "value": {"omitted": True, "bytes": 200_002}},
            summary[1],
        ]
        assert found["candidate_text"] == "c" * 200_000

    def test_the_candidate_goes_last(self) -> None:
        found = self.shortened(self.big(), 400_000)

        assert found["candidate_text"] is None
        assert found["producer_metadata"]["candidate_sha256"] == digest("9")

    def test_outputs_of_a_record_without_verifier(self) -> None:
        finish = failed(Outcome.AGENT, "producer_timeout", "producer")
        production = replace(PRODUCTION, command=CommandReport(timed_out=True))
        past = history(production=production, verification=None, finish=finish)
        made = record(past, texts=RecordTexts(producer_stdout="o" * 300_000))
        found = self.shortened(made, 200_000)

        assert len(found["producer_stdout"]) < 66_000
        assert "verifier_metadata" not in found

    def test_what_still_does_not_fit_has_no_outputs_and_no_lists(self) -> None:
        made = self.big(failure_message="m" * 90_000)
        lists = {"candidate_patch_paths": ["x" * 60_000] * 300, "note": "n" * 20_000}
        made["verifier_metadata"] = {**made["verifier_metadata"], **lists}
        found = json.loads(b"".join(record_line(made, TaskLimits(record_bytes=40_000))))

        assert found["record_truncated"] is True
        assert found["passed"] is True
        assert found["failure_message"] == "m" * 1024
        assert found["resource_summary"] == []
        assert (found["producer_stdout"], found["verifier_stdout"]) == ("", "")
        assert found["verifier_metadata"]["candidate_patch_paths"] == []
        assert found["verifier_metadata"]["note"] == "n" * 1024
        assert found["verifier_metadata"]["verifier"] == "short_answer"
        assert {name: found[name] for name in ("labels", "digests")} == {
            name: made[name] for name in ("labels", "digests")
        }

    def test_a_record_is_written_however_small_the_bound(self) -> None:
        line = b"".join(record_line(self.big(), TaskLimits(record_bytes=1)))

        assert json.loads(line)["record_truncated"] is True

    def test_bytes_are_the_same_text(self) -> None:
        text = 'a"\x01\u00e4\U0001f600' * 30_000
        plain = record_line(self.big(candidate_patch=text), TaskLimits())
        data = record_line(self.big(candidate_patch=text.encode()), TaskLimits())

        assert b"".join(plain) == b"".join(data)

    def test_cuts_keep_characters_whole(self) -> None:
        text = cut("äöü" * 10, 9, 60)

        assert text == "äö\n[securebench: 52 of 60 bytes omitted]\nöü"
