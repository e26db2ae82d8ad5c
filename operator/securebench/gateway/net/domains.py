"""Canonical host names, and matching against allowed domains (contract 11.1, 11.2)."""

from __future__ import annotations

from collections.abc import Iterable

from securebench.agents.allowed_domains import LABEL, MAX_DOMAIN_CHARACTERS


def canonical_host(text: str) -> str | None:
    """Return a host name in lower case without a trailing dot, or None if it is invalid.

    Valid are ASCII letters, digits and inner hyphens in labels of 1 to 63 characters, at most 253
    in total. Dotted-decimal addresses have this form too; see ``authority``.
    """
    if not text.isascii():
        return None
    host = text.lower().removesuffix(".")
    if len(host) > MAX_DOMAIN_CHARACTERS:
        return None
    return host if all(LABEL.fullmatch(label) for label in host.split(".")) else None


def is_listed(host: str, domains: Iterable[str]) -> bool:
    """Return whether a canonical host is one of the domains or a subdomain of one.

    Args:
        host: From ``canonical_host``.
        domains: Normalized entries of ``allowed_domains``.
    """
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
