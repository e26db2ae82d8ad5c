"""OpenAI's Responses API: allow-list, errors, token meter.

Source: providers 3.3 to 3.5.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.answers import Meter, billed
from securebench.agents.providers.bodies import (
    AUDIO,
    CACHE_CONTROL,
    BodyFindings,
    Fields,
    JsonObject,
    Tools,
    any_model,
    anything,
    closed_model,
    data_url,
    each,
    inline,
    json_schema,
    never_stored,
    objects,
    plain_fields,
    plain_map,
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

_STORED: Final = refused("the provider would read what is stored there")
_ANNOTATION: Final = plain_fields("end_index", "start_index", "title", "type", "url")
_ADDRESS: Final = refused("send the content itself")
_PART: Final[Fields] = {
    "annotations": each(_ANNOTATION),
    "audio_url": data_url("audio_url"),
    "cache_control": CACHE_CONTROL,
    "detail": plain_value,
    "encrypted_content": plain_value,
    "file_data": inline("file_data"),
    "file_id": _ADDRESS,
    "file_url": _ADDRESS,
    "filename": plain_value,
    "image_url": data_url("image_url"),
    "input_audio": AUDIO,
    "logprobs": anything,
    "refusal": plain_value,
    "signature": plain_value,
    "text": plain_value,
}
"""Of every part: some servers go by the fields of a part rather than by its type."""
_PARTS: Final = text_or_list(
    typed(
        dict.fromkeys(
            (
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
            ),
            _PART,
        ),
        "content of type {} is not relayed in this run",
    )
)
_TOOL: Final[Fields] = dict.fromkeys(("defer_loading", "description", "name"), plain_value)
_FUNCTION: Final[Fields] = {
    **_TOOL,
    "output_schema": json_schema,
    "parameters": json_schema,
    "strict": plain_value,
}
_LOCAL_TOOLS: Final[Mapping[str, Fields]] = {
    "custom": {**_TOOL, "format": plain_fields("definition", "syntax", "type")},
    "function": _FUNCTION,
    "tool_search": {**_FUNCTION, "execution": plain_value},
}
_NAMESPACE_DEPTH: Final = 4
"""Maximum nesting of namespaces; codex uses one level."""
_TOOLS = Tools(_LOCAL_TOOLS)
for _ in range(_NAMESPACE_DEPTH):
    _TOOLS = Tools({**_LOCAL_TOOLS, "namespace": {**_TOOL, "tools": _TOOLS}})
_CALL: Final[Fields] = {
    **dict.fromkeys(
        ("call_id", "created_by", "execution", "id", "name", "namespace", "status"), plain_value
    ),
    "caller": plain_fields("type"),
    "internal_chat_message_metadata_passthrough": plain_fields("turn_id"),
}
_OUTPUT: Final[Fields] = {**_CALL, "output": _PARTS}
_SEALED: Final[Fields] = {**_CALL, "encrypted_content": plain_value}
_ITEMS: Final[Mapping[str, Fields]] = {
    "additional_tools": {**_CALL, "role": plain_value, "tools": _TOOLS},
    "agent_message": {
        **_CALL,
        "author": plain_value,
        "content": _PARTS,
        "recipient": plain_value,
    },
    "compaction": _SEALED,
    "compaction_summary": _SEALED,
    "compaction_trigger": {},
    "context_compaction": _SEALED,
    "custom_tool_call": {**_CALL, "input": plain_value},
    "custom_tool_call_output": _OUTPUT,
    "function_call": {**_CALL, "arguments": plain_value, "encrypted_function_args": plain_value},
    "function_call_output": _OUTPUT,
    "image_generation_call": {
        **_CALL,
        "result": inline("result"),
        "revised_prompt": plain_value,
    },
    "local_shell_call": {
        **_CALL,
        "action": shape(
            command=plain_or(each(plain_value)),
            env=anything,
            timeout_ms=plain_value,
            type=plain_value,
            user=plain_value,
            working_directory=plain_value,
        ),
    },
    "local_shell_call_output": _OUTPUT,
    "message": {
        **_CALL,
        "content": _PARTS,
        "end_turn": plain_value,
        "phase": plain_value,
        "role": plain_value,
    },
    "reasoning": {**_SEALED, "content": _PARTS, "summary": _PARTS},
    "tool_search_call": {**_CALL, "arguments": anything},
    "tool_search_output": {**_CALL, "tools": _TOOLS},
    "web_search_call": {
        "action": shape(
            **dict.fromkeys(("pattern", "query", "type", "url"), plain_value),
            queries=each(plain_value),
        ),
        "status": plain_value,
    },
}
"""Allowed items of ``input``; calls of hosted tools in the history are harmless."""
_HOLDS: Final = (
    *("arguments", "call_id", "content", "encrypted_content", "input", "output", "result"),
    "tools",
)
"""Fields with the content of an item. Without any, its id would name what the provider stores."""
_typed_item = typed(
    _ITEMS,
    "input of type {} is not relayed in this run",
    lambda item: "message" if "role" in item else "",
)


def _item(value: object, name: str, findings: BodyFindings) -> object:
    item = _typed_item(value, name, findings)
    if isinstance(item, dict) and item.get("id") and not any(map(item.get, _HOLDS)):
        findings.kinds.add("id")
        del item["id"]
    return item


def _free_item(value: object, _name: str, findings: BodyFindings) -> object:
    """Refuse a stored item also where tools of the provider are allowed."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and (kind == "item_reference" or not set(value) - {"id", "type"}):
        findings.refuse("input by its id is not relayed: send the content itself", "item_reference")
    return value


