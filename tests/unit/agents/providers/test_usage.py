"""What is billed, and when an answer is complete, in the words of known servers."""

from __future__ import annotations

import json

import pytest

from securebench.agents.providers.answers import DocumentReader, StreamReader, TokenUsage, billed
from securebench.agents.providers.anthropic import AnthropicMeter
from securebench.agents.providers.openai import OpenAIMeter
from securebench.agents.providers.openai_chat import ChatMeter

USAGES: dict[str, tuple[dict[str, object], TokenUsage]] = {
    "OpenAI: reasoning inside": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "completion_tokens_details": {"reasoning_tokens": 40},
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        TokenUsage(100, 64, 50),
    ),
    "xAI: reasoning beside": (
        {
            "prompt_tokens": 240,
            "completion_tokens": 31,
            "total_tokens": 2171,
            "completion_tokens_details": {"reasoning_tokens": 1900},
        },
        TokenUsage(240, 0, 1931),
    ),
    "reasoning beside without a total": (
        {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "completion_tokens_details": {"reasoning_tokens": 9},
        },
        TokenUsage(1, 0, 11),
    ),
    "Gemini: thoughts in the total alone": (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 215},
        TokenUsage(10, 0, 205),
    ),
    "Gemini, its own names": (
        {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 7,
            "cachedContentTokenCount": 4,
            "totalTokenCount": 22,
        },
        TokenUsage(10, 4, 12),
    ),
    "DeepSeek": (
        {
            "prompt_tokens": 50000,
            "completion_tokens": 100,
            "total_tokens": 50100,
            "prompt_cache_hit_tokens": 48000,
            "prompt_cache_miss_tokens": 2000,
        },
        TokenUsage(50000, 48000, 100),
    ),
    "DeepSeek without the sum": (
        {"completion_tokens": 1, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
        TokenUsage(10, 8, 1),
    ),
    "Moonshot": (
        {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "cached_tokens": 9},
        TokenUsage(10, 9, 1),
    ),
    "LiteLLM: twice the same cache": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "total_tokens": 101,
            "prompt_tokens_details": {"cached_tokens": 90},
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 5,
        },
        TokenUsage(100, 90, 1),
    ),
    "a cache beside the prompt": (
        {
            "prompt_tokens": 5,
            "completion_tokens": 1,
            "total_tokens": 106,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 10,
        },
        TokenUsage(105, 90, 1),
    ),
    "a cache larger than the prompt": (
        {"prompt_tokens": 5, "completion_tokens": 1, "cache_read_input_tokens": 90},
        TokenUsage(95, 90, 1),
    ),
    "a cache and reasoning beside": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "total_tokens": 138,
            "prompt_tokens_details": {"cached_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 7},
        },
        TokenUsage(130, 30, 8),
    ),
    "Responses": (
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 40},
            "total_tokens": 150,
        },
        TokenUsage(100, 60, 50),
    ),
    "Ollama, its own names": ({"prompt_eval_count": 3, "eval_count": 4}, TokenUsage(3, 0, 4)),
    "a total alone": ({"total_tokens": 9}, TokenUsage(0, 0, 9)),
    "a total that is too small": (
        {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 5},
        TokenUsage(5, 0, 6),
    ),
    "no numbers": ({"prompt_tokens": "5", "total_tokens": None, "x": {}}, TokenUsage()),
}


@pytest.mark.parametrize("name", USAGES)
def test_usage_is_what_is_billed(name):
    usage, want = USAGES[name]
    assert billed(usage) == want


def test_anthropic_counts_its_cache_beside_the_input():
    usage = {
        "input_tokens": 700,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 100,
        "output_tokens": 5,
    }
    assert billed(usage, is_cache_beside=True) == TokenUsage(1000, 200, 5)


def chat(text: str = "", reason: object = None, **fields: object) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": reason}
    return _data({"choices": [choice], **fields})


