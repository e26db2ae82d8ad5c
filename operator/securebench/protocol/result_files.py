"""Names of the files that a run leaves on the results volume."""

from __future__ import annotations

RECORD = "record.json"
CANDIDATES = "candidates.jsonl"
SUMMARY = "summary.json"
RUN = "run.json"
JOURNAL = "journal.jsonl"
FINAL_STATUS = "status.json"
EGRESS = "egress.jsonl"
