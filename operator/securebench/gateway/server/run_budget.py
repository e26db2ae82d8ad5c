"""The token budget of a run, kept over all of its launches and over restarts of the gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from typing import NamedTuple

from securebench.gateway.net.causes import Cause, UnreachableError
from securebench.gateway.server.launch import ServedLaunch
from securebench.gateway.server.registry import Launches
from securebench.protocol.gateway import RunUsage


class RunBudgetSpentError(Exception):
    """The budget of the run is used up."""


class RequestTokens(NamedTuple):
    """Tokens that one request may use.

    Attributes:
        expected: Counted as used if the gateway is killed during the request.
        upper_bound: The most that it can use; reserved for a request that is not the only one of
            its launch.
    """

    expected: int
    upper_bound: int


class RunBudget:
    """Admits requests to the provider as long as the run's budget lasts.

    The use of a request is known only when it ends. The only request of a launch is sent while
    anything is left. Further requests of the same launch are sent if there is room for the most
    that they can use, and wait otherwise. So use exceeds the budget by one request at most for each
    launch in flight, and requests wait only for others that are in flight.

    Args:
        limit: Tokens of all launches, input and output together.
        launches: Those of the run; their reports have what was used before this gateway.

    Attributes:
        changed: Set when ``usage`` may have changed.
    """

    def __init__(self, limit: int, launches: Launches) -> None:
        self._limit = limit
        self._launches = launches
        self._used = launches.tokens_used()
        self._reserved = 0
        self._in_flight: Counter[str] = Counter()
        self._room_changed = asyncio.Event()
        self.changed = asyncio.Event()

    def usage(self) -> RunUsage:
        """Return what is used of the budget; requests in flight do not count yet."""
        return RunUsage(self._used, self._limit)

    async def reserve(self, launch: ServedLaunch, tokens: RequestTokens) -> TokenReservation:
        """Wait until a request may be sent, and persist what it may use.

        Raises:
            RunBudgetSpentError: Nothing is left; the launch's report on the volume says so.
            UnreachableError: The volume failed, so that the request or its refusal could be
                forgotten.
        """
        try:
            while not self._has_room(launch, tokens):
                self._room_changed.clear()
                await self._room_changed.wait()
        except RunBudgetSpentError:
            launch.refuse_for_run_budget()
            await self._persist(launch)
            raise
        with ExitStack() as undo:
            reservation = self._admit(launch, tokens)
            undo.callback(reservation.settle, 0)
            await self._persist(launch)
            undo.pop_all()
        return reservation

    async def _persist(self, launch: ServedLaunch) -> None:
        try:
            await self._launches.flush(launch)
        except OSError as error:
            words = f"The gateway's volume failed: {error.strerror}."
            raise UnreachableError(words, Cause.UNREACHABLE) from error

    def _has_room(self, launch: ServedLaunch, tokens: RequestTokens) -> bool:
        """Return whether a request may be sent now.

        Raises:
            RunBudgetSpentError: Nothing is left.
        """
        left = self._limit - self._used
        if left <= 0:
            raise RunBudgetSpentError
        is_only = not self._in_flight[launch.identity.pod]
        return self._reserved < left if is_only else self._reserved + tokens.upper_bound <= left

    def _admit(self, launch: ServedLaunch, tokens: RequestTokens) -> TokenReservation:
        pod = launch.identity.pod
        reserved = tokens.upper_bound if self._in_flight[pod] else 0
        self._in_flight[pod] += 1
        self._reserved += reserved
        launch.reserve_tokens(tokens.expected)
        return TokenReservation(self, launch, tokens.expected, reserved)

    def release(self, tokens: int) -> None:
        """Give back tokens that were reserved for a request beside others of its launch."""
        self._reserved -= tokens
        self._room_changed.set()

    def settle(self, launch: ServedLaunch, reserved: int, used: int) -> None:
        """Count a request that has ended.

        Args:
            launch: The launch that sent it.
            reserved: What was reserved for it beside other requests of the launch.
            used: Tokens that it used.
        """
        pod = launch.identity.pod
        self._in_flight[pod] -= 1
        if not self._in_flight[pod]:
            del self._in_flight[pod]
        self._used += used
        self.release(reserved)
        self.changed.set()
        self._launches.flush_soon(launch)


class TokenReservation:
    """Tokens of the run's budget that one request may use."""

    def __init__(
        self, budget: RunBudget, launch: ServedLaunch, expected: int, reserved: int
    ) -> None:
        self._budget = budget
        self._launch = launch
        self._expected = expected
        self._reserved = reserved
        self._is_settled = False

    def shrink(self, tokens: RequestTokens) -> None:
        """Give back what is reserved beyond ``tokens``."""
        expected = min(self._expected, tokens.expected)
        reserved = min(self._reserved, tokens.upper_bound)
        self._launch.reserve_tokens(expected - self._expected)
        self._budget.release(self._reserved - reserved)
        self._expected, self._reserved = expected, reserved

    def settle(self, used: int) -> None:
        """Count the tokens that the request used; the launch's report has them. Idempotent."""
        if self._is_settled:
            return
        self._is_settled = True
        self._launch.reserve_tokens(-self._expected)
        self._budget.settle(self._launch, self._reserved, used)
