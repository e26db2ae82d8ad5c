r"""What operator, gateway and sidecars exchange: files on the volume, the preface of connections.

The operator writes the configuration before the gateway starts. What a gateway says of one launch
is one file in the run's gateway folder, ``launches/<pod name>.json``, replaced atomically; beside
it ``launches/<pod name>.jsonl`` with one line per decision. ``waits.json`` says which launches the
model provider makes wait at the moment, ``usage.json`` what is used of the run's budget. The agent
cannot write any of it.

A connection begins with one line of the sidecar, ``SB1 <route> <token>\n``, and one of the gateway,
``OK\n`` or ``NO <reason>\n``. After OK the bytes are the agent's own, in both directions; after the
OK to CLOSE the launch's report is on the disk and its token is worth nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from securebench.protocol.messages import decode_object
from securebench.sizes import GIB, MIB

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Route(StrEnum):
    """What a connection is for."""

    PROXY = "proxy"
    """An HTTP proxy: CONNECT, or an absolute http URL."""
    PROVIDER = "provider"
    """The model provider's API."""
    CLOSE = "close"
    """The harness has ended; nothing may follow for this launch."""


MAGIC: Final = "SB1"
ACCEPTED: Final = b"OK\n"
REFUSED: Final = b"NO "
PREFACE_BYTES: Final = 8192
"""Longest line of the sidecar; a service account token has about 1,200 bytes."""

GATEWAY_PORT: Final = 8443
PROXY_PORT: Final = 8080
PROVIDER_PORT: Final = 8081
"""Of the sidecar, on the Pod's loopback (contract 11.3, 11.4)."""
PROXY_NAME: Final = "securebench-egress-proxy"
"""Resolves to the loopback inside the Pod, by its hosts file."""
NO_PROXY: Final = "localhost,127.0.0.1,::1"
"""A proxy of the image or of the run is none for the Pod's own loopback (contract 11.3)."""


CONFIG_FILE: Final = "config.json"
"""In the run's gateway folder; written by the operator before the gateway starts."""
KEYS_FILE: Final = "keys.json"
"""In the same folder: the JSON Web Key Set of the API server; written anew when the keys change."""


PROVIDER_KEY: Final = "/work/provider/key"
"""File with the provider's key in the gateway."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds of what a launch may do through the gateway.

    Attributes:
        idle_seconds: A tunnel or an answer without a byte for so long is cut.
        connect_seconds: For resolving and connecting.
        connections: Open at once, of one launch.
        all_connections: Open at once, of the run.
        connections_per_second: New ones of one launch, sustained; four times as many in a burst.
        bytes: Bytes of one launch, both ways together.
        request_bytes: Body of one request to the provider.
        log_lines: Kept of one launch; more are counted, not written.
    """

    idle_seconds: float = 600.0
    connect_seconds: float = 10.0
    connections: int = 64
    all_connections: int = 2048
    connections_per_second: float = 50.0
    bytes: int = 2 * GIB
    request_bytes: int = 16 * MIB
    log_lines: int = 10_000


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The model provider of a run.

    Attributes:
        name: Name of its API: ``openai``, ``openai_chat`` or ``anthropic``.
        host: The only host that requests are sent to.
        key_file: Absolute path of the file with the key; empty: requests have no key.
        allow_external_tools: Whether hosted tools are let through.
        max_requests: Budget of one launch, or None.
        max_tokens: Budget of one launch, input and output together, or None.
        port: The only port that requests are sent to.
        base: Path of the provider's base URL; None for the vendor's own.
        is_plain: Whether requests go out without TLS.
        is_inside: Whether it is inside the cluster, at an address that need not be public.
        ca: Certificates in PEM form that are trusted instead of all others, or empty.
        run_tokens: Budget of all launches of the run, input and output together, or None.
        model: The model that the tester names, or empty.
    """

    name: str
    host: str
    key_file: str
    allow_external_tools: bool = False
    max_requests: int | None = None
    max_tokens: int | None = None
    port: int = 443
    base: str | None = None
    is_plain: bool = False
    is_inside: bool = False
    ca: str = ""
    run_tokens: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Configuration of a gateway.

    Attributes:
        pod_prefix: Names of the run's harness Pods begin with it.
        namespace: Namespace of the run.
        service_account: Service account of the harness Pods.
        audience: Audience of the launch tokens.
        domains: Configured ``allowed_domains``, normalized; empty: the proxy route is closed.
        provider: Present if the harness works with a model.
        limits: Bounds.
        authorities: Absolute path of a file with further certificate authorities, or empty.
    """

    pod_prefix: str
    namespace: str
    service_account: str
    audience: str
    domains: tuple[str, ...]
    provider: ProviderConfig | None
    limits: GatewayLimits = GatewayLimits()
    authorities: str = ""


READY_FILE: Final = "/tmp/ready"  # noqa: S108 - the container's own
"""The gateway writes it when it listens; its probe looks for it."""

LAUNCHES: Final = "launches"
"""Folder of the reports and logs, below the run's gateway folder."""


MAX_CAUSE_CHARACTERS: Final = 400
"""Of a failure's cause; a host has 253 at most."""


