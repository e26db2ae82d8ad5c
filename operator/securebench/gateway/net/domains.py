"""Canonical host names, and matching against allowed domains (contract 11.1, 11.2)."""

from __future__ import annotations

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