_ALWAYS: Final[Fields] = {
    "background": refused("the answer would come outside this request"),
    "conversation": _STORED,
    "model": any_model,
    "previous_response_id": _STORED,
    "prompt": _STORED,
    "store": never_stored,
}
"""Fields whose rules hold also where tools of the provider are allowed."""
_CLOSED: Final[Fields] = {
    **dict.fromkeys(
        (
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "parallel_tool_calls",
            "prompt_cache_key",
            "prompt_cache_retention",
            "safety_identifier",
            "stream",
            "temperature",
            "top_logprobs",
            "top_p",
            "truncation",
            "user",
        ),
        plain_value,
    ),
    **_ALWAYS,
    "client_metadata": plain_map,
    "include": words(
        "message.output_text.logprobs", "output.encrypted_content", "reasoning.encrypted_content"
    ),
    "input": text_or_list(_item),
    "model": closed_model,
    "reasoning": plain_fields("context", "effort", "generate_summary", "mode", "summary"),
    "stream_options": plain_fields("include_obfuscation", "include_usage"),
    "text": shape(
        format=shape(
            **dict.fromkeys(("description", "name", "strict", "type"), plain_value),
            schema=json_schema,
        ),
        verbosity=plain_value,
    ),
    "tool_choice": anything,
    "tools": _TOOLS,
}
_OPEN: Final[Fields] = {
    **dict.fromkeys((*_CLOSED, "metadata"), anything),
    **_ALWAYS,
    "input": text_or_list(_free_item),
}
_CHOICES: Final = frozenset({"auto", "none", "required"})


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
    return with_local_choice(sent_body(body, _CLOSED, findings), findings)


_NAME: Final = plain_fields("name")
_NAMED: Final[Fields] = {"custom": _NAME, "function": _NAME, "name": plain_value}
_CHOICE: Final[Fields] = {
    **_NAMED,
    "mode": plain_value,
    "tools": each(shape(**_NAMED, type=plain_value)),
    "type": plain_value,
}


def with_local_choice(kept: JsonObject, findings: BodyFindings) -> JsonObject:
    """Return a body of OpenAI's APIs whose ``tool_choice`` names tools of the agent only.

    Raises:
        RefusedBodyError: It names others.
    """
    choice = kept.get("tool_choice")
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return kept
    named = [choice]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        # Chat Completions has the list one level deeper.
        allowed = choice.get("allowed_tools", choice)
        tools = allowed.get("tools") if isinstance(allowed, dict) else None
        named = list(objects(tools, "the field tool_choice", findings))
    for one in named:
        kind = one.get("type") if isinstance(one, dict) else one
        if not isinstance(one, dict) or kind not in ("custom", "function"):
            findings.refuse("the tool_choice names a tool that is not allowed in this run", kind)
    rule = shape(**_CHOICE, allowed_tools=shape(**_CHOICE))
    return {**kept, "tool_choice": rule(choice, "tool_choice", findings)}


class OpenAIMeter(Meter):
    """Meters responses of the Responses API."""

    def event(self, event: Mapping[str, object]) -> None:
        """Process an event; the last one has the usage."""
        delta = event.get("delta")
        self.characters += len(delta) if isinstance(delta, str) else 0
        match event.get("type"):
            case "response.completed" | "response.incomplete" | "response.failed" as kind:
                self._ended_as(kind.removeprefix("response."), object_at(event, "response"))
            case "error":
                self.failed(event.get("error") or event)

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a response that came as one JSON document."""
        status = document.get("status")
        if status not in _RUNNING and (status in _ENDS or "output" in document):
            self._ended_as(str(status), document)
        elif isinstance(document.get("error"), dict | str):
            self.failed(document["error"])

    def _ended_as(self, end: str, response: Mapping[str, object]) -> None:
        """Count a response that has ended; servers give its status various names, or none."""
        self.counted(billed(object_at(response, "usage")))
        self.is_complete = True
        if "failed" in (end, response.get("status")) or response.get("error"):
            self.failed(response.get("error"))


_RUNNING: Final = ("in_progress", "queued")
_ENDS: Final = ("completed", "failed", "incomplete")


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
            RequestRefusal.NO_USAGE: "insufficient_quota",
            RequestRefusal.KEY_REFUSED: "authentication_error",
            RequestRefusal.UNAVAILABLE: "server_error",
        }
    ),
    refusal_body=_refusal_body,
    allow_hosted_tools=allow_hosted_tools,
    strip_hosted_tools=strip_hosted_tools,
    meter=OpenAIMeter,
)
