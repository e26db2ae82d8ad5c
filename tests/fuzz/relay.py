"""Targets of the provider relay: bodies of agents, answers of providers."""

# ruff: noqa: E501 - tables of tokens

from __future__ import annotations

import json
from pathlib import Path

from fuzz.loop import Target
from securebench.agents.providers import anthropic, openai
from securebench.agents.providers.answers import DocumentReader, Meter, StreamReader
from securebench.agents.providers.anthropic import AnthropicMeter
from securebench.agents.providers.bodies import Close, RefusedBodyError, plain, relayed_body
from securebench.agents.providers.openai import OpenAIMeter
from securebench.gateway.provider_call import KeyMask

KEY = b"sk-canary-0123456789"

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
BODIES: tuple[object, ...] = (
    {"model": "m", "input": "hi", "tools": [FUNCTION, {"type": "web_search"}], "store": True},
    {
        "model": "m",
        "input": [
            {"type": "additional_tools", "tools": [{"type": "namespace", "tools": [FUNCTION]}]},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]},
            {"type": "function_call_output", "output": [{"type": "input_text", "text": "x"}]},
        ],
        "tool_choice": {"type": "function", "name": "f"},
    },
    {
        "model": "m",
        "system": [{"type": "text", "text": "x"}],
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [IMAGE]}]}],
        "tools": [{"name": "Bash"}, {"type": "web_fetch_20250910", "name": "w"}],
        "mcp_servers": [{"url": "https://x"}],
    },
)


def check_body(data: bytes, _root: Path) -> None:
    """What is sent offers no tool of the provider's and nothing to fetch, however it is judged."""
    for close in (openai.strip_hosted_tools, anthropic.strip_hosted_tools):
        kinds, body = judged(data, close)
        assert all(kind == plain(kind) for kind in kinds), kinds
        if body is None:
            continue
        assert judged(body, close) == ((), body)
        sent = json.loads(body)
        if close is openai.strip_hosted_tools:
            assert not openai_hosted(sent), sent
        else:
            assert all(tool.get("type", "custom") == "custom" for tool in sent.get("tools") or ())
            assert not sources(sent) & {"url", "file"}, sent


def judged(data: bytes, close: Close) -> tuple[tuple[str, ...], bytes | None]:
    """Return the kinds that were found, and what is sent."""
    try:
        body = relayed_body(data, close)
    except RefusedBodyError as error:
        return error.kinds, None
    return body.stripped, body.data


def openai_hosted(body: dict[str, object]) -> list[object]:
    """Return what is offered beyond local tools, or would be fetched."""
    found: list[object] = []
    places: list[object] = [body.get("tools")]
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        places.append(item.get("tools"))
        parts = item.get("content")
        for part in parts if isinstance(parts, list) else ():
            found += [part[name] for name in ("file_id", "file_url") if part.get(name) is not None]
            image = part.get("image_url")
            found += [image] if image is not None and image[:5].lower() != "data:" else []
    while places:
        tools = places.pop()
        for tool in tools if isinstance(tools, list) else ():
            if tool["type"] == "namespace":
                places.append(tool["tools"])
            elif tool["type"] not in ("function", "custom"):
                found += [] if tool.get("execution") == "client" else [tool]
    return found


def sources(value: object) -> set[object]:
    """Return the types of all sources at any depth of Anthropic's content."""
    if isinstance(value, list):
        return {kind for each in value for kind in sources(each)}
    if not isinstance(value, dict):
        return set()
    inner = [value.get(name) for name in ("content", "messages", "system", "source")]
    found = {kind for each in inner for kind in sources(each)}
    source = value.get("source")
    return found | ({source.get("type")} if isinstance(source, dict) else set())


BODY = Target(
    "relay_body",
    check_body,
    seeds=tuple(json.dumps(body).encode() for body in BODIES),
    tokens=(
        b'"type":"web_search"', b'"type":"function"', b'"type":"namespace","tools":[', b'"tools":[', b'"type":"custom"',
        b'"type":"additional_tools"', b'"file_id":"f"', b'"file_url":"u"', b'"image_url":"http:"', b'"source":{"type":"url"}',
        b'"type":"item_reference"', b'"background":true', b'"input":[', b'"messages":[', b'"content":[', b'"model":"m"',
        b"{", b"}", b"[", b"]", b",", b"null", b'"tool_choice":', b'{"type":"tool_search","execution":"client"}',
    ),
)  # fmt: skip

USAGE = b'"usage":{"input_tokens":3,"output_tokens":4}'


def check_answer(data: bytes, _root: Path) -> None:
    """Sums are sane and do not depend on where the pieces end; the key never comes through."""
    results = []
    for size in (3, 64, len(data) or 1):
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        results.append([read(meter, pieces) for meter in (OpenAIMeter(), AnthropicMeter())])
        mask = KeyMask(KEY)
        masked = b"".join(map(mask.feed, pieces)) + mask.rest()
        assert len(masked) == len(data)
        assert KEY not in masked
    assert results[0] == results[1] == results[2]


def read(meter: Meter, pieces: list[bytes]) -> tuple[object, ...]:
    """Read an answer in both forms and return what was found."""
    for reader in (StreamReader(meter), DocumentReader(meter)):
        for piece in pieces:
            reader.feed(piece)
        reader.end()
    usage = meter.usage
    assert min(usage.input_tokens, usage.cached_tokens, usage.output_tokens) >= 0
    assert meter.failure in ("", "provider_auth", "provider_quota", "provider_unavailable")
    return usage, meter.is_complete, meter.failure, meter.characters, meter.has_gap


ANSWER = Target(
    "relay_answer",
    check_answer,
    seeds=(
        b'data: {"type":"response.completed","response":{"status":"completed",' + USAGE + b"}}\n\n",
        b'data: {"type":"message_start","message":{' + USAGE + b"}}\r\n\r\n"
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},' + USAGE + b"}\r\r",
        b'{"type":"message",' + USAGE + b"}",
        b'data: {"type":"error","error":{"type":"overloaded_error"}}\n\nx' + KEY + b"y",
    ),
    tokens=(
        b"\n\n", b"\r\n", b"\r", b"data: ", b"data:", b"event: x\n", b": c\n", KEY, KEY[:9], KEY[9:], USAGE, b"1e400",
        b'"type":"response.failed"', b'"code":"rate_limit_exceeded"', b'"delta":{"text":"x"}', b'"type":"message_stop"',
        b"-1", b"99999999999999999999", b"true", b"[]", b"{}", b'"type":"content_block_delta"',
    ),
)  # fmt: skip

TARGETS = (BODY, ANSWER)
