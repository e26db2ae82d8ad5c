"""F9: the provider's key stays in the gateway; a provider answers with nothing but its model."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from securebench.agents.providers.answers import Trouble
from securebench.agents.providers.endpoint import provider_named
from securebench.agents.providers.provider import ProviderRules, RequestKind
from securebench.gateway import account, provider_call, provider_route
from securebench.gateway.provider_call import upstream_headers
from securebench.protocol.gateway import PROVIDER_KEY
from securebench.run.plan.model import AttemptKey, EgressPlan, ProviderPlan
from securebench.run.records.labels import IsolationLabel, producer_metadata, record_labels
from securebench.run.state.attempts import AttemptHistory
from support.build import history_of, production
from support.manifest_samples import run_plan, text_task
from support.relays import (
    DUMMY,
    HOSTS,
    KEY,
    MODELS,
    PATHS,
    TOOL,
    Relay,
    answer,
    error,
    event,
    events,
    question,
    relayed,
)
from threats.kit.canaries import hits

pytestmark = pytest.mark.short
BOTH = pytest.mark.parametrize("name", ["openai", "openai_chat", "anthropic"])
OTHER_ACCOUNT = "sk-other-account-9876543210"

# other accounts, stores and uploads behind the provider's name

OWN_KEY = (f"Authorization: Bearer {OTHER_ACCOUNT}", f"x-api-key: {OTHER_ACCOUNT}")
ACCOUNT = ("OpenAI-Organization: other", "OpenAI-Project: other", "Cookie: session=other")
STORES: Mapping[str, tuple[str, str]] = {
    "files": ("POST", "/v1/files"),
    "uploads": ("POST", "/v1/uploads"),
    "stored answers": ("GET", "/v1/responses/resp_1"),
    "deleted answers": ("DELETE", "/v1/responses/resp_1"),
    "vector stores": ("POST", "/v1/vector_stores"),
    "containers": ("POST", "/v1/containers"),
    "batches": ("POST", "/v1/messages/batches"),
    "skills": ("POST", "/v1/skills"),
    "other method": ("PUT", "/v1/responses"),
}


def with_keys(name: str, *headers: str, **fields: Any) -> bytes:
    """Return a request in which the agent's own headers stand in place of the dummy key's."""
    data = json.dumps(question(name, **fields)).encode()
    lines = (f"POST {PATHS[name]} HTTP/1.1", "Host: 127.0.0.1:8081", *headers)
    return "\r\n".join((*lines, f"Content-Length: {len(data)}", "", "")).encode() + data


@BOTH
async def test_a_144_attack(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(raw=with_keys(name, *OWN_KEY, *ACCOUNT))).status == 200

        (asked,) = relay.script.asked
        assert OTHER_ACCOUNT not in str(asked.headers)
        assert KEY in str(asked.headers)
        assert "other" not in str(asked.headers)


@pytest.mark.parametrize("store", STORES)
@BOTH
async def test_a_144_attack_on_stores(tmp_path: Path, name: str, store: str) -> None:
    method, path = STORES[store]
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        body = b"" if method != "POST" else b"{}"

        assert (await relay.ask(body, method=method, path=path)).status == 404
        assert relay.script.dialled == []
        assert [line["verdict"] for line in await relay.log()] == ["refused"]


def own_headers(
    provider: ProviderRules, host: bytes, received: Any, key: bytes, size: int
) -> list[tuple[bytes, bytes]]:
    """Rebuild a request and leave the agent's own key in it."""
    made = dict(upstream_headers(provider, host, received, key, size))
    del made[provider.key_header]
    return list({**dict(received), **made}.items())


@BOTH
async def test_a_144_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(provider_route, "upstream_headers", own_headers)
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        await relay.ask(raw=with_keys(name, *OWN_KEY))

        assert OTHER_ACCOUNT in str(relay.script.asked[0].headers)


@pytest.mark.parametrize("store", STORES)
async def test_a_144_twin_of_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(ProviderRules, "kind", lambda *_: RequestKind.RELAYED)
    _, path = STORES[store]
    async with relayed("openai", [answer(*events("openai"))], tmp_path) as relay:
        await relay.ask(question("openai"), path=path)

        assert relay.script.asked[0].head.target == path.encode()


