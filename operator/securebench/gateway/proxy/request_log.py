"""The log entry of a request on the proxy route, filled in while it is served."""

from __future__ import annotations

from collections.abc import Callable

from securebench.gateway.net.causes import Cause, GatewayError, UnreachableError
from securebench.gateway.net.heads import RequestHead
from securebench.gateway.net.streams import AgentStream
from securebench.gateway.proxy.authority import UrlTarget
from securebench.gateway.server.decisions import Decision, Verdict
from securebench.gateway.server.launch import ServedLaunch
from securebench.protocol.sidecar import Route


class RequestEntry:
    """A decision in progress; created before the request's first byte is read.

    Unless another outcome is noted, it is logged as cut by the end of the launch or the gateway.

    Args:
        agent: Provides the byte counts.
        launch: Logs the decision.
        monotonic: Monotonic clock, in seconds.
    """

    def __init__(
        self, agent: AgentStream, launch: ServedLaunch, monotonic: Callable[[], float]
    ) -> None:
        self._agent = agent
        self._launch = launch
        self._monotonic = monotonic
        self._bytes_up = agent.bytes_up
        self._bytes_down = agent.bytes_down
        self._began = monotonic()
        self._method = ""
        self._host = ""
        self._port = 0
        self._path = ""
        self._verdict = Verdict.CUT
        self._reason = Cause.CLOSED.value
        self._is_begun = False

    def ask(self, head: RequestHead) -> None:
        """Note the request as sent; a user name in its URL is omitted."""
        self._began = self._monotonic()
        self._method = head.method
        authority = head.target.partition("://")[2].partition("/")[0] or head.target
        self._host = authority.rpartition("@")[2]

    def understand(self, url: UrlTarget) -> None:
        """Note the parsed target."""
        self._host, self._port = url.target
        self._path = url.path

    def begin(self) -> None:
        """Note that the request goes out to the origin."""
        self._is_begun = True

    def succeed(self) -> None:
        """Note that the request was served."""
        self._verdict, self._reason = Verdict.ALLOWED, ""

    def break_off(self) -> None:
        """Note that one side closed its connection."""
        self._verdict, self._reason = Verdict.ALLOWED, Cause.BROKEN.value

    def fail(self, error: GatewayError) -> None:
        """Note the error that ended the request."""
        self._reason = error.cause.value
        if not self._is_begun:
            self._verdict = Verdict.REFUSED
        elif isinstance(error, UnreachableError):
            self._verdict = Verdict.ALLOWED

    def record(self, status: int | None) -> None:
        """Log the decision with the status that the agent got, or None."""
        decision = Decision(
            route=Route.PROXY,
            method=self._method,
            host=self._host,
            port=self._port,
            verdict=self._verdict,
            reason=self._reason,
            path=self._path,
            bytes_up=self._agent.bytes_up - self._bytes_up,
            bytes_down=self._agent.bytes_down - self._bytes_down,
            seconds=self._monotonic() - self._began,
            status=status,
        )
        self._launch.record(decision)
