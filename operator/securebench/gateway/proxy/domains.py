"""Names of hosts: one canonical form, and what the tester lists (contract 11.1, 11.2)."""

from __future__ import annotations

from collections.abc import Iterable

from securebench.agents.allowed_domains import LABEL, MAX_DOMAIN_CHARACTERS


def canonical_host(text: str) -> str | None:
    """Return a host's name lower-cased and without one trailing dot, or None where it is no name.

    Letters, digits and inner hyphens in labels of 1 to 63 characters, ASCII, 253 in all. Addresses
    in dotted decimals have this form too; see ``authority``.
    """
    if not text.isascii():
        return None
    host = text.lower().removesuffix(".")
    if len(host) > MAX_DOMAIN_CHARACTERS:
        return None
    return host if all(LABEL.fullmatch(label) for label in host.split(".")) else None


def is_listed(host: str, domains: Iterable[str]) -> bool:
    """Tell whether a canonical host is one of the domains or below one.

    Args:
        host: As of ``canonical_host``.
        domains: Normalized entries of ``allowed_domains``.
    """
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
