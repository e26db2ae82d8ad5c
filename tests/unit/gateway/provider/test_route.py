"""The provider route against a scripted provider over TLS (providers 8, A-179)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from dataclasses import replace

import pytest

from securebench.clock import SystemClock
from securebench.gateway.launches import LOOKUPS, ServedLaunch, read_launches
from securebench.protocol.gateway import GatewayLimits, RelayReport, RunUsage
from support.relays import (
    CHAT_USAGE,
    DUMMY,
    HOSTS,
    KEY,
    MODELS,
    PATHS,
    RESET,
    TOOL,
    answer,
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

BOTH = pytest.mark.parametrize("name", ["openai", "openai_chat", "anthropic"])
FINAL = {"openai": 400, "openai_chat": 400, "anthropic": 403}


@BOTH
async def test_a_turn_is_relayed(name, tmp_path):
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, got.body) == (200, b"".join(events(name)))
        (asked,) = relay.script.asked
        assert (asked.head.method, asked.head.target) == (b"POST", PATHS[name].encode())
        assert asked.json == question(name)
        assert asked.headers["host"] == HOSTS[name]
        sent_key = asked.headers.get("authorization", "").removeprefix("Bearer ")
        assert asked.headers.get("x-api-key", sent_key) == KEY
        assert DUMMY not in str(asked.head)
        assert asked.headers["accept-encoding"] == "identity"
        assert relay.script.dialled == [(HOSTS[name], 443)]
        assert relay.report == report_of_one(name)
        (line,) = await relay.log()
        assert line["verdict"] == "allowed"
        assert (line["route"], line["host"], line["path"]) == (
            "provider",
            HOSTS[name],
            PATHS[name].partition("?")[0],
        )
        assert line["bytes_up"] == len(request(name))
        assert (line["status"], line["input_tokens"], line["output_tokens"]) == (200, 1000, 50)


@BOTH
async def test_a_connection_serves_many_requests(name, tmp_path):
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        for _ in range(3):
            assert (await relay.ask()).status == 200
        assert (relay.report.requests, relay.report.output_tokens) == (3, 150)
        assert len(relay.script.dialled) == 3


async def test_answers_come_as_they_are_written(tmp_path):
    go = asyncio.Event()
    first, *others = events("openai")
    async with relayed("openai", [answer(first, go, *others)], tmp_path) as relay:
        relay.writer.write(request("openai"))
        await relay.reader.readuntil(b"\n\n")
        assert not relay.report.output_tokens
        go.set()
        await relay.reader.readuntil(others[-1])


@BOTH
async def test_answers_that_are_no_streams_are_counted(name, tmp_path):
    document = {
        "openai": {
            "status": "completed",
            "usage": {
                "input_tokens": 1000,
                "input_tokens_details": {"cached_tokens": 200},
                "output_tokens": 50,
            },
        },
        "openai_chat": {
            "object": "chat.completion",
            "choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}],
            "usage": CHAT_USAGE,
        },
        "anthropic": {
            "type": "message",
            "usage": {
                "input_tokens": 800,
                "cache_read_input_tokens": 200,
                "output_tokens": 50,
            },
        },
    }[name]
    script = answer(json.dumps(document).encode(), kind="application/json")
    async with relayed(name, [script], tmp_path) as relay:
        assert json.loads((await relay.ask()).body) == document
        assert relay.report == report_of_one(name)


@pytest.mark.parametrize("path", ["/", "/api/hello"])
async def test_probes_are_answered_here(path, tmp_path):
    async with relayed("anthropic", [answer()], tmp_path) as relay:
        assert (await relay.ask(b"", method="HEAD", path=path)).status == 200
        assert relay.report == RelayReport()
        assert not relay.script.dialled


ELSEWHERE = {
    "models": ("GET", "/v1/models"),
    "websocket": ("GET", "/v1/responses"),
    "search": ("POST", "/v1/alpha/search"),
    "files": ("POST", "/v1/files"),
    "absolute": ("POST", "https://evil.example/v1/responses"),
    "probe": ("HEAD", "/v1/messages"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
@BOTH
async def test_other_paths_are_refused(name, case, tmp_path):
    method, path = ELSEWHERE[case]
    async with relayed(name, [answer()], tmp_path) as relay:
        got = await relay.ask(b"" if method != "POST" else b"{}", method=method, path=path)
        assert got.status == 404
        assert relay.report == RelayReport(blocked=1)
        assert not relay.script.dialled
        (line,) = await relay.log()
        assert (line["verdict"], line["reason"]) == ("refused", "path")


@BOTH
async def test_hosted_tools_are_taken_out(name, tmp_path):
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        body = question(name, tools=[TOOL[name], hosted], mcp_servers=[{"url": "https://x"}])
        assert (await relay.ask(body)).status == 200
        assert relay.script.asked[0].json == question(name)
        assert relay.report.stripped_tools == ("mcp_servers", "web_search_20250305")
        assert (await relay.log())[0]["stripped"] == ["mcp_servers", "web_search_20250305"]


@BOTH
async def test_requests_for_hosted_tools_alone_are_refused(name, tmp_path):
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        got = await relay.ask(question(name, tools=[{"type": "web_search"}]))
        assert got.status == 400
        assert "not allowed in this run" in got.error["message"]
        assert relay.report == RelayReport(blocked=1, stripped_tools=("web_search",))
        assert not relay.script.dialled
        assert (await relay.log())[0]["reason"] == "hosted_tool"
        assert (await relay.ask()).status == 200


@BOTH
async def test_hosted_tools_pass_where_they_are_allowed(name, tmp_path):
    body = question(name, tools=[{"type": "web_search"}])
    script = [answer(*events(name))]
    async with relayed(name, script, tmp_path, allow_external_tools=True) as relay:
        assert (await relay.ask(body)).status == 200
        assert relay.script.asked[0].json == body
        assert relay.report == report_of_one(name)


@BOTH
async def test_models_that_were_asked_are_named(name, tmp_path):
    script = [error(404), answer(*events(name))]
    async with relayed(name, script, tmp_path) as relay:
        for model in ("z-1", "b-2[1m]", "z-1", "a.3"):
            await relay.ask(question(name, model=model))
        await relay.ask(question(name, model="gpt-4o-search-preview"))
        await relay.ask(question(name, model=1))
        assert relay.report.models == ("a.3", "unnamed", "z-1")
        assert [asked.json["model"] for asked in relay.script.asked] == [
            "z-1", "b-2[1m]", "z-1", "a.3",
        ]  # fmt: skip


async def test_models_that_no_request_reached_are_not_named(tmp_path):
    async with relayed("openai", [answer(*events("openai"))], tmp_path, max_requests=1) as relay:
        await relay.ask()
        assert (await relay.ask(question("openai", model="later"))).status == 400
        assert relay.report.models == (MODELS["openai"],)


async def test_answers_outside_of_a_request_are_refused_where_tools_are_allowed(tmp_path):
    async with relayed("openai", [answer()], tmp_path, allow_external_tools=True) as relay:
        assert (await relay.ask(question("openai", background=True))).status == 400
        assert not relay.script.dialled


BROKEN = {
    "no JSON": (b"{", ()),
    "no object": (b"[]", ()),
    "twice": (b'{"model": "a", "model": "b", "input": "c"}', ()),
    "other encoding": ('{"model": "a"}'.encode("utf-16"), ()),
    "compressed": (b"{}", ("Content-Encoding: gzip",)),
    "ambiguous head": (
        b'{"model":"m","input":"","messages":[]}',
        ("X-Stainless-A: 1", "X-Stainless-A: 2"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@BOTH
async def test_what_cannot_be_judged_is_refused(name, case, tmp_path):
    body, headers = BROKEN[case]
    async with relayed(name, [answer()], tmp_path) as relay:
        got = await relay.ask(body, *headers)
        assert got.status == 400
        assert relay.report == RelayReport(blocked=1)
        assert not relay.script.dialled


@pytest.mark.parametrize("headers", [(), ("Content-Length: 3",)])
async def test_requests_that_are_none_are_refused(headers, tmp_path):
    async with relayed("openai", [answer()], tmp_path) as relay:
        raw = request("openai", b"abc", *headers) if headers else b"\x00\r\n\r\n"
        assert (await relay.ask(raw=raw)).status == 400
        assert relay.report == RelayReport(blocked=1)
        await relay.served()


async def test_bodies_are_bounded(tmp_path):
    limits = GatewayLimits(request_bytes=1000)
    async with relayed("openai", [answer()], tmp_path, limits) as relay:
        got = await relay.ask(question("openai", instructions="x" * 2000))
        assert (got.status, got.headers["connection"]) == (413, "close")
        assert relay.report == RelayReport(blocked=1)
        relay.writer.write_eof()
        await relay.served()


async def test_chunked_requests_are_relayed(tmp_path):
    data = json.dumps(question("openai")).encode()
    head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    raw = head + b"Expect: 100-continue\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
    async with relayed("openai", [answer(*events("openai"))], tmp_path) as relay:
        assert (await relay.ask(raw=raw)).status == 200
        assert relay.script.asked[0].json == question("openai")


@BOTH
async def test_a_refused_key_is_final(name, tmp_path):
    for status in (401, 403):
        async with relayed(name, [error(status), answer(*events(name))], tmp_path) as relay:
            for _ in range(2):
                got = await relay.ask()
                assert got.status == FINAL[name]
                assert "rejects the key" in got.error["message"]
            assert len(relay.script.asked) == 1
            assert relay.report == RelayReport(
                requests=1,
                blocked=1,
                failures=1,
                failure="provider_auth",
                failure_cause=f"its answer had status {status}",
                models=(MODELS[name],),
            )
            assert [line["reason"] for line in await relay.log(2)] == ["provider_auth"] * 2


@BOTH
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_403_after_an_answer_is_final_for_nobody(name, is_restarted, tmp_path):
    script = [answer(*events(name)), error(403), answer(*events(name)), error(401)]
    statuses = []
    async with world(name, script, tmp_path) as around:
        async with around.connected() as relay:
            statuses.append((await relay.ask()).status)
        if is_restarted:
            around.launch = ServedLaunch(around.launch.report, GatewayLimits(), SystemClock())
        async with around.connected() as relay:
            statuses.append((await relay.ask()).status)
            assert (relay.report.failure, relay.report.failures) == ("provider_auth", 1)
            statuses.append((await relay.ask()).status)
            assert statuses == [200, 403, 200]
            assert (relay.report.failure, relay.report.failures) == ("", 1)
            assert (await relay.ask()).status == FINAL[name]
            assert relay.report.failure == "provider_auth"


@BOTH
async def test_a_403_for_a_model_that_never_answered_is_about_the_request(name, tmp_path):
    script = [answer(*events(name)), error(403), error(403)]
    async with world(name, script, tmp_path) as around, around.connected() as relay:
        assert (await relay.ask()).status == 200
        assert (await relay.ask(question(name, model="forbidden"))).status == 403
        assert (relay.report.failure, relay.report.failures) == ("", 0)
        assert (await relay.ask()).status == 403
        assert (relay.report.failure, relay.report.failures) == ("provider_auth", 1)
        assert relay.report.answered_models == (MODELS[name],)


async def test_a_403_while_the_first_answer_comes_is_forgotten_with_it(tmp_path):
    more = asyncio.Event()
    first, *rest = events("openai")
    script = [answer(first, more, *rest), error(403)]
    async with world("openai", script, tmp_path) as around:
        async with around.connected() as relay, around.connected() as other:
            asking = asyncio.create_task(relay.ask())
            await until(lambda: around.launch.relay.is_key_taken)
            assert [(await other.ask()).status for _ in range(2)] == [403, 403]
            more.set()
            assert (await asking).status == 200
        assert relay.report == replace(report_of_one("openai"), requests=3, failures=2)


@BOTH
async def test_a_missing_key_is_final(name, tmp_path):
    async with world(name, [answer()], tmp_path) as around, around.connected() as relay:
        around.key_file.unlink()
        assert (await relay.ask()).status == FINAL[name]
        assert (relay.report.requests, relay.report.failure) == (0, "provider_auth")
        assert not relay.script.dialled


@BOTH
async def test_a_missing_key_gives_no_request_of_the_budget_back(name, tmp_path):
    script = [answer(*events(name))]
    async with (
        world(name, script, tmp_path, max_requests=3) as around,
        around.connected() as relay,
    ):
        assert (await relay.ask()).status == 200
        around.key_file.write_text("")
        assert {(await relay.ask()).status for _ in range(10)} == {FINAL[name]}
        assert (relay.report.failure, relay.report.failures) == ("provider_auth", 0)
        around.key_file.write_text(KEY)
        assert [(await relay.ask()).status for _ in range(20)][:3] == [200, 200, FINAL[name]]
        assert len(relay.script.asked) == 3


@BOTH
async def test_a_renewed_key_is_used(name, tmp_path):
    script = [answer(*events(name))]
    async with world(name, script, tmp_path) as around, around.connected() as relay:
        around.key_file.write_text("sk-renewed-0123456789")
        await relay.ask()
        assert "sk-renewed-0123456789" in str(relay.script.asked[0].head)


@BOTH
async def test_waiting_is_passed_on(name, tmp_path):
    script = [error(429, "Retry-After: 2"), answer(*events(name))]
    async with relayed(name, script, tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, got.headers["retry-after"]) == (429, "2")
        assert (relay.report.failure, relay.report.failures) == ("provider_quota", 1)
        assert (await relay.ask()).status == 200
        assert (relay.report.failure, relay.report.failures) == ("", 1)
        assert relay.report.requests == 2


PASSED = {
    402: "provider_quota",
    500: "provider_unavailable",
    503: "provider_unavailable",
    529: "provider_unavailable",
    400: "",
    404: "",
    413: "",
    422: "",
}


@pytest.mark.parametrize("status", PASSED)
@BOTH
async def test_statuses_are_passed_on_and_judged(name, status, tmp_path):
    async with relayed(name, [error(status, "Set-Cookie: a=b")], tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, got.error) == (status, {"message": "scripted"})
        assert "set-cookie" not in got.headers
        assert relay.report.failure == PASSED[status]
        assert relay.report.failures == bool(PASSED[status])
        want_cause = f"its answer had status {status}" if PASSED[status] else ""
        assert relay.report.failure_cause == want_cause


@pytest.mark.parametrize("status", [404, 429, 500])
@BOTH
async def test_a_compressed_error_keeps_its_status_and_loses_its_body(name, status, tmp_path):
    headers = ("Content-Encoding: gzip", "Retry-After: 7", f"x-request-id: {KEY}")
    async with relayed(name, [error(status, *headers), error(status)], tmp_path) as relay:
        got = await relay.ask()
        want = {404: "", 429: "provider_quota", 500: "provider_unavailable"}[status]
        assert (got.status, got.headers["retry-after"]) == (status, "7")
        assert got.error["message"] == (
            f"securebench: the provider answered with status {status}; its message was compressed"
        )
        assert got.headers["content-type"] == "application/json"
        assert (KEY not in str(got.head), "content-encoding" in got.headers) == (True, False)
        assert (relay.report.failure, relay.report.failures) == (want, bool(want))
        assert (relay.launch.back_off.wait() is not None) == bool(want)
        assert (await relay.ask()).error == {"message": "scripted"}


@BOTH
async def test_a_compressed_refusal_of_the_key_is_final(name, tmp_path):
    async with relayed(name, [error(401, "Content-Encoding: br")], tmp_path) as relay:
        assert [(await relay.ask()).status for _ in range(2)] == [FINAL[name]] * 2
        assert (relay.report.requests, relay.report.failure) == (1, "provider_auth")


@pytest.mark.parametrize("status", [200, 201])
@BOTH
async def test_a_compressed_answer_is_a_failure(name, status, tmp_path):
    headers = ("Content-Encoding: gzip", "Content-Encoding: identity")
    script = answer(*events(name), status=status, headers=headers)
    async with relayed(name, [script], tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, "compressed although it was asked" in got.error["message"]) == (
            502,
            True,
        )
        assert relay.report.failure == "provider_unavailable"
        assert not relay.report.is_key_taken


async def test_slow_names_of_the_agent_are_no_outage(tmp_path):
    async with world("openai", [answer(*events("openai"))], tmp_path) as around:
        for _ in range(LOOKUPS):
            await around.launch.lookups.acquire()
        async with around.connected() as relay:
            assert (await relay.ask()).status == 200
            assert relay.report == report_of_one("openai")


MALFORMED = "The origin's answer is malformed or ended too early"
FAILING = {
    "redirect": (
        error(307, "Location: https://evil.example/v1/responses"),
        "The provider answered with a redirect, which is not followed",
    ),
    "compressed": (
        answer(b"x", headers=("content-encoding: gzip",)),
        "The provider's answer is compressed although it was asked not to be",
    ),
    "no answer": ([], MALFORMED),
    "reset": ([RESET], MALFORMED),
    "no HTTP": ([b"SSH-2.0-x\r\n\r\n"], MALFORMED),
    "upgrade": ([b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], MALFORMED),
}


@pytest.mark.parametrize("case", FAILING)
@BOTH
async def test_a_provider_that_does_not_answer_is_unavailable(name, case, tmp_path):
    script, want_cause = FAILING[case]
    async with relayed(name, [script, answer(*events(name))], tmp_path) as relay:
        got = await relay.ask()
        assert (got.status, "location" in got.headers) == (502, False)
        assert got.error["message"].startswith("securebench: ")
        assert (relay.report.failure, relay.report.failures) == ("provider_unavailable", 1)
        assert relay.report.failure_cause == want_cause
        assert relay.script.dialled == [(HOSTS[name], 443)]
        assert (await relay.ask()).status == 200
        assert (relay.report.failure, relay.report.failure_cause) == ("", "")


@BOTH
async def test_a_refused_connection_is_unavailable(name, tmp_path):
    async with world(name, [answer()], tmp_path) as around, around.connected() as relay:
        around.script.port = 1
        assert (await relay.ask()).status == 502
        assert relay.report == RelayReport(
            requests=1,
            failures=1,
            failure="provider_unavailable",
            failure_cause=f"{HOSTS[name]} is not reachable on port 443",
            models=(MODELS[name],),
        )


async def test_a_wrong_certificate_is_unavailable(tmp_path):
    async with relayed("openai", [answer()], tmp_path) as relay:
        relay.gateway.provider_tls = ssl.create_default_context()
        assert (await relay.ask()).status == 502
        assert (relay.report.failure, relay.script.asked) == ("provider_unavailable", [])


async def test_a_private_address_of_the_provider_is_not_dialled(tmp_path):
    async with relayed("openai", [answer()], tmp_path) as relay:
        relay.script.addresses = ("10.0.0.1",)
        assert (await relay.ask()).status == 502
        assert (relay.report.failure, relay.script.dialled) == ("provider_unavailable", [])


async def test_a_silent_provider_is_unavailable(tmp_path):
    script = [answer(asyncio.Event())]
    async with relayed("openai", script, tmp_path, GatewayLimits(idle_seconds=0.2)) as relay:
        relay.writer.write(request("openai"))
        await relay.served()
        assert relay.report.failure == "provider_unavailable"


@BOTH
@pytest.mark.parametrize("end", [(), (RESET,)])
async def test_a_cut_stream_is_a_failure_until_the_next_one(name, end, tmp_path):
    script = [answer(*events(name)[:2], *end), answer(*events(name))]
    async with world(name, script, tmp_path) as around:
        async with around.connected() as relay:
            relay.writer.write(request(name))
            await around.script.ended.wait()
            await relay.reader.readuntil(events(name)[1])
            await until(lambda: relay.report.failure)
            seen = 1000 if name == "anthropic" else len(relay.script.asked[0].body) // 4
            assert relay.report.failure == "provider_unavailable"
            assert relay.report.input_tokens == seen
        async with around.connected() as relay:
            assert (await relay.ask()).status == 200
            assert (relay.report.failure, relay.report.failures) == ("", 1)
            assert relay.report.input_tokens == seen + 1000


STREAMED = {
    "openai": event("response.failed", response={"status": "failed", "error": {"code": "x"}}),
    "openai quota": event(
        "response.failed", response={"status": "failed", "error": {"code": "insufficient_quota"}}
    ),
    "anthropic": event("error", error={"type": "overloaded_error"}),
}


@pytest.mark.parametrize(
    ("case", "want"),
    [("openai", ""), ("openai quota", "provider_quota"), ("anthropic", "provider_unavailable")],
)
async def test_failures_inside_streams_count(case, want, tmp_path):
    async with relayed(case.split()[0], [answer(STREAMED[case])], tmp_path) as relay:
        assert (await relay.ask()).body == STREAMED[case]
        assert relay.report.failure == want


@BOTH
async def test_the_key_never_comes_back(name, tmp_path):
    encoded = base64.b64encode(f"Bearer {KEY}".encode()).decode()
    text = event("x", text=f"{KEY} {encoded}")
    half = len(text) // 3
    script = answer(
        text[:half],
        text[half:],
        *events(name),
        headers=(f"x-request-id: {KEY}", f"x-echo: {KEY}"),
    )
    async with relayed(name, [script, error(500, f"x-request-id: {KEY}")], tmp_path) as relay:
        got = await relay.ask()
        whole = got.body + str(got.head).encode()
        assert KEY.encode() not in whole
        assert encoded.encode()[12:-4] not in whole
        assert len(got.body) == len(text) + sum(map(len, events(name)))
        assert got.headers["x-request-id"] == "*" * len(KEY)
        assert (await relay.log())[0]["echoes"] == 4
        assert KEY not in str((await relay.ask()).head)
        assert KEY not in str(await relay.log())


@BOTH
async def test_the_request_budget_is_kept(name, tmp_path):
    script = [answer(*events(name))]
    async with relayed(name, script, tmp_path, max_requests=2) as relay:
        assert [(await relay.ask()).status for _ in range(4)] == [200, 200, *[FINAL[name]] * 2]
        assert (relay.report.requests, relay.report.blocked) == (2, 2)
        assert relay.report.budget_exhausted
        assert [line["reason"] for line in await relay.log(4)] == ["", "", "budget", "budget"]


@BOTH
async def test_an_outage_uses_up_no_budget(name, tmp_path):
    script = [error(500), error(529), error(500), answer(*events(name))]
    async with relayed(name, script, tmp_path, max_requests=1) as relay:
        assert [(await relay.ask()).status for _ in range(3)] == [500, 529, 500]
        assert (relay.report.failure, relay.report.budget_exhausted) == (
            "provider_unavailable",
            False,
        )
        assert [(await relay.ask()).status for _ in range(2)] == [200, FINAL[name]]
        assert relay.report.budget_exhausted


@BOTH
async def test_the_token_budget_is_kept(name, tmp_path):
    async with relayed(name, [answer(*events(name))], tmp_path, max_tokens=2000) as relay:
        assert [(await relay.ask()).status for _ in range(3)] == [200, 200, FINAL[name]]
        got = await relay.ask()
        assert "budget" in got.error["message"]
        assert got.error.get("code", "insufficient_quota") == "insufficient_quota"


@BOTH
async def test_the_budget_of_the_run_is_kept_over_all_launches(name, tmp_path):
    async with world(name, [answer(*events(name))], tmp_path) as around:
        budget = around.limit_run(2000)
        async with around.connected() as relay:
            assert [(await relay.ask()).status for _ in range(2)] == [200, 200]
            await until(lambda: budget.usage() == RunUsage(2100, 2000))
        around.begin_launch("sb-2")
        async with around.connected() as relay:
            got = await relay.ask()
            assert got.status == FINAL[name]
            assert "the token budget of the whole run is used up" in got.error["message"]
            assert got.error.get("code", "insufficient_quota") == "insufficient_quota"
            assert relay.report == RelayReport(blocked=1, run_budget_exhausted=True)
            assert [line["reason"] for line in await relay.log()] == ["run_budget"]
        assert len(around.script.asked) == 2


async def test_a_gateway_killed_after_a_refusal_for_the_runs_budget_knows_of_it(tmp_path):
    """The agent gives up after the refusal, so its answer must not be judged (contract 11.4)."""
    async with world("openai", [answer(*events("openai"))], tmp_path) as around:
        around.limit_run(1000)
        async with around.connected() as relay:
            assert [(await relay.ask()).status for _ in range(2)] == [200, 400]
            (stored,) = read_launches(tmp_path / "launches")
            assert stored.report.relay.run_budget_exhausted


async def test_a_refusal_for_the_runs_budget_that_cannot_be_written_is_an_outage(
    tmp_path, monkeypatch
):
    async with world("openai", [answer(*events("openai"))], tmp_path) as around:
        around.limit_run(1000)
        async with around.connected() as relay:
            await relay.ask()
            monkeypatch.setattr("securebench.gateway.launches.write_launch", no_space)
            got = await relay.ask()
            assert (got.status, "volume failed" in got.error["message"]) == (502, True)
            monkeypatch.undo()
            assert (await relay.ask()).status == 400


def no_space(*_):
    raise OSError(28, "No space left on device")


async def test_a_launchs_own_budget_comes_before_that_of_the_run(tmp_path):
    script = [answer(*events("openai"))]
    async with world("openai", script, tmp_path, max_tokens=1000) as around:
        around.limit_run(1000)
        async with around.connected() as relay:
            assert [(await relay.ask()).status for _ in range(2)] == [200, 400]
            assert (relay.report.budget_exhausted, relay.report.run_budget_exhausted) == (
                True,
                False,
            )


async def test_requests_that_failed_or_were_left_cost_what_they_used(tmp_path):
    go = asyncio.Event()
    script = [error(500), [RESET], answer(*events("openai")), answer(go)]
    async with world("openai", script, tmp_path) as around:
        budget = around.limit_run(100_000)
        async with around.connected() as relay:
            assert [(await relay.ask()).status for _ in range(3)] == [500, 502, 200]
            await until(lambda: budget.usage().tokens == 1050)
            relay.writer.write(request("openai"))
            await until(lambda: len(relay.script.asked) == 4)
            assert relay.report.reserved_tokens > 32_000
        await until(lambda: not around.launch.relay.reserved_tokens)
        relay = around.launch.relay
        assert budget.usage().tokens == relay.input_tokens + relay.output_tokens


async def test_concurrent_requests_do_not_exceed_the_budget(tmp_path):
    go = asyncio.Event()
    script = [answer(go, *events("openai"))]
    async with world("openai", script, tmp_path, max_requests=3) as around:

        async def one():
            async with around.connected() as relay:
                return (await relay.ask()).status

        asking = [asyncio.ensure_future(one()) for _ in range(8)]
        await until(lambda: around.launch.relay.blocked == 5)
        go.set()
        assert sorted(await asyncio.gather(*asking)) == [200] * 3 + [400] * 5
        assert len(around.script.asked) == around.launch.relay.requests == 3
