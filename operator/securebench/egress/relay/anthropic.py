"""The closed list for Anthropic's Messages API.

Source: providers 4.2 and 4.3.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from securebench.egress.relay.bodies import (
    Findings,
    JsonObject,
    objects,
    permitted_fields,
    plain,
)

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
"""Say which tools the provider runs."""
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
"""Levels of content; a result with a document with an image has three."""


def opened(body: JsonObject, findings: Findings) -> JsonObject:
    """Return what is left of a request where the provider's tools are allowed.

    Raises:
        RefusedBodyError: As of ``bodies.relayed_body``.
    """
    return permitted_fields(body, _FIELDS | _HOSTED, _REFUSED, findings)


def closed(body: JsonObject, findings: Findings) -> JsonObject:
    """Return what is left of a request.

    Raises:
        RefusedBodyError: As of ``bodies.relayed_body``.
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


def _tools(value: object, findings: Findings) -> list[JsonObject]:
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


def _check_content(value: object, findings: Findings, depth: int = 0) -> None:
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


def _check_source(source: object, findings: Findings, depth: int) -> None:
    """Look at where an image or document comes from; that of a search result is a label."""
    if source is None or isinstance(source, str):
        return
    if not isinstance(source, dict):
        findings.malformed("a source")
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        findings.refuse(f"a source of type {plain(kind)} is not relayed: send the content", kind)
    _check_content(source.get("content"), findings, depth + 1)


def _check_choice(choice: object, findings: Findings) -> None:
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