PROVIDER = ProviderPlan(
    "openai", HOSTS["openai"], PROVIDER_KEY, secret="keys", key="OPENAI_API_KEY"
)
WAYS_OUT: Mapping[str, tuple[EgressPlan | None, object]] = {
    "none": (None, None),
    "tunnels": (EgressPlan(("docs.dev",), None), False),
    "provider": (EgressPlan((), PROVIDER), True),
    "both": (EgressPlan(("docs.dev",), PROVIDER), False),
}


@pytest.mark.parametrize("kind", WAYS_OUT)
def test_a_144_attack_on_the_label(kind: str) -> None:
    way, is_confidential = WAYS_OUT[kind]
    plan = replace(run_plan(text_task()), egress=way)
    history = AttemptHistory(AttemptKey(0, 1))
    labels = record_labels(
        plan, text_task(), history, IsolationLabel.VERIFIED, node_reachable=False
    )

    assert labels["network"] == ("none" if way is None else "egress")
    assert labels.get("network_confidential") == is_confidential


@BOTH
async def test_a_144_honest(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        got = await relay.ask()

        assert (got.status, got.body) == (200, b"".join(events(name)))


# a provider that shows what it was sent

SHOWN = {
    "plain": KEY.encode(),
    "base64": base64.b64encode(KEY.encode()),
    "base64 after one byte": base64.b64encode(b"x" + KEY.encode()),
    "base64 after two bytes": base64.b64encode(b"xy" + KEY.encode() + b"more"),
    "authorization": b"Bearer " + KEY.encode(),
}
ELSEWHERE = (
    *("/v1/../files", "/v1/responses/", "/v1/responses/../files", "/v1/responses%2f..%2ffiles"),
    *("//v1/responses", "/v1//responses", "/V1/responses"),
    *("/v1/responses;x", "/v1/responses?echo=1"),
    *("https://evil.example/v1/responses", "//evil.example/v1/responses", "/v1/responses#x"),
    *("/echo", "/v1/echo", "/", "/.well-known/openid-configuration"),
)  # fmt: skip


def echo(name: str, shown: bytes, size: int) -> list[bytes]:
    """Return an answer that says something, in pieces of a size."""
    text = b"".join(events(name, text="")[:1]) + b"data: " + shown + b"\n\n"
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("form", SHOWN)
@BOTH
async def test_a_179_attack(tmp_path: Path, name: str, form: str, size: int) -> None:
    answers = [answer(*echo(name, SHOWN[form], size))]
    async with relayed(name, answers, tmp_path) as relay:
        got = await relay.ask()

        assert got.status == 200
        assert b"data: " in got.body
        assert hits(got.body, KEY) == []
        assert [line["echoes"] for line in await relay.log()] == [1]


@pytest.mark.parametrize("form", SHOWN)
async def test_a_179_attack_by_errors(tmp_path: Path, form: str) -> None:
    shown = SHOWN[form].decode()
    headers = (f"x-request-id: {shown}", f"openai-organization: {shown}", f"x-key: {shown}")
    async with relayed("openai", [error(500, *headers)], tmp_path) as relay:
        got = await relay.ask()

        assert hits(str((got.headers, got.body)).encode(), KEY) == []


@pytest.mark.parametrize("path", ELSEWHERE)
async def test_a_179_attack_by_a_path(tmp_path: Path, path: str) -> None:
    async with relayed("openai", [answer(*events("openai"))], tmp_path) as relay:
        assert (await relay.ask(question("openai"), path=path)).status in {400, 404}
        assert relay.script.dialled == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@BOTH
async def test_a_179_attack_by_a_redirect(tmp_path: Path, name: str, status: int) -> None:
    there = error(status, "Location: https://evil.example/v1/responses")
    async with relayed(name, [there], tmp_path) as relay:
        got = await relay.ask()

        assert (got.status, "location" in got.headers) == (502, False)
        assert relay.script.dialled == [(HOSTS[name], 443)]


class NoMask:
    """Passes everything on."""

    found = 0

    def __init__(self, _: bytes) -> None: ...

    def feed(self, data: bytes) -> bytes:
        return data

    whole = feed

    def rest(self) -> bytes:
        return b""


@BOTH
async def test_a_179_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(provider_call, "KeyMask", NoMask)
    answers = [answer(*echo(name, SHOWN["plain"], 7))]
    async with relayed(name, answers, tmp_path) as relay:
        assert hits((await relay.ask()).body, KEY) == ["plain"]


async def test_a_179_twin_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProviderRules, "kind", lambda *_: RequestKind.RELAYED)
    async with relayed("openai", [answer(*events("openai"))], tmp_path) as relay:
        await relay.ask(question("openai"), path="/v1/../files")

        assert relay.script.asked[0].head.target == b"/v1/../files"
        assert KEY in str(relay.script.asked[0].headers)


