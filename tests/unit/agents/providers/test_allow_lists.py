"""Both sides of the allow-lists: what programs of this year send, and what must not leave.

``measured_requests.json`` has the third request of a turn of codex 0.169.0, Claude Code 2.1.330 and
opencode 1.18.18, with texts cut and ids replaced; the other honest bodies are those of clients of
LiteLLM and OpenAI.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from securebench.agents.providers import anthropic, openai, openai_chat
from securebench.agents.providers.bodies import JsonObject, RefusedBodyError, relayed_body

APIS = {"anthropic": anthropic, "openai": openai, "openai_chat": openai_chat}
MEASURED = json.loads(Path(__file__).with_name("measured_requests.json").read_text())
PLACE = "https://evil.example/x"
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"$ref": {"type": "string"}, "a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#"}},
    "$defs": {"a": {"type": "string", "format": "uri", "default": PLACE}},
}


class Request(NamedTuple):
    """A body, and the API that it is for."""

    api: str
    body: JsonObject


def responses(*items: JsonObject, **fields: object) -> Request:
    return Request("openai", {"model": "m", "input": [*items], "store": False, **fields})


def chat(*messages: JsonObject, **fields: object) -> Request:
    said = messages or ({"role": "user", "content": "hi"},)
    return Request("openai_chat", {"model": "m", "messages": [*said], **fields})


def claude(*blocks: object, **fields: object) -> Request:
    said = {"role": "user", "content": [*blocks] or "hi"}
    return Request("anthropic", {"model": "m", "messages": [said], **fields})


def function(schema: object) -> JsonObject:
    return {"type": "function", "name": "f", "parameters": schema}


def chat_function(schema: object) -> JsonObject:
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
HONEST: dict[str, Request] = {
    **{name: Request(each["api"], each["body"]) for name, each in MEASURED.items()},
    "mini-swe-agent by LiteLLM": chat(
        {"role": "system", "content": "s"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**CALL, "index": 0}],
            "function_call": None,
            "reasoning_content": "hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
            "provider_specific_fields": {"refusal": None},
            "annotations": [],
        },
        {"role": "tool", "tool_call_id": "c", "name": "bash", "content": "ok"},
        temperature=0,
        parallel_tool_calls=True,
        tools=[chat_function(SCHEMA)],
        n=1,
    ),
    "Gemini's thoughts go back": chat(
        {
            "role": "assistant",
            "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}],
        }
    ),
    "thoughts of a router go back": chat(
        {
            "role": "assistant",
            "content": "x",
            "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}],
        },
        reasoning={"effort": "high"},
    ),
    "a prediction": chat(prediction={"type": "content", "content": "x = 1"}),
    "a prediction in parts": chat(
        prediction={"type": "content", "content": [{"type": "text", "text": "x = 1"}]}
    ),
    "an output of a form": chat(
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": SCHEMA},
        }
    ),
    "steering of vLLM": chat(
        chat_template_kwargs={"enable_thinking": False},
        stop=["a"],
        stop_token_ids=[1],
        logit_bias={"5": -100},
        seed=1,
    ),
    "an answer of Responses goes back": responses(
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        tools=[function(SCHEMA)],
        text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
        include=["reasoning.encrypted_content"],
        tool_choice={
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    ),
    "a patch tool with a grammar": responses(
        {"role": "user", "content": "hi"},
        tools=[
            {
                "type": "custom",
                "name": "apply_patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
            }
        ],
    ),
    "blocks of Claude": claude(
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"file_id": PLACE}},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "is_error": False,
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                },
                {"type": "tool_reference", "tool_name": "x"},
            ],
        },
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {
            "type": "document",
            "title": "t",
            "source": {"type": "text", "media_type": "text/plain", "data": "see " + PLACE},
            "citations": {"enabled": True},
        },
        tools=[{"name": "Bash", "input_schema": SCHEMA, "allowed_callers": ["direct"]}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
        context_management={
            "edits": [
                {
                    "type": "clear_tool_uses_20250919",
                    "trigger": {"type": "input_tokens", "value": 1},
                    "keep": {"type": "tool_uses", "value": 3},
                    "exclude_tools": ["x"],
                }
            ]
        },
    ),
}


def sent(request: Request, model: str = "") -> tuple[Any, tuple[str, ...]]:
    rules = APIS[request.api].strip_hosted_tools
    found = relayed_body(json.dumps(request.body).encode(), rules, model)
    return json.loads(found.data), found.stripped


@pytest.mark.parametrize("name", HONEST)
def test_honest_requests_leave_unchanged(name):
    want = {key: value for key, value in HONEST[name].body.items() if key != "stream_options"}
    found, stripped = sent(HONEST[name])
    found.pop("stream_options", None)
    assert (found, stripped) == (want, ())


TEXT = {"type": "text", "text": "x"}
FAR = {"type": "object", "properties": {"a": {"$ref": PLACE}}}
SAID = {"role": "user", "content": "hi"}
HIDDEN: dict[str, Request] = {
    "a prediction of parts elsewhere": chat(
        prediction={
            "type": "content",
            "content": [{"type": "text", "text": "x", "image_url": {"url": PLACE}}],
        }
    ),
    "a prediction with more": chat(prediction={"type": "content", "url": PLACE}),
    "a message with more": chat({**SAID, "documents": [PLACE]}),
    "a call with more": chat({"role": "assistant", "tool_calls": [{**CALL, "url": PLACE}]}),
    "a tool with more": chat(tools=[{**chat_function({}), "server_url": PLACE}]),
    "a function with more": chat(
        tools=[{"type": "function", "function": {"name": "f", "url": PLACE}}]
    ),
    "an older function with more": chat(functions=[{"name": "f", "url": PLACE}]),
    "a schema elsewhere": chat(tools=[chat_function(FAR)]),
    "a schema in a file": chat(tools=[chat_function({"$ref": f"file:{PLACE}"})]),
    "a form elsewhere": chat(
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": FAR}}
    ),
    "a form with more": chat(response_format={"type": "text", "url": PLACE}),
    "a template": chat(chat_template_kwargs={"chat_template": PLACE}),
    "tools of a template": chat(
        chat_template_kwargs={"builtin_tools": [PLACE], "enable_thinking": True}
    ),
    "documents": chat(documents=[{"url": PLACE}]),
    "extra fields of a vendor": chat(extra_body={"google": {"x": PLACE}}),
    "metadata": chat(metadata={"x": PLACE}),
    "a search of xAI": chat(search_parameters={"mode": PLACE}),
    "a search of DashScope": chat(enable_search=PLACE),
    "a file that a server stores": chat(
        {"role": "user", "content": [{"type": "file", "file": {"file_id": PLACE}}]}
    ),
    "an annotation with a file": chat(
        {"role": "assistant", "content": "x", "annotations": [{"type": "file", "file": PLACE}]}
    ),
    "options with more": chat(stream=True, stream_options={"callback": PLACE}),
    "a choice with more": chat(
        tool_choice={"type": "function", "function": {"name": "f"}, "url": PLACE}
    ),
    "a tier": chat(service_tier=PLACE),
    "an item with more": responses({**SAID, "documents": PLACE}),
    "thoughts by their id": responses({"type": "reasoning", "id": PLACE, "summary": []}),
    "thoughts by their id, with a summary": responses(
        {
            "type": "reasoning",
            "id": PLACE,
            "summary": [{"type": "summary_text", "text": "x"}],
            "encrypted_content": None,
        }
    ),
    "an answer by its id": responses(
        {"type": "message", "id": PLACE, "role": "assistant", "content": []}
    ),
    "an image by its id": responses({"type": "image_generation_call", "id": PLACE}),
    "an image elsewhere": responses({"type": "image_generation_call", "result": PLACE}),
    "a search by its id": responses({"type": "web_search_call", "id": PLACE}),
    "an item by its id": responses({"type": "item_reference", "id": PLACE}),
    "an annotation's file": responses(
        {
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "x",
                    "annotations": [{"type": "container_file_citation", "file_id": PLACE}],
                }
            ],
        }
    ),
    "an address in a result": responses(
        {
            "type": "custom_tool_call_output",
            "call_id": "c",
            "output": [{"type": "input_image", "image_url": PLACE}],
        }
    ),
    "a container": responses(SAID, container=PLACE),
    "sources of a search": responses(SAID, include=[PLACE]),
    "metadata of Responses": responses(SAID, metadata={"a": PLACE}),
    "deep client data": responses(SAID, client_metadata={"a": {"b": PLACE}}),
    "a function's schema elsewhere": responses(SAID, tools=[function(FAR)]),
    "a dynamic reference": responses(SAID, tools=[function({"$dynamicRef": PLACE})]),
    "a list of references": responses(SAID, tools=[function({"$ref": [PLACE]})]),
    "a relative reference": responses(
        SAID, tools=[function({"$id": PLACE, "items": {"$ref": "/x"}})]
    ),
    "a schema of one's own": responses(SAID, tools=[function({"$schema": PLACE})]),
    "a reference in a group": responses(
        SAID, tools=[{"type": "namespace", "name": "n", "tools": [function(FAR)]}]
    ),
    "a text's form elsewhere": responses(
        SAID, text={"format": {"type": "json_schema", "name": "a", "schema": FAR}}
    ),
    "a tool of a server": responses(SAID, tools=[{**function({}), "server_url": PLACE}]),
    "a grammar elsewhere": responses(
        SAID, tools=[{"type": "custom", "name": "x", "format": {"url": PLACE}}]
    ),
    "an interpreter": responses(
        SAID, tools=[function({}), {"type": "code_interpreter", "container": {"a": PLACE}}]
    ),
    "a server of tools": responses(
        SAID, tools=[function({}), {"type": "mcp", "server_url": PLACE}]
    ),
    "a block with more": claude({**TEXT, "source": {"type": "url", "url": PLACE}}),
    "a block with a file": claude({**TEXT, "file_id": PLACE}),
    "an image with more": claude(
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AA", "url": PLACE},
        }
    ),
    "an image in words": claude({"type": "image", "source": {"type": "base64", "data": PLACE}}),
    "a citation with a file": claude(
        {**TEXT, "citations": [{"type": "char_location", "file_id": PLACE}]}
    ),
    "a message's container": claude(
        messages=[{"role": "user", "content": "x", "container": PLACE}]
    ),
    "a tool of Claude with more": claude(tools=[{"name": "a", "input_schema": {}, "url": PLACE}]),
    "a tool that hosted code calls": claude(
        tools=[{"name": "a", "allowed_callers": ["direct", PLACE]}]
    ),
    "a schema of Claude elsewhere": claude(tools=[{"name": "a", "input_schema": FAR}]),
    "an output of Claude elsewhere": claude(
        output_config={"format": {"type": "json_schema", "schema": FAR}}
    ),
    "an older output elsewhere": claude(output_format={"type": "json_schema", "schema": FAR}),
    "other metadata": claude(metadata={"user_id": "u", "tags": PLACE}),
    "other management": claude(context_management={"memory": PLACE}),
    "a choice of Claude with more": claude(tool_choice={"type": "auto", "server": PLACE}),
    "a cache with more": claude({**TEXT, "cache_control": {"url": PLACE}}),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_no_list_has_does_not_leave(name):
    try:
        found, stripped = sent(HIDDEN[name])
    except RefusedBodyError:
        return
    assert "evil.example" not in json.dumps(found)
    assert stripped


def test_stored_items_stay_refused_where_tools_are_allowed():
    for item in ({"type": "item_reference", "id": "x"}, {"id": "x"}):
        with pytest.raises(RefusedBodyError, match="by its id"):
            relayed_body(json.dumps(responses(item).body).encode(), openai.allow_hosted_tools)


USABLE = (
    *("gpt-5.5", "gpt-4o-2024-08-06", "claude-research", "models/gemini-2.5-pro", "search-r1-7b"),
    *("nousresearch/hermes-4-405b", "alibaba/tongyi-deepresearch-30b-a3b", "researcher:13b"),
    *("llama3.1:8b", "qwen2.5-coder:32b-instruct-q4_K_M", "mistral:latest", "gemma3n:e4b"),
    *("qwen3:30b-a3b-thinking-2507-q8_0", "glm-4.6:cloud", "gpt-oss:120b-cloud", "phi3:mini"),
    *("hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "unsloth/x:UD-Q4_K_XL", "x:BF16"),
    *("deepseek/deepseek-r1:free", "x/y:nitro", "x/y:thinking", "x/y:floor", "x/y:exacto"),
    *("meta-llama/Llama-3.3-70B-Instruct:together", "hf:zai-org/GLM-4.6", "openai:gpt-4o"),
    *("ft:gpt-4o:org::id", "ft:gpt-4o-mini-2024-07-18:acme:suffix:9a", "@cf/meta/llama-3-8b"),
    *("anthropic.claude-3-5-sonnet-20240620-v1:0", "bedrock/arn:aws:bedrock:us-east-1:1:x/y"),
    *("localhost:5000/library/model:7b", "mixtral:8x7b-instruct-v0.1-q5_K_M"),
)
HOSTED = (
    *("x:online", "x:online:nitro", "x:nitro:online", "x:ONLINE", "x: online", "x:online/linkup"),
    *("ft:gpt-4o:org::id:online", "x:web", "x:web-search", "x:memory", "x:plugins", "x:free:web"),
    *("gpt-4o-search-preview", "openai/gpt-4o-mini-search-preview", "gpt-5-search-api"),
    *("gpt-4o-search-preview-2025-03-11", "openai:gpt-4o-search-preview", "sonar"),
    *("o3-deep-research", "o4-mini-deep-research-2025-06-26", "perplexity/sonar-pro"),
    *("groq/compound", "compound-mini", "GPT-4o-Search-Preview"),
)
STRANGE = ("x:whatever", "x::whatever", "x:enable_web_search=on", "x:onl\u0131ne", "x:free:extra")


@pytest.mark.parametrize("model", USABLE)
def test_no_part_of_a_name_is_a_capability(model):
    assert sent(chat(model=model)) == (chat(model=model).body, ())


@pytest.mark.parametrize("model", [*HOSTED, *STRANGE])
def test_models_and_endings_with_tools_of_the_provider_are_refused(model):
    for ask in (chat, responses, claude):
        with pytest.raises(RefusedBodyError, match="allow_external_tools") as error:
            sent(ask(model=model))
        assert error.value.kinds == ("model",)


@pytest.mark.parametrize("model", [*HOSTED, *STRANGE])
def test_a_setting_of_the_tester_lifts_it(model):
    for api, body in (chat(model=model), responses(model=model), claude(model=model)):
        relayed = relayed_body(json.dumps(body).encode(), APIS[api].allow_hosted_tools)
        assert json.loads(relayed.data)["model"] == model


def test_a_strange_ending_passes_in_the_model_that_the_tester_names():
    request = chat(model="x:whatever")
    assert sent(request, "x:whatever")[0] == request.body
    for model, named in (("y:whatever", "x:whatever"), ("x:online", "x:online")):
        with pytest.raises(RefusedBodyError):
            sent(chat(model=model), named)