@dataclass(frozen=True, slots=True)
class RelayReport:
    """What a launch asked its model provider.

    Attributes:
        requests: Sent to the provider, failed and repeated ones included.
        blocked: Refused by the gateway: other path, hosted tool, budget.
        input_tokens: Sum over all answers, cached ones included.
        cached_tokens: Part of the input that came from the provider's cache.
        output_tokens: Sum over all answers.
        failures: Requests that the provider did not answer as it should.
        failure: ``provider_unavailable``, ``provider_auth``, ``provider_quota`` or
            ``provider_usage`` while the latest request ended so, else empty.
        failure_cause: What went wrong then, a clause of our own words with the host at most, or
            empty.
        is_key_taken: Whether the provider answered a request with 200, so took the key.
        budget_exhausted: Whether a request was refused because the launch's budget was used up.
        stripped_tools: Kinds of hosted tools that were taken out, sorted.
        models: Names of models in requests that were sent to the provider, sorted.
        answered_models: Those of them that the provider answered with 200.
        run_budget_exhausted: Whether a request was refused because the run's budget was used up.
        unreported: Answers without a usage, whose tokens are estimated.
        reserved_tokens: What requests in flight may use of the run's budget. Those of a gateway
            that was killed stay: what they used is unknown, and counts as this.
    """

    requests: int = 0
    blocked: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    failures: int = 0
    failure: str = ""
    failure_cause: str = ""
    is_key_taken: bool = False
    budget_exhausted: bool = False
    stripped_tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    answered_models: tuple[str, ...] = ()
    run_budget_exhausted: bool = False
    unreported: int = 0
    reserved_tokens: int = 0

    @property
    def budget_tokens(self) -> int:
        """What the launch has used of the run's budget, with what is reserved."""
        return self.input_tokens + self.output_tokens + self.reserved_tokens


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What one launch did by its egress.

    Attributes:
        pod: Name of the harness Pod.
        pod_uid: Its uid.
        address: Address of the Pod, as the gateway saw it first; its token is good from there only.
        closed: Whether the sidecar said that the harness has ended; then the numbers are final.
        requests: Connections and requests of the proxy route that were allowed.
        blocked: Those that were refused, cut for a wrong server name included.
        bytes_up: From the agent.
        bytes_down: To the agent.
        dropped_lines: Log lines above the bound, counted only.
        relay: Present where the run has a model provider.
        unanswered: What became of the latest request to the provider while it has answered none of
            the run, a clause of our own words; empty once it has, or where the agent is at fault.
    """

    pod: str
    pod_uid: str
    address: str = ""
    closed: bool = False
    requests: int = 0
    blocked: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    dropped_lines: int = 0
    relay: RelayReport | None = None
    unanswered: str = ""


WAITS_FILE: Final = "waits.json"
"""In the run's gateway folder; written by the gateway when it starts and at each change."""

MAX_LISTED_WAITS: Final = 20
"""Launches that the file names at most; it counts all of them."""


@dataclass(frozen=True, slots=True)
class ProviderWait:
    """A launch that its model provider makes wait: its latest call failed.

    Attributes:
        pod: Name of the harness Pod.
        since: When the first of its failed calls in a row ended, seconds since the epoch.
        status: HTTP status of the latest one, 0 for none: no connection, or an answer that broke.
        until: When the provider wants to be asked again (Retry-After), seconds since the epoch.
    """

    pod: str
    since: float
    status: int = 0
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ProviderWaits:
    """The launches of a run that the model provider makes wait.

    Attributes:
        launches: How many there are.
        longest: Those that have waited for longest, at most MAX_LISTED_WAITS, in this order.
    """

    launches: int = 0
    longest: tuple[ProviderWait, ...] = ()


USAGE_FILE: Final = "usage.json"
"""In the run's gateway folder, of a run with a budget; written as ``WAITS_FILE`` is."""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What the launches of a run have used of its budget.

    Attributes:
        tokens: Input and output of all launches; requests in flight count when they end.
        limit: The budget.
    """

    tokens: int
    limit: int


Record = TypeVar("Record", "GatewayConfig", "LaunchReport", "ProviderWaits", "RunUsage")


def encode(record: DataclassInstance) -> bytes:
    """Return a record as one JSON object."""
    return json.dumps(asdict(record), sort_keys=True, allow_nan=False).encode() + b"\n"


def decode(kind: type[Record], text: str | bytes) -> Record:
    """Return the record of a text; fields that are missing have their defaults.

    Args:
        kind: GatewayConfig, LaunchReport, ProviderWaits or RunUsage.
        text: One JSON object.

    Raises:
        ValueError: It is anything else, a value is of another type, or a field is unknown.
    """
    raw = decode_object(text)
    try:
        record = TypeAdapter(kind).validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise ValueError(f"not a {kind.__name__}: {_first(error)}") from None
    if unknown := sorted(_unknown(raw, asdict(record))):
        raise ValueError(f"not a {kind.__name__}: unknown field {unknown[0]}")
    return record


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}"


def _unknown(raw: object, known: object) -> list[str]:
    if not isinstance(raw, dict) or not isinstance(known, dict):
        return []
    inner = [name for key in raw.keys() & known.keys() for name in _unknown(raw[key], known[key])]
    return [*(raw.keys() - known.keys()), *inner]
