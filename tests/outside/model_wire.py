"""Answers of a model as Responses, Chat Completions and Messages say them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Body = Mapping[str, Any]
Event = tuple[str, dict[str, Any]]

INPUT_TOKENS = 1000
CACHED_TOKENS = 200
OUTPUT_TOKENS = 50
REASONING_TOKENS = 10
"""Of every answer, whatever it says."""
TOKENS = INPUT_TOKENS + OUTPUT_TOKENS

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Step:
    """What the model says: a command for its shell tool, or else a message.

    Attributes:
        shell: Command line, or empty.
        message: Text.
    """

    shell: str = ""
    message: str = "Done."


class Asked(NamedTuple):
    """What a request says of its conversation.

    Attributes:
        prompt: Texts of the user, joined.
        outputs: What the tools gave, in order.
        tools: Names or kinds of the offered tools.
        conversation: The same in all requests of one conversation.
    """

    prompt: str
    outputs: tuple[str, ...]
    tools: tuple[str, ...]
    conversation: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the interfaces.

    Attributes:
        name: As the gateway calls it.
        path: Of its requests.
        read: Reads a request.
        make: Returns the events of an answer from request, step and number.
        is_bearer: Whether the key comes as bearer.
    """

    name: str
    path: str
    read: Callable[[Body], Asked]
    make: Callable[[Body, Step, int], list[Event]]
    is_bearer: bool = True
    _ids: Iterator[int] = field(default_factory=lambda: _numbers)

    def asked(self, body: Body) -> Asked:
        """Read a request."""
        return self.read(body)

    def events(self, body: Body, step: Step) -> list[Event]:
        """Return the events of an answer; those of Chat Completions have no name."""
        return self.make(body, step, next(self._ids))

    def document(self, body: Body, step: Step) -> dict[str, Any] | None:
        """Return the answer as one document where the request asks for none in events."""
        if self.name != "openai_chat" or body.get("stream"):
            return None
        return chat_document(body, step, next(self._ids))

    def key(self, headers: Mapping[str, str]) -> str:
        """Return the key of a request, or empty."""
        if self.is_bearer:
            return headers.get("Authorization", "").removeprefix("Bearer ")
        return headers.get("x-api-key", "")

    def error(self, status: int) -> dict[str, object]:
        """Return the body of an error."""
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "api_error")
        told = {"type": kind, "code": kind, "message": f"scripted failure {status}"}
        return {"type": "error", "error": told}


def _texts(content: object) -> str:
    """Return the texts of a message's or a result's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _tool_names(tools: object) -> list[str]:
    found: list[str] = []
    for tool in tools if isinstance(tools, list) else []:
        found += _tool_names(tool.get("tools"))
        found.append(str(tool.get("name") or tool.get("type")))
    return found


def _asked_openai(body: Body) -> Asked:
    given = body.get("input")
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    tools = _tool_names(body.get("tools"))
    for item in items:
        tools += _tool_names(item.get("tools"))
    outputs = [
        _texts(item["output"]) for item in items if str(item.get("type")).endswith("_call_output")
    ]
    prompt = [_texts(item.get("content")) for item in items if item.get("role") == "user"]
    conversation = str(body.get("prompt_cache_key", ""))
    return Asked("\n".join(prompt), tuple(outputs), tuple(tools), conversation)


def _asked_anthropic(body: Body) -> Asked:
    prompt, outputs = [], []
    for message in body.get("messages", ()):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        results = [
            part
            for part in (content if isinstance(content, list) else ())
            if part.get("type") == "tool_result"
        ]
        outputs += [_texts(part.get("content")) for part in results]
        prompt.append(_texts(content))
    conversation = str(body.get("metadata", {}).get("user_id", ""))
    return Asked(
        "\n".join(prompt), tuple(outputs), tuple(_tool_names(body.get("tools"))), conversation
    )


def _openai_events(body: Body, step: Step, number: int) -> list[Event]:
    place = {"output_index": 0, "item_id": f"item_{number:06d}"}
    item, stem, key, text = _openai_item(body, step, number)
    empty: Any = [] if key == "text" else ""
    begun = {**item, "status": "in_progress", ("content" if key == "text" else key): empty}
    index = {"content_index": 0} if key == "text" else {}
    answer = {"id": f"resp_{number:06d}", "object": "response", "model": body.get("model")}
    events: list[Event] = [
        ("response.created", {"response": {**answer, "status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": begun}),
        (f"{stem}.delta", {"delta": text, **place, **index}),
        (f"{stem}.done", {key: text, **place, **index}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        (
            "response.completed",
            {
                "response": {
                    **answer,
                    "status": "completed",
                    "output": [item],
                    "usage": _openai_usage(),
                }
            },
        ),
    ]
    return [
        (name, {"type": name, "sequence_number": at, **data})
        for at, (name, data) in enumerate(events)
    ]


def _openai_item(body: Body, step: Step, number: int) -> tuple[dict[str, Any], str, str, str]:
    """Return the item, and the stem, key and text of its deltas."""
    item: dict[str, Any] = {"id": f"item_{number:06d}", "status": "completed"}
    if not step.shell:
        part = {"type": "output_text", "text": step.message, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [part]}
        return item, "response.output_text", "text", step.message
    item["call_id"] = f"call_{number:06d}"
    if "exec" in _asked_openai(body).tools:  # models in code mode have one JavaScript tool
        text = f"text(await tools.exec_command({{cmd: {json.dumps(step.shell)}}}))"
        item |= {"type": "custom_tool_call", "name": "exec", "input": text}
        return item, "response.custom_tool_call_input", "input", text
    text = json.dumps({"cmd": step.shell})
    item |= {"type": "function_call", "name": "exec_command", "arguments": text}
    return item, "response.function_call_arguments", "arguments", text


def _openai_usage() -> dict[str, object]:
    return {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "total_tokens": TOKENS,
    }


def _anthropic_events(body: Body, step: Step, number: int) -> list[Event]:
    has_tools = any("input_schema" in tool for tool in body.get("tools") or ())
    if step.shell and has_tools:
        start: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number:06d}", "name": "Bash"}
        start["input"] = {}
        call = json.dumps({"command": step.shell, "description": "scripted step"})
        delta, reason = {"type": "input_json_delta", "partial_json": call}, "tool_use"
    else:  # requests without a tool of the client are side requests
        start = {"type": "text", "text": ""}
        delta, reason = {"type": "text_delta", "text": step.message}, "end_turn"
    usage = {
        "input_tokens": INPUT_TOKENS - CACHED_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": CACHED_TOKENS,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {
        "id": f"msg_{number:06d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    ended = {"stop_reason": reason, "stop_sequence": None}
    events: list[Event] = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": start}),
        ("ping", {}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ended, "usage": {"output_tokens": OUTPUT_TOKENS}}),
        ("message_stop", {}),
    ]
    return [(name, {"type": name, **data}) for name, data in events]


SUBMIT: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What mini-swe-agent wants to be printed at the end of a task; it says so in its prompt."""
SHELLS: Final = ("bash", "run_shell_command", "shell")
"""Names of the tools by which agents run commands; the first one offered is called."""


