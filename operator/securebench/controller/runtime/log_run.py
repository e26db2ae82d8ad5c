"""Which run a log record is about: every record of a run's task carries its name and uid."""

from __future__ import annotations

import logging
from contextvars import ContextVar

_RUN: ContextVar[tuple[str, str]] = ContextVar("run", default=("", ""))


def log_as_run(name: str, uid: str) -> None:
    """Name the run in all records that this task, its children and their threads log."""
    _RUN.set((name, uid))


class RunFilter(logging.Filter):
    """Adds ``run`` and ``run_uid`` to records that are about a run."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        name, uid = _RUN.get()
        if uid:
            record.run, record.run_uid = name, uid
        return True
