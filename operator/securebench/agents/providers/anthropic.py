"""Anthropic's Messages API: allow-list, errors, token meter.

Source: providers 4.2 and 4.3.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.answers import Meter, TokenUsage, count_at
from securebench.agents.providers.bodies import (
    BodyFindings,
    JsonObject,
    objects,
    permitted_fields,
    plain,
)
from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.core.json_values import object_at
from securebench.core.reasons import PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS: Final = frozenset(
    {
        "cache_control",
        "context_management",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
_HOSTED: Final = frozenset({"mcp_servers"})
"""Fields that configure tools run by the provider."""
_REFUSED: Final = MappingProxyType({"container": "the provider would run code in it"})
_BLOCKS: Final = frozenset(
    {
        "compaction",
        "document",
        "image",
        "redacted_thinking",
        "search_result",
        "text",
        "thinking",
        "tool_reference",
        "tool_result",
        "tool_use",
    }
)
_SOURCES: Final = frozenset({"base64", "content", "text"})
_CHOICES: Final = frozenset({"any", "auto", "none"})
_CUSTOM: Final = "custom"
_DEPTH: Final = 8
"""Maximum nesting of content; a result with a document with an image has three levels."""
_WORDS: Final = ("text", "thinking", "partial_json")
_QUOTA: Final = frozenset({"rate_limit_error", "billing_error"})
_AUTH: Final = frozenset({"authentication_error", "permission_error"})
_ASKED: Final = frozenset({"invalid_request_error", "not_found_error", "request_too_large"})


def allow_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request; tools hosted by the provider are allowed.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    return permitted_fields(body, _FIELDS | _HOSTED, _REFUSED, findings)


def strip_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request and strip tools hosted by the provider.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = permitted_fields(body, _FIELDS, _REFUSED, findings)
    _check_content(kept.get("system"), findings)
    for message in objects(kept.get("messages"), "the field messages", findings):
        _check_content(message.get("content"), findings)
    if kept.get("tools") is not None:
        kept["tools"] = _tools(kept["tools"], findings)
    findings.check_tools()
    _check_choice(kept.get("tool_choice"), findings)
    return kept


def _tools(value: object, findings: BodyFindings) -> list[JsonObject]:
    kept = []
    for tool in objects(value, "the field tools", findings):
        findings.given += 1
        if tool.get("type", _CUSTOM) == _CUSTOM:
            findings.kept += 1
            findings.kept_names.add(str(tool.get("name")))
            kept.append(tool)
        else:
            findings.kinds.add(plain(tool["type"]))
    return kept


def _check_content(value: object, findings: BodyFindings, depth: int = 0) -> None:
    if value is None or isinstance(value, str):
        return
    if depth == _DEPTH:
        findings.malformed("content")
    for block in objects(value, "content", findings):
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in _BLOCKS:
            findings.refuse(f"content of type {plain(kind)} is not relayed in this run", kind)
        _check_source(block.get("source"), findings, depth)
        _check_content(block.get("content"), findings, depth + 1)


def _check_source(source: object, findings: BodyFindings, depth: int) -> None:
    """Check the source of an image or document; that of a search result is only a label."""
    if source is None or isinstance(source, str):
        return
    if not isinstance(source, dict):
        findings.malformed("a source")
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        findings.refuse(f"a source of type {plain(kind)} is not relayed: send the content", kind)
    _check_content(source.get("content"), findings, depth + 1)


def _check_choice(choice: object, findings: BodyFindings) -> None:
    if choice is None:
        return
    if not isinstance(choice, dict):
        findings.malformed("the field tool_choice")
    kind = choice.get("type")
    if isinstance(kind, str) and kind in _CHOICES:
        return
    if kind != "tool" or choice.get("name") not in findings.kept_names:
        findings.refuse(
            "the tool_choice names a tool that is not allowed in this run", "tool_choice"
        )


class AnthropicMeter(Meter):
    """Meters responses of the Messages API."""

    def event(self, event: Mapping[str, object]) -> None:
        """Process an event; the first has the input usage, later ones the output usage so far."""
        match event.get("type"):
            case "message_start":
                self._merge(object_at(object_at(event, "message"), "usage"))
            case "content_block_delta":
                delta = object_at(event, "delta")
                words = (delta.get(name) for name in _WORDS)
                self.characters += sum(len(word) for word in words if isinstance(word, str))
            case "message_delta":
                self._merge(object_at(event, "usage"))
                self.is_complete |= isinstance(object_at(event, "delta").get("stop_reason"), str)
            case "message_stop":
                self.is_complete = True
            case "error":
                self.failure = _failure(object_at(event, "error").get("type"))
                self.is_complete = True

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a message that came as one JSON document."""
        self._merge(object_at(document, "usage"))
        self.is_complete = document.get("type") == "message"

    def _merge(self, usage: Mapping[str, object]) -> None:
        cached = count_at(usage, "cache_read_input_tokens")
        asked = count_at(usage, "input_tokens") + count_at(usage, "cache_creation_input_tokens")
        self.usage = TokenUsage(
            max(self.usage.input_tokens, asked + cached),
            max(self.usage.cached_tokens, cached),
            max(self.usage.output_tokens, count_at(usage, "output_tokens")),
        )


def _failure(kind: object) -> str:
    if not isinstance(kind, str):
        return PROVIDER_UNAVAILABLE
    if kind in _QUOTA:
        return PROVIDER_QUOTA
    if kind in _AUTH:
        return PROVIDER_AUTH
    return "" if kind in _ASKED else PROVIDER_UNAVAILABLE


def _refusal_body(kind: str, message: str) -> Mapping[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}


ANTHROPIC: Final = ProviderRules(
    name="anthropic",
    api="messages",
    host="api.anthropic.com",
    path="/v1/messages",
    query=re.compile(r"[A-Za-z0-9_.=&-]{0,128}"),
    probes=frozenset({"/", "/api/hello"}),
    key_header=b"x-api-key",
    headers=frozenset(
        {
            b"anthropic-beta",
            b"anthropic-version",
            b"anthropic-dangerous-direct-browser-access",
            b"x-app",
            b"x-claude-code-session-id",
        }
    ),
    final_status=HTTPStatus.FORBIDDEN,
    refusal_kinds=MappingProxyType(
        {
            RequestRefusal.NOT_RELAYED: "not_found_error",
            RequestRefusal.BAD_REQUEST: "invalid_request_error",
            RequestRefusal.TOO_LARGE: "request_too_large",
            RequestRefusal.BUDGET: "permission_error",
            RequestRefusal.RUN_BUDGET: "permission_error",
            RequestRefusal.KEY_REFUSED: "permission_error",
            RequestRefusal.UNAVAILABLE: "api_error",
        }
    ),
    refusal_body=_refusal_body,
    allow_hosted_tools=allow_hosted_tools,
    strip_hosted_tools=strip_hosted_tools,
    meter=AnthropicMeter,
)
