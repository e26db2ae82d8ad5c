"""OpenAI's Responses API: allow-list, errors, token meter.

Source: providers 3.3 to 3.5.
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
    check_audio,
    check_inline,
    is_data_url,
    known_fields,
    objects,
    permitted_fields,
    plain,
)
from securebench.agents.providers.error_codes import failure_of_error
from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.core.json_values import object_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS: Final = frozenset(
    {
        "client_metadata",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
_REFUSED: Final = MappingProxyType(
    {
        "background": "the answer would come outside this request",
        "conversation": "the provider would read what is stored there",
        "previous_response_id": "the provider would read what is stored there",
        "prompt": "the provider would read what is stored there",
    }
)
_ITEMS: Final = frozenset(
    {
        "additional_tools",
        "agent_message",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "context_compaction",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "message",
        "reasoning",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Allowed items of ``input``; calls of hosted tools in the history are harmless."""
_PLACES: Final = frozenset({"content", "output", "summary"})
"""Fields of an item with text or a list of parts."""
_PARTS: Final = frozenset(
    {
        "encrypted_content",
        "input_audio",
        "input_file",
        "input_image",
        "input_text",
        "output_text",
        "reasoning_text",
        "refusal",
        "summary_text",
        "text",
    }
)
_PART_FIELDS: Final = frozenset(
    {
        "annotations",
        "audio_url",
        "cache_control",
        "detail",
        "encrypted_content",
        "file_data",
        "filename",
        "image_url",
        "input_audio",
        "logprobs",
        "refusal",
        "signature",
        "text",
        "type",
    }
)
"""Some servers go by the fields of a part rather than by its type."""
_LOCAL_TOOLS: Final = frozenset({"custom", "function"})
_CLIENT: Final = "client"
_CHOICES: Final = frozenset({"auto", "none", "required"})
_NAMESPACE_DEPTH: Final = 4
"""Maximum nesting of namespaces; codex uses one level."""


def allow_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request; tools hosted by the provider are allowed.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = permitted_fields(body, _FIELDS, _REFUSED, findings)
    if kept.get("store"):
        findings.kinds.add("store")
        kept["store"] = False
    return kept


def strip_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request and strip tools hosted by the provider.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = allow_hosted_tools(body, findings)
    if kept.get("tools") is not None:
        kept["tools"] = _tools(kept["tools"], findings)
    if kept.get("input") is not None and not isinstance(kept["input"], str):
        items = objects(kept["input"], "the field input", findings)
        kept["input"] = [_item(item, findings) for item in items]
    findings.check_tools()
    _check_choice(kept.get("tool_choice"), findings)
    return kept


def _tools(value: object, findings: BodyFindings, depth: int = 0) -> list[object]:
    if not isinstance(value, list):
        findings.malformed("a list of tools")
    kept = []
    for tool in value:
        local = _tool(tool, findings, depth)
        if local is not None:
            kept.append(local)
    return kept


