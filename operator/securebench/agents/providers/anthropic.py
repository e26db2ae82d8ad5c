"""Anthropic's Messages API: allow-list, errors, token meter.

Source: providers 4.2 and 4.3.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.answers import Meter, billed, is_said
from securebench.agents.providers.bodies import (
    CACHE_CONTROL,
    BodyFindings,
    Fields,
    JsonObject,
    Rule,
    Tools,
    any_model,
    anything,
    closed_model,
    each,
    inline,
    json_schema,
    objects_of,
    plain_fields,
    plain_or,
    plain_value,
    refused,
    sent_body,
    shape,
    text_or_list,
    typed,
    words,
)
from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.json_values import object_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE: Final = "a source of type {} is not relayed: send the content"
_BLOCK: Final = "content of type {} is not relayed in this run"
_CITATION: Final = plain_fields(
    *("cited_text", "document_index", "document_title", "encrypted_index", "end_block_index"),
    *("end_char_index", "end_page_number", "search_result_index", "source", "start_block_index"),
    *("start_char_index", "start_page_number", "title", "type", "url"),
)
_DEPTH: Final = 8
"""Maximum nesting of content; a result with a document with an image has three levels."""


def _too_deep(_value: object, _name: str, findings: BodyFindings) -> object:
    findings.malformed("content")


def _content(inner: Rule) -> Rule:
    """Return the rule of content whose blocks have such content."""
    source = plain_or(
        typed(
            {
                "base64": {"data": inline("data"), "media_type": plain_value},
                "content": {"content": inner},
                "text": {"data": plain_value, "media_type": plain_value},
            },
            _SOURCE,
        )
    )
    kinds: Mapping[str, Fields] = {
        "compaction": {"content": inner, "encrypted_content": plain_value},
        "document": {
            "citations": plain_fields("enabled"),
            "context": plain_value,
            "source": source,
            "title": plain_value,
        },
        "image": {"source": source},
        "redacted_thinking": {"data": plain_value},
        "search_result": {
            "citations": plain_fields("enabled"),
            "content": inner,
            "source": plain_value,
            "title": plain_value,
        },
        "text": {"citations": each(_CITATION), "text": plain_value},
        "thinking": {"signature": plain_value, "thinking": plain_value},
        "tool_reference": {"tool_name": plain_value},
        "tool_result": {
            "content": inner,
            "is_error": plain_value,
            "tool_use_id": plain_value,
        },
        "tool_use": {
            "caller": plain_fields("type"),
            "id": plain_value,
            "input": anything,
            "name": plain_value,
        },
    }
    common: Fields = {"cache_control": CACHE_CONTROL}
    return text_or_list(
        typed({kind: {**common, **fields} for kind, fields in kinds.items()}, _BLOCK)
    )


_CONTENT: Rule = _too_deep
for _ in range(_DEPTH):
    _CONTENT = _content(_CONTENT)


_CUSTOM: Final = "custom"
_FORMAT: Final = shape(name=plain_value, schema=json_schema, type=plain_value)
_AMOUNT: Final = plain_or(plain_fields("type", "value"))
_ALWAYS: Final[Fields] = {
    "container": refused("the provider would run code in it"),
    "model": any_model,
}
"""Fields whose rules hold also where tools of the provider are allowed."""
_CLOSED: Final[Fields] = {
    **dict.fromkeys(("max_tokens", "stream", "temperature", "top_k", "top_p"), plain_value),
    **_ALWAYS,
    "cache_control": CACHE_CONTROL,
    "context_management": shape(
        edits=each(
            shape(
                clear_at_least=_AMOUNT,
                clear_tool_inputs=plain_or(each(plain_value)),
                exclude_tools=each(plain_value),
                instructions=plain_value,
                keep=_AMOUNT,
                pause_after_compaction=plain_value,
                trigger=_AMOUNT,
                type=plain_value,
            )
        )
    ),
    "messages": objects_of(shape(content=_CONTENT, role=plain_value)),
    "metadata": plain_fields("user_id"),
    "model": closed_model,
    "output_config": shape(
        effort=plain_value, format=_FORMAT, task_budget=plain_fields("remaining", "total", "type")
    ),
    "output_format": _FORMAT,
    "stop_sequences": each(plain_value),
    "system": _CONTENT,
    "thinking": plain_fields("budget_tokens", "display", "type"),
    "tool_choice": anything,
    "tools": Tools(
        {
            _CUSTOM: {
                **dict.fromkeys(
                    ("defer_loading", "description", "eager_input_streaming", "name", "strict"),
                    plain_value,
                ),
                "allowed_callers": words("direct"),
                "cache_control": CACHE_CONTROL,
                "input_examples": anything,
                "input_schema": json_schema,
            }
        },
        untyped=_CUSTOM,
    ),
}
_OPEN: Final[Fields] = {**dict.fromkeys((*_CLOSED, "mcp_servers"), anything), **_ALWAYS}
_CHOICE: Final = plain_fields("disable_parallel_tool_use", "name", "type")
_CHOICES: Final = frozenset({"any", "auto", "none"})
_WORDS: Final = ("text", "thinking", "partial_json")


def allow_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request; tools hosted by the provider are allowed.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    return sent_body(body, _OPEN, findings)


def strip_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request and strip tools hosted by the provider.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = sent_body(body, _CLOSED, findings, "messages")
    choice = kept.get("tool_choice")
    if choice is None:
        return kept
    _check_choice(choice, findings)
    return {**kept, "tool_choice": _CHOICE(choice, "tool_choice", findings)}


def _check_choice(choice: object, findings: BodyFindings) -> None:
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
                self.is_complete |= is_said(object_at(event, "delta").get("stop_reason"))
            case "message_stop":
                self.is_complete = True
            case "error":
                self.failed(event.get("error"))

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a message that came as one JSON document."""
        if document.get("error"):
            self.failed(document["error"])
            return
        self._merge(object_at(document, "usage"))
        self.is_complete = document.get("type") == "message" or "content" in document

    def _merge(self, usage: Mapping[str, object]) -> None:
        self.counted(billed(usage, is_cache_beside=True))


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
            RequestRefusal.NO_USAGE: "permission_error",
            RequestRefusal.KEY_REFUSED: "permission_error",
            RequestRefusal.UNAVAILABLE: "api_error",
        }
    ),
    refusal_body=_refusal_body,
    allow_hosted_tools=allow_hosted_tools,
    strip_hosted_tools=strip_hosted_tools,
    meter=AnthropicMeter,
)