def _data(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def responses(kind: str, **response: object) -> bytes:
    return _data({"type": f"response.{kind}", "response": response})


DONE = b"data: [DONE]\n\n"
USED = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
STREAMS: dict[str, tuple[type[ChatMeter | OpenAIMeter | AnthropicMeter], list[bytes], bool]] = {
    "an empty reason in each chunk, then a reset": (
        ChatMeter,
        [chat("Do", ""), chat("ne", "")],
        False,
    ),
    "an empty reason and a usage so far": (ChatMeter, [chat("Do", "", usage=USED)], False),
    "the text null": (ChatMeter, [chat("Do", "null")], False),
    "an empty reason, then the end": (ChatMeter, [chat("Do", ""), chat("", "stop"), DONE], True),
    "no reason, but the mark of the end": (ChatMeter, [chat("Done"), DONE], True),
    "the mark of the end alone": (ChatMeter, [DONE], False),
    "a reason of another name": (ChatMeter, [chat("Done"), chat("", "STOP")], True),
    "a usage in the last chunk": (ChatMeter, [chat("Done", "stop", usage=USED)], True),
    "Groq's usage": (ChatMeter, [chat("Done", "stop", x_groq={"usage": USED})], True),
    "Responses: no status": (OpenAIMeter, [responses("completed", output=[])], True),
    "Responses: another status": (OpenAIMeter, [responses("completed", status="stop")], True),
    "Responses: incomplete": (OpenAIMeter, [responses("incomplete", status="length")], True),
    "Responses: the mark of the end alone": (OpenAIMeter, [responses("created"), DONE], False),
    "Messages: an empty reason": (
        AnthropicMeter,
        [_data({"type": "message_delta", "delta": {"stop_reason": ""}})],
        False,
    ),
    "Messages: a new reason": (
        AnthropicMeter,
        [_data({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}})],
        True,
    ),
    "Messages: its end": (AnthropicMeter, [_data({"type": "message_stop"})], True),
}


@pytest.mark.parametrize("name", STREAMS)
def test_completeness_hangs_on_no_spelling(name):
    make, pieces, want = STREAMS[name]
    meter = make()
    reader = StreamReader(meter)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    assert (meter.is_complete, meter.failure) == (want, "")


ERRORS = {
    "Responses without a status": (OpenAIMeter, responses("failed", error={"code": "slow_down"})),
    "Responses, its own event": (
        OpenAIMeter,
        _data({"type": "error", "error": {"code": "server_error"}}),
    ),
    "a choice with an error": (
        ChatMeter,
        _data({"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "x"}}]}),
    ),
    "Messages": (AnthropicMeter, _data({"type": "error", "error": {"type": "api_error"}})),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_in_streams_are_failures(name):
    make, piece = ERRORS[name]
    meter = make()
    StreamReader(meter).feed(piece)
    assert (meter.is_complete, meter.failure) == (True, "provider_unavailable")


LOW = {"message": "Insufficient credits"}
DOCUMENTS = {
    "Responses: no status": (OpenAIMeter, {"object": "response", "output": []}, True, ""),
    "Responses: another status": (OpenAIMeter, {"status": "stop", "output": [1]}, True, ""),
    "Responses: running": (OpenAIMeter, {"status": "queued", "output": []}, False, ""),
    "Responses: an error with 200": (OpenAIMeter, {"error": LOW}, True, "provider_quota"),
    "Responses: other": (OpenAIMeter, {"x": 1}, False, ""),
    "chat: an error with 200": (ChatMeter, {"error": LOW}, True, "provider_quota"),
    "Messages: no type": (AnthropicMeter, {"role": "assistant", "content": []}, True, ""),
    "Messages: an error with 200": (
        AnthropicMeter,
        {"type": "error", "error": {"type": "overloaded_error"}},
        True,
        "provider_unavailable",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_of_any_spelling(name):
    make, document, want, want_failure = DOCUMENTS[name]
    meter = make()
    reader = DocumentReader(meter)
    reader.feed(json.dumps(document).encode())
    reader.end()
    assert (meter.is_complete, meter.failure) == (want, want_failure)
