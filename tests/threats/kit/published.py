"""What people see who may not see results."""

from __future__ import annotations

from support.release import Release, condition
from threats.kit.cells import text


def published(release: Release, run: str) -> bytes:
    """Return status, events and summary of a run, and the operator's log, as one text."""
    shown = [
        text(release.get("benchmarkrun", run)["status"]),
        release.kubectl("get", "events", "-o", "json").encode(),
        release.kubectl("logs", "securebench-0").encode(),
    ]
    if condition(release.get("benchmarkrun", run))["reason"] != "PackInvalid":
        shown.append(release.file(run, "summary.json"))
    return b"\n".join(shown)
