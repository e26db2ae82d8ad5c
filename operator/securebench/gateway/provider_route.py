"""The provider route: serve an agent's requests to the model provider's API in sequence.

Each request reserves tokens of the run's budget before it is sent.
Source: providers 8; contract 11.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from securebench.agents.providers.bodies import RefusedBodyError, RelayedBody, relayed_body
from securebench.agents.providers.endpoint import provider_named
from securebench.agents.providers.provider import RequestKind, RequestRefusal
from securebench.errors import ConfigError
from securebench.gateway import account
from securebench.gateway.decisions import (
    Cause,
    CutError,
    Decision,
    RefusedError,
    UnreachableError,
    Verdict,
)
from securebench.gateway.http1 import Exchange, receive_exchange
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.provider_call import (
    KeyRefusedError,
    ProviderCall,
    RefusedCallError,
    RefusedHeadersError,
    RequestBody,
    UpstreamRequest,
    check_obstacle,
    host_of,
    obstacle_error,
    request_tokens,
    upstream_headers,
)
from securebench.gateway.run_gateway import Reservation, RunBudgetSpentError, RunGateway
from securebench.gateway.streams import AgentStream, linger, while_there
from securebench.protocol.gateway import ProviderConfig, Route
from securebench.reasons import PROVIDER_AUTH

if TYPE_CHECKING:
    from securebench.gateway.run_gateway import RunBudget, TokenReservation


class _TokenClaim:
    """A claim on the budget; it claims nothing where the run has none.

    Args:
        budget: The budget of the run, or None.
        launch: The launch that sends the request.
        config: The provider.
    """

    def __init__(
        self, budget: RunBudget | None, launch: ServedLaunch, config: ProviderConfig
    ) -> None:
        self._budget = budget
        self._launch = launch
        self._config = config
        self._reserved: TokenReservation | None = None

    async def reserve(self, agent: AgentStream, most_bytes: int) -> None:
        """Wait until the budget has room for a request with so large a body.

        Raises:
            RefusedCallError: The budget is used up, or the request may not be sent anyway.
            UnreachableError: The volume failed.
            OSError: The agent left meanwhile.
        """
        if self._budget is None:
            return
        if not await while_there(agent, self._take(self._budget, most_bytes)):
            raise ConnectionResetError("the agent left before there was room in the run's budget")

    def shrink(self, body_bytes: int) -> None:
        """Give back what was claimed beyond the body, whose size a chunked request does not say."""
        if self._reserved is not None:
            self._reserved.shrink(request_tokens(body_bytes))

    def settle(self, call: ProviderCall | None) -> None:
        """Replace the claim by what the call has used, which is nothing without a call."""
        if self._reserved is not None:
            self._reserved.settle(0 if call is None else call.used_tokens)

    async def _take(self, budget: RunBudget, most_bytes: int) -> None:
        check_obstacle(self._launch, self._config)
        try:
            self._reserved = await budget.reserve(self._launch, request_tokens(most_bytes))
        except RunBudgetSpentError:
            raise obstacle_error(RequestRefusal.RUN_BUDGET) from None


async def serve_provider(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> None:
    """Serve an agent's connection until it ends; every request is counted and logged.

    The stream is positioned after the preface; the caller closes it.

    Raises:
        OSError: The agent's connection broke.
        ConfigError: The run has no provider.
    """
    config = gateway.config.provider
    if config is None:
        raise ConfigError("the run has no model provider")
    connection = _ProviderConnection(agent, launch, gateway, config)
    while await _serve_next(connection):
        pass
    await linger(agent)


@dataclass(frozen=True)
class _ProviderConnection:
    """An agent's connection to the provider route, with its launch and configuration."""

    agent: AgentStream
    launch: ServedLaunch
    gateway: RunGateway
    config: ProviderConfig

    def refused(self, reason: RequestRefusal, kinds: tuple[str, ...] = ()) -> None:
        """Count a request that is not forwarded."""
        self.launch.update_relay(account.refused(self.launch.relay, reason, kinds))

    def failed(self, error: RefusedError | CutError) -> None:
        """Log a malformed request, and count it; a connection that was cut had no request."""
        if isinstance(error, CutError):
            return
        self.refused(RequestRefusal.BAD_REQUEST)
        self.launch.record(
            Decision(
                Route.PROVIDER, "", self.config.host, self.config.port, Verdict.REFUSED,
                error.cause.value, status=error.status,
            )
        )  # fmt: skip