@BOTH
async def test_a_179_honest(tmp_path: Path, name: str) -> None:
    script = [answer(*events(name, text=f"{KEY[:12]} is how keys begin"))]
    async with relayed(name, script, tmp_path) as relay:
        got = await relay.ask()

        assert f"{KEY[:12]} is how keys begin".encode() in got.body
        assert relay.script.asked[0].headers["host"] == HOSTS[name]


# tools that the provider runs

HOSTED: Mapping[str, Mapping[str, object]] = {
    "search": {"type": "web_search"},
    "dated search": {"type": "web_search_20250305", "name": "web_search"},
    "fetch": {"type": "web_fetch_20250910", "name": "web_fetch"},
    "code": {"type": "code_interpreter", "container": {"type": "auto"}},
    "execution": {"type": "code_execution_20250825", "name": "code_execution"},
    "files": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "server": {"type": "mcp", "server_url": "https://evil.example"},
    "of a new shape": {"type": "oracle_2031", "name": "oracle"},
    "kind as a list": {"type": ["function"], "name": "x"},
    "kind in capitals": {"type": "Web_Search"},
}


def nested(name: str, tool: Mapping[str, object]) -> Mapping[str, Any]:
    """Return fields with a tool at a place other than the list of tools, beside a harmless one."""
    both = [TOOL[name], tool]
    if name == "openai":
        return {"tools": [{"type": "namespace", "name": "n", "tools": both}]}
    if name == "openai_chat":
        options = {
            "web_search_options": {"site": "evil.example"},
            "plugins": [{"id": "web_search"}],
        }
        return {"tools": [TOOL[name]], "extra_body": tool, **options}
    return {
        "tools": [TOOL[name]],
        "mcp_servers": [{"url": "https://evil.example"}],
        "container": "c",
    }


@pytest.mark.parametrize("kind", HOSTED)
@BOTH
async def test_a_181_attack(tmp_path: Path, name: str, kind: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        got = await relay.ask(question(name, tools=[HOSTED[kind]]))

        assert got.status == 400
        assert relay.script.dialled == []
        (line,) = await relay.log()
        assert line["verdict"] == "refused"
        assert line["reason"] in {"hosted_tool", "bad_request"}


@pytest.mark.parametrize("kind", [kind for kind in HOSTED if kind != "kind as a list"])
@BOTH
async def test_a_181_attack_beside_a_harmless_tool(tmp_path: Path, name: str, kind: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(question(name, tools=[TOOL[name], HOSTED[kind]]))).status == 200

        assert relay.script.asked[0].json["tools"] == [TOOL[name]]
        assert relay.report.stripped_tools == (HOSTED[kind]["type"],)
        assert (await relay.log())[0]["stripped"] == [HOSTED[kind]["type"]]


@BOTH
async def test_a_181_attack_from_within(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        got = await relay.ask(question(name, **nested(name, HOSTED["search"])))

        sent = json.dumps([asked.json for asked in relay.script.asked])
        assert got.status in {200, 400}
        assert "web_search" not in sent
        assert "evil.example" not in sent
        assert (await relay.log())[0]["stripped"] != []


PLACE = "https://evil.example/answer"
PARTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "a chat file": ("openai_chat", {"type": "file", "file": {"file_data": PLACE}}),
    "chat audio": ("openai_chat", {"type": "input_audio", "input_audio": {"data": PLACE}}),
    "a video beside text": (
        "openai_chat",
        {"type": "text", "text": "x", "uuid": "1", "video_url": {"url": PLACE}},
    ),
    "audio beside text": (
        "openai_chat",
        {"type": "text", "text": "x", "uuid": "1", "audio_url": {"url": PLACE}},
    ),
    "a file": ("openai", {"type": "input_file", "file_data": PLACE}),
    "a video beside other text": (
        "openai",
        {"type": "input_text", "text": "x", "uuid": "1", "video_url": {"url": PLACE}},
    ),
}


@pytest.mark.parametrize("case", PARTS)
async def test_a_181_attack_by_content_elsewhere(tmp_path: Path, case: str) -> None:
    name, part = PARTS[case]
    said = [{"role": "user", "content": [part]}]
    fields = {"messages": said} if name == "openai_chat" else {"input": said}
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        await relay.ask(question(name, **fields))

        assert "evil.example" not in json.dumps([asked.json for asked in relay.script.asked])
        assert (await relay.log())[0]["stripped"] != []


@BOTH
async def test_a_181_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _without_lists(monkeypatch)
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(question(name, tools=[HOSTED["search"]]))).status == 200
        assert relay.script.asked[0].json["tools"] == [HOSTED["search"]]


