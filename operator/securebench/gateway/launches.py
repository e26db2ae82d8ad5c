"""The launches that a gateway serves: identity, usage, waits for the provider, and their files.

A launch is a harness Pod. Its report and its log of decisions are persisted periodically, so that
its budgets survive a restart of the gateway.

The gateway repeats no call to the model provider: the agent's CLI does, after a pause of its own or
the provider's Retry-After. The first failed call in a row begins the launch's wait; an answer ends
it (``BackOff``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from securebench.clock import Clock, TokenBucket
from securebench.errors import StorageError
from securebench.files import FILE_MODE, make_folder, replace_file, write_all
from securebench.gateway.decisions import Cause, CutError, Decision, RefusedError, Verdict, line_of
from securebench.protocol.gateway import (
    MAX_LISTED_WAITS,
    GatewayConfig,
    GatewayLimits,
    LaunchReport,
    ProviderWait,
    ProviderWaits,
    RelayReport,
    Route,
    decode,
    encode,
)

logger = logging.getLogger(__name__)


MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600.0
"""Upper bound of a Retry-After."""
STALE_AFTER_SECONDS: Final = 300.0
"""A launch that has not asked again for so long, beyond Retry-After, may have ended unseen."""


class BackOff:
    """The wait of one launch for its model provider.

    Args:
        pod: Name of the launch's Pod.
        clock: Wall clock.
        changed: Called when the wait begins, changes or ends.
    """

    def __init__(self, pod: str, clock: Clock, changed: Callable[[], None]) -> None:
        self._pod = pod
        self._clock = clock
        self._changed = changed
        self._wait: ProviderWait | None = None
        self._failed_at = 0.0
        self._is_answered = False

    def call_failed(self, status: int, retry_after: str) -> None:
        """Note that a call failed; the wait begins, or goes on with the next pause.

        Args:
            status: HTTP status of its answer, 0 for none.
            retry_after: Value of the header Retry-After, or empty.
        """
        now = self._failed_at = self._clock.now()
        pause = retry_seconds(retry_after, now)
        until = None if pause is None else now + pause
        since = now if self._wait is None else self._wait.since
        self._wait = ProviderWait(self._pod, since, status, until)
        self._is_answered = False
        self._changed()

    def answer_began(self) -> None:
        """Note that the provider answers a call; if that answer breaks, the wait goes on."""
        self._answered()

    def ended(self) -> None:
        """Note that a call was answered to its end, or that the launch has ended."""
        self._answered()
        self._wait = None

    def wait(self) -> ProviderWait | None:
        """Return the wait, or None while the launch does not wait."""
        wait = self._wait
        if wait is None or self._is_answered:
            return None
        is_told = self._clock.now() < max(self._failed_at, wait.until or 0.0) + STALE_AFTER_SECONDS
        return wait if is_told else None

    def _answered(self) -> None:
        if self._wait is not None and not self._is_answered:
            self._is_answered = True
            self._changed()


def retry_seconds(value: str, now: float) -> float | None:
    """Return the seconds that a Retry-After asks for, or None for a value without sense.

    Args:
        value: Seconds or a date, as the header has it.
        now: Seconds since the epoch.
    """
    text = value.strip()
    if text.isascii() and text.isdecimal():
        seconds = float(text[:10])
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def waits_of(launches: Iterable[BackOff]) -> ProviderWaits:
    """Return the launches that wait, the longest first."""
    found = [wait for launch in launches if (wait := launch.wait()) is not None]
    found.sort(key=attrgetter("since", "pod"))
    return ProviderWaits(len(found), tuple(found[:MAX_LISTED_WAITS]))


LOOKUPS = 4
"""Maximum concurrent look-ups of one launch, so that slow names do not delay other launches."""

_BURST_SECONDS = 4.0
"""The burst of new connections is the sustained rate times this (GatewayLimits)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The Pod that a launch token was issued to.

    Attributes:
        pod: Name; a DNS-1123 label and therefore a safe file name.
        uid: UID of the Pod.
    """

    pod: str
    uid: str


class Changes(NamedTuple):
    """Changes that are not on disk yet.

    Attributes:
        report: Replaces the report.
        lines: To be appended to the log.
    """

    report: LaunchReport
    lines: bytes


class ServedLaunch:
    """One harness Pod and its usage.

    Args:
        report: Usage so far.
        limits: Limits of a launch.
        clock: Wall clock, for the log.
        log_lines: Number of lines already in its log.
        on_wait: Called when its wait for the model provider begins, changes or ends.

    Attributes:
        identity: Its Pod.
        back_off: Whether the model provider makes it wait.
        lookups: Limits its concurrent look-ups.
        provider_lookups: The same for the provider's name, so that an agent's names, which may be
            slow on purpose, never look like an outage of the provider.
        bucket: Rate limit on new connections.
        connections: Tasks that serve its open connections.
        is_closing: Whether its harness has ended; new connections are refused then.
    """

    def __init__(
        self,
        report: LaunchReport,
        limits: GatewayLimits,
        clock: Clock,
        log_lines: int = 0,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._report = report
        self._limits = limits
        self._clock = clock
        self._log_lines = log_lines
        self._pending: list[bytes] = []
        self._is_dirty = False
        self.identity = Identity(report.pod, report.pod_uid)
        self.back_off = BackOff(report.pod, clock, on_wait)
        self.lookups = asyncio.Semaphore(LOOKUPS)
        self.provider_lookups = asyncio.Semaphore(LOOKUPS)
        rate = limits.connections_per_second
        self.bucket = TokenBucket(rate, rate * _BURST_SECONDS, time.monotonic)
        self.connections: set[asyncio.Task[None]] = set()
        self.is_closing = report.closed

    @property
    def report(self) -> LaunchReport:
        """The current report."""
        return self._report

    @property
    def relay(self) -> RelayReport:
        """The launch's use of its model provider so far."""
        return self._report.relay or RelayReport()

    def update_relay(self, relay: RelayReport) -> None:
        """Replace the provider part of the report."""
        self._change(replace(self._report, relay=relay))

    def note_unanswered(self, cause: str) -> None:
        """Note what became of a request while the provider has answered none of the run."""
        self._change(replace(self._report, unanswered=cause))

    def reserve_tokens(self, tokens: int) -> None:
        """Reserve tokens of the run's budget for a request; negative at its end."""
        relay = self.relay
        self.update_relay(replace(relay, reserved_tokens=relay.reserved_tokens + tokens))

    def refuse_for_run_budget(self) -> None:
        """Note that a request was refused because the run's budget is used up."""
        self.update_relay(replace(self.relay, run_budget_exhausted=True))

    @property
    def bytes_left(self) -> int:
        """Bytes that the launch may still send and receive; never negative."""
        used = self._report.bytes_up + self._report.bytes_down
        return max(0, self._limits.bytes - used)

    def count_up(self, size_bytes: int) -> None:
        """Count bytes from the agent.

        Raises:
            CutError: The byte limit is exceeded.
        """
        self._require(size_bytes)
        self._change(replace(self._report, bytes_up=self._report.bytes_up + size_bytes))

    def count_down(self, size_bytes: int) -> None:
        """Count bytes to the agent.

        Raises:
            CutError: The byte limit is exceeded; the bytes must not be sent.
        """
        self._require(size_bytes)
        self._change(replace(self._report, bytes_down=self._report.bytes_down + size_bytes))

    def record(self, decision: Decision) -> None:
        """Count a decision and queue its log line, up to the maximum number of lines.

        ``requests`` and ``blocked`` of the report count only the proxy route; the relay has its
        own counters.
        """
        report = self._report
        if decision.route is Route.PROXY:
            is_blocked = decision.verdict is Verdict.REFUSED
            report = replace(
                report,
                requests=report.requests + (not is_blocked),
                blocked=report.blocked + is_blocked,
            )
        if self._log_lines < self._limits.log_lines:
            self._log_lines += 1
            self._pending.append(line_of(decision, self._clock.now()))
            self._is_dirty = True
        else:
            report = replace(report, dropped_lines=report.dropped_lines + 1)
        self._change(report)

    def admit(self, address: str) -> None:
        """Bind the launch to the address of its Pod.

        Raises:
            RefusedError: It was seen at another address before.
        """
        if not self._report.address:
            self._change(replace(self._report, address=address))
        elif self._report.address != address:
            raise RefusedError(
                f"Pod {self.identity.pod} has a different address than before.", Cause.ADDRESS
            )

    def end(self) -> None:
        """Mark the launch as closed; its report is final once no connection is left."""
        self.back_off.ended()
        self._change(replace(self._report, closed=True))

    def take_changes(self) -> Changes | None:
        """Return the report and log lines that are not on disk yet, or None."""
        if not self._is_dirty:
            return None
        lines, self._pending = b"".join(self._pending), []
        self._is_dirty = False
        return Changes(self._report, lines)

    def put_back(self, lines: bytes) -> None:
        """Requeue log lines that could not be written."""
        self._pending.insert(0, lines)
        self._is_dirty = True

    def _require(self, size_bytes: int) -> None:
        if size_bytes > self.bytes_left:
            raise CutError(
                f"The launch's limit of {self._limits.bytes} bytes is reached.", Cause.BYTES
            )

    def _change(self, report: LaunchReport) -> None:
        self._is_dirty = self._is_dirty or report != self._report
        self._report = report