async def _serve_next(connection: _ProviderConnection) -> bool:
    """Serve one request; return whether another may follow."""
    before = connection.agent.bytes_up
    exchange = await receive_exchange(
        connection.agent, connection.gateway.config.limits.idle_seconds, connection.failed
    )
    return exchange is not None and await Request(exchange, connection, before).serve()


class Request:
    """One request of the agent, from its head to its log line.

    Args:
        exchange: The request and its response.
        connection: The connection that it arrived on.
        bytes_before: The agent's byte count before this request.
    """

    def __init__(
        self, exchange: Exchange, connection: _ProviderConnection, bytes_before: int
    ) -> None:
        self._exchange = exchange
        self._agent = connection.agent
        self._connection = connection
        self._launch = connection.launch
        self._gateway = connection.gateway
        self._config = connection.config
        self._provider = provider_named(connection.config.name)
        self._call: ProviderCall | None = None
        self._began = connection.gateway.monotonic()
        self._bytes = bytes_before, connection.agent.bytes_down
        self._verdict, self._reason = Verdict.CUT, Cause.CLOSED.value
        self._model = ""
        self._kinds: tuple[str, ...] = ()
        self._body = RequestBody(exchange, self._gateway.config.limits.request_bytes)
        self._claim = _TokenClaim(self._gateway.run_budget, self._launch, self._config)

    async def serve(self) -> bool:
        """Answer; return whether another request may follow on the connection.

        Raises:
            OSError: The agent's connection broke.
        """
        try:
            await self._answer()
        except RefusedCallError as error:
            await self._refuse(error)
        except UnreachableError as error:
            self._verdict = Verdict.ALLOWED
            if self._exchange.status is not None:
                return False
            await self._reply(RefusedCallError(RequestRefusal.UNAVAILABLE, error.reason))
        except CutError as error:
            self._reason = error.cause.value
            return False
        except OSError:
            self._verdict, self._reason = Verdict.ALLOWED, Cause.BROKEN.value
            raise
        finally:
            self._record()
        return self._exchange.is_reusable()

    async def _answer(self) -> None:
        head = self._exchange.head
        match self._provider.kind(head.method, head.target):
            case RequestKind.RELAYED:
                await self._relay()
            case RequestKind.PROBE:
                await self._exchange.start(HTTPStatus.OK, ((b"content-length", b"0"),))
                await self._exchange.finish()
                self._verdict, self._reason = Verdict.ALLOWED, ""
            case RequestKind.UNKNOWN:
                raise RefusedCallError(RequestRefusal.NOT_RELAYED, "this request is not relayed")

    async def _relay(self) -> None:
        room: Reservation | None = None
        try:
            async with self._gateway.bodies.reader(self._launch):
                # Before the body is read: a request that waits here must not hold memory that
                # other launches need.
                await self._reserve_tokens()
                room = await self._gateway.bodies.reserve(self._body.most_bytes)
                request = await self._upstream_request()
                self._claim.shrink(len(request.body))
            self._call = self._begun(request)
            del request  # the call releases the body as soon as it is sent
            is_served = await while_there(self._agent, self._call.run(room.release))
        except KeyRefusedError:
            self._verdict, self._reason = Verdict.ALLOWED, PROVIDER_AUTH
            await self._reply(obstacle_error(RequestRefusal.KEY_REFUSED))
            return
        finally:
            if room is not None:
                room.release()
            self._claim.settle(self._call)
        self._verdict = Verdict.ALLOWED
        self._reason = "" if is_served else Cause.BROKEN.value
        if not is_served:
            raise ConnectionResetError("the agent left before its response was complete")

    async def _upstream_request(self) -> UpstreamRequest:
        """Read the agent's request and build the one for the provider.

        Raises:
            RefusedCallError: It may not be sent.
            CutError: It did not arrive in time.
        """
        raw = await self._body.read()
        check_obstacle(self._launch, self._config)
        body = await self._relayed(raw)
        self._model, self._kinds = body.model, body.stripped
        key = self._key()
        try:
            headers = upstream_headers(
                self._provider,
                host_of(self._config),
                self._exchange.head.headers,
                key,
                len(body.data),
            )
        except RefusedHeadersError as error:
            raise RefusedCallError(RequestRefusal.BAD_REQUEST, error.reason) from error
        target = self._provider.target(self._exchange.head.target, self._config.base)
        sent = body.data, key, body.is_streamed, body.model
        return UpstreamRequest(self._provider, self._config, target, headers, *sent)

    async def _relayed(self, raw: bytes) -> RelayedBody:
        provider = self._provider
        is_open = self._config.allow_external_tools
        close = provider.allow_hosted_tools if is_open else provider.strip_hosted_tools
        try:
            named = self._config.model
            return await self._gateway.bodies.process(len(raw), relayed_body, raw, close, named)
        except RefusedBodyError as error:
            raise RefusedCallError(RequestRefusal.BAD_REQUEST, error.reason, error.kinds) from error

    def _key(self) -> bytes:
        """Read the provider's key from its file.

        Raises:
            RefusedCallError: There is none.
        """
        try:
            return self._gateway.provider_key().encode()
        except ConfigError as error:
            self._launch.update_relay(account.without_key(self._launch.relay))
            if not self._gateway.answered_models:
                self._launch.note_unanswered("the Secret has no usable key")
            raise obstacle_error(RequestRefusal.KEY_REFUSED) from error

    async def _reserve_tokens(self) -> None:
        try:
            await self._claim.reserve(self._agent, self._body.most_bytes)
        except (RefusedCallError, UnreachableError):
            await self._body.discard()
            raise

    def _begun(self, request: UpstreamRequest) -> ProviderCall:
        """Count the request. No await between the budget check and this, or requests would race."""
        check_obstacle(self._launch, self._config)
        self._launch.update_relay(account.sent(self._launch.relay, self._model, self._kinds))
        return ProviderCall(request, self._exchange, self._launch, self._gateway)

    async def _refuse(self, error: RefusedCallError) -> None:
        self._kinds = tuple(sorted({*self._kinds, *error.kinds}))
        self._connection.refused(error.refusal, error.kinds)
        self._verdict, self._reason = Verdict.REFUSED, error.cause
        await self._reply(error)

    async def _reply(self, error: RefusedCallError) -> None:
        """Answer in the provider's error format; an unread request body ends the connection."""
        reply = self._provider.refusal(error.refusal, f"securebench: {error}")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(reply.body)).encode()),
        ]
        if self._body.is_pending:
            headers.append((b"connection", b"close"))
        await self._exchange.start(reply.status, tuple(headers))
        if self._exchange.head.method != "HEAD":
            await self._exchange.send(reply.body)
        await self._exchange.finish()

    def _record(self) -> None:
        call = self._call
        if call is not None and call.failure:
            self._reason = call.failure
        self._launch.record(
            Decision(
                route=Route.PROVIDER,
                method=self._exchange.head.method,
                host=self._config.host,
                port=self._config.port,
                verdict=self._verdict,
                reason=self._reason,
                path=self._exchange.head.target,
                bytes_up=self._agent.bytes_up - self._bytes[0],
                bytes_down=self._agent.bytes_down - self._bytes[1],
                seconds=self._gateway.monotonic() - self._began,
                status=self._exchange.status,
                tokens=None
                if call is None
                else (call.usage.input_tokens, call.usage.output_tokens),
                stripped=self._kinds,
                echoes=0 if call is None else call.echoes,
            )
        )
