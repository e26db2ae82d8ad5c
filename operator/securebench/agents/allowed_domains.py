"""Validate and normalise entries of ``allowed_domains`` (contract 11.1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
