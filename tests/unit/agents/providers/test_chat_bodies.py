"""What a request of Chat Completions may ask of its provider (providers 10.1, 10.2; A-181)."""

from __future__ import annotations

import json

import pytest

from securebench.agents.providers import openai_chat
from securebench.agents.providers.bodies import (
    UNNAMED,
    Close,
    JsonObject,
    RefusedBodyError,
    RelayedBody,
    relayed_body,
)

WEB = {"type": "web_search", "external_web_access": True}
CHAT_TOOL = {"type": "function", "function": {"name": "bash", "parameters": {}}}
CHAT_CUSTOM = {"type": "custom", "custom": {"name": "patch"}}
METERED = {"stream": True, "stream_options": {"include_usage": True}}


def sent(body: JsonObject, close: Close) -> RelayedBody:
    return relayed_body(json.dumps(body).encode(), close)


def relayed(body: JsonObject, close: Close) -> tuple[JsonObject, RelayedBody]:
    result = sent(body, close)
    return json.loads(result.data), result


def chat(*content: object, **fields: object) -> JsonObject:
    said = {"role": "user", "content": list(content) if content else "hi"}
    return {"model": "Qwen/Qwen3-8B", "messages": [said], **fields}


CHAT_INSIDE = (
    {"type": "text", "text": "see https://x", "cache_control": {"type": "ephemeral"}},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "input_audio", "input_audio": {"data": "A/+_-A\n==", "format": "wav"}},
    {"type": "file", "file": {"file_data": "Data:application/pdf;base64,AA", "filename": "a"}},
)
CHAT_STRIPPED = {
    "nothing": (chat(tools=[CHAT_TOOL, CHAT_CUSTOM]), chat(tools=[CHAT_TOOL, CHAT_CUSTOM]), ()),
    "older functions": (chat(functions=[{"name": "f"}]), chat(functions=[{"name": "f"}]), ()),
    "a search": (chat(web_search_options={"a": 1}), chat(), ("web_search_options",)),
    "a router's search": (chat(plugins=[{"id": "web"}]), chat(), ("plugins",)),
    "hosted": (chat(tools=[CHAT_TOOL, WEB]), chat(tools=[CHAT_TOOL]), ("web_search",)),
    "no kind": (chat(tools=[CHAT_TOOL, {"name": "x"}]), chat(tools=[CHAT_TOOL]), (UNNAMED,)),
    "stored": (chat(store=True), chat(store=False), ("store",)),
    "a stream": (chat(stream=True), chat(**METERED), ()),
    "a stream without usage": (
        chat(stream=True, stream_options={"include_usage": False, "include_obfuscation": False}),
        chat(stream=True, stream_options={"include_obfuscation": False, "include_usage": True}),
        (),
    ),
    "options of no stream": (chat(stream_options={"include_usage": False}), chat(), ()),
    "sampling of an open server": (chat(top_k=20, min_p=0.1), chat(top_k=20, min_p=0.1), ()),
    "an image inside": (
        chat({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}),
        chat({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}),
        (),
    ),
    "other content inside": (chat(*CHAT_INSIDE), chat(*CHAT_INSIDE), ()),
    "unknown fields of a part": (
        chat({"type": "text", "text": "x", "uuid": "1", "video_url": "https://x", "y": None}),
        chat({"type": "text", "text": "x"}),
        ("uuid", "video_url"),
    ),
}


@pytest.mark.parametrize("name", CHAT_STRIPPED)
def test_chat_tools_of_the_provider_are_taken_out(name):
    body, want, want_kinds = CHAT_STRIPPED[name]
    found, result = relayed(body, openai_chat.strip_hosted_tools)
    assert found == want
    assert (result.stripped, result.model) == (want_kinds, "Qwen/Qwen3-8B")


CHAT_REFUSED = {
    "hosted tools alone": (chat(tools=[WEB]), ("web_search",)),
    "a hosted choice": (chat(tools=[CHAT_TOOL], tool_choice=WEB), ("web_search",)),
    "a choice by name": (chat(tool_choice="web_search"), ("web_search",)),
    "one of the choices": (
        chat(tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [WEB]}}),
        ("web_search",),
    ),
    "a model that searches": (chat(model="gpt-4o-search-preview"), ("model",)),
    "a router's search by the name": (chat(model="openai/gpt-4o:online"), ("model",)),
    "an image elsewhere": (
        chat({"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}),
        ("image_url",),
    ),
    "an image elsewhere as text": (
        chat({"type": "image_url", "image_url": "http://10.0.0.1/"}),
        ("image_url",),
    ),
    "a video": (chat({"type": "video_url", "video_url": {"url": "data:"}}), ("video_url",)),
    "an uploaded file": (chat({"type": "file", "file": {"file_id": "file-1"}}), ("file_id",)),
    "a file elsewhere": (
        chat({"type": "file", "file": {"file_data": "https://x"}}),
        ("file_data",),
    ),
    "a file of no form": (chat({"type": "file", "file": {"file_data": ["x"]}}), ("file_data",)),
    "a file by its path": (
        chat({"type": "file", "file": {"file_data": "a/b.pdf"}}),
        ("file_data",),
    ),
    "audio elsewhere": (
        chat({"type": "input_audio", "input_audio": {"data": " http://10.0.0.1/"}}),
        ("input_audio",),
    ),
    "audio by another field": (
        chat({"type": "input_audio", "input_audio": {"url": "https://x"}}),
        ("input_audio",),
    ),
    "earlier speech": (
        chat(messages=[{"role": "assistant", "audio": {"id": "audio_1"}}]),
        ("audio",),
    ),
    "options of no form": (chat(stream=True, stream_options=[]), ()),
    "no messages": ({"model": "m"}, ()),
}


@pytest.mark.parametrize("name", CHAT_REFUSED)
def test_chat_requests_that_are_refused(name):
    body, want_kinds = CHAT_REFUSED[name]
    with pytest.raises(RefusedBodyError) as caught:
        sent(body, openai_chat.strip_hosted_tools)
    assert caught.value.kinds == want_kinds


def test_chat_streams_report_their_usage_where_tools_are_allowed_too():
    body = chat(stream=True, web_search_options={}, tools=[WEB])
    found, _ = relayed(body, openai_chat.allow_hosted_tools)
    assert found == body | METERED


@pytest.mark.parametrize("close", [openai_chat.strip_hosted_tools, openai_chat.allow_hosted_tools])
def test_chat_requests_ask_for_one_answer(close):
    for number in (None, 1):
        assert relayed(chat(n=number), close)[0] == chat(n=number)
    for number in (0, 2, 128, "2", [1]):
        with pytest.raises(RefusedBodyError, match="the field n is relayed as 1 only") as caught:
            sent(chat(n=number), close)
        assert caught.value.kinds == ("n",)
