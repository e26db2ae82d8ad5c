"""A launch that a gateway serves: who it is, what it used, what is to be written down of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from securebench.core.clock import Clock
from securebench.core.rates import TokenBucket
from securebench.gateway.net.causes import Cause, CutError, RefusedError
from securebench.gateway.server.decisions import Decision, Verdict, line_of
from securebench.protocol.gateway import GatewayLimits, LaunchReport, RelayReport
from securebench.protocol.sidecar import Route

LOOKUPS = 4
"""Names that one launch may have in the resolver at once, so that slow ones delay nobody else."""

BURST_SECONDS = 4.0
"""A burst of new connections is what the sustained rate allows in this time (GatewayLimits)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The Pod that a launch token was made for.

    Attributes:
        pod: Name; a DNS-1123 label, so a safe file name.
        uid: Of the Pod.
    """

    pod: str
    uid: str


class Changes(NamedTuple):
    """What the disk does not have yet.

    Attributes:
        report: To replace the one there.
        lines: To append to the log.
    """

    report: LaunchReport
    lines: bytes


class ServedLaunch:
    """One harness Pod and everything that is counted for it.

    Args:
        report: What is known of it so far.
        limits: Bounds of a launch.
        clock: Time of the log.
        log_lines: Lines that its log has already.

    Attributes:
        identity: Its Pod.
        lookups: Names that it may have in the resolver at once.
        provider_lookups: The same for its provider's name, so that the agent's names, which may be
            slow on purpose, never look like an outage of the provider.
        bucket: Rate of its new connections.
        connections: Tasks that serve it now.
        is_closing: Whether its harness has ended; then nothing new is served.
    """

    def __init__(
        self, report: LaunchReport, limits: GatewayLimits, clock: Clock, log_lines: int = 0
    ) -> None:
        self._report = report
        self._limits = limits
        self._clock = clock
        self._log_lines = log_lines
        self._pending: list[bytes] = []
        self._is_dirty = False
        self.identity = Identity(report.pod, report.pod_uid)
        self.lookups = asyncio.Semaphore(LOOKUPS)
        self.provider_lookups = asyncio.Semaphore(LOOKUPS)
        rate = limits.connections_per_second
        self.bucket = TokenBucket(rate, rate * BURST_SECONDS, time.monotonic)
        self.connections: set[asyncio.Task[None]] = set()
        self.is_closing = report.closed

    @property
    def report(self) -> LaunchReport:
        """What is known now."""
        return self._report

    @property
    def relay(self) -> RelayReport:
        """What the launch asked its model provider so far."""
        return self._report.relay or RelayReport()

    def update_relay(self, relay: RelayReport) -> None:
        """Replace what is known of the launch's use of its provider."""
        self._change(replace(self._report, relay=relay))

    @property
    def bytes_left(self) -> int:
        """What the launch may still send and receive; never negative."""
        used = self._report.bytes_up + self._report.bytes_down
        return max(0, self._limits.bytes - used)

    def count_up(self, size_bytes: int) -> None:
        """Count bytes of the agent.

        Raises:
            CutError: They are more than is left.
        """
        self._require(size_bytes)
        self._change(replace(self._report, bytes_up=self._report.bytes_up + size_bytes))

    def count_down(self, size_bytes: int) -> None:
        """Count bytes to the agent.

        Raises:
            CutError: They are more than is left; they must not be sent.
        """
        self._require(size_bytes)
        self._change(replace(self._report, bytes_down=self._report.bytes_down + size_bytes))

    def record(self, decision: Decision) -> None:
        """Count a decision and keep its line for the log, within the bound of lines.

        ``requests`` and ``blocked`` of the report count the proxy route only; the relay keeps its
        own numbers.
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
        else:
            report = replace(report, dropped_lines=report.dropped_lines + 1)
        self._change(report)

    def admit(self, address: str) -> None:
        """Bind the launch to the address of its Pod.

        Raises:
            RefusedError: It was seen at another address.
        """
        if not self._report.address:
            self._change(replace(self._report, address=address))
        elif self._report.address != address:
            raise RefusedError(
                f"Pod {self.identity.pod} is at another address than before.", Cause.ADDRESS
            )

    def end(self) -> None:
        """Mark the launch as closed; its numbers are final when no connection is left."""
        self._change(replace(self._report, closed=True))

    def take_changes(self) -> Changes | None:
        """Return report and log lines that the disk does not have, or None."""
        if not self._is_dirty:
            return None
        lines, self._pending = b"".join(self._pending), []
        self._is_dirty = False
        return Changes(self._report, lines)

    def put_back(self, lines: bytes) -> None:
        """Keep lines that the disk did not take."""
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