@BOTH
async def test_a_181_honest(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask()).status == 200
        assert relay.script.asked[0].json == question(name)
        assert relay.report.stripped_tools == ()


@BOTH
async def test_a_181_honest_with_tools_that_a_tester_allows(tmp_path: Path, name: str) -> None:
    script, body = [answer(*events(name))], question(name, tools=[HOSTED["search"]])
    async with relayed(name, script, tmp_path, allow_external_tools=True) as relay:
        assert (await relay.ask(body)).status == 200
        assert relay.script.asked[0].json["tools"] == [HOSTED["search"]]


# fields beside known ones, and what the provider stores


BESIDE: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "a schema elsewhere": (
        "openai_chat",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"$ref": PLACE}}}]},
    ),
    "a prediction": (
        "openai_chat",
        {
            "prediction": {
                "type": "content",
                "content": [{"type": "text", "text": "x", "image_url": {"url": PLACE}}],
            }
        },
    ),
    "a message's documents": (
        "openai_chat",
        {"messages": [{"role": "user", "content": "x", "documents": [{"url": PLACE}]}]},
    ),
    "a stored item": ("openai", {"input": [{"type": "item_reference", "id": PLACE}]}),
    "stored thoughts": ("openai", {"input": [{"type": "reasoning", "id": PLACE, "summary": []}]}),
    "an item's documents": (
        "openai",
        {"input": [{"role": "user", "content": "x", "documents": PLACE}]},
    ),
    "a block's source": (
        "anthropic",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "x", "file": {"url": PLACE}}],
                }
            ]
        },
    ),
    "a tool's server": (
        "anthropic",
        {"tools": [{"name": "a", "input_schema": {}, "server_url": PLACE}]},
    ),
}


@pytest.mark.parametrize("case", BESIDE)
async def test_a_455_attack(tmp_path: Path, case: str) -> None:
    name, fields = BESIDE[case]
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        await relay.ask(question(name, **fields))

        assert "evil.example" not in json.dumps([asked.json for asked in relay.script.asked])
        assert (await relay.log())[0]["stripped"] != []


@pytest.mark.parametrize("case", BESIDE)
async def test_a_455_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    _without_lists(monkeypatch)
    name, fields = BESIDE[case]
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        await relay.ask(question(name, **fields))

        assert "evil.example" in json.dumps([asked.json for asked in relay.script.asked])


def _without_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    def weakened(name: str) -> ProviderRules:
        return replace(provider_named(name), strip_hosted_tools=lambda body, _: body)

    monkeypatch.setattr(provider_route, "provider_named", weakened)


async def test_a_455_honest(tmp_path: Path) -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    fields = {
        "tools": [tool],
        "prediction": {"type": "content", "content": [{"type": "text", "text": "see " + PLACE}]},
    }
    async with relayed("openai_chat", [answer(*events("openai_chat"))], tmp_path) as relay:
        body = question("openai_chat", **fields)
        assert (await relay.ask(body)).status == 200
        assert relay.script.asked[0].json == body
        assert relay.report.stripped_tools == ()


# the name of a model switches on tools of the provider


@pytest.mark.parametrize("model", ["x:online", "x:online:nitro", "x:nitro:online", "x:unheard-of"])
@BOTH
async def test_a_456_attack(tmp_path: Path, name: str, model: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(question(name, model=model))).status == 400
        assert relay.script.dialled == []
        assert relay.report.stripped_tools == ("model",)


