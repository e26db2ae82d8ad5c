"""Rules for a provider's API: what is relayed, authentication, and the format of refusals.

Source: providers 3, 4 and 8; it wins over the path list of contract 11.4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from securebench.agents.providers.answers import Meter
    from securebench.agents.providers.bodies import Close


class RequestKind(StrEnum):
    """How the relay handles a request."""

    RELAYED = "relayed"
    PROBE = "probe"
    """Answered with 200 by the gateway itself; CLIs send it to warm up the connection."""
    UNKNOWN = "unknown"


class RequestRefusal(StrEnum):
    """Why the gateway refuses a request."""

    NOT_RELAYED = "not_relayed"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    BUDGET = "budget"
    RUN_BUDGET = "run_budget"
    NO_USAGE = "no_usage"
    KEY_REFUSED = "key_refused"
    UNAVAILABLE = "unavailable"


class Reply(NamedTuple):
    """A response of the gateway itself; ``body`` is JSON in the provider's format."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
    """One provider's API.

    Attributes:
        name: As in the run's configuration.
        api: Name of the API in ``harness.config.provider.api``; empty if none may be chosen there.
        host: The vendor's host.
        base: Beginning of ``path`` that belongs to the base URL of a provider.
        path: The only path that is relayed; the method is POST.
        query: Pattern for the whole query.
        probes: Paths allowed for HEAD.
        key_header: Lower-case name of the header with the key.
        key_prefix: Precedes the key in that header.
        headers: Lower-case names of relayed request headers, besides the common ones.
        header_prefixes: Prefixes of such names.
        final_status: HTTP status that its CLIs do not retry (providers 3.6, 4.4).
        refusal_kinds: Error types of its API by reason of refusal.
        refusal_body: Builds an error in its API's format from type and message.
        allow_hosted_tools: Request filter that allows tools hosted by the provider.
        strip_hosted_tools: Request filter that strips them.
        meter: Creates the token meter of one response.
    """

    name: str
    api: str = ""
    host: str
    base: str = ""
    path: str
    query: re.Pattern[str]
    probes: frozenset[str] = frozenset()
    key_header: bytes
    key_prefix: bytes = b""
    headers: frozenset[bytes] = frozenset()
    header_prefixes: tuple[bytes, ...] = ()
    final_status: int
    refusal_kinds: Mapping[RequestRefusal, str]
    refusal_body: Callable[[str, str], Mapping[str, object]]
    allow_hosted_tools: Close
    strip_hosted_tools: Close
    meter: Callable[[], Meter]

    def kind(self, method: str, target: str) -> RequestKind:
        """Classify a request; the target is compared literally."""
        path, _, query = target.partition("?")
        if method == "POST" and path == self.path and self.query.fullmatch(query):
            return RequestKind.RELAYED
        return (
            RequestKind.PROBE if method == "HEAD" and target in self.probes else RequestKind.UNKNOWN
        )

    def target(self, target: str, base: str | None) -> str:
        """Return what a relayed request asks the provider for.

        Args:
            target: Path and query of the agent's request.
            base: Path of the provider's base URL; None for the vendor's own.
        """
        return target if base is None else base + target.removeprefix(self.base)

    def refusal(self, reason: RequestRefusal, message: str) -> Reply:
        """Return the error response; the CLI shows it and, if the refusal is final, gives up."""
        status = _STATUS.get(reason, self.final_status)
        body = self.refusal_body(self.refusal_kinds[reason], message)
        return Reply(status, json.dumps(body).encode())


_STATUS: Final = MappingProxyType(
    {
        RequestRefusal.NOT_RELAYED: HTTPStatus.NOT_FOUND,
        RequestRefusal.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
        RequestRefusal.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        RequestRefusal.UNAVAILABLE: HTTPStatus.BAD_GATEWAY,
    }
)
"""All other refusals use ``final_status``, never 401, 429 or 5xx: CLIs retry those for minutes."""
