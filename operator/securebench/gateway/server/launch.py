"""A launch that a gateway serves: identity, usage, and changes not yet on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from securebench.clock import Clock, TokenBucket
from securebench.gateway.net.causes import Cause, CutError, RefusedError
from securebench.gateway.server.back_off import BackOff
from securebench.gateway.server.decisions import Decision, Verdict, line_of
from securebench.protocol.gateway import GatewayLimits, LaunchReport, RelayReport
from securebench.protocol.sidecar import Route

LOOKUPS = 4
"""Maximum concurrent look-ups of one launch, so that slow names do not delay other launches."""

BURST_SECONDS = 4.0
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
        self.bucket = TokenBucket(rate, rate * BURST_SECONDS, time.monotonic)
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
