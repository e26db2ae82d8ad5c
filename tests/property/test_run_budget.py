"""However launches send requests in parallel and gateways are killed, a run keeps its budget."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.gateway.launches import ServedLaunch
from securebench.gateway.run_gateway import RequestTokens, RunBudget, RunBudgetSpentError
from securebench.protocol.gateway import GatewayLimits, LaunchReport, RelayReport
from support.build import FakeClock

LAUNCHES = 3
MOST = 20
EXPECTED = 12
LARGE = RequestTokens(EXPECTED, MOST)
SMALL = RequestTokens(EXPECTED // 2, MOST // 2)
LIMIT = 100


class Disk:
    """Launches whose reports are as they were flushed last, in place of ``Launches``."""

    def __init__(self):
        self.reports = {}
        self.restart()

    def restart(self):
        self.launches = [self._launch(number) for number in range(LAUNCHES)]

    def _launch(self, number):
        first = LaunchReport(f"pod-{number}", "uid", relay=RelayReport())
        report = self.reports.get(f"pod-{number}", first)
        return ServedLaunch(report, GatewayLimits(), FakeClock())

    def tokens_used(self):
        return sum(launch.relay.budget_tokens for launch in self.launches)

    async def flush(self, launch):
        self.flush_soon(launch)

    def flush_soon(self, launch):
        self.reports[launch.identity.pod] = launch.report


class World:
    """Requests that begin, wait, end and are lost with their gateway.

    Attributes:
        used: Tokens that the provider served.
        beyond: Those that requests used beyond their estimates when their gateway was killed.
        refused: Numbers of launches that were refused a request.
    """

    def __init__(self):
        self.disk = Disk()
        self.budget = RunBudget(LIMIT, self.disk)
        self.requests = []
        self.small = set()
        self.used = 0
        self.beyond = 0
        self.refused = set()

    def begin(self, number):
        coroutine = self.budget.reserve(self.disk.launches[number], LARGE)
        self.requests.append((number, asyncio.create_task(coroutine)))

    def admitted(self):
        refused = [
            (number, task)
            for number, task in self.requests
            if task.done() and isinstance(task.exception(), RunBudgetSpentError)
        ]
        self.refused |= {number for number, _ in refused}
        self.requests = [each for each in self.requests if each not in refused]
        return [each for each in self.requests if each[1].done()]

    def shrink(self, choice):
        """Let a request turn out to be small."""
        if admitted := self.admitted():
            _, task = admitted[choice % len(admitted)]
            task.result().shrink(SMALL)
            self.small.add(task)

    def bounds(self, task):
        return SMALL if task in self.small else LARGE

    def end(self, choice, used):
        admitted = self.admitted()
        if not admitted:
            return
        number, task = admitted[choice % len(admitted)]
        self.requests.remove((number, task))
        used = min(used, self.bounds(task).upper_bound)
        launch = self.disk.launches[number]
        total = launch.relay.output_tokens + used
        launch.update_relay(replace(launch.relay, output_tokens=total))
        task.result().settle(used)
        self.used += used

    async def kill(self, used):
        """Kill the gateway: requests in flight have used something that nobody has counted."""
        for _, task in self.admitted():
            bounds = self.bounds(task)
            lost = min(used, bounds.upper_bound)
            self.used += lost
            self.beyond += max(0, lost - bounds.expected)
        for _, task in self.requests:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.requests), return_exceptions=True)
        self.requests = []
        self.disk.restart()
        self.budget = RunBudget(LIMIT, self.disk)

    async def finish(self):
        """End all requests with the most that they can use."""
        while self.requests:
            await settled()
            admitted = self.admitted()
            assert admitted or not self.requests, "a request waits although none is in flight"
            self.end(0, MOST)


async def settled():
    """Return when every request that has room has been admitted."""
    for _ in range(6):
        await asyncio.sleep(0)


STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, LAUNCHES - 1)),
    st.tuples(st.just("end"), st.integers(0, 50), st.integers(0, MOST)),
    st.tuples(st.just("shrink"), st.integers(0, 50)),
    st.tuples(st.just("flush"), st.integers(0, LAUNCHES - 1)),
    st.tuples(st.just("kill"), st.integers(0, MOST)),
)


async def followed(steps):
    world = World()
    for name, *arguments in steps:
        match name:
            case "begin":
                world.begin(*arguments)
            case "end":
                world.end(*arguments)
            case "shrink":
                world.shrink(*arguments)
            case "flush":
                await world.disk.flush(world.disk.launches[arguments[0]])
            case "kill":
                await world.kill(*arguments)
        await settled()
    await world.finish()
    return world


@settings(deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_use_exceeds_the_budget_by_one_request_for_each_launch_at_most(steps):
    with asyncio.Runner() as runner:
        world = runner.run(followed(steps))
    assert world.used <= LIMIT + LAUNCHES * MOST + world.beyond
    assert world.used <= world.budget.usage().tokens + world.beyond


@settings(deadline=None)
@given(st.lists(STEPS, min_size=30, max_size=60))
def test_no_refusal_is_forgotten(steps):
    with asyncio.Runner() as runner:
        world = runner.run(followed(steps))
    reports = world.disk.reports
    assert all(reports[f"pod-{each}"].relay.run_budget_exhausted for each in world.refused)


def test_a_killed_gateway_forgets_only_what_is_beyond_the_estimates():
    kills = [("begin", 0), ("begin", 1), ("begin", 2), ("kill", MOST)] * 3
    with asyncio.Runner() as runner:
        world = runner.run(followed(kills))
    assert (world.used, world.budget.usage().tokens) == (9 * MOST, 9 * EXPECTED)


def test_a_budget_is_used_to_its_end():
    steps = [("begin", 0), ("end", 0, MOST)] * 20
    with asyncio.Runner() as runner:
        assert runner.run(followed(steps)).used == LIMIT
