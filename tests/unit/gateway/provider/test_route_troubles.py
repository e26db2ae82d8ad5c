"""Errors of the provider at the route: whose they are, and what the run hears."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.relays import (
    MODELS,
    RESET,
    answer,
    chunk,
    delta,
    events,
    question,
    relayed,
    request,
)

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
