"""What a request may ask of its provider (providers 3.5, 4.3; A-181)."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from securebench.agents.providers import anthropic, openai
from securebench.agents.providers.bodies import (
    NESTING,
    UNNAMED,
    VALUES,
    Close,
    JsonObject,
    RefusedBodyError,
    RelayedBody,
    relayed_body,
)

FUNCTION = {"type": "function", "name": "exec_command", "parameters": {"file_url": {}}}
CUSTOM = {"type": "custom", "name": "apply_patch"}
CLIENT_SEARCH = {"type": "tool_search", "execution": "client"}
WEB = {"type": "web_search", "external_web_access": True}
BASH = {"name": "Bash", "input_schema": {"type": "object"}}
WEB_FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def asked(**fields: object) -> JsonObject:
    return {"model": "gpt-5.5", "input": "hi", **fields}


def message(**fields: object) -> JsonObject:
    return {"model": "claude", "messages": [{"role": "user", "content": "hi"}], **fields}


def parts(*values: object) -> JsonObject:
    return asked(input=[{"type": "message", "role": "user", "content": list(values)}])


def blocks(*values: object) -> JsonObject:
    return message(messages=[{"role": "user", "content": list(values)}])


def relayed(body: JsonObject, close: Close) -> tuple[JsonObject, RelayedBody]:
    result = sent(body, close)
    return json.loads(result.data), result


def sent(body: JsonObject, close: Close) -> RelayedBody:
    return relayed_body(json.dumps(body).encode(), close)


def namespace(*tools: object) -> JsonObject:
    return {"type": "namespace", "name": "n", "tools": list(tools)}


def additional(*tools: object) -> JsonObject:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


OPENAI_STRIPPED = {
    "nothing": (
        asked(tools=[FUNCTION, CUSTOM, CLIENT_SEARCH], store=False),
        asked(tools=[FUNCTION, CUSTOM, CLIENT_SEARCH], store=False),
        (),
    ),
    "hosted": (asked(tools=[FUNCTION, WEB]), asked(tools=[FUNCTION]), ("web_search",)),
    "a new kind": (
        asked(tools=[FUNCTION, {"type": "browse_2027"}]),
        asked(tools=[FUNCTION]),
        ("browse_2027",),
    ),
    "other spelling": (
        asked(tools=[FUNCTION, {"type": "Function"}, {"type": ["function"]}, {}, "web_search"]),
        asked(tools=[FUNCTION]),
        ("Function", UNNAMED),
    ),
    "search run by the server": (
        asked(tools=[FUNCTION, {"type": "tool_search"}]),
        asked(tools=[FUNCTION]),
        ("tool_search",),
    ),
    "in a namespace": (
        asked(tools=[namespace(FUNCTION, WEB, namespace(WEB))]),
        asked(tools=[namespace(FUNCTION)]),
        ("web_search",),
    ),
    "too deep": (
        asked(tools=[FUNCTION, namespace(namespace(namespace(namespace(namespace(FUNCTION)))))]),
        asked(tools=[FUNCTION]),
        ("namespace",),
    ),
    "additional": (
        asked(input=[additional(CUSTOM, namespace(WEB), WEB)]),
        asked(input=[additional(CUSTOM)]),
        ("web_search",),
    ),
    "loaded by a search": (
        asked(input=[{"type": "tool_search_output", "tools": [WEB, FUNCTION]}]),
        asked(input=[{"type": "tool_search_output", "tools": [FUNCTION]}]),
        ("web_search",),
    ),
    "unknown field": (asked(web_search_options={"a": 1}), asked(), ("web_search_options",)),
    "unknown field that says nothing": (asked(background=False, extra=None), asked(), ()),
    "another tier": (asked(service_tier="flex"), asked(), ("service_tier",)),
    "stored": (asked(store=True), asked(store=False), ("store",)),
    "field with a strange name": (asked(**{"a\nb": 1}), asked(), (UNNAMED,)),
    "unknown field of a part": (
        parts(
            {"type": "input_text", "text": "x", "uuid": "1", "video_url": "https://x", "y": None}
        ),
        parts({"type": "input_text", "text": "x"}),
        ("uuid", "video_url"),
    ),
    "no tools": (asked(tools=[], tool_choice="auto"), asked(tools=[], tool_choice="auto"), ()),
}


@pytest.mark.parametrize("name", OPENAI_STRIPPED)
def test_openai_tools_of_the_provider_are_taken_out(name):
    body, want, want_kinds = OPENAI_STRIPPED[name]
    found, result = relayed(body, openai.strip_hosted_tools)
    assert found == want
    assert result.stripped == want_kinds


OPENAI_REFUSED = {
    "no other tool": (asked(tools=[WEB]), ("web_search",)),
    "no other tool in the input": (asked(input=[additional(namespace(WEB))]), ("web_search",)),
    "hosted choice": (asked(tools=[FUNCTION, WEB], tool_choice=WEB), ("web_search",)),
    "choice by name": (asked(tools=[FUNCTION], tool_choice="web_search"), ("web_search",)),
    "one of the choices": (
        asked(
            tools=[FUNCTION],
            tool_choice={"type": "allowed_tools", "tools": [FUNCTION, {"type": "mcp"}]},
        ),
        ("mcp",),
    ),
    "choices of no form": (
        asked(tool_choice={"type": "allowed_tools", "tools": "web_search"}),
        (),
    ),
    "background": (asked(background=True), ("background",)),
    "earlier answer": (asked(previous_response_id="resp_1"), ("previous_response_id",)),
    "conversation": (asked(conversation={"id": "c"}), ("conversation",)),
    "stored prompt": (asked(prompt={"id": "p"}), ("prompt",)),
    "search model": (asked(model="GPT-5-search-api"), ("model",)),
    "research model": (asked(model="o4-mini-deep-research"), ("model",)),
    "no model": ({"input": "hi"}, ()),
    "item by id": (asked(input=[{"type": "item_reference", "id": "x"}]), ("item_reference",)),
    "item by id without type": (asked(input=[{"id": "x"}]), (UNNAMED,)),
    "unknown item": (asked(input=[{"type": "mcp_call"}]), ("mcp_call",)),
    "file by address": (
        parts({"type": "input_file", "file_url": "https://x.example/a"}),
        ("file_url",),
    ),
    "file by id": (parts({"type": "input_file", "file_id": "file-1"}), ("file_id",)),
    "image by id": (parts({"type": "input_image", "file_id": "file-1"}), ("file_id",)),
    "image by address": (
        parts({"type": "input_image", "image_url": "https://x.example/a"}),
        ("image_url",),
    ),
    "image as object": (
        parts({"type": "input_image", "image_url": {"url": "data:,"}}),
        ("image_url",),
    ),
    "file data by address": (
        parts({"type": "input_file", "file_data": "https://x.example/a"}),
        ("file_data",),
    ),
    "audio by its URL": (
        parts({"type": "input_text", "text": "x", "uuid": "1", "audio_url": "https://x.example/a"}),
        ("audio_url",),
    ),
    "audio by address": (
        parts({"type": "input_audio", "input_audio": {"data": "https://x.example/a"}}),
        ("input_audio",),
    ),
    "unknown part": (parts({"type": "input_link"}), ("input_link",)),
    "part of no form": (parts("text"), ()),
    "image in an output": (
        asked(
            input=[
                {
                    "type": "function_call_output",
                    "output": [{"type": "input_image", "image_url": " http://x"}],
                }
            ]
        ),
        ("image_url",),
    ),
    "output of no form": (asked(input=[{"type": "function_call_output", "output": {}}]), ()),
    "input of no form": (asked(input={"type": "message"}), ()),
    "tools of no form": (asked(tools={"type": "function"}), ()),
}


@pytest.mark.parametrize("name", OPENAI_REFUSED)
def test_openai_requests_that_fetch_are_refused(name):
    body, want_kinds = OPENAI_REFUSED[name]
    with pytest.raises(RefusedBodyError) as error:
        sent(body, openai.strip_hosted_tools)
    assert error.value.kinds == want_kinds


def test_openai_local_content_passes():
    body = asked(
        input=[
            {"role": "user", "content": "text"},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "see https://x.example"},
                    {"type": "input_image", "image_url": "DATA:image/png;base64,AA=="},
                    {"type": "input_file", "file_data": "AA==", "filename": "a"},
                    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                    {"type": "output_text", "text": "x", "annotations": [{"url": "https://x"}]},
                ],
            },
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
            {"type": "function_call", "arguments": '{"file_url": 1}', "name": "f", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
        ],
        tool_choice={"type": "function", "name": "exec_command"},
        tools=[FUNCTION],
    )
    assert relayed(body, openai.strip_hosted_tools) == (body, sent(body, openai.strip_hosted_tools))


ANTHROPIC_STRIPPED = {
    "nothing": (message(tools=[BASH, {**BASH, "type": "custom"}]), None, ()),
    "hosted": (message(tools=[BASH, WEB_FETCH]), message(tools=[BASH]), ("web_fetch_20250910",)),
    "null": (message(tools=[BASH, {**BASH, "type": None}]), message(tools=[BASH]), (UNNAMED,)),
    "servers": (message(mcp_servers=[{"url": "https://x"}]), message(), ("mcp_servers",)),
    "another tier": (
        message(service_tier="auto", speed="fast"),
        message(),
        ("service_tier", "speed"),
    ),
    "chosen": (
        message(
            tools=[BASH, WEB_FETCH], tool_choice={"type": "tool", "name": "Bash"}, system="be good"
        ),
        message(tools=[BASH], tool_choice={"type": "tool", "name": "Bash"}, system="be good"),
        ("web_fetch_20250910",),
    ),
    "local content": (
        blocks(
            {"type": "text", "text": "hi"},
            {"type": "image", "source": {"type": "base64", "data": "AA=="}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text"}]}},
            {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "x"}]},
            {"type": "search_result", "source": "a label", "content": [{"type": "text"}]},
        ),
        None,
        (),
    ),
}


@pytest.mark.parametrize("name", ANTHROPIC_STRIPPED)
def test_anthropic_tools_of_the_provider_are_taken_out(name):
    body, want, want_kinds = ANTHROPIC_STRIPPED[name]
    found, result = relayed(body, anthropic.strip_hosted_tools)
    assert found == (body if want is None else want)
    assert result.stripped == want_kinds


def nested(levels: int) -> JsonObject:
    block: JsonObject = {"type": "text", "text": "x"}
    for _ in range(levels):
        block = {"type": "tool_result", "content": [block]}
    return block


ANTHROPIC_REFUSED = {
    "the search of the CLI": (
        message(tools=[WEB_SEARCH], tool_choice={"type": "tool", "name": "web_search"}),
        ("web_search_20250305",),
    ),
    "choice of a dropped tool": (
        message(tools=[BASH, WEB_SEARCH], tool_choice={"type": "tool", "name": "web_search"}),
        ("tool_choice", "web_search_20250305"),
    ),
    "unknown choice": (message(tools=[BASH], tool_choice={"type": "hosted"}), ("tool_choice",)),
    "choice of no form": (message(tool_choice="auto"), ()),
    "container": (message(container={"skills": []}), ("container",)),
    "image by address": (
        blocks({"type": "image", "source": {"type": "url", "url": "https://x"}}),
        ("url",),
    ),
    "document by id": (
        blocks({"type": "document", "source": {"type": "file", "file_id": "f"}}),
        ("file",),
    ),
    "image in a result": (
        blocks({"type": "tool_result", "content": [{"type": "image", "source": {"type": "url"}}]}),
        ("url",),
    ),
    "image in a document": (
        blocks(
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "image", "source": {"type": "url"}}],
                },
            }
        ),
        ("url",),
    ),
    "image for the system": (
        message(system=[{"type": "image", "source": {"type": "url"}}]),
        ("url",),
    ),
    "upload": (blocks({"type": "container_upload", "file_id": "f"}), ("container_upload",)),
    "block of no form": (blocks("hi"), ()),
    "source of no form": (blocks({"type": "image", "source": ["url"]}), ()),
    "too deep": (blocks(nested(20)), ()),
    "no messages": ({"model": "claude"}, ()),
    "tools of no form": (message(tools={"type": "custom"}), ()),
    "search model of a router": (message(model="openai/gpt-4o-search-preview"), ("model",)),
}


@pytest.mark.parametrize("name", ANTHROPIC_REFUSED)
def test_anthropic_requests_that_fetch_are_refused(name):
    body, want_kinds = ANTHROPIC_REFUSED[name]
    with pytest.raises(RefusedBodyError) as error:
        sent(body, anthropic.strip_hosted_tools)
    assert error.value.kinds == want_kinds


OPENED = {
    "a tool of Anthropic's": (
        anthropic.allow_hosted_tools,
        message(tools=[WEB_SEARCH], mcp_servers=[{"url": "https://x"}]),
        None,
    ),
    "an image by address": (
        anthropic.allow_hosted_tools,
        blocks({"type": "image", "source": {"type": "url", "url": "https://x"}}),
        None,
    ),
    "a tool of OpenAI's": (openai.allow_hosted_tools, asked(tools=[WEB], tool_choice=WEB), None),
    "a file by address": (
        openai.allow_hosted_tools,
        parts({"type": "input_file", "file_url": "https://x.example/a"}),
        None,
    ),
    "an answer that is stored": (openai.allow_hosted_tools, asked(store=True), asked(store=False)),
    "another tier": (openai.allow_hosted_tools, asked(service_tier="flex"), asked()),
    "another speed": (anthropic.allow_hosted_tools, message(speed="fast"), message()),
    "a model that searches": (
        openai.allow_hosted_tools,
        asked(model="o4-mini-deep-research"),
        None,
    ),
    "an unknown field": (openai.allow_hosted_tools, asked(mcp_servers=[1]), asked()),
}


@pytest.mark.parametrize("name", OPENED)
def test_tools_and_content_are_free_where_external_tools_are_allowed(name):
    close, body, want = OPENED[name]
    assert relayed(body, close)[0] == (body if want is None else want)


NEVER_OPENED = {
    "background": (openai.allow_hosted_tools, asked(background=True)),
    "earlier answer": (openai.allow_hosted_tools, asked(previous_response_id="resp_1")),
    "conversation": (openai.allow_hosted_tools, asked(conversation={"id": "c"})),
    "stored prompt": (openai.allow_hosted_tools, asked(prompt={"id": "p"})),
    "no model": (openai.allow_hosted_tools, {"input": "hi"}),
    "stored item": (
        openai.allow_hosted_tools,
        asked(input=[{"type": "item_reference", "id": "x"}]),
    ),
    "container": (anthropic.allow_hosted_tools, message(container="c")),
    "model of no form": (anthropic.allow_hosted_tools, message(model=["claude"])),
}


@pytest.mark.parametrize("name", NEVER_OPENED)
def test_what_leaves_the_request_is_refused_always(name):
    close, body = NEVER_OPENED[name]
    with pytest.raises(RefusedBodyError):
        sent(body, close)


BROKEN = {
    "no JSON": b"{",
    "no object": b"[]",
    "twice": b'{"model": "a", "model": "b"}',
    "twice, below": b'{"model": "a", "input": [{"type": "message", "type": "item_reference"}]}',
    "other encoding": '{"model": "a"}'.encode("utf-16"),
    "mark": b"\xef\xbb\xbf{}",
    "no number": b'{"model": "a", "top_p": NaN}',
    "too deep": b'{"a":' * 100_000,
    "half a character": b'{"model": "\\ud800"}',
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize(
    "close", [openai.allow_hosted_tools, openai.strip_hosted_tools, anthropic.strip_hosted_tools]
)
def test_bodies_that_two_parsers_could_read_in_two_ways_are_refused(name, close):
    with pytest.raises(RefusedBodyError, match="no plain JSON"):
        relayed_body(BROKEN[name], close)


@pytest.mark.parametrize("sign", [b"[", b"{", b","])
def test_bodies_of_very_many_values_are_refused_unread(sign):
    with pytest.raises(RefusedBodyError, match="values"):
        relayed_body(sign * (VALUES + 1), openai.allow_hosted_tools)


@pytest.mark.parametrize("close", [openai.strip_hosted_tools, anthropic.strip_hosted_tools])
@pytest.mark.parametrize("wrapped", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_bodies_of_many_levels_are_refused(close, wrapped):
    value: object = "x"
    for _ in range(NESTING - 1):
        value = wrapped(value)
    assert sent({**asked(), **message(), "metadata": value}, close)
    with pytest.raises(RefusedBodyError, match=f"more than {NESTING} levels"):
        sent({**asked(), **message(), "metadata": wrapped(value)}, close)


MODELS = {
    "gpt-5.5": "gpt-5.5",
    "claude-opus-4_1.x": "claude-opus-4_1.x",
    "m" * 128: "m" * 128,
    "m" * 129: UNNAMED,
    "": UNNAMED,
    "gpt-5.5\n": UNNAMED,
    "Qwen/Qwen3-8B:latest": "Qwen/Qwen3-8B:latest",
    "/model": UNNAMED,
    "gpt\u20115.5": UNNAMED,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rules", [openai, anthropic])
def test_the_model_is_named_by_a_plain_word(rules, model):
    body = asked(model=model) if rules is openai else message(model=model)
    for close in (rules.strip_hosted_tools, rules.allow_hosted_tools):
        found, result = relayed(body, close)
        assert (found["model"], result.model) == (model, MODELS[model])


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.sampled_from(["function", "web_search", "namespace", "url", "text", "tool_result", "mcp"]),
)
KEYS = st.sampled_from(
    ["type", "tools", "content", "source", "input", "messages", "name", "output", "role", "x"]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def hosted_kinds(value: object) -> set[object]:
    """Return the types of all tools at any depth of what is sent."""
    if isinstance(value, list):
        return {kind for each in value for kind in hosted_kinds(each)}
    if not isinstance(value, dict):
        return set()
    found = {kind for each in value.values() for kind in hosted_kinds(each)}
    tools = value.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        found.add(str(tool.get("type", "custom") if isinstance(tool, dict) else tool))
    return found


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=3))
def test_no_shape_brings_a_hosted_tool_through(fields):
    for close, known in (
        (openai.strip_hosted_tools, {"function", "custom", "tool_search", "namespace"}),
        (anthropic.strip_hosted_tools, {"custom"}),
    ):
        try:
            found, _ = relayed({**fields, "model": "m"}, close)
        except RefusedBodyError:
            continue
        assert hosted_kinds(found.get("tools") and {"tools": found["tools"]}) <= known
