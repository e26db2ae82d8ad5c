"""The operator with a clock at its decisions: ``python -m scale.timed_operator SETTINGS TOOLS``.

It is the operator as its Pod starts it, but for two things: settings and the programs of task
containers come from the folders that are named, and each decision is timed. Nothing of the tests'
own tools is imported, as its memory is measured.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from unittest import mock

from prometheus_client import Counter, Histogram

from securebench.controller import handlers, process, run_loop
from securebench.controller.settings import load_settings
from securebench.run.decide.decision_cache import DecisionCache
from securebench.run.decide.reconcile import Controls, ObservedState, RunDecision, reconcile

DECISION = "scale_decision_seconds"
CHANGES = "scale_decision_changes"
EVENT, WHOLE = "event", "whole"


class Timer:
    """Times decisions by CPU, and counts the changes that they take in."""

    def __init__(self) -> None:
        self._seconds = Histogram(
            DECISION,
            "CPU seconds of one decision, by a look at what changed or at the whole run.",
            ("look",),
            buckets=(0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5),
        )
        self._changes = Counter(CHANGES, "Attempts and Pods that such looks at changes were about.")

    def reconcile(
        self, observed: ObservedState, controls: Controls, cache: DecisionCache
    ) -> RunDecision:
        """Decide."""
        began = time.thread_time()
        decision = reconcile(observed, controls, cache)
        changes = observed.changes
        look = WHOLE if changes is None else EVENT
        self._seconds.labels(look).observe(time.thread_time() - began)
        if changes is not None:
            self._changes.inc(len(changes.attempts) + len(changes.pods))
        return decision


def main() -> None:
    """Be the operator."""
    path, tools = Path(sys.argv[1]), Path(sys.argv[2])
    with (
        mock.patch.object(run_loop, "reconcile", Timer().reconcile),
        mock.patch.object(process, "TOOLS_SOURCE", tools),
        mock.patch.object(handlers, "load_settings", partial(load_settings, path=path)),
    ):
        handlers.run_operator()


if __name__ == "__main__":
    main()
