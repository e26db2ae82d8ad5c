"""Counts the records of a run as they arrive, and reports them."""

from __future__ import annotations

from pathlib import Path

from securebench.client.output import shown_path
from securebench.client.progress import Event, Reporter, record_events
from securebench.run.records.reading import Record, RecordKey, record_key


class RecordProgress:
    """Progress of one run.

    Args:
        reporter: Receives progress events.
        path: Where the records are.
        total: Attempts that are known to belong to the run.

    Attributes:
        total: Attempts of the run, those that were kept included.
        kept: Records that were there before.
    """

    def __init__(self, reporter: Reporter, path: Path, total: int) -> None:
        self.total = total
        self.kept: frozenset[RecordKey] = frozenset()
        self._reporter = reporter
        self._path = path
        self._done = 0

    def expect(self, total: int) -> None:
        """Note how many attempts there are at least."""
        self.total = max(self.total, total)

    def resume(self, kept: frozenset[RecordKey]) -> None:
        """Report that so many records are there already."""
        self.kept = kept
        self._done = len(kept)
        self._reporter.report(
            Event.RESUME,
            completed=self._done,
            remaining=max(0, self.total - self._done),
            output_path=shown_path(self._path),
        )

    def add(self, record: Record) -> None:
        """Report a record, unless it was there before."""
        if record_key(record) in self.kept:
            return
        self._done += 1
        self.expect(self._done)
        for event, fields in record_events(record, index=self._done, total=self.total):
            self._reporter.report(event, **fields)
