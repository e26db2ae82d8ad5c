"""The scripted provider's Chat Completions have the shape that OpenAI documents.

The schemas are the required fields of CreateChatCompletionResponse and
CreateChatCompletionStreamResponse in the vendor's OpenAPI description.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from outside.model_wire import CHAT, INPUT_TOKENS, OUTPUT_TOKENS, SUBMIT, Step
from securebench.agents.providers.answers import DocumentReader, StreamReader, TokenUsage
from securebench.agents.providers.openai_chat import ChatMeter

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
REASONS = ["stop", "length", "tool_calls", "content_filter", "function_call"]


def shape(*optional: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def details(*names: str) -> dict[str, Any]:
    return shape(*names, **dict.fromkeys(names, COUNT))


USAGE = shape(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=details("cached_tokens", "audio_tokens"),
    completion_tokens_details=details("reasoning_tokens"),
)
HEAD = {"id": TEXT, "created": COUNT, "model": TEXT}
CALL = shape(id=TEXT, type={"const": "function"}, function=shape(name=TEXT, arguments=TEXT))
MESSAGE = shape(
    "tool_calls",
    role={"const": "assistant"},
    content={"type": ["string", "null"]},
    refusal={"type": ["string", "null"]},
    tool_calls={"type": "array", "items": CALL, "minItems": 1},
)
DOCUMENT = shape(
    **HEAD,
    object={"const": "chat.completion"},
    choices={
        "type": "array",
        "minItems": 1,
        "items": shape(
            index=COUNT, message=MESSAGE, logprobs={"type": "null"}, finish_reason={"enum": REASONS}
        ),
    },
    usage=USAGE,
)
PIECE = shape(
    "id", "type", "function",
    index=COUNT,
    id=TEXT,
    type={"const": "function"},
    function=shape("name", "arguments", name=TEXT, arguments=TEXT),
)  # fmt: skip
DELTA = shape(
    "role", "content", "tool_calls",
    role={"const": "assistant"},
    content=TEXT,
    tool_calls={"type": "array", "items": PIECE},
)  # fmt: skip
CHUNK = shape(
    "usage",
    **HEAD,
    object={"const": "chat.completion.chunk"},
    choices={
        "type": "array",
        "items": shape(index=COUNT, delta=DELTA, finish_reason={"enum": [*REASONS, None]}),
    },
    usage={"anyOf": [{"type": "null"}, USAGE]},
)
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
STEPS = {
    "a call": (Step("ls"), TOOLS),
    "text": (Step(message="Hi."), TOOLS),
    "no tool": (Step("ls"), []),
}


def body(tools: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools, **fields}


def check(schema: dict[str, Any], value: object) -> None:
    assert [error.message for error in Draft202012Validator(schema).iter_errors(value)] == []


@pytest.mark.parametrize("name", STEPS)
def test_a_document_has_the_documented_shape(name: str) -> None:
    step, tools = STEPS[name]
    document = CHAT.document(body(tools), step)
    assert document is not None
    check(DOCUMENT, document)
    meter = ChatMeter()
    reader = DocumentReader(meter)
    reader.feed(json.dumps(document).encode())
    reader.end()
    assert meter.is_complete
    assert (meter.usage.input_tokens, meter.usage.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("has_usage", [True, False])
def test_a_stream_has_the_documented_shape(name: str, has_usage: bool) -> None:  # noqa: FBT001
    step, tools = STEPS[name]
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    asked = body(tools, stream=True, **options)
    assert CHAT.document(asked, step) is None
    chunks = [data for _, data in CHAT.events(asked, step)]
    for chunk in chunks:
        check(CHUNK, chunk)
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert ["usage" in chunk for chunk in chunks] == [has_usage] * len(chunks)
    ends = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert ends[-1] == ("tool_calls" if name == "a call" else "stop")
    assert set(ends[:-1]) == {None}
    assert (chunks[-1]["choices"] == []) is has_usage
    meter = ChatMeter()
    reader = StreamReader(meter)
    for chunk in chunks:
        reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    reader.end()
    assert meter.is_complete
    assert (meter.usage != TokenUsage()) is has_usage


def test_the_pieces_of_a_call_are_the_call() -> None:
    chunks = [data for _, data in CHAT.events(body(TOOLS, stream=True), Step("ls -l"))]
    calls = [
        call
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert calls[0]["id"].startswith("call_")
    assert calls[0]["function"]["name"] == "bash"
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"command": "ls -l"}


def test_results_of_tools_are_steps() -> None:
    messages = [
        {"role": "user", "content": "Read /w/task.json."},
        {"role": "assistant", "tool_calls": []},
        {"role": "tool", "tool_call_id": "call_1", "content": json.dumps({"output": "shown"})},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "plain"}]},
    ]
    asked = CHAT.asked({"messages": messages, "tools": TOOLS})
    assert (asked.outputs, asked.tools) == (("shown", "plain"), ("bash",))


def test_an_agent_that_wants_a_command_at_the_end_gets_it() -> None:
    asked = {"model": "m", "tools": TOOLS, "messages": [{"role": "user", "content": SUBMIT}]}
    document = CHAT.document(asked, Step())
    assert document is not None
    (call,) = document["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": f"echo {SUBMIT}"}


@pytest.mark.parametrize("status", [401, 429, 500])
def test_errors_have_the_documented_shape(status: int) -> None:
    error: Any = CHAT.error(status)["error"]
    assert {"message", "type", "code"} <= set(error)
