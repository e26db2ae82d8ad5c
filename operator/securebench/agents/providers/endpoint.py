"""What an agent may reach: allowed domains, the APIs of model providers, a provider's own URL.

Entries of ``allowed_domains`` are normalised (contract 11.1). A tester may name a model provider by
its URL (``harness.config.provider``) if it speaks one of the APIs.
Source: contract 12.7; decision 0075.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.agents.providers.anthropic import ANTHROPIC
from securebench.agents.providers.openai import OPENAI
from securebench.agents.providers.openai_chat import OPENAI_CHAT
from securebench.digests import content_digest
from securebench.errors import ConfigError
from securebench.json_values import STRING, Schema, object_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from securebench.agents.providers.provider import ProviderRules

MAX_DOMAIN_CHARACTERS = 253
"""Maximum length of a DNS name."""

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A name whose last label matches is parsed as an IPv4 address by resolvers."""
_SIGNS = {"://": "a scheme", "/": "a path", ":": "a port or an IPv6 address", "*": "a wildcard"}


def normalize_domain(entry: str) -> str:
    """Return an entry trimmed, lower-cased and without trailing dots.

    Raises:
        ConfigError: It is not a plain domain name.
    """
    problem = domain_problem(entry)
    if problem is not None:
        raise ConfigError(f"allowed_domains entry {entry!r} {problem}")
    return _normal(entry)


def normalize_domains(entries: Sequence[object]) -> tuple[str, ...]:
    """Return all entries normalised, in order, without duplicates.

    Raises:
        ConfigError: Names the first entry that is not a plain domain name.
    """
    found: dict[str, None] = {}
    for entry in entries:
        if not isinstance(entry, str):
            raise ConfigError("allowed_domains must be a list of strings")
        found[normalize_domain(entry)] = None
    return tuple(found)


def is_listed(host: str, domains: Iterable[str]) -> bool:
    """Return whether a canonical host is one of the domains or a subdomain of one.

    Args:
        host: From ``canonical_host``.
        domains: Normalized entries of ``allowed_domains``.
    """
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _normal(entry: str) -> str:
    return entry.strip().lower().rstrip(".")


def domain_problem(entry: str) -> str | None:
    """Return what keeps a text from being a plain domain name, after "the name", or None."""
    if not entry.isascii():
        return "must be ASCII (write an international name in its xn-- form)"
    domain = _normal(entry)
    for sign, meaning in _SIGNS.items():
        if sign in domain:
            return f"must be a plain domain name without {meaning}"
    labels = domain.split(".")
    if len(labels) < 2 or len(domain) > MAX_DOMAIN_CHARACTERS:  # noqa: PLR2004 - at least two labels
        return f"must have at least two labels and at most {MAX_DOMAIN_CHARACTERS} characters"
    if labels[-1] == "localhost":
        return "must not be the local host"
    if NUMBER.fullmatch(labels[-1]):
        return "must not be an IP address"
    if not all(LABEL.fullmatch(label) for label in labels):
        return "must have labels of 1 to 63 letters, digits and inner hyphens"
    return None


APIS: Final[Mapping[str, ProviderRules]] = MappingProxyType(
    {rules.api: rules for rules in (OPENAI_CHAT, OPENAI, ANTHROPIC)}
)
"""By ``harness.config.provider.api``; the first is the default of command harnesses."""

PROVIDERS: Final[dict[str, ProviderRules]] = {rules.name: rules for rules in APIS.values()}
"""By the name under which the gateway serves them; those of agents' own are added here."""