REPORT = ".json"
LOG = ".jsonl"


class _StoredLaunch(NamedTuple):
    """A launch as it is on disk.

    Attributes:
        report: Its last report.
        log_lines: Number of complete lines in its log.
    """

    report: LaunchReport
    log_lines: int


def read_launches(folder: Path) -> list[_StoredLaunch]:
    """Read all launches of a folder, ordered by name; truncated log lines are removed.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume failed.
    """
    return [_read_launch(path) for path in sorted(folder.glob(f"*{REPORT}"))]


class ReportNotWrittenError(OSError):
    """A launch's log has its lines, and its report could not be replaced."""


def write_launch(folder: Path, report: LaunchReport, lines: bytes) -> None:
    """Append to a launch's log, then replace its report; both are synced on return.

    Raises:
        ReportNotWrittenError: Only the report is missing: the lines must not be written again.
        OSError: Nothing was written.
    """
    if lines:
        _append(folder / (report.pod + LOG), lines)
    try:
        replace_file(folder / (report.pod + REPORT), encode(report))
    except OSError as error:
        raise ReportNotWrittenError(*error.args) from error


def _append(path: Path, lines: bytes) -> None:
    """Append all or nothing; without a buffer, which would still be written when it is closed."""
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            os.fchmod(file.fileno(), FILE_MODE)
            write_all(file, lines)
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def _read_launch(path: Path) -> _StoredLaunch:
    try:
        report = decode(LaunchReport, path.read_bytes())
    except ValueError as error:
        raise StorageError(
            f"the launch report {path.name} is damaged: {error}; delete the run's gateway Pod and"
            " this file to restart the launch's counters"
        ) from None
    if report.pod + REPORT != path.name:
        raise StorageError(f"the launch report {path.name} belongs to Pod {report.pod}")
    return _StoredLaunch(report, _whole_lines(path.with_suffix(LOG)))


