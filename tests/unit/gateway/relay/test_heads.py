"""Paths, headers and the key."""

from __future__ import annotations

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.agents.providers.anthropic import ANTHROPIC
from securebench.agents.providers.openai import OPENAI
from securebench.agents.providers.provider import RequestKind, RequestRefusal
from securebench.gateway.provider_call import (
    KeyMask,
    RefusedHeadersError,
    agent_headers,
    host_of,
    upstream_headers,
)
from securebench.protocol.gateway import ProviderConfig

KEY = b"sk-canary-0123456789-abcdefgh"

TARGETS = {
    "responses": (OPENAI, "POST", "/v1/responses", RequestKind.RELAYED),
    "responses with a query": (OPENAI, "POST", "/v1/responses?a=b", RequestKind.UNKNOWN),
    "websocket": (OPENAI, "GET", "/v1/responses", RequestKind.UNKNOWN),
    "hosted search": (OPENAI, "POST", "/v1/alpha/search", RequestKind.UNKNOWN),
    "models": (OPENAI, "GET", "/v1/models", RequestKind.UNKNOWN),
    "files": (OPENAI, "POST", "/v1/files", RequestKind.UNKNOWN),
    "path trick": (OPENAI, "POST", "/v1/../v1/responses", RequestKind.UNKNOWN),
    "escaped": (OPENAI, "POST", "/v1%2Fresponses", RequestKind.UNKNOWN),
    "other slash": (OPENAI, "POST", "/v1/responses/", RequestKind.UNKNOWN),
    "absolute": (OPENAI, "POST", "http://x.example/v1/responses", RequestKind.UNKNOWN),
    "probe of the other": (OPENAI, "HEAD", "/", RequestKind.UNKNOWN),
    "messages": (ANTHROPIC, "POST", "/v1/messages", RequestKind.RELAYED),
    "messages with their query": (ANTHROPIC, "POST", "/v1/messages?beta=true", RequestKind.RELAYED),
    "strange query": (ANTHROPIC, "POST", "/v1/messages?a=%0d", RequestKind.UNKNOWN),
    "count": (ANTHROPIC, "POST", "/v1/messages/count_tokens", RequestKind.UNKNOWN),
    "batches": (ANTHROPIC, "POST", "/v1/messages/batches", RequestKind.UNKNOWN),
    "probe": (ANTHROPIC, "HEAD", "/", RequestKind.PROBE),
    "newer probe": (ANTHROPIC, "HEAD", "/api/hello", RequestKind.PROBE),
    "other probe": (ANTHROPIC, "HEAD", "/api/hello?x", RequestKind.UNKNOWN),
    "get": (ANTHROPIC, "GET", "/", RequestKind.UNKNOWN),
    "lower case": (ANTHROPIC, "post", "/v1/messages", RequestKind.UNKNOWN),
}


@pytest.mark.parametrize("name", TARGETS)
def test_only_the_listed_paths_are_relayed(name):
    provider, method, target, want = TARGETS[name]
    assert provider.kind(method, target) is want


