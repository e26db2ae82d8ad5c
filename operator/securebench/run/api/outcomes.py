"""Outcomes of attempts, as records and summaries name them."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How an attempt ended (contract 15.1). ``NOT_VERIFIED`` is null in records."""

    SCORED = "scored"
    AGENT = "agent"
    RESOURCE = "resource"
    VERIFIER = "verifier"
    PROVIDER = "provider"
    INFRASTRUCTURE = "infrastructure"
    CANCELLED = "cancelled"
    NOT_VERIFIED = "not_verified"
