"""How calls of a provider end: troubles, waits and broken connections."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from securebench.agents.providers.answers import DOCUMENT_BYTES, EVENT_BYTES
from securebench.clock import SystemClock
from securebench.gateway import provider_call
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.provider_call import ANSWER_TOKENS
from securebench.gateway.run_gateway import SMALL_BYTES, BodyMemory
from securebench.protocol.gateway import GatewayLimits, LaunchReport, RelayReport
from securebench.sizes import MIB
from support.relays import (
    MODELS,
    RESET,
    answer,
    chunk,
    delta,
    error,
    event,
    events,
    question,
    relayed,
    report_of_one,
    request,
    until,
    world,
)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(provider_call, "READ_ON_SECONDS", 0.3)


BOTH = pytest.mark.parametrize("name", ["openai", "openai_chat", "anthropic"])


@BOTH
async def test_an_agent_that_leaves_cancels_the_request(name, tmp_path):
    script = [answer(*events(name, "x" * 400)[:2], asyncio.Event())]
    async with relayed(name, script, tmp_path) as relay:
        relay.writer.write(request(name))
        await relay.reader.readuntil(events(name, "x" * 400)[1])
        relay.writer.close()
        await relay.served()
        await relay.script.ended.wait()
        assert (relay.report.failure, relay.report.failures) == ("", 0)
        assert relay.report.output_tokens == 100
        body = relay.script.asked[0].body
        assert relay.report.input_tokens == (1000 if name == "anthropic" else len(body) // 4)
        (line,) = await relay.log()
        assert (line["verdict"], line["reason"], line["output_tokens"]) == (
            "allowed",
            "broken",
            100,
        )


@BOTH
async def test_an_agent_that_leaves_after_the_end_is_served(name, tmp_path):
    script = [answer(*events(name), asyncio.Event())]
    async with relayed(name, script, tmp_path) as relay:
        relay.writer.write(request(name))
        await relay.reader.readuntil(events(name)[-1])
        relay.writer.transport.abort()
        await relay.served()
        assert relay.report == report_of_one(name)


@BOTH
async def test_the_end_of_an_answer_is_read_when_the_agent_has_left(name, tmp_path, monkeypatch):
    monkeypatch.setattr(provider_call, "READ_ON_SECONDS", 60.0)
    go = asyncio.Event()
    *begin, last = events(name)
    async with relayed(name, [answer(*begin[:2], go, *begin[2:], last)], tmp_path) as relay:
        relay.writer.write(request(name))
        await relay.reader.readuntil(begin[1])
        relay.writer.transport.abort()
        await asyncio.sleep(0.05)
        assert not relay.task.done()
        go.set()
        await relay.served()
        assert relay.report == report_of_one(name)


@BOTH
async def test_the_end_of_a_launch_does_not_wait_for_answers(name, tmp_path, monkeypatch):
    monkeypatch.setattr(provider_call, "READ_ON_SECONDS", 60.0)
    script = [answer(*events(name)[:2], asyncio.Event())]
    for has_left in (False, True):
        async with relayed(name, script, tmp_path) as relay:
            relay.writer.write(request(name))
            await relay.reader.readuntil(events(name)[1])
            if has_left:
                relay.writer.transport.abort()
                await asyncio.sleep(0.05)
            assert not relay.task.done()
            relay.launch.is_closing = True
            relay.task.cancel()
            async with asyncio.timeout(1):
                await relay.served()
            assert relay.report.input_tokens > 0


async def test_an_agent_that_leaves_before_an_answer_costs_nothing(tmp_path):
    async with relayed("openai", [[asyncio.Event()]], tmp_path) as relay:
        relay.writer.write(request("openai"))
        await until(lambda: relay.script.asked)
        relay.writer.close()
        await relay.served()
        assert relay.report == RelayReport(requests=1, models=(MODELS["openai"],))


@BOTH
async def test_a_request_in_flight_at_the_end_is_no_failure(name, tmp_path):
    script = [answer(*events(name)[:2], asyncio.Event())]
    async with relayed(name, script, tmp_path) as relay:
        relay.writer.write(request(name))
        await relay.reader.readuntil(events(name)[1])
        relay.launch.is_closing = True
        relay.task.cancel()
        with suppress(asyncio.CancelledError):
            await relay.task
        assert (relay.report.failure, relay.report.failures) == ("", 0)
        (line,) = await relay.log()
        assert (line["verdict"], line["reason"]) == ("cut", "closed")


@asynccontextmanager
async def waiting_for_the_run(tmp_path, script, body):
    """Yield a world, and a connection whose request waits until another one leaves room."""
    async with world("openai", script, tmp_path) as around:
        around.limit_run(10_000)
        around.gateway.bodies = BodyMemory(1)
        async with around.connected() as first, around.connected() as second:
            first.writer.write(request("openai"))
            await until(lambda: around.script.asked)
            second.writer.write(request("openai", body))
            await until(around.gateway.bodies.turn(around.launch).reading.locked)
            yield around, second


async def test_a_request_that_waits_for_the_runs_budget_takes_no_memory(tmp_path):
    go = asyncio.Event()
    script = [answer(go, *events("openai")), answer(*events("openai"))]
    body = question("openai", input="x" * 1000)
    async with waiting_for_the_run(tmp_path, script, body) as (around, _):
        first = around.launch
        around.begin_launch("sb-2")
        async with around.connected() as other, asyncio.timeout(4):
            assert (await other.ask(body)).status == 200
        assert first.relay.requests == 1
        go.set()
        await until(lambda: first.relay.requests == 2)


async def test_an_agent_that_leaves_while_it_waits_for_the_runs_budget_is_noticed(tmp_path):
    script = [answer(asyncio.Event())]
    async with waiting_for_the_run(tmp_path, script, question("openai")) as (around, second):
        second.writer.close()
        await second.served()
        assert len(around.script.asked) == 1
        assert not around.gateway.bodies.turn(around.launch).reading.locked()


async def test_a_request_that_does_not_say_its_size_gives_back_what_it_does_not_need(tmp_path):
    async with world("openai", [answer(asyncio.Event())], tmp_path) as around:
        around.limit_run(30 * MIB)
        async with around.connected() as first, around.connected() as second:
            first.writer.write(request("openai"))
            await until(lambda: len(around.script.asked) == 1)
            second.writer.write(chunked("openai"))
            await until(lambda: len(around.script.asked) == 2)
            assert around.launch.relay.reserved_tokens < 2 * (ANSWER_TOKENS + 100)


def chunked(name):
    head, _, body = request(name).partition(b"\r\n\r\n")
    length = b"Content-Length: %d" % len(body)
    head = head.replace(length, b"Transfer-Encoding: chunked")
    return head + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


async def test_a_request_in_flight_does_not_hide_a_failure(tmp_path):
    script = [error(500), answer(asyncio.Event())]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        relay.writer.write(request("openai"))
        await until(lambda: len(relay.script.asked) == 2)
        relay.launch.is_closing = True
        relay.task.cancel()
        with suppress(asyncio.CancelledError):
            await relay.task
        assert relay.report.failure == "provider_unavailable"


async def test_a_failure_inside_a_stream_stands_when_the_launch_closes(tmp_path):
    failed = event("error", error={"type": "overloaded_error"})
    script = [answer(failed, asyncio.Event())]
    async with relayed("anthropic", script, tmp_path) as relay:
        relay.writer.write(request("anthropic"))
        await relay.reader.readuntil(failed)
        relay.launch.is_closing = True
        relay.task.cancel()
        with suppress(asyncio.CancelledError):
            await relay.task
        assert relay.report.failure == "provider_unavailable"


async def test_a_reset_after_the_end_is_no_failure(tmp_path):
    go = asyncio.Event()
    script = [answer(*events("openai"), go, RESET, headers=("content-length: 99999",))]
    async with relayed("openai", script, tmp_path) as relay:
        relay.writer.write(request("openai"))
        await relay.reader.readuntil(events("openai")[-1])
        go.set()
        await relay.log()
        assert relay.report == report_of_one("openai")


LAST = b'data: {"type":"response.completed","response":{"status":"completed","tools":%b}}\n\n'
UNREAD = {
    "long": LAST % (b'["' + b"x" * EVENT_BYTES + b'"]'),
    "deep": LAST % (b"[" * 5000 + b"]" * 5000),
}


@pytest.mark.parametrize("case", UNREAD)
async def test_an_end_that_is_not_read_is_estimated_and_no_failure(case, tmp_path):
    script = [answer(*events("openai", "x" * 400)[:2], UNREAD[case])]
    async with relayed("openai", script, tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, got.body.endswith(UNREAD[case])) == (200, True)
        asked = len(relay.script.asked[0].body) // 4
        assert relay.report == RelayReport(
            requests=1,
            input_tokens=asked,
            output_tokens=100,
            is_key_taken=True,
            models=(MODELS["openai"],),
            answered_models=(MODELS["openai"],),
        )


async def test_an_answer_that_is_too_long_to_read_is_estimated(tmp_path):
    document = b'{"status":"completed","instructions":"' + b"x" * DOCUMENT_BYTES + b'"}'
    script = [answer(document, kind="application/json")]
    async with relayed("openai", script, tmp_path) as relay:
        assert (await relay.ask()).body == document
        assert (relay.report.failures, relay.report.output_tokens) == (0, len(document) // 4)


async def test_an_answer_that_is_none_is_a_failure(tmp_path):
    async with relayed("openai", [answer(kind="text/html")], tmp_path) as relay:
        assert (await relay.ask()).status == 200
        assert relay.report.failure == "provider_unavailable"


async def test_requests_may_follow_before_the_answer(tmp_path):
    go = asyncio.Event()
    async with relayed("openai", [answer(go, *events("openai"))], tmp_path) as relay:
        relay.writer.write(request("openai") * 2)
        await until(lambda: relay.script.asked)
        go.set()
        await until(lambda: relay.report.output_tokens == 100)
        assert len(relay.script.asked) == 2


async def test_budgets_survive_a_restart(tmp_path):
    script = [answer(*events("openai"))]
    async with world("openai", script, tmp_path, max_requests=1) as around:
        async with around.connected() as relay:
            assert (await relay.ask()).status == 200
        report = LaunchReport("sb-1", "uid", relay=around.launch.relay)
        around.launch = ServedLaunch(report, GatewayLimits(), SystemClock())
        async with around.connected() as relay:
            assert (await relay.ask()).status == 400


async def test_an_agent_that_sends_nothing_is_cut(tmp_path):
    limits = GatewayLimits(idle_seconds=0.05)
    async with relayed("openai", [answer()], tmp_path, limits) as relay:
        assert await relay.reader.read() == b""
        assert relay.report == RelayReport()


async def test_an_agent_that_sends_its_body_too_slowly_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(provider_call, "BODY_SECONDS", 0.05)
    async with relayed("openai", [answer()], tmp_path) as relay:
        relay.writer.write(request("openai")[:-3])
        assert await relay.reader.read() == b""
        assert (await relay.log())[0]["reason"] == "idle"
        assert not relay.script.asked


async def test_an_agent_that_takes_nothing_is_cut(tmp_path):
    limits = GatewayLimits(idle_seconds=0.3)
    script = [answer(*[b"x" * 1_000_000] * 40, asyncio.Event())]
    async with relayed("openai", script, tmp_path, limits) as relay:
        relay.writer.write(request("openai"))
        assert (await relay.log())[0]["reason"] == "idle"
        assert relay.report.failure == ""


@pytest.mark.parametrize(("seconds", "want"), [(0.0, ""), (60.0, "provider_unavailable")])
@pytest.mark.parametrize("end", [(), (RESET,)])
async def test_a_break_after_an_agent_that_waited_is_its_own(
    seconds, want, end, tmp_path, monkeypatch
):
    monkeypatch.setattr(provider_call, "WAIT_SECONDS", seconds)
    script = [answer(*events("openai", "x" * 400)[:2], *end)]
    async with relayed("openai", script, tmp_path) as relay:
        relay.writer.write(request("openai"))
        await relay.log()
        assert relay.report.failure == want
        assert relay.report.output_tokens == 100


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"stream": False}, ""),
        ({"stream": False, "metadata": {"stream": True}}, ""),
        ({"stream": True}, "provider_unavailable"),
    ],
)
async def test_a_silence_that_the_agent_asked_for_is_no_failure(fields, want, tmp_path):
    limits = GatewayLimits(idle_seconds=0.3)
    async with relayed("openai", [[asyncio.Event()]], tmp_path, limits) as relay:
        assert (await relay.ask(question("openai", **fields))).status == 502
        assert relay.report.failure == want


async def test_the_byte_limit_ends_an_answer(tmp_path):
    script = [answer(b"x" * 3000, asyncio.Event())]
    async with relayed("openai", script, tmp_path, GatewayLimits(bytes=2000)) as relay:
        relay.writer.write(request("openai"))
        (line,) = await relay.log()
        assert (line["verdict"], line["reason"]) == ("cut", "byte_limit")
        assert relay.report.failure == ""


async def test_a_refusal_that_no_byte_is_left_for_ends_the_connection(tmp_path):
    async with relayed("openai", [answer()], tmp_path, GatewayLimits(bytes=20)) as relay:
        relay.writer.write(b"\x00\r\n\r\n")
        relay.writer.write_eof()
        await relay.served()
        assert relay.task.exception() is None
        assert relay.report == RelayReport(blocked=1)


async def test_bodies_wait_for_room(tmp_path):
    go = asyncio.Event()
    script = [answer(go, *events("openai"))]
    async with world("openai", script, tmp_path) as around:
        around.gateway.bodies = BodyMemory(1)
        async with around.connected() as relay:
            room = await around.gateway.bodies.reserve(1)
            relay.writer.write(request("openai"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await until(lambda: relay.script.asked)
            room.release()
            await until(lambda: relay.script.asked)
            async with asyncio.timeout(4):
                await around.gateway.bodies.reserve(1)
            go.set()


async def test_large_bodies_are_judged_beside_the_loop(tmp_path):
    body = question("openai", instructions="x" * (SMALL_BYTES + 1))
    async with relayed("openai", [answer(*events("openai"))], tmp_path) as relay:
        assert (await relay.ask(body)).status == 200
        assert relay.script.asked[0].json == body


async def test_room_is_given_in_turn():
    memory = BodyMemory(10)
    first = await memory.reserve(6)
    second = asyncio.ensure_future(memory.reserve(99))
    third = asyncio.ensure_future(memory.reserve(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not second.done()
    assert not third.done()
    first.release()
    first.release()
    (await second).release()
    (await third).release()
    async with asyncio.timeout(5):
        (await memory.reserve(10)).release()


async def test_a_waiter_that_leaves_lets_the_next_one_in():
    memory = BodyMemory(1)
    first = await memory.reserve(1)
    second = asyncio.ensure_future(memory.reserve(1))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    first.release()
    async with asyncio.timeout(1):
        await memory.reserve(1)


@pytest.mark.parametrize(
    ("max_tokens", "want_at_once", "want_served"), [(2000, 1, 2), (100_000, 3, 8), (None, 8, 8)]
)
async def test_concurrent_requests_use_no_more_tokens_than_are_left(
    max_tokens, want_at_once, want_served, tmp_path, monkeypatch
):
    monkeypatch.setattr(provider_call, "ANSWER_TOKENS", 40_000)
    go = asyncio.Event()
    script = [answer(go, *events("openai"))]
    async with world("openai", script, tmp_path, max_tokens=max_tokens) as around:

        async def one():
            async with around.connected() as relay:
                return (await relay.ask()).status

        asking = [asyncio.ensure_future(one()) for _ in range(8)]
        await until(lambda: len(around.script.asked) == want_at_once)
        await asyncio.sleep(0.1)
        assert len(around.script.asked) == want_at_once
        go.set()
        assert (await asyncio.gather(*asking)).count(200) == want_served
        assert around.launch.relay.input_tokens == 1000 * want_served


async def test_a_request_that_failed_gives_its_tokens_back(tmp_path):
    script = [error(500), [], answer(*events("openai"))]
    async with relayed("openai", script, tmp_path, max_tokens=2000) as relay:
        assert [(await relay.ask()).status for _ in range(4)] == [500, 502, 200, 200]


async def test_one_launch_sends_one_body_at_a_time(tmp_path):
    script = [answer(*events("openai"))]
    async with world("openai", script, tmp_path) as around:
        lock = around.gateway.bodies.turn(around.launch).reading
        async with around.connected() as slow, around.connected() as other:
            slow.writer.write(request("openai")[:-3])
            await until(lock.locked)
            other.writer.write(request("openai", question("openai", input="second")))
            await asyncio.sleep(0.05)
            assert not around.script.asked
            slow.writer.write(request("openai")[-3:])
            await until(lambda: len(around.script.asked) == 2)
            assert around.script.asked[1].json["input"] == "second"


LOW = {
    "anthropic": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"},
    },
    "openai": {"error": {"message": "x", "code": "billing_hard_limit_reached"}},
    "openai_chat": {"error": {"code": 400, "message": "API key not valid."}},
}
LONG = {"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "type": "x"}}
GONE = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}


def refused(body: Any, status: int = 400) -> list[Any]:
    data = json.dumps(body).encode()
    return answer(data, status=status, kind="application/json")


@pytest.mark.parametrize("name", ["anthropic", "openai"])
async def test_no_credit_is_a_quota_and_the_body_passes(name, tmp_path):
    async with relayed(name, [refused(LOW[name])], tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, json.loads(got.body)) == (400, LOW[name])
        assert (relay.report.failure, relay.report.failures) == ("provider_quota", 1)
        assert relay.report.failure_cause == (
            "its answer had status 400: the account has no credit or quota left"
        )
        assert relay.launch.report.unanswered == relay.report.failure_cause


async def test_a_key_that_is_refused_by_400_is_final(tmp_path):
    async with relayed("openai_chat", [refused(LOW["openai_chat"])], tmp_path) as relay:
        for _ in range(2):
            assert "rejects the key" in (await relay.ask()).error["message"]
        assert len(relay.script.asked) == 1
        assert relay.report.failure == "provider_auth"


async def test_what_is_too_long_is_the_agents(tmp_path):
    async with relayed("openai", [refused(LONG)], tmp_path) as relay:
        assert (await relay.ask()).status == 400
        assert (relay.report.failure, relay.launch.report.unanswered) == ("", "")


async def test_an_error_that_nothing_is_known_of_leaves_the_run_unanswered(tmp_path):
    script = [refused({"x": 1}, 404), answer(*events("openai"))]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        assert relay.report.failure == ""
        assert relay.launch.report.unanswered == "its answer had status 404"
        assert (await relay.ask()).status == 200
        assert relay.launch.report.unanswered == ""


async def test_once_the_run_was_answered_no_launch_of_it_is_unanswered(tmp_path):
    async with relayed("openai", [refused({"x": 1}, 404)], tmp_path) as relay:
        relay.gateway.answered_models.add("m")
        await relay.ask()
        assert relay.launch.report.unanswered == ""


async def test_a_model_that_is_gone_is_the_providers_if_it_was_there(tmp_path):
    script = [answer(*events("openai")), refused(GONE, 404), refused(GONE, 404)]
    async with relayed("openai", script, tmp_path, model="named") as relay:
        for model, want in (
            (MODELS["openai"], ""),
            ("other", ""),
            ("named", "provider_unavailable"),
        ):
            await relay.ask(question("openai", model=model))
            assert relay.report.failure == want


async def test_a_model_that_is_gone_from_the_start_leaves_the_run_waiting(tmp_path):
    async with relayed("openai", [refused(GONE, 404)], tmp_path) as relay:
        await relay.ask()
        assert relay.report.failure == "provider_unavailable"
        assert relay.launch.report.unanswered == "its answer had status 404: the model is not there"


async def test_a_large_error_is_passed_on_whole(tmp_path):
    body = {"error": {"message": "x" * 200_000, "code": "insufficient_quota"}}
    async with relayed("openai", [refused(body, 429)], tmp_path) as relay:
        got = await relay.ask()
        assert json.loads(got.body) == body
        assert relay.report.failure == "provider_quota"


async def test_an_error_whose_body_breaks_is_judged_by_its_status(tmp_path):
    script = [answer(b"{", RESET, status=503, headers=("content-length: 99",))]
    async with relayed("openai", script, tmp_path) as relay:
        assert (await relay.ask()).status == 502
        assert relay.report.failure == "provider_unavailable"


async def test_an_empty_reason_in_each_chunk_and_a_reset_is_an_outage(tmp_path):
    pieces = [chunk(choices=delta(text, finish_reason="")) for text in ("Do", "ne")]
    script = [answer(*pieces, RESET, headers=("content-length: 99999",))]
    async with relayed("openai_chat", script, tmp_path) as relay:
        relay.writer.write(request("openai_chat"))
        await relay.log()
        assert relay.report.failure == "provider_unavailable"


FAILURES = {
    "too many requests": (error(429, "retry-after: 30"), 429, True),
    "unavailable": (error(503), 503, False),
    "a broken answer": (answer(*events("openai")[:1], RESET), 0, False),
    "a failure in the answer": (
        answer(event("response.failed", response={"error": {"code": "server_error"}})),
        0,
        False,
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failed_call_begins_the_wait(name, tmp_path):
    script, want_status, has_until = FAILURES[name]
    async with relayed("openai", [script], tmp_path) as relay:
        await relay.ask()
        await until(lambda: relay.launch.back_off.wait() is not None)
        wait = relay.launch.back_off.wait()
        assert (wait.status, wait.until is not None) == (want_status, has_until)
        if has_until:
            assert 29 < wait.until - wait.since <= 31


async def test_the_wait_is_over_when_an_answer_begins(tmp_path):
    go = asyncio.Event()
    script = [error(429), answer(events("openai")[0], go, *events("openai")[1:])]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        assert relay.launch.back_off.wait() is not None
        relay.writer.write(request("openai"))
        await relay.reader.readuntil(events("openai")[0])
        assert relay.launch.back_off.wait() is None
        go.set()
        await relay.log(2)
        assert relay.launch.back_off.wait() is None


async def test_an_error_that_is_the_agents_own_is_no_wait(tmp_path):
    async with relayed("openai", [error(429), error(400)], tmp_path) as relay:
        await relay.ask()
        await relay.ask(question("openai"))
        await relay.log(2)
        assert relay.launch.back_off.wait() is None
