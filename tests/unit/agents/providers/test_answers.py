"""What answers say: usage, their end, failures; and the sums of a launch."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.agents.providers import answers
from securebench.agents.providers.answers import (
    EVENT_BYTES,
    DocumentReader,
    EventReader,
    Meter,
    StreamReader,
    TokenUsage,
    failure_of_status,
)
from securebench.agents.providers.anthropic import AnthropicMeter
from securebench.agents.providers.openai import OpenAIMeter
from securebench.agents.providers.openai_chat import ChatMeter
from securebench.agents.providers.provider import RequestRefusal
from securebench.gateway.account import (
    MODELS,
    STRIPPED_KINDS,
    UsageEnd,
    answered,
    ended,
    obstacle,
    refused,
    sent,
)
from securebench.protocol.gateway import ProviderConfig, RelayReport

OPENAI_USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 200},
    "output_tokens": 50,
}
START = {
    "type": "message_start",
    "message": {
        "usage": {
            "input_tokens": 700,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 200,
            "output_tokens": 1,
        }
    },
}
DELTA = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "usage": {"output_tokens": 50},
}
WORDS = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Done"}}


def response(status: str = "completed", **fields: object) -> dict[str, object]:
    return {
        "type": f"response.{status}",
        "response": {"status": status, "usage": OPENAI_USAGE, **fields},
    }


def failed(code: object) -> dict[str, object]:
    return response("failed", error={"code": code}, usage=None)


def error(kind: object) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind}}


CHAT_USAGE = {
    "prompt_tokens": 1000,
    "prompt_tokens_details": {"cached_tokens": 200},
    "completion_tokens": 50,
}
SAID = {"choices": [{"delta": {"content": "Done"}, "finish_reason": None}], "usage": None}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None}
COUNTED = {"choices": [], "usage": CHAT_USAGE}

End = tuple[TokenUsage, bool, str]
"""What was used, whether the answer is complete, and whose trouble it was."""

COMPLETE: End = (TokenUsage(1000, 200, 50), True, "")
NOTHING: End = (TokenUsage(), False, "")
ASKED_WRONG: End = (TokenUsage(), True, "")


def fails(failure: str) -> End:
    return TokenUsage(), True, failure


def rows(table: Mapping[type[Meter], Mapping[str, tuple[Any, End]]]) -> list[Any]:
    """Return meter, answer and end as parameters."""
    return [
        pytest.param(make, answer, end, id=name)
        for make, answers_of in table.items()
        for name, (answer, end) in answers_of.items()
    ]


def end_of(meter: Meter) -> End:
    return meter.usage, meter.is_complete, meter.failure


STREAMS: dict[type[Meter], dict[str, tuple[list[object], End]]] = {
    OpenAIMeter: {
        "openai": ([{"type": "response.created"}, response()], COMPLETE),
        "openai cut": ([{"type": "response.created"}], NOTHING),
        "openai incomplete": ([response("incomplete")], COMPLETE),
        "openai quota": ([failed("insufficient_quota")], fails("provider_quota")),
        "openai down": ([failed("server_error")], fails("provider_unavailable")),
        "openai no code": ([failed(["x"])], fails("provider_unavailable")),
        "openai asked wrong": ([failed("context_length_exceeded")], ASKED_WRONG),
        "openai status as text": ([failed("429")], fails("provider_quota")),
        "openai status": ([failed(400)], ASKED_WRONG),
        "openai error event": (
            [{"type": "error", "code": "rate_limit_exceeded"}],
            fails("provider_quota"),
        ),
        "openai odd": (
            [
                [],
                {"type": ["response.completed"]},
                {"type": "response.completed", "response": {"usage": {"input_tokens": True}}},
                {"type": "response.completed", "response": {"usage": {"input_tokens": -5}}},
            ],
            ASKED_WRONG,
        ),
    },
    ChatMeter: {
        "chat": ([SAID, STOP, COUNTED], COMPLETE),
        "chat cut": ([SAID], NOTHING),
        "chat without usage": ([SAID, STOP], ASKED_WRONG),
        "chat with a usage so far": (
            [{**SAID, "usage": {"prompt_tokens": 9, "completion_tokens": 1}}],
            (TokenUsage(9, 0, 1), False, ""),
        ),
        "chat quota": ([SAID, {"error": {"message": "m", "code": 429}}], fails("provider_quota")),
        "chat key": ([{"error": {"code": 401}}], fails("provider_auth")),
        "chat down": ([{"error": "gone"}], fails("provider_unavailable")),
        "chat asked wrong": (
            [{"error": {"code": None, "type": "invalid_request_error"}}],
            ASKED_WRONG,
        ),
        "chat odd": (
            [
                [],
                {"choices": {"a": 1}},
                {"choices": [1, {"delta": 1}], "usage": {"prompt_tokens": "x"}},
            ],
            NOTHING,
        ),
    },
    AnthropicMeter: {
        "anthropic": ([START, WORDS, DELTA], COMPLETE),
        "anthropic by its stop": (
            [START, {"type": "message_stop"}],
            (TokenUsage(1000, 200, 1), True, ""),
        ),
        "anthropic cut": ([START, WORDS], (TokenUsage(1000, 200, 1), False, "")),
        "anthropic cut without reason": (
            [{**DELTA, "delta": {"stop_reason": None}}],
            (TokenUsage(0, 0, 50), False, ""),
        ),
        "anthropic overloaded": (
            [START, error("overloaded_error")],
            (TokenUsage(1000, 200, 1), True, "provider_unavailable"),
        ),
        "anthropic quota": ([error("rate_limit_error")], fails("provider_quota")),
        "anthropic key": ([error("authentication_error")], fails("provider_auth")),
        "anthropic asked wrong": ([error("invalid_request_error")], ASKED_WRONG),
        "anthropic no kind": ([error({})], fails("provider_unavailable")),
    },
}


@pytest.mark.parametrize(("make", "events", "end"), rows(STREAMS))
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_streams_are_read(make, events, end, size):
    text = b"".join(b"event: x\r\ndata: %b\r\n\r\n" % json.dumps(e).encode() for e in events)
    meter = make()
    reader = StreamReader(meter)
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
    reader.end()
    assert end_of(meter) == end


DOCUMENTS: dict[type[Meter], dict[str, tuple[object, End]]] = {
    OpenAIMeter: {
        "openai": (response()["response"], COMPLETE),
        "openai failed": (failed(None)["response"], fails("provider_unavailable")),
        "openai running": ({"status": "in_progress"}, NOTHING),
    },
    ChatMeter: {
        "chat": (
            {"choices": [{"message": {}, "finish_reason": "stop"}], "usage": CHAT_USAGE},
            COMPLETE,
        ),
        "chat failed": ({"error": {"code": 402}}, fails("provider_quota")),
        "chat other": ({"object": "list"}, NOTHING),
    },
    AnthropicMeter: {
        "anthropic": (
            {"type": "message", "usage": {"input_tokens": 3, "output_tokens": 4}},
            (TokenUsage(3, 0, 4), True, ""),
        ),
        "anthropic other": ({"type": "else"}, NOTHING),
        "no object": ([], NOTHING),
    },
}


@pytest.mark.parametrize(("make", "document", "end"), rows(DOCUMENTS))
def test_documents_are_read(make, document, end):
    meter = make()
    reader = DocumentReader(meter)
    text = json.dumps(document).encode()
    reader.feed(text[:5])
    reader.feed(text[5:])
    reader.end()
    assert end_of(meter) == end


def test_a_document_beyond_the_bound_is_not_read(monkeypatch):
    monkeypatch.setattr(answers, "DOCUMENT_BYTES", 3)
    meter = AnthropicMeter()
    reader = DocumentReader(meter)
    reader.feed(b'{"type":"message"}')
    reader.end()
    assert (meter.is_complete, meter.has_gap) == (False, True)
    assert meter.characters == len('{"type":"message"}')


GAPS = {
    "a deep object": (b'{"a":%b}' % (b"[" * 5000 + b"]" * 5000), True),
    "a name twice": (b'{"a":1,"a":2} ', True),
    "an object": (b'{"type":"ping"}', False),
    "no object": (b"[DONE]", False),
    "a page": (b"<html>", False),
    "cut": (b'{"type":', False),
}


@pytest.mark.parametrize("name", GAPS)
def test_what_is_not_understood_is_a_gap(name):
    text, want = GAPS[name]
    stream, document = OpenAIMeter(), OpenAIMeter()
    StreamReader(stream).feed(b"data: " + text + b"\n\n")
    reader = DocumentReader(document)
    reader.feed(text)
    reader.end()
    assert (stream.has_gap, document.has_gap) == (want, want)


def test_an_event_beyond_the_bound_is_a_gap():
    meter = OpenAIMeter()
    reader = StreamReader(meter)
    reader.feed(b"data: " + b"x" * EVENT_BYTES)
    assert meter.has_gap
    reader.feed(b"\n\ndata: " + json.dumps(response()).encode() + b"\n\n")
    assert meter.is_complete


@pytest.mark.parametrize("make", [StreamReader, DocumentReader])
def test_an_answer_that_the_agent_does_not_take_holds_little(make):
    """So the 64 connections of a launch hold less than 128 MiB, of the gateway's 1 GiB."""
    piece = b"data: " + bytes(64 * 1024)
    reader = make(OpenAIMeter())
    tracemalloc.start()
    try:
        for _ in range(128):
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024**2
    finally:
        tracemalloc.stop()


