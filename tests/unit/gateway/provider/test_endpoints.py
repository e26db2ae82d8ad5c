"""The provider route to providers that are named by their URL (contract 12.7)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.relays import (
    CHAT_USAGE,
    MODELS,
    answer,
    chunk,
    delta,
    error,
    events,
    question,
    relayed,
    report_of_one,
    request,
)

CHAT = "openai_chat"
INSIDE = {"host": "vllm.models.svc.cluster.local", "port": 8000, "is_inside": True}
ELSEWHERE = {"host": "models.example.org", "port": 8443, "base": "/openai/v1"}


async def test_a_request_goes_to_the_path_and_port_of_the_url(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, **ELSEWHERE) as relay:
        assert (await relay.ask()).status == 200
        (asked,) = relay.script.asked
        assert asked.head.target == b"/openai/v1/chat/completions"
        assert asked.headers["host"] == "models.example.org:8443"
        assert relay.script.dialled == [("models.example.org", 8443)]
        (line,) = await relay.log()
        assert (line["host"], line["port"]) == ("models.example.org", 8443)


@pytest.mark.parametrize("base", ["", "/v1"])
async def test_a_url_may_have_no_path(tmp_path: Path, base: str) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, base=base) as relay:
        await relay.ask()
        assert relay.script.asked[0].head.target == f"{base}/chat/completions".encode()


async def test_a_provider_without_a_key_gets_none(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, key_file="") as relay:
        assert (await relay.ask()).status == 200
        assert "authorization" not in relay.script.asked[0].headers


@pytest.mark.parametrize("address", ["10.96.0.7", "fd12::1", "100.64.0.9", "192.31.196.10"])
async def test_a_listed_provider_is_reached_inside_the_cluster(
    tmp_path: Path, address: str
) -> None:
    script = [answer(*events(CHAT))]
    async with relayed(CHAT, script, tmp_path, is_plain=True, **INSIDE) as relay:
        relay.script.addresses = (address,)
        assert (await relay.ask()).status == 200
        assert relay.report == report_of_one(CHAT)
        assert relay.script.asked[0].headers["host"] == "vllm.models.svc.cluster.local:8000"


async def test_a_listed_provider_may_have_tls(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, **INSIDE) as relay:
        relay.script.addresses = ("10.96.0.7",)
        assert (await relay.ask()).status == 200


async def test_an_authority_of_ones_own_is_trusted_alone(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path) as relay:
        own = (tmp_path / "ca.crt").read_text()
    other = tmp_path / "other"
    other.mkdir()
    async with relayed(CHAT, [answer(*events(CHAT))], other, ca=own) as relay:
        assert (await relay.ask()).status == 502
        assert relay.script.asked == []
        assert relay.report.failure == "provider_unavailable"
    async with relayed(CHAT, [answer(*events(CHAT))], other, ca="") as relay:
        assert (await relay.ask()).status == 200


async def test_the_certificate_in_the_configuration_is_enough(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path) as relay:
        config = relay.gateway.config
        own = (tmp_path / "ca.crt").read_text()
        provider: Any = config.provider
        object.__setattr__(provider, "ca", own)
        object.__setattr__(config, "authorities", "")
        assert (await relay.ask()).status == 200


async def test_a_stream_without_usage_is_estimated(tmp_path: Path) -> None:
    text = "word " * 400
    silent = [chunk(choices=delta(text)), chunk(choices=delta(finish_reason="stop"))]
    script = [answer(*silent, b"data: [DONE]\n\n")]
    async with relayed(CHAT, script, tmp_path) as relay:
        assert (await relay.ask()).status == 200
        size = len(relay.script.asked[0].body)
        assert (relay.report.failure, relay.report.unreported) == ("", 1)
        assert (relay.report.input_tokens, relay.report.output_tokens) == (size // 4, 500)


@pytest.mark.parametrize("budget", ["max_tokens", "run_tokens"])
async def test_a_budget_of_tokens_is_refused_where_none_are_reported(
    tmp_path: Path, budget: str
) -> None:
    silent = [chunk(choices=delta("hi")), chunk(choices=delta(finish_reason="stop"))]
    script = [answer(*silent, b"data: [DONE]\n\n")]
    async with relayed(CHAT, script, tmp_path, **{budget: 10**9}) as relay:
        assert (await relay.ask()).status == 200
        assert (relay.report.failure, relay.report.unreported) == ("provider_usage", 1)
        got = await relay.ask()
        assert (got.status, got.error["code"]) == (400, "insufficient_quota")
        assert "reports no tokens" in got.error["message"]
        assert not relay.report.budget_exhausted
        assert relay.launch.back_off.wait() is None
    assert len(relay.script.asked) == 1


async def test_the_usage_after_the_last_word_is_read_though_the_agent_left(tmp_path: Path) -> None:
    go = asyncio.Event()
    first = chunk(choices=delta("Done.", "stop"))
    last = chunk(choices=[], usage=CHAT_USAGE)
    async with relayed(CHAT, [answer(first, go, last)], tmp_path) as relay:
        relay.writer.write(request(CHAT))
        await relay.reader.readuntil(first)
        relay.writer.close()
        go.set()
        await relay.served()
        assert (relay.report.input_tokens, relay.report.output_tokens) == (1000, 50)


async def test_a_failure_in_a_document_with_the_status_200_counts(tmp_path: Path) -> None:
    body = b'{"error": {"message": "no credits", "code": 402}}'
    script = [answer(body, kind="application/json")]
    async with relayed(CHAT, script, tmp_path) as relay:
        assert (await relay.ask()).body == body
        assert relay.report.failure == "provider_quota"


ERRORS: dict[str, tuple[dict[str, object], str]] = {
    "429 as text": ({"type": None, "param": None, "code": "429"}, "provider_quota"),
    "500 as text": ({"type": "None", "code": "500"}, "provider_unavailable"),
    "503 as text": ({"code": "503"}, "provider_unavailable"),
    "401 as text": ({"type": "auth_error", "code": "401"}, "provider_auth"),
    "400 as text": ({"type": "api_error", "code": "400"}, ""),
    "a quota by its type": ({"type": "rate_limit_error", "code": None}, "provider_quota"),
    "overloaded": ({"type": "overloaded_error"}, "provider_unavailable"),
    "no reason given": ({"type": "api_error", "code": None}, "provider_unavailable"),
    "down in camel case": ({"type": "InternalServerError"}, "provider_unavailable"),
    "a code of its own": ({"type": "server_error", "code": "E7"}, "provider_unavailable"),
    "a number of its own": ({"type": "rate_limit_error", "code": 1302}, "provider_quota"),
    "a wrong request": ({"type": "invalid_request_error"}, ""),
}


@pytest.mark.parametrize("shape", ["stream", "document"])
@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_is_judged_by_its_code_and_type(
    tmp_path: Path, name: str, shape: str
) -> None:
    fields, want = ERRORS[name]
    failed = {"error": {"message": "scripted", **fields}}
    script = answer(chunk(choices=delta("Do")), chunk(**failed))
    if shape == "document":
        script = answer(json.dumps(failed).encode(), kind="application/json")
    async with relayed(CHAT, [script], tmp_path) as relay:
        assert (await relay.ask(question(CHAT, stream=shape == "stream"))).status == 200
        await relay.log()
        assert relay.report.failure == want


async def test_errors_of_an_open_server_pass(tmp_path: Path) -> None:
    async with relayed(CHAT, [error(400), answer(*events(CHAT))], tmp_path) as relay:
        assert (await relay.ask()).status == 400
        assert relay.report.failure == ""
        assert (await relay.ask(question(CHAT, stream=False))).status == 200
        assert relay.report.models == (MODELS[CHAT],)
