"""The token budget of a run: which requests it admits, and what it still knows after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from securebench.gateway.decisions import UnreachableError
from securebench.gateway.launches import Identity, Launches
from securebench.gateway.run_gateway import RequestTokens, RunBudget, RunBudgetSpentError
from securebench.protocol.gateway import RunUsage
from support.build import FakeClock
from support.gateways import PROVIDER, config
from support.relays import until

SMALL = RequestTokens(expected=10, upper_bound=40)


class Gateway:
    """A gateway's launches and budget over a folder; a second one is a restart."""

    def __init__(self, folder, limit=100):
        self.launches = Launches(folder, config(provider=PROVIDER), FakeClock())
        self.budget = RunBudget(limit, self.launches)

    def launch(self, number):
        return self.launches.of(Identity(f"pod-{number}", f"uid-{number}"))

    async def request(self, number, tokens=SMALL):
        return await self.budget.reserve(self.launch(number), tokens)

    def end(self, number, reservation, used):
        """End a request as the provider route does: first the report, then the budget."""
        launch = self.launch(number)
        relay = launch.relay
        launch.update_relay(replace(relay, input_tokens=relay.input_tokens + used))
        reservation.settle(used)


@pytest.fixture
def gateway(tmp_path):
    return Gateway(tmp_path)


async def waiting(coroutine):
    """Return a task that waits for room in the budget."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_launch_sends_one_request_while_anything_is_left(gateway):
    big = RequestTokens(expected=10**6, upper_bound=10**6)
    first, second = [await gateway.request(number, big) for number in (1, 2)]
    gateway.end(1, first, 99)
    third = await gateway.request(3, big)
    gateway.end(2, second, 1)
    for number in (1, 2, 4):
        with pytest.raises(RunBudgetSpentError):
            await gateway.request(number)
    gateway.end(3, third, 50)
    assert gateway.budget.usage() == RunUsage(150, 100)


async def test_further_requests_of_a_launch_wait_for_room(gateway):
    first, second, third = [await gateway.request(1) for _ in range(3)]
    fourth = await waiting(gateway.request(1))
    gateway.end(1, second, 5)
    fourth = await fourth
    fifth = await waiting(gateway.request(1))
    for reservation in (first, third, fourth):
        gateway.end(1, reservation, 5)
    gateway.end(1, await fifth, 5)
    assert gateway.budget.usage().tokens == 25


async def test_what_is_reserved_for_parallel_requests_is_not_given_to_other_launches(gateway):
    first, parallel = await gateway.request(1), await gateway.request(1)
    gateway.end(1, first, 70)
    other = await waiting(gateway.request(2))
    gateway.end(1, parallel, 0)
    gateway.end(2, await other, 10)


async def test_a_refusal_is_on_disk_before_it_is_answered(gateway, tmp_path):
    gateway.end(1, await gateway.request(1), 100)
    with pytest.raises(RunBudgetSpentError):
        await gateway.request(2)
    assert Gateway(tmp_path).launch(2).relay.run_budget_exhausted


async def test_those_that_wait_are_refused_when_nothing_is_left(gateway):
    first = await gateway.request(1, RequestTokens(10, 200))
    second = await waiting(gateway.request(1, RequestTokens(10, 200)))
    gateway.end(1, first, 100)
    with pytest.raises(RunBudgetSpentError):
        await second


async def test_a_request_that_is_given_up_leaves_no_reservation(gateway):
    first = await gateway.request(1)
    second = await waiting(gateway.request(1, RequestTokens(10, 200)))
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    first.settle(0)
    first.settle(0)
    assert gateway.launch(1).relay.reserved_tokens == 0
    (await gateway.request(1, RequestTokens(10, 200))).settle(0)


async def test_a_reservation_that_shrinks_makes_room(gateway):
    large = RequestTokens(expected=50, upper_bound=90)
    first, second = await gateway.request(1), await gateway.request(1, large)
    third = await waiting(gateway.request(1))
    second.shrink(SMALL)
    third = await third
    assert gateway.launch(1).relay.reserved_tokens == 3 * SMALL.expected
    second.shrink(large)
    for reservation in (first, second, third):
        gateway.end(1, reservation, 0)
    assert gateway.launch(1).relay.reserved_tokens == 0
    (await gateway.request(1, RequestTokens(10, 100))).settle(0)


async def test_an_orderly_restart_counts_what_was_used(gateway, tmp_path):
    gateway.end(1, await gateway.request(1), 60)
    await gateway.launches.flush_all()
    after = Gateway(tmp_path)
    assert after.budget.usage() == RunUsage(60, 100)


async def test_requests_of_a_gateway_that_was_killed_count_as_reserved(gateway, tmp_path):
    gateway.end(1, await gateway.request(1), 30)
    await gateway.request(1)
    await gateway.request(2)
    after = Gateway(tmp_path)
    assert after.budget.usage().tokens == 50
    after.end(1, await after.request(1), 50)
    with pytest.raises(RunBudgetSpentError):
        await after.request(2)
    assert Gateway(tmp_path).budget.usage().tokens >= 50


async def test_nothing_is_sent_that_cannot_be_written_down(gateway, monkeypatch):
    monkeypatch.setattr("securebench.gateway.launches.write_launch", fail)
    with pytest.raises(UnreachableError, match=r"volume failed: No space left"):
        await gateway.request(1)
    assert gateway.launch(1).relay.reserved_tokens == 0
    monkeypatch.undo()
    (await gateway.request(1, RequestTokens(10, 200))).settle(0)


def fail(*_):
    raise OSError(28, "No space left on device")


async def test_a_change_is_announced(gateway):
    gateway.end(1, await gateway.request(1), 7)
    await until(gateway.budget.changed.is_set)


async def test_what_a_request_used_is_on_disk_soon_after_its_end(gateway, tmp_path):
    gateway.end(1, await gateway.request(1), 90)
    await until(lambda: Gateway(tmp_path).budget.usage().tokens == 90)
