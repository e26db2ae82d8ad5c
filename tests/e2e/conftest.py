"""One namespace with the chart, in which the runs of all scenarios go side by side."""

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
    """The release in which most runs of this tier go."""
    with release("sb-e2e", VALUES) as installed:
        yield installed


@pytest.fixture(scope="session", autouse=True)
def _started(request: pytest.FixtureRequest) -> None:
    """Create the runs of all chosen scenarios before the first test of any kind."""
    ids = {item.name for item in request.session.items}
    chosen = [item for item in scenarios() if f"test_scenario[{item.name}]" in ids]
    if chosen:
        installed: Release = request.getfixturevalue("shared")
        for scenario in chosen:
            scenario.start(installed)
