"""Calls that fail make a launch wait; the next answer ends that."""

import asyncio

import pytest

from support.relays import RESET, answer, error, event, events, question, relayed, request, until

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
