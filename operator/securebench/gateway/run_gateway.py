"""What all connections of a gateway share: the run's limits, its key, and how to dial.

``BodyMemory`` limits concurrent requests to the provider by the memory of their bodies.
``RunBudget`` holds the token budget of the run over all of its launches and over restarts of the
gateway. A ``StateFile`` reports to the operator which launches wait, and the tokens of the run.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import certifi

from securebench.agents.providers.endpoint import is_listed
from securebench.clock import Clock, SystemClock
from securebench.errors import ConfigError
from securebench.files import replace_file
from securebench.gateway.decisions import Cause, UnreachableError
from securebench.gateway.dial import Dialer, is_inside, is_public
from securebench.gateway.launches import Launches, ServedLaunch
from securebench.gateway.streams import Stream
from securebench.protocol.gateway import (
    GatewayConfig,
    ProviderConfig,
    ProviderWaits,
    RunUsage,
    encode,
)
from securebench.sizes import KIB, MIB

logger = logging.getLogger(__name__)


_BODIES_BYTES: Final = 64 * MIB
"""Total over all launches; while it is decoded, a body briefly takes several times its size."""
SMALL_BYTES: Final = 256 * KIB
"""Bodies up to this size are processed in the event loop, within a few milliseconds."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Turn:
    """Serialises the start of a launch's requests.

    Attributes:
        reading: Held while a body is read, so that a launch that sends slowly occupies memory for
            only one body, however many connections it opens.
        is_free: Cleared while the requests in flight might use up the launch's budget.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.is_free = asyncio.Event()
        self.is_free.set()
        self._reserved = 0

    def reserve(self, tokens: int, left: int | None) -> None:
        """Adjust the tokens that requests in flight may use.

        Args:
            tokens: The change; negative at the end of a request.
            left: Remaining budget without them; None without a budget. When nothing is left, the
                next request is refused, not delayed.
        """
        self._reserved += tokens
        if left is not None and 0 < left <= self._reserved:
            self.is_free.clear()
        else:
            self.is_free.set()


class BodyMemory:
    """A memory budget for request bodies, in first-come, first-served order.

    Args:
        size_bytes: Total budget.
    """

    def __init__(self, size_bytes: int = _BODIES_BYTES) -> None:
        self._size = size_bytes
        self._used = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._processing = asyncio.Lock()
        self._turns: WeakKeyDictionary[ServedLaunch, Turn] = WeakKeyDictionary()

    def turn(self, launch: ServedLaunch) -> Turn:
        """Return the turn that serialises the requests of a launch."""
        return self._turns.setdefault(launch, Turn())

    @asynccontextmanager
    async def reader(self, launch: ServedLaunch) -> AsyncIterator[None]:
        """Wait until a launch may send its next request; read the body inside this context."""
        turn = self.turn(launch)
        async with turn.reading:
            await turn.is_free.wait()
            yield

    async def process(
        self,
        size_bytes: int,
        function: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        """Apply a pure function to a body; large bodies go to a thread, one at a time."""
        if size_bytes <= SMALL_BYTES:
            return function(*arguments, **named)
        async with self._processing:
            return await asyncio.to_thread(function, *arguments, **named)

    async def reserve(self, size_bytes: int) -> Reservation:
        """Wait for memory; a body larger than the whole budget gets all of it."""
        size = min(size_bytes, self._size)
        async with self._turn:
            while self._used + size > self._size:
                self._freed.clear()
                await self._freed.wait()
            self._used += size
        return Reservation(self, size)

    def free(self, size_bytes: int) -> None:
        """Return reserved bytes to the budget."""
        self._used -= size_bytes
        self._freed.set()


class Reservation:
    """Memory reserved for one body; ``release`` is idempotent."""

    def __init__(self, memory: BodyMemory, size_bytes: int) -> None:
        self._memory = memory
        self._size = size_bytes

    def release(self) -> None:
        """Return the memory to the budget."""
        size, self._size = self._size, 0
        if size:
            self._memory.free(size)


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


_KEY_BYTES = 4096
"""Maximum size of a provider's key."""


