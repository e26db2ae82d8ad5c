"""One namespace with the chart, in which the runs of all scenarios go side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdist.remote import Producer

from e2e.scenario import Starter, scenarios
from support.lanes import SHARED, LaneScheduling, lane
from support.release import Release, release

VALUES = {
    "settings.bounds.workspaceBytes": 64 * 1024 * 1024,
    "settings.launch.retryBackoffSeconds": 1,
}
"""Small bounds and short waits, so that reaching them takes seconds."""

AT_ONCE = 12
"""Scenarios that begin before the first test; more would keep two cores from meeting limits."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling:
    """Let each lane be a process."""
    return LaneScheduling(config, log)


@pytest.fixture(scope="session")
def shared() -> Iterator[Release]:
    """The release in which most runs of this tier go."""
    with release("sb-e2e", VALUES) as installed:
        yield installed


@pytest.fixture(scope="session")
def starter(request: pytest.FixtureRequest, shared: Release) -> Starter:
    """What creates the runs of the chosen scenarios; the first of them are under way."""
    ids = {item.name for item in request.session.items}
    chosen = [item for item in scenarios() if f"test_scenario[{item.name}]" in ids]
    made = Starter(shared, chosen)
    for _ in range(AT_ONCE):
        made.start_next()
    return made


@pytest.fixture(autouse=True)
def _side_by_side(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let scenarios run beside the tests of every kind: a further one begins after each test."""
    starts = lane(request.node.nodeid) == SHARED and _has_scenarios(request.session)
    made: Starter | None = request.getfixturevalue("starter") if starts else None
    yield
    if made is not None:
        made.start_next()


def _has_scenarios(session: pytest.Session) -> bool:
    return any(item.name.startswith("test_scenario[") for item in session.items)
