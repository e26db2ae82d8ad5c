"""Files of a run on the results volume.

What an agent prints is a file beside a launch's streams, for those who watch it work: the courier
writes it, the operator's Pod reads it to a tester; nothing is judged by it.
"""

from __future__ import annotations

from typing import Final

from securebench.sizes import MIB

RECORD = "record.json"
CANDIDATES = "candidates.jsonl"
SUMMARY = "summary.json"
RUN = "run.json"
JOURNAL = "journal.jsonl"
FINAL_STATUS = "status.json"
PARKED = "parked.json"
LAUNCH_WAITS = "launch-waits.json"
"""What launches of the run wait for, for those who watch it; no decision depends on it."""
KEEP = "KEEP"
"""A file of this name in the folder of a run keeps it from retention, whatever its content."""
EGRESS = "egress.jsonl"
ATTEMPT_LIST = "attempts.jsonl"
STATEMENT = "statement.dsse.json"
STARTS = "starts.jsonl"
"""Every run that was started on the volume; it lies beside the folders of the runs."""


LIVE_OUTPUT: Final = "live-stdout"
"""Name of the file."""

LIVE_FILES: Final = {"stdout": LIVE_OUTPUT, "stderr": "live-stderr"}
"""Names of the files of both streams."""

LIVE_BYTES: Final = MIB
"""Most bytes of a file; what comes later is in the task's record."""
