from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.client.run_start import Binding, left_out_lines
from securebench.run.records.reading import record_key

BINDING = Binding("r", "sha256:p", "sha256:h", "1")


def record(task_id: str, **changes: object) -> dict[str, object]:
    return {
        **BINDING._asdict(),
        "task_id": task_id,
        "attempt": 1,
        "verification_status": "passed",
        "outcome": "scored",
        **changes,
    }


LEDGER = {record_key(item): item for item in (record("a"), record("b"))}


def line(item: object) -> bytes:
    return json.dumps(item).encode() + b"\n"


@pytest.mark.parametrize(
    ("bad", "want"),
    [
        (b'{"task_id": "\xff"}\n', "damaged: not UTF-8"),
        (line(record("b"))[:-1] + b"\0\n", "damaged: NUL bytes"),
        (b"nonsense\n", "damaged: not JSON"),
        (b"[" * 100_000 + b"\n", "damaged: not JSON"),
        (line(record("b")).replace(b"{", b'{"attempt": 2, ', 1), "damaged: not JSON"),
        (b"[]\n", "damaged: not an object"),
        (line(record("b"))[:20], "damaged: cut line"),
        (line({"task_id": "b"}), "foreign: without run_id, pack_digest, harness_digest, "),
        (line(record("b", pack_digest="sha256:x")), "foreign: of another run: other pack digest"),
        (line(record("b", run_id="x")), "foreign: of another run: other run id"),
        (line(record("z")), "foreign: unknown task z"),
        (line(record("b", attempt=2)), "foreign: unknown task b"),
        (line(record("a")), "foreign: second line of task a"),
        (line(record("b", outcome="agent")), "foreign: differs from the record of task b on the"),
    ],
)
def test_every_line_that_does_not_count_is_named(tmp_path: Path, bad: bytes, want: str) -> None:
    path = tmp_path / "candidates.jsonl"
    path.write_bytes(line(record("a")) + bad)
    (left_out,) = left_out_lines(path, BINDING, LEDGER)
    assert left_out.line == 2
    assert f"{left_out.flaw}: {left_out.reason}".startswith(want)


def test_lines_as_on_the_volume_count(tmp_path: Path) -> None:
    path = tmp_path / "candidates.jsonl"
    assert left_out_lines(path, BINDING, LEDGER) == ()
    path.write_bytes(line(record("b")) + line(record("a"))[:-1])
    assert left_out_lines(path, BINDING, LEDGER) == ()