@BOTH
async def test_a_456_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _without_lists(monkeypatch)
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(question(name, model="x:online:nitro"))).status == 200
        assert relay.script.asked[0].json["model"] == "x:online:nitro"


@pytest.mark.parametrize("model", ["nousresearch/hermes-4-405b", "llama3.1:8b", "x/y:free"])
@BOTH
async def test_a_456_honest(tmp_path: Path, name: str, model: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask(question(name, model=model))).status == 200
        assert relay.report.models == (model,)


# errors that an agent brings about make its failure one of the provider


GONE = {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}
QUOTED = {
    "error": {
        "message": 'Invalid value: \'{"error": {"code": "insufficient_quota"}}\'.',
        "type": "invalid_request_error",
        "code": None,
    }
}


def rejected(body: object, status: int) -> list[Any]:
    return answer(json.dumps(body).encode(), status=status, kind="application/json")


@pytest.mark.parametrize(("body", "status"), [(GONE, 404), (GONE, 403), (QUOTED, 400)])
async def test_a_457_attack(tmp_path: Path, body: object, status: int) -> None:
    script = [answer(*events("openai")), rejected(body, status)]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        assert (await relay.ask(question("openai", model="not-there"))).status == status

        assert (relay.report.failure, relay.launch.report.unanswered) == ("", "")


async def test_a_457_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def weakened(_: object, trouble: Trouble, _status: int = 0) -> str:
        return trouble.failure

    monkeypatch.setattr(provider_call.ProviderCall, "_settled", weakened)
    script = [answer(*events("openai")), rejected(GONE, 404)]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        await relay.ask(question("openai", model="not-there"))

        assert relay.report.failure == "provider_unavailable"


async def test_a_457_honest(tmp_path: Path) -> None:
    script = [answer(*events("openai")), rejected(GONE, 404)]
    async with relayed("openai", script, tmp_path) as relay:
        await relay.ask()
        await relay.ask()

        assert relay.report.failure == "provider_unavailable"
        assert relay.report.failure_cause.endswith("the model is not there")


# Of no case: another model than the tester's (decision 0015)

OTHER = "other-model-2"


def recorded_models(relay: Relay) -> object:
    """Return the models that the record of the launch would name."""
    plan = replace(run_plan(text_task()), egress=EgressPlan((), PROVIDER))
    history = history_of(production=production(egress=relay.launch.report))
    return producer_metadata(plan, text_task(), history, "linux-amd64")["provider_models"]


@BOTH
async def test_an_agent_that_asks_for_another_model_is_seen(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        for model in (MODELS[name], OTHER):
            assert (await relay.ask(question(name, model=model))).status == 200

        assert [asked.json["model"] for asked in relay.script.asked] == [MODELS[name], OTHER]
        assert recorded_models(relay) == sorted([MODELS[name], OTHER])


@BOTH
async def test_an_agent_that_asks_for_another_model_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(account, "MODELS", 1)
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        for model in (MODELS[name], OTHER):
            assert (await relay.ask(question(name, model=model))).status == 200

        assert recorded_models(relay) == [MODELS[name]]


@BOTH
async def test_an_agent_that_asks_for_its_model_only(tmp_path: Path, name: str) -> None:
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        for _ in range(2):
            await relay.ask()

        assert recorded_models(relay) == [MODELS[name]]


# keys at the gateway only (the Pods of a run: test_secrets_stay.py)


@BOTH
async def test_a_178_attack_on_what_an_agent_sends(tmp_path: Path, name: str) -> None:
    """The agent's dummy goes nowhere; the real key comes from the gateway's file."""
    async with relayed(name, [answer(*events(name))], tmp_path) as relay:
        assert (await relay.ask()).status == 200

        (asked,) = relay.script.asked
        assert DUMMY not in str((asked.head, asked.body))
        assert str(asked.headers).count(KEY) == 1


async def test_a_178_attack_on_the_log(tmp_path: Path) -> None:
    async with relayed("openai", [answer(event("x", key=KEY)), error(401)], tmp_path) as relay:
        await relay.ask(raw=with_keys("openai", f"X-Codex-A: {KEY}", metadata={"key": KEY}))
        text = json.dumps(await relay.log()).encode()

        assert hits(text + str(relay.launch.report).encode(), KEY) == []
