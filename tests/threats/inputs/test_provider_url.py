"""F9: a provider that a tester names by its URL spends, reaches and learns no more than others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.agents.harness import DUMMY_KEY
from securebench.agents.providers import openai_chat
from securebench.client import submit
from securebench.client.submit import secret_values
from securebench.client.tester_config import HarnessSection
from securebench.gateway import account, run_gateway
from securebench.gateway.dial import Dialer
from securebench.gateway.provider_call import ProviderCall
from support.relays import (
    HOSTS,
    KEY,
    answer,
    chunk,
    delta,
    error,
    events,
    question,
    relayed,
    report_of_one,
)
from threats.kit.canaries import hits

pytestmark = pytest.mark.short

CHAT = "openai_chat"
SILENT = answer(
    chunk(choices=delta("word " * 1000)), chunk(choices=delta(finish_reason="stop")),
    b"data: [DONE]\n\n",
)  # fmt: skip

# A-390: a budget that never ends

EVASIONS: dict[str, dict[str, object]] = {
    "no word of it": {"stream_options": None},
    "switched off": {"stream_options": {"include_usage": False}},
    "switched off by another name": {"stream_options": {"include_usage": 0}, "usage": False},
}


@pytest.mark.parametrize("name", EVASIONS)
async def test_a_390_attack(tmp_path: Path, name: str) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, max_tokens=1000) as relay:
        await relay.ask(question(CHAT, **EVASIONS[name]))

        assert relay.script.asked[0].json["stream_options"]["include_usage"] is True
        assert (relay.report.input_tokens, relay.report.output_tokens) == (1000, 50)
        assert (await relay.ask()).status == 400
        assert relay.report.budget_exhausted


async def test_a_390_attack_by_a_server_that_does_not_count(tmp_path: Path) -> None:
    async with relayed(CHAT, [SILENT], tmp_path, max_tokens=1000) as relay:
        assert (await relay.ask()).status == 200
        assert (await relay.ask()).status == 400
        assert len(relay.script.asked) == 1


async def test_a_390_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "_metered", lambda kept, _: kept)
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path) as relay:
        await relay.ask(question(CHAT, **EVASIONS["switched off"]))

        assert relay.script.asked[0].json["stream_options"] == {"include_usage": False}


async def test_a_390_twin_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProviderCall, "_estimate", lambda self: self._meter.usage)
    monkeypatch.setattr(account, "PROVIDER_USAGE", "nothing is refused for it")
    async with relayed(CHAT, [SILENT], tmp_path, max_tokens=1000) as relay:
        for _ in range(5):
            assert (await relay.ask()).status == 200


async def test_a_390_honest(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, max_tokens=2000) as relay:
        assert (await relay.ask()).body == b"".join(events(CHAT))
        assert relay.report == report_of_one(CHAT)
        assert (await relay.ask()).status == 200


# A-391: ways into the cluster

INSIDE = {"host": "vllm.models.svc.cluster.local", "port": 8000, "is_inside": True}
NEVER = (
    "127.0.0.1", "::1", "0.1.2.3", "169.254.169.254", "fe80::1", "fd00:ec2::254",
    "100.100.100.200", "::ffff:169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe",
    "224.0.0.1", "2002:a00:1::1",
)  # fmt: skip
PRIVATE = ("10.96.0.1", "172.16.0.1", "192.168.1.1", "fd12::1", "::ffff:10.0.0.1", *NEVER)


@pytest.mark.parametrize("address", NEVER)
async def test_a_391_attack_behind_a_listed_name(tmp_path: Path, address: str) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, is_plain=True, **INSIDE) as relay:
        relay.script.addresses = (address,)

        assert (await relay.ask()).status == 502
        assert relay.script.dialled == []


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_391_attack_behind_a_public_name(tmp_path: Path, address: str) -> None:
    there = {"host": "models.example.org", "base": "/v1"}
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, **there) as relay:
        relay.script.addresses = ("192.31.196.10", address)

        assert (await relay.ask()).status == 502
        assert relay.script.dialled == []


async def test_a_391_attack_by_rebinding(tmp_path: Path) -> None:
    """The name is looked up once, and the address that was looked at is the one that is dialled."""
    asked: list[str] = []
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path) as relay:

        async def resolve(host: str) -> tuple[str, ...]:
            asked.append(host)
            return ("192.31.196.10",) if len(asked) == 1 else ("10.96.0.1",)

        relay.gateway.provider_dialer = Dialer(2, resolve, relay.script.connect)
        assert (await relay.ask()).status == 200
        assert asked == [HOSTS[CHAT]]
        assert (await relay.ask()).status == 502
        assert len(relay.script.dialled) == 1


async def test_a_391_attack_by_a_redirect(tmp_path: Path) -> None:
    there = error(307, "Location: http://169.254.169.254/v1/chat/completions")
    async with relayed(CHAT, [there], tmp_path, is_plain=True, **INSIDE) as relay:
        relay.script.addresses = ("10.96.0.7",)
        got = await relay.ask()

        assert (got.status, "location" in got.headers) == (502, False)
        assert relay.script.dialled == [(INSIDE["host"], INSIDE["port"])]


@pytest.mark.parametrize("check", ["is_inside", "is_public"])
async def test_a_391_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    monkeypatch.setattr(run_gateway, check, lambda _: True)
    place = INSIDE if check == "is_inside" else {}
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, **place) as relay:
        relay.script.addresses = ("169.254.169.254",)

        assert (await relay.ask()).status == 200


async def test_a_391_honest(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, is_plain=True, **INSIDE) as relay:
        relay.script.addresses = ("10.96.0.7",)

        assert (await relay.ask()).status == 200


# A-392: the key of another provider

URL = "https://models.example.org/v1"
ENVIRONMENT = {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "OWN": "own"}
HARNESSES: dict[str, HarnessSection] = {
    "codex": HarnessSection("codex", (), {"model": "m", "provider": {"url": URL}}),
    "claude_code": HarnessSection("claude_code", (), {"provider": {"url": URL}}),
    "command": HarnessSection("command", (), {"command": "x", "provider": {"url": URL}}),
    "a key of its own": HarnessSection(
        "codex", (), {"model": "m", "provider": {"url": URL, "key": "OWN"}}
    ),
}


@pytest.mark.parametrize("name", HARNESSES)
def test_a_392_attack(name: str) -> None:
    assert KEY not in str(secret_values("run", HARNESSES[name], ENVIRONMENT))


async def test_a_392_attack_without_a_key(tmp_path: Path) -> None:
    async with relayed(CHAT, [answer(*events(CHAT))], tmp_path, key_file="") as relay:
        await relay.ask()

        sent = str(relay.script.asked[0].headers)
        assert (KEY in sent, DUMMY_KEY in sent, "Bearer" in sent) == (False, False, False)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
async def test_a_392_attack_by_errors(tmp_path: Path, status: int) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}", "code": status}})
    shown = answer(body.encode(), status=status, kind="application/json")
    async with relayed(CHAT, [shown], tmp_path) as relay:
        got = await relay.ask()

        assert hits(str((got.headers, got.body)).encode(), KEY) == []


def test_a_392_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "provider_key", lambda *_: "OPENAI_API_KEY")

    assert KEY in str(secret_values("run", HARNESSES["codex"], ENVIRONMENT))


def test_a_392_honest() -> None:
    found = secret_values("run", HARNESSES["a key of its own"], ENVIRONMENT)

    assert found == {"run-provider": {"OWN": "own"}}
