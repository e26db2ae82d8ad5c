"""F9: an agent gets no more out of the budget of its run than there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.gateway.launches import Identity, Launches
from securebench.gateway.run_gateway import RequestTokens, RunBudget, RunBudgetSpentError
from support.build import FakeClock, inline
from support.gateways import PROVIDER, config

pytestmark = pytest.mark.short

LIMIT = 100
REQUEST = RequestTokens(expected=40, upper_bound=60)
PODS = ("pod-1", "pod-2")

# a budget that is won back


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write at once, so that only requests without room are not sent when the gateway dies."""
    monkeypatch.setattr(asyncio, "to_thread", inline)


async def killed(folder: Path, pod: str, requests: int) -> int:
    """Send requests of a Pod at once, kill the gateway while they are in flight; return how many.

    The next call is a gateway that was started again.
    """
    launches = Launches(folder, config(provider=PROVIDER), FakeClock())
    budget, launch = RunBudget(LIMIT, launches), launches.of(Identity(pod, f"uid-of-{pod}"))
    tasks = [asyncio.create_task(budget.reserve(launch, REQUEST)) for _ in range(requests)]
    for _ in range(20):
        await asyncio.sleep(0)
    sent = [task for task in tasks if task.done() and task.exception() is None]
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(
        not isinstance(each, Exception) or isinstance(each, RunBudgetSpentError) for each in results
    )
    return len(sent)


async def sent_by_all(folder: Path) -> int:
    return sum([await killed(folder, pod, 3) for _ in range(4) for pod in PODS])


async def test_a_405_attack(tmp_path: Path) -> None:
    assert await sent_by_all(tmp_path) == 3


async def test_a_405_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object) -> None:
        """Write nothing down."""

    monkeypatch.setattr(Launches, "flush", forget)
    assert await sent_by_all(tmp_path) == 16


async def test_a_405_honest(tmp_path: Path) -> None:
    launches = Launches(tmp_path, config(provider=PROVIDER), FakeClock())
    budget = RunBudget(LIMIT, launches)
    for number in range(20):
        launch = launches.of(Identity(PODS[number % 2], f"uid-of-{PODS[number % 2]}"))
        (await budget.reserve(launch, REQUEST)).settle(5)
    assert budget.usage().tokens == LIMIT
