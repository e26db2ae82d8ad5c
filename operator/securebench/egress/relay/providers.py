"""The two providers: what is relayed, how it is authorised, how a refusal looks to its CLI.

Source: providers 3, 4 and 8; it wins over the path list of contract 11.4.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Kind(StrEnum):
    """What the relay does with a request."""

    RELAYED = "relayed"
    PROBE = "probe"
    """Answered with 200 by the gateway itself: the CLI warms its connection up."""
    UNKNOWN = "unknown"


class Refusal(StrEnum):
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


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider's API.

    Attributes:
        name: As in the run's configuration.
        host: The only one that requests are sent to.
        path: The only one that is relayed, with POST.
        query: What may follow it, as a pattern for the whole query.
        probes: Paths that HEAD may ask for.
        key_header: Lower-case name of the header with the key.
        key_prefix: Stands before the key in it.
        final_status: Status that its CLI takes as final (providers 3.6, 4.4).
    """

    name: str
    host: str
    path: str
    query: re.Pattern[str]
    probes: frozenset[str]
    key_header: bytes
    key_prefix: bytes
    final_status: int

    def kind(self, method: str, target: str) -> Kind:
        """Return what happens to a request; the target is compared as it stands."""
        path, _, query = target.partition("?")
        if method == "POST" and path == self.path and self.query.fullmatch(query):
            return Kind.RELAYED
        return Kind.PROBE if method == "HEAD" and target in self.probes else Kind.UNKNOWN

    def refusal(self, reason: Refusal, message: str) -> Reply:
        """Return the answer that the CLI shows, and gives up on where that is meant."""
        status = _STATUS.get(reason, self.final_status)
        kind = _KINDS[self.name][reason]
        error = {"type": kind, "message": message}
        body: dict[str, object] = {"type": "error", "error": error}
        if self.name == OPENAI.name:
            body = {"error": {**error, "code": kind, "param": None}}
        return Reply(status, json.dumps(body).encode())


OPENAI: Final = Provider(
    name="openai",
    host="api.openai.com",
    path="/v1/responses",
    query=re.compile(""),
    probes=frozenset(),
    key_header=b"authorization",
    key_prefix=b"Bearer ",
    final_status=400,
)
ANTHROPIC: Final = Provider(
    name="anthropic",
    host="api.anthropic.com",
    path="/v1/messages",
    query=re.compile(r"[A-Za-z0-9_.=&-]{0,128}"),
    probes=frozenset({"/", "/api/hello"}),
    key_header=b"x-api-key",
    key_prefix=b"",
    final_status=403,
)
PROVIDERS: Final = MappingProxyType({each.name: each for each in (OPENAI, ANTHROPIC)})

_STATUS: Final = MappingProxyType(
    {
        Refusal.NOT_RELAYED: 404,
        Refusal.BAD_REQUEST: 400,
        Refusal.TOO_LARGE: 413,
        Refusal.UNAVAILABLE: 502,
    }
)
"""The other refusals are final: never 401, 429 or 5xx, which the CLIs repeat for minutes."""

_KINDS: Final = MappingProxyType(
    {
        OPENAI.name: {
            Refusal.NOT_RELAYED: "not_found_error",
            Refusal.BAD_REQUEST: "invalid_request_error",
            Refusal.TOO_LARGE: "invalid_request_error",
            Refusal.BUDGET: "insufficient_quota",
            Refusal.KEY_REFUSED: "authentication_error",
            Refusal.UNAVAILABLE: "server_error",
        },
        ANTHROPIC.name: {
            Refusal.NOT_RELAYED: "not_found_error",
            Refusal.BAD_REQUEST: "invalid_request_error",
            Refusal.TOO_LARGE: "request_too_large",
            Refusal.BUDGET: "permission_error",
            Refusal.KEY_REFUSED: "permission_error",
            Refusal.UNAVAILABLE: "api_error",
        },
    }
)