def test_words_of_the_model_are_counted():
    first, second = OpenAIMeter(), AnthropicMeter()
    first.event({"type": "response.output_text.delta", "delta": "four"})
    first.event({"type": "response.output_text.delta", "delta": {"a": 1}})
    second.event({"type": "content_block_delta", "delta": {"text": "abcd", "n": 1}})
    assert (first.characters, second.characters) == (4, len("abcd"))


CALL = {"function": {"name": "bash", "arguments": '{"a":1}'}}
DELTAS = {
    "text": ({"content": "four", "role": "assistant"}, 4),
    "reasoning": ({"reasoning_content": "four"}, 4),
    "a call": ({"tool_calls": [CALL, 1]}, len('bash{"a":1}')),
    "nothing": ({"content": None, "tool_calls": None}, 0),
}


@pytest.mark.parametrize("name", DELTAS)
def test_chat_counts_all_that_the_model_writes(name):
    delta, want = DELTAS[name]
    meter = ChatMeter()
    meter.event({"choices": [{"delta": delta}]})
    assert meter.characters == want


EVENTS = {
    "line feeds": (b"data: a\n\ndata:b\n\n", [b"a", b"b"]),
    "returns": (b"data: a\rdata: b\r\rdata: c\r\r", [b"a\nb", b"c"]),
    "both": (b"event: x\r\ndata: a\r\n\r\n", [b"a"]),
    "comments and other fields": (b": ping\nid: 1\ndatax: a\n\ndata: b\n\n", [b"b"]),
    "no end": (b"data: a\n", []),
    "one space only": (b"data:  a\n\n", [b" a"]),
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_events_are_cut(name, size):
    text, want = EVENTS[name]
    reader = EventReader()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert [event for piece in pieces for event in reader.feed(piece)] == want
    assert reader.feed(b"") == []


@pytest.mark.parametrize("size", [1, 100])
def test_events_beyond_the_bound_are_skipped(size):
    text = b"data: " + b"x" * 50 + b"\ndata: y\n\ndata: z\n\n"
    reader = EventReader(limit_bytes=20)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert [event for piece in pieces for event in reader.feed(piece)] == [b"z"]


@given(st.lists(st.binary(max_size=20)))
def test_no_bytes_break_the_readers(pieces):
    for meter in (OpenAIMeter(), AnthropicMeter(), ChatMeter()):
        stream, document = StreamReader(meter), DocumentReader(meter)
        for piece in pieces:
            stream.feed(piece)
            document.feed(piece)
        document.end()
        assert not meter.is_complete


STATUS_REASONS = {
    "": (200, 204, 400, 404, 409, 413, 422, 499),
    "provider_auth": (401, 403),
    "provider_quota": (402, 429),
    "provider_unavailable": (101, 301, 304, 307, 408, 500, 503, 529, 600),
}


@pytest.mark.parametrize("want", STATUS_REASONS)
def test_statuses_are_judged(want):
    reasons = {failure_of_status(status) for status in STATUS_REASONS[want]}
    assert reasons == {want}


def config(**fields: int) -> ProviderConfig:
    return ProviderConfig("openai", "api.openai.com", "/key", **fields)


OBSTACLES = {
    "no budget": (config(), RelayReport(requests=10**6, input_tokens=10**9), None),
    "requests left": (config(max_requests=3), RelayReport(requests=2), None),
    "requests spent": (config(max_requests=3), RelayReport(requests=3), RequestRefusal.BUDGET),
    "failed requests count nothing": (
        config(max_requests=3),
        RelayReport(requests=9, failures=7),
        None,
    ),
    "requests spent beside failures": (
        config(max_requests=3),
        RelayReport(requests=9, failures=6),
        RequestRefusal.BUDGET,
    ),
    "no request allowed": (config(max_requests=0), RelayReport(), RequestRefusal.BUDGET),
    "tokens left": (config(max_tokens=10), RelayReport(input_tokens=5, output_tokens=4), None),
    "tokens spent": (
        config(max_tokens=10),
        RelayReport(input_tokens=5, output_tokens=5),
        RequestRefusal.BUDGET,
    ),
    "key refused": (config(), RelayReport(failure="provider_auth"), RequestRefusal.KEY_REFUSED),
    "refused after it was taken": (
        config(),
        RelayReport(failure="provider_auth", is_key_taken=True),
        None,
    ),
    "refused, with tokens of nobody": (
        config(),
        RelayReport(failure="provider_auth", input_tokens=1),
        RequestRefusal.KEY_REFUSED,
    ),
    "was down": (config(), RelayReport(failure="provider_unavailable"), None),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_budgets_and_refused_keys_stop_requests(name):
    provider, report, want = OBSTACLES[name]
    assert obstacle(report, provider) is want


def test_sums_grow_by_every_answer():
    report = ended(sent(RelayReport(), "m", ("web_search",)), UsageEnd(TokenUsage(1000, 200, 50)))
    report = ended(sent(report, "a"), UsageEnd(TokenUsage(10, 0, 1), failure="provider_quota"))
    assert report == RelayReport(
        requests=2,
        input_tokens=1010,
        cached_tokens=200,
        output_tokens=51,
        failures=1,
        failure="provider_quota",
        stripped_tools=("web_search",),
        models=("a", "m"),
    )
    assert ended(report, UsageEnd(is_abandoned=True)).failure == "provider_quota"
    assert ended(report, UsageEnd()).failure == ""
    assert ended(RelayReport(), UsageEnd(failure="x", is_abandoned=True)).failure == "x"


def test_a_key_that_was_taken_stays_so():
    report = answered(RelayReport(requests=1), "m")
    assert report == RelayReport(requests=1, is_key_taken=True, answered_models=("m",))
    assert ended(sent(report, "m"), UsageEnd(failure="provider_auth")).is_key_taken


def test_refusals_are_counted():
    report = refused(RelayReport(), RequestRefusal.BAD_REQUEST, ("mcp", "a"))
    assert report == RelayReport(blocked=1, stripped_tools=("a", "mcp"))
    assert refused(report, RequestRefusal.BUDGET).budget_exhausted
    assert refused(
        refused(report, RequestRefusal.BUDGET), RequestRefusal.NOT_RELAYED
    ).budget_exhausted


def test_kinds_are_bounded():
    report = RelayReport()
    for number in range(2 * STRIPPED_KINDS):
        report = sent(report, "m", (f"kind-{number:03}",))
    assert len(report.stripped_tools) == STRIPPED_KINDS
    assert sent(report, "m", ("kind-000",)) == sent(report, "m")


def test_models_are_bounded():
    report = RelayReport()
    for number in range(2 * MODELS, 0, -1):
        report = sent(report, f"model-{number:02}")
    assert report.models == tuple(f"model-{number:02}" for number in range(9, 17))
    assert sent(report, "model-12").models == report.models
