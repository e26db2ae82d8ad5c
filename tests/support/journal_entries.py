"""A journal's entries, one of each kind."""

from __future__ import annotations

import os
from pathlib import Path

from securebench.run.api.field_types import Outcome
from securebench.run.state.attempts import (
    CommandReport,
    Finish,
    PodFacts,
    ProducerNetwork,
    StreamInfo,
    Usage,
)
from securebench.run.state.entries import (
    CandidateKept,
    Finished,
    IsolationResult,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)
from support.build import (
    HARNESS,
    KEY,
    NOW,
    lost_launch,
    production,
    sealed,
    verification,
)

UID = "uid"
PRODUCTION = production(
    command=CommandReport(exit_code=3, timed_out=True, duration_seconds=1.25, error="é\n\x00"),
    facts=PodFacts(
        image_id="image", node="node", user_namespace=True, started_at=NOW, finished_at=NOW + 0.125
    ),
    stdout=StreamInfo(7, truncated=True),
    problem="oom_killed",
)
ENTRIES = (
    RunBound("uid", "sha256:plan"),
    Opened(1, NOW + 0.1),
    IsolationResult(verified=False, user_namespaces=True, message="reached: dns", declared=True),
    IsolationResult(
        verified=True, user_namespaces=True, message="closed: dns", node_reachable=True
    ),
    LaunchBegun(HARNESS, NOW),
    LaunchLost(lost_launch()),
    Produced(KEY, PRODUCTION),
    Produced(KEY, production(candidate=None)),
    Produced(KEY, production(candidate=sealed(file=None, problem="candidate_missing"))),
    Verified(KEY, verification(metadata={"a": [1, None, 2.5, {"b": True}]}, problem="x")),
    Finished(
        Finish(KEY, Outcome.AGENT, "r", "p", "m", passed=False, metadata={"k": ["v"]}),
        "a" * 64,
        NOW,
    ),
    Kept(Finish(KEY, Outcome.NOT_VERIFIED), "b" * 64, "earlier"),
    CandidateKept(
        KEY, PRODUCTION, NOW, Usage(1, 2, 3, 4), ProducerNetwork(verified=True), "earlier"
    ),
    RunEnded("Completed", "1 of 1 passed", NOW),
)


def append_bytes(path: Path, data: bytes) -> None:
    """Write behind the end of a file, as a process that is killed within a line leaves it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