def _tool(tool: object, findings: BodyFindings, depth: int) -> object:
    """Return a tool if the agent's CLI runs it, else None."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(tool, dict) and kind == "namespace" and depth < _NAMESPACE_DEPTH:
        inner = _tools(tool.get("tools"), findings, depth + 1)
        return {**tool, "tools": inner} if inner else None
    findings.given += 1
    is_local = kind in _LOCAL_TOOLS if isinstance(kind, str) else False
    if isinstance(tool, dict) and kind == "tool_search":
        is_local = tool.get("execution") == _CLIENT
    if not is_local:
        findings.kinds.add(plain(kind))
        return None
    findings.kept += 1
    return tool


def _item(item: JsonObject, findings: BodyFindings) -> JsonObject:
    kind = item.get("type")
    if kind is None and "role" in item:
        kind = "message"
    if not isinstance(kind, str) or kind not in _ITEMS:
        findings.refuse(f"input of type {plain(kind)} is not relayed in this run", kind)
    kept = {
        name: _parts(value, findings) if name in _PLACES else value for name, value in item.items()
    }
    if "tools" in item:
        kept["tools"] = _tools(item["tools"], findings)
    return kept


def _parts(value: object, findings: BodyFindings) -> object:
    if value is None or isinstance(value, str):
        return value
    return [_part(part, findings) for part in objects(value, "content", findings)]


def _part(part: JsonObject, findings: BodyFindings) -> JsonObject:
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        findings.refuse(f"content of type {plain(kind)} is not relayed in this run", kind)
    for name in ("file_id", "file_url"):
        if part.get(name) is not None:
            findings.refuse(f"{name} is not relayed: send the content itself", name)
    for name in ("audio_url", "image_url"):
        if part.get(name) is not None and not is_data_url(part[name]):
            findings.refuse(f"{name} is not relayed: send a data: URL", name)
    check_inline(part.get("file_data"), "file_data", findings)
    check_audio(part, findings)
    return known_fields(part, _PART_FIELDS, findings)


def _check_choice(choice: object, findings: BodyFindings) -> None:
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return
    if not isinstance(choice, dict):
        findings.refuse("the tool_choice names a tool that is not allowed in this run", choice)
    kind = choice.get("type")
    if kind == "allowed_tools":
        for each in objects(choice.get("tools"), "the field tool_choice", findings):
            _check_named(each, findings)
        return
    _check_named(choice, findings)


def _check_named(choice: JsonObject, findings: BodyFindings) -> None:
    kind = choice.get("type")
    if not isinstance(kind, str) or kind not in _LOCAL_TOOLS:
        findings.refuse("the tool_choice names a tool that is not allowed in this run", kind)


class OpenAIMeter(Meter):
    """Meters responses of the Responses API."""

    def event(self, event: Mapping[str, object]) -> None:
        """Process an event; the last one has the usage."""
        delta = event.get("delta")
        self.characters += len(delta) if isinstance(delta, str) else 0
        match event.get("type"):
            case "response.completed" | "response.incomplete" | "response.failed":
                self.document(object_at(event, "response"))
            case "error":
                self.failure = failure_of_error(event.get("code"))
                self.is_complete = True

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a response that came as one JSON document."""
        usage = object_at(document, "usage")
        details = object_at(usage, "input_tokens_details")
        self.usage = TokenUsage(
            count_at(usage, "input_tokens"),
            count_at(details, "cached_tokens"),
            count_at(usage, "output_tokens"),
        )
        status = document.get("status")
        self.is_complete = status in ("completed", "incomplete", "failed")
        if status == "failed":
            self.failure = failure_of_error(object_at(document, "error").get("code"))


def _refusal_body(kind: str, message: str) -> Mapping[str, object]:
    return {"error": {"type": kind, "message": message, "code": kind, "param": None}}


OPENAI: Final = ProviderRules(
    name="openai",
    api="responses",
    host="api.openai.com",
    base="/v1",
    path="/v1/responses",
    query=re.compile(""),
    key_header=b"authorization",
    key_prefix=b"Bearer ",
    headers=frozenset(
        {b"originator", b"session-id", b"session_id", b"thread-id", b"x-client-request-id"}
    ),
    header_prefixes=(b"x-codex-",),
    final_status=HTTPStatus.BAD_REQUEST,
    refusal_kinds=MappingProxyType(
        {
            RequestRefusal.NOT_RELAYED: "not_found_error",
            RequestRefusal.BAD_REQUEST: "invalid_request_error",
            RequestRefusal.TOO_LARGE: "invalid_request_error",
            RequestRefusal.BUDGET: "insufficient_quota",
            RequestRefusal.RUN_BUDGET: "insufficient_quota",
            RequestRefusal.KEY_REFUSED: "authentication_error",
            RequestRefusal.UNAVAILABLE: "server_error",
        }
    ),
    refusal_body=_refusal_body,
    allow_hosted_tools=allow_hosted_tools,
    strip_hosted_tools=strip_hosted_tools,
    meter=OpenAIMeter,
)
