"""One namespace with the chart for all scenarios, and releases of their own for special ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.release import Release, release
from e2e.scenario import scenarios

VALUES = {
    "settings.bounds.workspaceBytes": 64 * 1024 * 1024,
    "settings.launch.retryBackoffSeconds": 1,
}
"""Small bounds and short waits, so that reaching them takes seconds."""


@pytest.fixture(scope="session")
def shared() -> Iterator[Release]:
    """The release in which most runs of this tier go side by side."""
    with release("sb-e2e", VALUES) as installed:
        yield installed


@pytest.fixture(scope="session")
def started(shared: Release, request: pytest.FixtureRequest) -> Release:
    """The shared release with the runs of all chosen scenarios created."""
    chosen = {
        item.callspec.params["scenario"].name
        for item in request.session.items
        if isinstance(item, pytest.Function) and "scenario" in getattr(item, "fixturenames", ())
    }
    for scenario in scenarios():
        if scenario.name in chosen:
            scenario.start(shared)
    return shared


