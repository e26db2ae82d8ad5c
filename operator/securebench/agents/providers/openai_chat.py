"""Chat Completions, as OpenAI documents it and vLLM, llama.cpp, Ollama and others serve it.

Source: providers 10.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.answers import Meter, billed, is_said
from securebench.agents.providers.bodies import (
    AUDIO,
    CACHE_CONTROL,
    BodyFindings,
    Fields,
    JsonObject,
    Rule,
    Tools,
    any_model,
    anything,
    closed_model,
    data_url,
    each,
    either,
    exactly,
    inline,
    json_schema,
    never_stored,
    objects_of,
    plain_fields,
    plain_map,
    plain_or,
    plain_value,
    refused,
    sent_body,
    shape,
    text_or_list,
    typed,
)
from securebench.agents.providers.openai import OPENAI, with_local_choice
from securebench.agents.providers.provider import ProviderRules
from securebench.json_values import object_at, object_in

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMAGE: Final = data_url("image_url")
_TEXTS: Final = plain_or(each(plain_fields("text", "type")))
_PART: Final[Fields] = {
    **dict.fromkeys(("closed", "reasoning", "refusal", "signature", "text"), plain_value),
    "annotations": each(
        shape(
            **dict.fromkeys(("end_index", "start_index", "title", "type", "url"), plain_value),
            url_citation=plain_fields("content", "end_index", "start_index", "title", "url"),
        )
    ),
    "cache_control": CACHE_CONTROL,
    "file": exactly(
        "files by their id are not relayed: send file_data",
        "file_id",
        file_data=inline("file_data"),
        filename=plain_value,
    ),
    "image_url": either(_IMAGE, shape(detail=plain_value, format=plain_value, url=_IMAGE)),
    "input_audio": AUDIO,
    "thinking": _TEXTS,
}
"""Of every part: some servers go by the fields of a part rather than by its type."""
_PARTS: Final = text_or_list(
    typed(
        dict.fromkeys(
            ("file", "image_url", "input_audio", "reasoning", "refusal", "text", "thinking"), _PART
        ),
        "content of type {} is not relayed in this run",
    )
)
_SIGNATURES: Final = plain_fields("thought", "thought_signature")
_CALLED: Final = shape(
    **dict.fromkeys(("arguments", "name"), plain_value),
    provider_specific_fields=_SIGNATURES,
)
_CALL: Final = shape(
    **dict.fromkeys(("id", "index", "type"), plain_value),
    custom=plain_fields("input", "name"),
    extra_content=shape(google=_SIGNATURES),
    function=_CALLED,
    provider_specific_fields=_SIGNATURES,
)
_THOUGHTS: Final = each(
    plain_fields(
        *("data", "format", "id", "index", "signature", "summary", "text", "thinking", "type")
    )
)
_MESSAGE: Final = shape(
    **dict.fromkeys(
        (
            *("name", "partial", "prefix", "reasoning", "reasoning_content", "refusal", "role"),
            *("reasoning_text", "tool_call_id"),
        ),
        plain_value,
    ),
    annotations=_PART["annotations"],
    audio=refused("audio by its id is not relayed, send the text"),
    cache_control=CACHE_CONTROL,
    content=_PARTS,
    extra_content=shape(google=_SIGNATURES),
    function_call=_CALLED,
    provider_specific_fields=plain_fields(
        *("reasoning", "reasoning_content", "refusal", "thought_signature")
    ),
    reasoning_details=_THOUGHTS,
    thinking_blocks=_THOUGHTS,
    tool_calls=each(_CALL),
)
_FUNCTION: Final = shape(
    **dict.fromkeys(("description", "name", "strict"), plain_value), parameters=json_schema
)
_LOCAL_TOOLS: Final[Mapping[str, Fields]] = {
    "custom": {
        "custom": shape(
            **dict.fromkeys(("description", "name"), plain_value),
            format=shape(
                **dict.fromkeys(("definition", "syntax", "type"), plain_value),
                grammar=plain_fields("definition", "syntax"),
            ),
        )
    },
    "function": {
        "cache_control": CACHE_CONTROL,
        "function": _FUNCTION,
        "strict": plain_value,
    },
}


def _one_answer(value: object, name: str, findings: BodyFindings) -> object:
    if value != 1 or isinstance(value, bool):
        findings.refuse("the field n is relayed as 1 only: ask again for another answer", name)
    return value


_ALWAYS: Final[Fields] = {
    "audio": refused("spoken answers are not relayed"),
    "model": any_model,
    "n": _one_answer,
    "store": never_stored,
}
"""Fields whose rules hold also where tools of the provider are allowed."""
_CLOSED: Final[Fields] = {
    **dict.fromkeys(
        (
            *("frequency_penalty", "logprobs", "max_completion_tokens", "max_tokens", "min_p"),
            *("min_tokens", "parallel_tool_calls", "presence_penalty", "prompt_cache_key"),
            *("prompt_cache_retention", "reasoning_effort", "repetition_penalty"),
            *("safety_identifier", "seed", "stream", "temperature", "top_k", "top_logprobs"),
            *("top_p", "user", "verbosity"),
        ),
        plain_value,
    ),
    **_ALWAYS,
    "chat_template_kwargs": plain_fields(
        *("clear_thinking", "enable_reasoning", "enable_thinking", "model_identity"),
        *("preserve_thinking", "reasoning_effort", "thinking", "thinking_budget"),
        "thinking_mode",
    ),
    "function_call": plain_or(plain_fields("name")),
    "functions": each(_FUNCTION),
    "logit_bias": plain_map,
    "messages": objects_of(_MESSAGE),
    "model": closed_model,
    "prediction": shape(content=_TEXTS, type=plain_value),
    "reasoning": plain_fields("effort", "enabled", "exclude", "max_tokens", "summary"),
    "response_format": shape(
        json_schema=shape(
            **dict.fromkeys(("description", "name", "strict"), plain_value), schema=json_schema
        ),
        schema=json_schema,
        type=plain_value,
    ),
    "stop": plain_or(each(plain_value)),
    "stop_token_ids": each(plain_value),
    "stream_options": anything,
    "thinking": plain_or(plain_fields("budget_tokens", "clear_thinking", "display", "type")),
    "tool_choice": anything,
    "tools": Tools(_LOCAL_TOOLS),
}
"""The documented fields, and those by which open servers steer sampling and thinking."""
_OPEN: Final[Fields] = {
    **dict.fromkeys((*_CLOSED, "metadata", "web_search_options"), anything),
    **_ALWAYS,
}
_STREAM_OPTIONS: Final[Rule] = plain_fields(
    "continuous_usage_stats", "include_obfuscation", "include_usage"
)
_DELTAS: Final = ("content", "reasoning", "reasoning_content", "refusal")


def allow_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request; tools hosted by the provider are allowed.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    return _metered(sent_body(body, _OPEN, findings), findings)


def strip_hosted_tools(body: JsonObject, findings: BodyFindings) -> JsonObject:
    """Filter a request and strip tools hosted by the provider.

    Raises:
        RefusedBodyError: See ``bodies.relayed_body``.
    """
    kept = sent_body(body, _CLOSED, findings, "messages")
    return _metered(with_local_choice(kept, findings), findings)


def _metered(kept: JsonObject, findings: BodyFindings) -> JsonObject:
    """Make the provider report the usage of a stream, which it does only where it is asked to."""
    options = kept.get("stream_options")
    if not kept.get("stream"):
        return {name: value for name, value in kept.items() if name != "stream_options"}
    if options is not None and not isinstance(options, dict):
        findings.malformed("the field stream_options")
    given = _STREAM_OPTIONS(options or {}, "stream_options", findings)
    return {
        **kept,
        "stream_options": {**(given if isinstance(given, dict) else {}), "include_usage": True},
    }


class ChatMeter(Meter):
    """Meters responses of Chat Completions.

    In a stream the usage comes after the last choice, in a chunk of its own. Servers that do not
    know ``stream_options`` send none; such an answer is complete at its end.
    """

    _has_choice = False

    def event(self, event: Mapping[str, object]) -> None:
        """Process one chunk."""
        choices = _choices(event)
        errors = [one for one in (event, *choices) if one.get("error")]
        if errors:
            self.failed(errors[0]["error"])
            return
        for choice in choices:
            self._has_choice = True
            self.is_finished |= is_said(choice.get("finish_reason"))
            self.characters += _size(object_at(choice, "delta"))
        if self._count(event):
            self.is_complete |= self.is_finished

    def done(self) -> None:
        """Process the mark at the end; some servers give no reason for it before."""
        self.is_finished |= self._has_choice

    def document(self, document: Mapping[str, object]) -> None:
        """Count the usage of a completion that came as one JSON document."""
        if document.get("error"):
            self.failed(document["error"])
            return
        self._count(document)
        self.is_complete = bool(_choices(document))

    def _count(self, answer: Mapping[str, object]) -> bool:
        """Count the usage of an answer, or of a chunk; return whether there is one.

        Groq and Moonshot put it into objects of their own.
        """
        places = [answer, object_at(answer, "x_groq"), *_choices(answer)]
        found = [place["usage"] for place in places if isinstance(place.get("usage"), dict)]
        for usage in found:
            self.counted(billed(object_in(usage)))
        return bool(found)


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
