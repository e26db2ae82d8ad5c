"""Chat Completions, as OpenAI documents it and vLLM, llama.cpp, Ollama and others serve it.

Source: providers 10.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.answers import (
    Meter,
    TokenUsage,
    count_at,
)
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
from securebench.agents.providers.openai import OPENAI
from securebench.agents.providers.provider import ProviderRules
from securebench.core.json_values import object_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS: Final = frozenset(
    {
        "chat_template_kwargs",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "min_p",
        "min_tokens",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "safety_identifier",
        "seed",
        "stop",
        "stop_token_ids",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
"""The documented fields, and those by which open servers steer sampling and thinking."""
_HOSTED: Final = frozenset({"web_search_options"})
"""Fields that make the provider search."""
_REFUSED: Final = MappingProxyType({"audio": "spoken answers are not relayed"})
_PARTS: Final = frozenset(
    {"file", "image_url", "input_audio", "reasoning", "refusal", "text", "thinking"}
)
_PART_FIELDS: Final = _PARTS | {"annotations", "cache_control", "closed", "signature", "type"}
"""Some servers go by the fields of a part rather than by its type."""
_LOCAL_TOOLS: Final = frozenset({"custom", "function"})
_CHOICES: Final = frozenset({"auto", "none", "required"})
_ONLINE: Final = ":online"
"""Ending by which routers of models add a web search."""
_DELTAS: Final = ("content", "reasoning", "reasoning_content", "refusal")


def allow_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request; tools hosted by the provider are allowed.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    return _permitted(body, _FIELDS | _HOSTED, findings)


def strip_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request and strip tools hosted by the provider.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = _permitted(body, _FIELDS, findings)
    if str(kept.get("model")).lower().endswith(_ONLINE):
        findings.refuse("models that search by themselves are not allowed in this run", "model")
    messages = objects(kept.get("messages"), "the field messages", findings)
    kept["messages"] = [_message(message, findings) for message in messages]
    if kept.get("tools") is not None:
        kept["tools"] = _tools(kept["tools"], findings)
    findings.check_tools()
    _check_choice(kept.get("tool_choice"), findings)
    return kept


def _permitted(body: JsonObject, known: frozenset[str], findings: BodyFindings) -> JsonObject:
    kept = permitted_fields(body, known, _REFUSED, findings)
    if kept.get("n") not in (None, 1):
        findings.refuse("the field n is relayed as 1 only: ask again for another answer", "n")
    return _metered(kept, findings)


def _metered(kept: JsonObject, findings: BodyFindings) -> JsonObject:
    """Make the provider report the usage of a stream, which it does only where it is asked to."""
    if kept.get("store"):
        findings.kinds.add("store")
        kept["store"] = False
    options = kept.get("stream_options")
    if not kept.get("stream"):
        return {name: value for name, value in kept.items() if name != "stream_options"}
    if options is not None and not isinstance(options, dict):
        findings.malformed("the field stream_options")
    return {**kept, "stream_options": {**(options or {}), "include_usage": True}}


def _tools(value: object, findings: BodyFindings) -> list[JsonObject]:
    kept = []
    for tool in objects(value, "the field tools", findings):
        findings.given += 1
        kind = tool.get("type")
        if isinstance(kind, str) and kind in _LOCAL_TOOLS:
            findings.kept += 1
            kept.append(tool)
        else:
            findings.kinds.add(plain(kind))
    return kept


def _message(message: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a message; refuse what the provider would fetch: files, images, earlier speech."""
    if message.get("audio") is not None:
        findings.refuse("audio by its id is not relayed: send the text", "audio")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return message
    parts = [_part(part, findings) for part in objects(content, "content", findings)]
    return {**message, "content": parts}


def _part(part: JsonObject, findings: BodyFindings) -> JsonObject:
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        findings.refuse(f"content of type {plain(kind)} is not relayed in this run", kind)
    image, file = part.get("image_url"), part.get("file")
    place = image.get("url") if isinstance(image, dict) else image
    if "image_url" in part and not is_data_url(place):
        findings.refuse("image_url is not relayed: send a data: URL", "image_url")
    if file is not None:
        if not isinstance(file, dict) or not set(file) <= {"file_data", "filename"}:
            findings.refuse("files by their id are not relayed: send file_data", "file_id")
        check_inline(file.get("file_data"), "file_data", findings)
    check_audio(part, findings)
    return known_fields(part, _PART_FIELDS, findings)


def _check_choice(choice: object, findings: BodyFindings) -> None:
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return
    if not isinstance(choice, dict):
        findings.refuse("the tool_choice names a tool that is not allowed in this run", choice)
    named = [choice]
    if choice.get("type") == "allowed_tools":
        allowed = object_at(choice, "allowed_tools")
        named = objects(allowed.get("tools"), "the field tool_choice", findings)
    for each in named:
        kind = each.get("type")
        if not isinstance(kind, str) or kind not in _LOCAL_TOOLS:
            findings.refuse("the tool_choice names a tool that is not allowed in this run", kind)


class ChatMeter(Meter):
    """Meters responses of Chat Completions.

    In a stream the usage comes after the last choice, in a chunk of its own. Servers that do not
    know ``stream_options`` send none; such an answer is complete at its end.
    """

    def event(self, event: Mapping[str, object]) -> None:
        """Process one chunk."""
        if event.get("error") is not None:
            self._fail(event["error"])
            return
        for choice in _choices(event):
            self.is_finished |= choice.get("finish_reason") is not None
            self.characters += _size(object_at(choice, "delta"))
        if isinstance(event.get("usage"), dict):
            self._count(event)
            self.is_complete |= self.is_finished

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a completion that came as one JSON document."""
        if isinstance(document.get("error"), dict):
            self._fail(document["error"])
            return
        self._count(document)
        self.is_complete = bool(_choices(document))

    def _count(self, answer: Mapping[str, object]) -> None:
        usage = object_at(answer, "usage")
        details = object_at(usage, "prompt_tokens_details")
        self.usage = TokenUsage(
            count_at(usage, "prompt_tokens"),
            count_at(details, "cached_tokens"),
            count_at(usage, "completion_tokens"),
        )

    def _fail(self, error: object) -> None:
        told = error if isinstance(error, dict) else {}
        self.failure = failure_of_error(told.get("code"), told.get("type"))
        self.is_complete = True


def _choices(answer: Mapping[str, object]) -> list[JsonObject]:
    given = answer.get("choices")
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _size(delta: Mapping[str, object]) -> int:
    """Return the characters of a delta: text, reasoning, and the arguments of calls."""
    texts = [delta.get(name) for name in _DELTAS]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        inner = object_at(call, "function") if isinstance(call, dict) else {}
        texts += [inner.get("name"), inner.get("arguments")]
    return sum(len(text) for text in texts if isinstance(text, str))


OPENAI_CHAT: Final = ProviderRules(
    name="openai_chat",
    api="chat_completions",
    host=OPENAI.host,
    base=OPENAI.base,
    path="/v1/chat/completions",
    query=re.compile(""),
    key_header=OPENAI.key_header,
    key_prefix=OPENAI.key_prefix,
    final_status=OPENAI.final_status,
    refusal_kinds=OPENAI.refusal_kinds,
    refusal_body=OPENAI.refusal_body,
    allow_hosted_tools=allow_hosted_tools,
    strip_hosted_tools=strip_hosted_tools,
    meter=ChatMeter,
)