@dataclass
class RunGateway:
    """The gateway of a run.

    Attributes:
        config: Written by the operator.
        dialer: Connects to hosts that agents ask for.
        provider_dialer: Connects to the provider, with a resolver of its own.
        clock: Wall clock, for the log.
        monotonic: Monotonic clock in seconds, for durations.
        bodies: Memory budget for request bodies to the provider.
        run_budget: Token budget of the run, or None.
        answered_models: Models that the provider answered in any launch of the run.
    """

    config: GatewayConfig
    dialer: Dialer
    provider_dialer: Dialer
    clock: Clock = field(default_factory=SystemClock)
    monotonic: Callable[[], float] = time.monotonic
    bodies: BodyMemory = field(default_factory=BodyMemory)
    run_budget: RunBudget | None = None
    answered_models: set[str] = field(default_factory=set)

    def is_listed(self, host: str) -> bool:
        """Return whether a canonical host or a parent domain is on the allow-list."""
        return is_listed(host, self.config.domains)

    async def dial(self, launch: ServedLaunch, host: str, port: int) -> Stream:
        """Resolve a name once, check all its addresses and connect to one of them.

        Args:
            launch: Its limit on concurrent look-ups applies, so that launches share them fairly.
            host: Canonical name; the caller has checked the allow-list.
            port: Port of the target.

        Raises:
            RefusedError: 403, an address of the name is not public.
            UnreachableError: 502, no address or no connection.
        """
        return await self.dialer.dial(launch.lookups, host, port, None)

    async def dial_provider(self, launch: ServedLaunch, provider: ProviderConfig) -> Stream:
        """Connect to the provider; with TLS, require a valid certificate for its host.

        The launch's look-ups for other hosts do not count here.

        Raises:
            RefusedError: 403, an address of the name is not public, and it is not one of a cluster
                where the administrator allows that.
            UnreachableError: 502, no address, no connection or no valid certificate.
            OSError: See ``provider_tls``.
        """
        return await self.provider_dialer.dial(
            launch.provider_lookups,
            provider.host,
            provider.port,
            None if provider.is_plain else self.provider_tls,
            is_inside if provider.is_inside else is_public,
        )

    def provider_key(self) -> str:
        """Read the provider's key from its file each time, because a Secret can be renewed.

        Raises:
            ConfigError: There is no provider, or no usable key in its file.

        Returns:
            Empty for a provider that needs none.
        """
        provider = self.config.provider
        if provider is None:
            raise ConfigError("the run has no model provider")
        if not provider.key_file:
            return ""
        try:
            with Path(provider.key_file).open("rb") as file:
                key = file.read(_KEY_BYTES + 1).decode("ascii").strip()
        except (OSError, ValueError):
            key = ""
        if not key or len(key) > _KEY_BYTES or not key.isprintable():
            raise ConfigError(f"the key file of provider {provider.name} has no usable key")
        return key

    @cached_property
    def provider_tls(self) -> ssl.SSLContext:
        """TLS context for the provider: its own CAs, or else the public ones and the gateway's.

        Raises:
            OSError: The CA file is missing or contains no certificate.
        """
        own = "" if self.config.provider is None else self.config.provider.ca
        if own:
            context = ssl.create_default_context(cadata=own)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            return context
        context = ssl.create_default_context(cafile=certifi.where())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.config.authorities:
            context.load_verify_locations(cafile=self.config.authorities)
        return context


WRITE_SECONDS: Final = 1.0
"""Minimum time between two writes."""
RECHECK_SECONDS: Final = 60.0
"""Interval of rechecks without a change, for launches that ended unnoticed."""


class StateFile:
    """Keeps one file up to date.

    Args:
        path: On the volume.
        changed: Set when the state may have changed.
        state: Returns what the file has to say.
    """

    def __init__(
        self, path: Path, changed: asyncio.Event, state: Callable[[], ProviderWaits | RunUsage]
    ) -> None:
        self._path = path
        self._changed = changed
        self._state = state
        self._written: ProviderWaits | RunUsage | None = None

    async def write(self) -> None:
        """Write the file if it has changed; a failure is logged and repaired by the next write."""
        self._changed.clear()
        state = self._state()
        if state == self._written:
            return
        try:
            await asyncio.to_thread(replace_file, self._path, encode(state))
        except OSError as error:
            logger.error("cannot write %s: %s", self._path.name, error)  # noqa: TRY400 - expected
            self._changed.set()
        else:
            self._written = state

    async def keep_writing(self) -> None:
        """Write the file soon after each change, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await self._changed.wait()
            await self.write()
            await asyncio.sleep(WRITE_SECONDS)
