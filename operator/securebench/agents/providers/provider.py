"""The API of one model provider: what is relayed, how it is authorised, how a refusal looks.

Source: providers 3, 4 and 8; it wins over the path list of contract 11.4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from securebench.agents.providers.answers import Meter
    from securebench.agents.providers.bodies import Close


class RequestKind(StrEnum):
    """What the relay does with a request."""

    RELAYED = "relayed"
    PROBE = "probe"
    """Answered with 200 by the gateway itself: the CLI warms its connection up."""
    UNKNOWN = "unknown"


class RequestRefusal(StrEnum):
    """Why the gateway answers a request itself."""

    NOT_RELAYED = "not_relayed"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    BUDGET = "budget"
    KEY_REFUSED = "key_refused"
    UNAVAILABLE = "unavailable"


class Reply(NamedTuple):
    """An answer of the gateway's own.

    Attributes:
        status: HTTP status.
        body: JSON in the provider's form.
    """

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
    """One provider's API.

    Attributes:
        name: As in the run's configuration.
        host: The only one that requests are sent to.
        path: The only one that is relayed, with POST.
        query: What may follow it, as a pattern for the whole query.
        probes: Paths that HEAD may ask for.
        key_header: Lower-case name of the header with the key.
        key_prefix: Stands before the key in it.
        headers: Lower-case names of request headers that are relayed besides those of every API.
        header_prefixes: The same by how a name begins.
        final_status: Status that its CLIs take as final (providers 3.6, 4.4).
        refusal_kinds: How its API calls what the gateway refuses.
        refusal_body: Returns an error in its API's form from its kind and its message.
        allow_hosted_tools: Its closed list where the provider's own tools are allowed.
        strip_hosted_tools: Its closed list where they are not.
        meter: Makes what counts the tokens of one answer.
    """

    name: str
    host: str
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
        """Return what happens to a request; the target is compared as it stands."""
        path, _, query = target.partition("?")
        if method == "POST" and path == self.path and self.query.fullmatch(query):
            return RequestKind.RELAYED
        return (
            RequestKind.PROBE if method == "HEAD" and target in self.probes else RequestKind.UNKNOWN
        )

    def refusal(self, reason: RequestRefusal, message: str) -> Reply:
        """Return the answer that the CLI shows, and gives up on where that is meant."""
        status = _STATUS.get(reason, self.final_status)
        body = self.refusal_body(self.refusal_kinds[reason], message)
        return Reply(status, json.dumps(body).encode())


_STATUS: Final = MappingProxyType(
    {
        RequestRefusal.NOT_RELAYED: 404,
        RequestRefusal.BAD_REQUEST: 400,
        RequestRefusal.TOO_LARGE: 413,
        RequestRefusal.UNAVAILABLE: 502,
    }
)
"""The other refusals are final: never 401, 429 or 5xx, which the CLIs repeat for minutes."""