def _whole_lines(path: Path) -> int:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    end = content.rfind(b"\n") + 1
    if end != len(content):
        os.truncate(path, end)
    return content.count(b"\n")


FLUSH_SECONDS = 2.0
"""Interval between flushes; the answer to ``close`` also waits for a flush."""


class Launches:
    """The launches of a run.

    Args:
        folder: Holds reports and logs; existing ones are loaded.
        config: Limits of each launch, and whether there is a provider to report on.
        clock: Wall clock, for the logs.

    Attributes:
        waits_changed: Set when ``waits`` may have changed.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume failed.
    """

    def __init__(self, folder: Path, config: GatewayConfig, clock: Clock) -> None:
        make_folder(folder)
        self._folder = folder
        self._limits = config.limits
        self._relay = None if config.provider is None else RelayReport()
        self._clock = clock
        self.waits_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._all = {
            stored.report.pod: self._served(stored.report, stored.log_lines)
            for stored in read_launches(folder)
        }

    def of(self, identity: Identity) -> ServedLaunch:
        """Return the launch of a Pod; a new one on its first connection.

        Raises:
            RefusedError: Another Pod had this name.
        """
        launch = self._all.get(identity.pod)
        if launch is None:
            report = LaunchReport(identity.pod, identity.uid, relay=self._relay)
            launch = self._all[identity.pod] = self._served(report)
        elif launch.identity != identity:
            raise RefusedError(f"Another Pod had the name {identity.pod}.", Cause.TOKEN)
        return launch

    def tokens_used(self) -> int:
        """Return what all launches have used of the run's budget."""
        return sum(launch.relay.budget_tokens for launch in self._all.values())

    def answered_models(self) -> set[str]:
        """Return the models that the provider has answered in any launch."""
        return {model for each in self._all.values() for model in each.relay.answered_models}

    def waits(self) -> ProviderWaits:
        """Return the launches that the model provider makes wait."""
        return waits_of(launch.back_off for launch in self._all.values())

    def _served(self, report: LaunchReport, log_lines: int = 0) -> ServedLaunch:
        on_wait = self.waits_changed.set
        return ServedLaunch(report, self._limits, self._clock, log_lines, on_wait)

    async def flush(self, launch: ServedLaunch) -> None:
        """Persist all changes of a launch.

        Raises:
            OSError: The write failed; the changes are kept for the next flush.
        """
        # A writing thread cannot be cancelled, so a cancelled flush still holds the lock until it
        # ends.
        await asyncio.shield(self._in_background(self._write(launch)))

    def flush_soon(self, launch: ServedLaunch) -> None:
        """Persist all changes of a launch in the background, as ``flush_all`` does."""
        self._in_background(self._flush_logged(launch))

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self, launch: ServedLaunch) -> None:
        async with self._writing[launch.identity.pod]:
            changes = launch.take_changes()
            if changes is None:
                return
            try:
                await asyncio.to_thread(write_launch, self._folder, *changes)
            except OSError as error:
                is_in_log = isinstance(error, ReportNotWrittenError)
                launch.put_back(b"" if is_in_log else changes.lines)
                raise

    async def flush_all(self) -> None:
        """Persist all launches; failures are logged, and the changes kept for the next flush."""
        for launch in list(self._all.values()):
            await self._flush_logged(launch)

    async def _flush_logged(self, launch: ServedLaunch) -> None:
        try:
            await self.flush(launch)
        except OSError as error:
            logger.error("cannot persist launch %s: %s", launch.identity.pod, error)  # noqa: TRY400 - expected

    async def keep_flushing(self) -> None:
        """Flush all launches periodically, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush_all()
