"""Tokens for a repository, as registries ask for them (distribution spec, token authentication)."""

from __future__ import annotations

import json
from urllib.request import parse_http_list, parse_keqv_list

from yarl import URL

from securebench.errors import PackError
from securebench.json_values import object_in, text_at

BEARER = "bearer "
"""Beginning of a challenge for a token, in lower case."""


def token_url(challenge: str) -> URL:
    """Return the URL of the token service named in a challenge.

    Args:
        challenge: Value of the header WWW-Authenticate, which begins with Bearer.

    Raises:
        PackError: It names no place.
    """
    try:
        wanted = parse_keqv_list(parse_http_list(challenge[len(BEARER) :]))
        url = URL(wanted.get("realm", ""))
    except ValueError:
        url, wanted = URL(), {}
    if not url.absolute:
        raise PackError("the registry asks for a token and does not name its token service")
    return url.update_query({key: wanted[key] for key in ("service", "scope") if key in wanted})


def token_from(content: bytes) -> str:
    """Return the token of an answer.

    Raises:
        PackError: It has none.
    """
    try:
        answer = object_in(json.loads(content))
    except (ValueError, RecursionError):
        answer = {}
    token = text_at(answer, "token") or text_at(answer, "access_token")
    if not token or not token.isascii() or not token.isprintable():
        raise PackError("the registry's token service answered without a token")
    return token