HOSTS = {
    "a usual port": (ProviderConfig("openai", "a.b", ""), b"a.b"),
    "another": (ProviderConfig("openai", "a.b", "", port=8443), b"a.b:8443"),
    "without TLS": (ProviderConfig("openai", "a.b", "", port=80, is_plain=True), b"a.b"),
    "that of TLS without it": (
        ProviderConfig("openai", "a.b", "", port=443, is_plain=True),
        b"a.b:443",
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_the_host_field_has_the_port_where_it_is_not_the_usual_one(name):
    place, want = HOSTS[name]
    assert host_of(place) == want


STATUSES = {
    RequestRefusal.NOT_RELAYED: (404, 404),
    RequestRefusal.BAD_REQUEST: (400, 400),
    RequestRefusal.TOO_LARGE: (413, 413),
    RequestRefusal.BUDGET: (400, 403),
    RequestRefusal.RUN_BUDGET: (400, 403),
    RequestRefusal.NO_USAGE: (400, 403),
    RequestRefusal.KEY_REFUSED: (400, 403),
    RequestRefusal.UNAVAILABLE: (502, 502),
}


@pytest.mark.parametrize("reason", RequestRefusal)
def test_refusals_have_the_form_of_the_provider(reason):
    replies = [provider.refusal(reason, "why") for provider in (OPENAI, ANTHROPIC)]
    assert tuple(reply.status for reply in replies) == STATUSES[reason]
    first, second = (json.loads(reply.body) for reply in replies)
    assert first["error"]["message"] == second["error"]["message"] == "why"
    assert first["error"]["code"] == first["error"]["type"]
    assert (first.get("type"), second["type"]) == (None, "error")


def test_codex_understands_a_spent_budget():
    body = json.loads(OPENAI.refusal(RequestRefusal.BUDGET, "why").body)
    assert body["error"]["code"] == "insufficient_quota"


def test_request_headers_are_rebuilt():
    received = [
        (b"host", b"127.0.0.1:8081"),
        (b"authorization", b"Bearer dummy"),
        (b"x-api-key", b"other"),
        (b"cookie", b"a"),
        (b"accept", b"text/event-stream"),
        (b"accept-encoding", b"gzip"),
        (b"openai-organization", b"org"),
        (b"user-agent", b"sqlmap/1.0"),
        (b"x-forwarded-host", b"evil.example"),
        (b"anthropic-beta", b"a,b"),
        (b"x-codex-turn", b"1"),
        (b"x-stainless-retry-count", b"1"),
        (b"content-type", b"text/plain"),
        (b"content-length", b"99"),
    ]
    assert upstream_headers(OPENAI, b"api.openai.com", received, KEY, 12) == [
        (b"host", b"api.openai.com"),
        (b"authorization", b"Bearer " + KEY),
        (b"content-type", b"application/json"),
        (b"content-length", b"12"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"securebench"),
        (b"connection", b"close"),
        (b"accept", b"text/event-stream"),
        (b"x-codex-turn", b"1"),
        (b"x-stainless-retry-count", b"1"),
    ]
    relayed = dict(upstream_headers(ANTHROPIC, b"api.anthropic.com", received, KEY, 12))
    assert relayed[b"anthropic-beta"] == b"a,b"
    assert b"x-codex-turn" not in relayed
    assert (b"x-api-key", KEY) in upstream_headers(
        ANTHROPIC, b"api.anthropic.com", received, KEY, 12
    )
    assert b"authorization" not in dict(
        upstream_headers(ANTHROPIC, b"api.anthropic.com", received, KEY, 12)
    )


@pytest.mark.parametrize(
    "received",
    [
        [(b"anthropic-beta", b"a"), (b"anthropic-beta", b"b")],
        [(b"content-type", b"a"), (b"content-type", b"a")],
        [(b"content-encoding", b"gzip")],
        [(b"content-encoding", b"identity, gzip")],
    ],
)
def test_ambiguous_heads_are_refused(received):
    with pytest.raises(RefusedHeadersError):
        upstream_headers(ANTHROPIC, b"api.anthropic.com", received, KEY, 1)


def test_unlisted_headers_may_repeat():
    received = [(b"cookie", b"a"), (b"cookie", b"b"), (b"content-encoding", b"Identity")]
    assert len(upstream_headers(ANTHROPIC, b"api.anthropic.com", received, KEY, 1)) == 7


def test_answer_headers_are_rebuilt():
    kept = [
        (b"content-type", b"text/event-stream"),
        (b"retry-after", b"2"),
        (b"x-ratelimit-remaining-tokens", b"3"),
    ]
    dropped = [
        (b"set-cookie", b"a"),
        (b"location", b"https://evil.example"),
        (b"content-length", b"4"),
        (b"transfer-encoding", b"chunked"),
        (b"authorization", KEY),
    ]
    assert agent_headers([*kept, *dropped]) == kept


def masked(pieces: list[bytes]) -> bytes:
    mask = KeyMask(KEY)
    return b"".join(map(mask.feed, pieces)) + mask.rest()


@given(st.binary(max_size=40), st.binary(max_size=40), st.lists(st.integers(1, 120), max_size=6))
def test_the_key_is_found_wherever_the_pieces_end(before, after, cuts):
    text = before + KEY + after + base64.b64encode(b"Bearer " + KEY)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = masked([text[start:end] for start, end in pairwise(edges)])
    assert len(found) == len(text)
    assert KEY not in found
    assert found.startswith(before + b"*" * len(KEY) + after)


@pytest.mark.parametrize("offset", range(3))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_key_is_found_in_base64(offset, encode):
    key = b"sk-\xff\xfe\xfd-0123456789"
    mask = KeyMask(key)
    text = encode(b"x" * offset + key + b"tail")
    assert mask.whole(text).count(b"*") >= len(key) * 4 // 3 - 4
    assert mask.found == 1


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_other_bytes_stay_as_they_are(pieces):
    assert masked(pieces) == b"".join(pieces)


def test_ends_of_events_are_not_held_back():
    assert KeyMask(KEY).feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert KeyMask(KEY).feed(b"data: sk-ca") == b"data: "


def test_a_key_too_short_to_be_one_masks_nothing():
    assert KeyMask(b"a").whole(b"banana") == b"banana"
