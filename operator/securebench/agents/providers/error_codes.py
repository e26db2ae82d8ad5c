"""What an error of an OpenAI-compatible API stands for; each server has words of its own.

Source: providers 3.6 and 10.4.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from securebench.agents.providers.answers import failure_of_status
from securebench.core.reasons import PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE

_STATUS: Final = re.compile("[45][0-9]{2}")


def failure_of_error(code: object, kind: object = None) -> str:
    """Map an error to a failure_reason; errors about the request itself map to none.

    Args:
        code: Its ``code``: an HTTP status, also one as text, or a word.
        kind: Its ``type``, which counts where the code is no status.
    """
    if isinstance(code, int | str) and _STATUS.fullmatch(str(code)):
        return failure_of_status(int(code))
    words = {_plain(word) for word in (code, kind) if word and isinstance(word, str)}
    if not words:
        return PROVIDER_UNAVAILABLE
    return next((reason for reason, known in _WORDS.items() if words & known), "")


def _plain(word: str) -> str:
    """Return a word so that ``InternalServerError`` is ``internal_server_error``."""
    return re.sub("[^a-z]", "", word.lower())


def _plain_words(*words: str) -> frozenset[str]:
    return frozenset(map(_plain, words))


_WORDS: Final = MappingProxyType(
    {
        PROVIDER_AUTH: _plain_words("auth_error", "authentication_error", "invalid_api_key"),
        PROVIDER_QUOTA: _plain_words(
            "budget_exceeded",
            "insufficient_quota",
            "rate_limit_error",
            "rate_limit_exceeded",
            "throttling_error",
            "usage_limit_reached",
            "usage_not_included",
        ),
        PROVIDER_UNAVAILABLE: _plain_words(
            "api_connection_error",
            "api_error",
            "internal_error",
            "internal_server_error",
            "overloaded_error",
            "server_error",
            "server_is_overloaded",
            "service_unavailable_error",
            "slow_down",
            "timeout",
            "timeout_error",
            "unavailable_error",
        ),
    }
)