def _asked_chat(body: Body) -> Asked:
    messages = [each for each in body.get("messages", ()) if isinstance(each, Mapping)]
    prompt = [_texts(each.get("content")) for each in messages if each.get("role") == "user"]
    outputs = [
        _printed(_texts(each.get("content"))) for each in messages if each.get("role") == "tool"
    ]
    functions = [tool.get("function", tool) for tool in body.get("tools") or ()]
    conversation = "\n".join(prompt)[:1000]
    return Asked("\n".join(prompt), tuple(outputs), tuple(_tool_names(functions)), conversation)


def _printed(content: str) -> str:
    """Return what a command printed; mini-swe-agent wraps it in an object."""
    try:
        told = json.loads(content)
    except ValueError:
        return content
    return str(told["output"]) if isinstance(told, dict) and "output" in told else content


def _chat_message(body: Body, step: Step, number: int) -> dict[str, Any]:
    """Return the model's message: a call of the shell that is offered, or text."""
    asked = _asked_chat(body)
    shell = next((name for name in SHELLS if name in asked.tools), "")
    command = step.shell or (f"echo {SUBMIT}" if SUBMIT in asked.prompt else "")
    if not shell or not command:
        return {"role": "assistant", "content": step.message, "refusal": None}
    call = {"name": shell, "arguments": json.dumps({"command": command})}
    tool = {"id": f"call_{number:06d}", "type": "function", "function": call}
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [tool]}


def _chat_usage() -> dict[str, object]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    }


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _chat_head(body: Body, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number:06d}",
        "object": kind,
        "created": 1_700_000_000,
        "model": body.get("model"),
    }


def chat_document(body: Body, step: Step, number: int) -> dict[str, Any]:
    """Return a whole completion."""
    message = _chat_message(body, step, number)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(message)}
    head = _chat_head(body, number, "chat.completion")
    return {**head, "choices": [choice], "usage": _chat_usage()}


def _chat_events(body: Body, step: Step, number: int) -> list[Event]:
    """Return the chunks: role, content or call in two parts, end, usage if it is asked for."""
    message = _chat_message(body, step, number)
    has_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    usage: dict[str, Any] = {"usage": None} if has_usage else {}
    head = _chat_head(body, number, "chat.completion.chunk")
    deltas = [{"role": "assistant", "content": ""}, *_chat_deltas(message)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": _finish(message)})
    chunks: list[Event] = [("", {**head, "choices": [choice], **usage}) for choice in choices]
    last: list[Event] = [("", {**head, "choices": [], "usage": _chat_usage()})]
    return [*chunks, *(last if has_usage else [])]


def _chat_deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "tool_calls" not in message:
        return [{"content": message["content"]}]
    (tool,) = message["tool_calls"]
    begun = {"name": tool["function"]["name"], "arguments": ""}
    more = {"index": 0, "function": {"arguments": tool["function"]["arguments"]}}
    return [{"tool_calls": [{"index": 0, **tool, "function": begun}]}, {"tool_calls": [more]}]


OPENAI = Dialect("openai", "/v1/responses", _asked_openai, _openai_events)
CHAT = Dialect("openai_chat", "/v1/chat/completions", _asked_chat, _chat_events)
ANTHROPIC = Dialect(
    "anthropic", "/v1/messages", _asked_anthropic, _anthropic_events, is_bearer=False
)