def provider_named(name: str) -> ProviderRules:
    """Return the API of a model provider.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in PROVIDERS:
        raise ConfigError(f"no agent works with a model provider {name!r}")
    return PROVIDERS[name]


PORTS: Final = {"https": 443, "http": 80}
CA_CHARACTERS: Final = 65_536
"""Maximum length of ``ca``; a certificate has about 2,000 characters."""
_PORT_MAX: Final = 65_535
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?#]*)(?P<path>.*)")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_CERTIFICATES: Final = re.compile(
    r"\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+"
)
_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*")
_KEY: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)",
    "maxLength": 64,
    "description": "the name of an environment variable",
}
_KEYS: Final[Mapping[str, Schema]] = {"url": STRING, "key": _KEY, "ca": STRING}


def provider_schema(*, has_choice: bool) -> Schema:
    """Return the schema of ``harness.config.provider``.

    Args:
        has_choice: Whether the harness works with any API, so that the tester names it.
    """
    choice = {"api": {"enum": list(APIS)}} if has_choice else {}
    return object_of({**_KEYS, **choice}, "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """Where a provider is, and how it is asked.

    Attributes:
        api: A key of ``apis.APIS``.
        is_plain: Whether it is reached by HTTP without TLS.
        host: Normalised DNS name.
        port: From the URL, or its scheme's.
        base: Path of the URL without the last slash; may be empty.
        key: Variable with the key, and its entry in the Secret; empty: no key is sent.
        ca: Certificates in PEM form that are trusted instead of the public authorities; may be
            empty.
    """

    api: str
    is_plain: bool
    host: str
    port: int
    base: str
    key: str = ""
    ca: str = ""

    @property
    def url(self) -> str:
        """Return the normalised URL."""
        scheme = "http" if self.is_plain else "https"
        port = "" if self.port == PORTS[scheme] else f":{self.port}"
        return f"{scheme}://{self.host}{port}{self.base}"

    def filled_config(self) -> dict[str, object]:
        """Return it as JSON; of certificates only their digest."""
        ca = {"ca": content_digest(self.ca.encode())} if self.ca else {}
        return {"url": self.url, "api": self.api, "key": self.key, **ca}


def read_endpoint(given: Mapping[str, Any], api: str) -> ProviderEndpoint:
    """Return the endpoint of a configuration that fits ``provider_schema``.

    Args:
        given: ``harness.config.provider``.
        api: Default of its ``api``.

    Raises:
        ConfigError: Says what is wrong with a key; its fact ``key`` names it.
    """
    chosen, ca = given.get("api", api), given.get("ca", "")
    parts = _parts(given["url"])
    problem = _url_problem(parts, APIS[chosen].path.removeprefix(APIS[chosen].base))
    if problem is not None:
        raise _error("url", problem)
    if ca and not _is_certificate(ca):
        raise _error("ca", "must hold certificates in PEM form (-----BEGIN CERTIFICATE-----)")
    return ProviderEndpoint(
        api=chosen,
        is_plain=parts.scheme == "http",
        host=parts.host,
        port=parts.port,
        base=parts.path,
        key=given.get("key", ""),
        ca=ca,
    )


class _Parts(NamedTuple):
    """The parts of a URL as they are written."""

    scheme: str
    authority: str
    path: str

    @property
    def host(self) -> str:
        return self.authority.partition(":")[0].lower().rstrip(".")

    @property
    def port(self) -> int:
        return int(self.authority.partition(":")[2] or PORTS[self.scheme])


def _parts(url: str) -> _Parts:
    found = _URL.fullmatch(url)
    if found is None or found["scheme"].lower() not in PORTS:
        problem = "must begin with https:// (or http:// for a host that the administrator lists)"
        raise _error("url", problem)
    return _Parts(found["scheme"].lower(), found["authority"], found["path"].rstrip("/"))


def _url_problem(parts: _Parts, ending: str) -> str | None:
    if "@" in parts.authority:
        return "must not hold a user or password; name the key's variable in provider.key"
    host, _, port = parts.authority.partition(":")
    if host != host.strip():
        return "must have no white space beside its host"
    problem = domain_problem(host)
    if problem is not None:
        return f"names a host that {problem}"
    if port and not (_PORT.fullmatch(port) and int(port) <= _PORT_MAX):
        return f"has a port that is not a number from 1 to {_PORT_MAX}"
    if parts.path.endswith(ending):
        return f"must end before {ending}, which the API adds"
    if _PATH.fullmatch(parts.path):
        return None
    return "must have a path of letters, digits and ._~- only, without query and fragment"


def _is_certificate(text: str) -> bool:
    return len(text) <= CA_CHARACTERS and _CERTIFICATES.fullmatch(text) is not None


def _error(name: str, problem: str) -> ConfigError:
    key = ("harness", "config", "provider", name)
    return ConfigError(f"{'.'.join(key)} {problem}", key=key)
