"""A complete third agent that no module of the product knows: its run ends with a record."""

import json
import re

import pytest

from securebench.agents.harness import AgentCli, AgentEvent, EventKind, cli_agent
from securebench.agents.providers.answers import Meter, TokenUsage
from securebench.agents.providers.endpoint import PROVIDERS
from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.agents.registry import AGENTS, agent_named
from securebench.client.progress import agent_lines, shown_agent
from securebench.cluster.port import ObjectKind
from securebench.errors import ConfigErrors
from support.agent_world import AgentWorld
from support.operator_world import opened
from support.relays import HOSTS, answer, relayed

HARNESS = {"type": "third_cli", "config": {"model": "m-1", "budget": {"requests": 5}}}
OVERLAYS = {"thirdCli": {"images": {"3.0": "overlay-third:3.0"}, "latest": "3.0"}}


class ThirdMeter(Meter):
    def event(self, event):
        self.document(event)

    def document(self, document):
        self.usage = TokenUsage(document["read"], 0, document["written"])
        self.is_complete = True


def without_search(body, findings):
    if "search" in body:
        findings.kinds.add("search")
    return {"model": body["model"], "text": body["text"]}


PROVIDER = ProviderRules(
    name="third-api",
    host="api.third.example",
    path="/complete",
    query=re.compile(""),
    key_header=b"third-key",
    final_status=400,
    refusal_kinds=dict.fromkeys(RequestRefusal, "refused"),
    refusal_body=lambda kind, message: {"why": kind, "message": message},
    allow_hosted_tools=lambda body, _: body,
    strip_hosted_tools=without_search,
    meter=ThirdMeter,
)


class Events:
    def events(self, event):
        if event.get("said"):
            yield AgentEvent(EventKind.SAID, event["said"])


AGENT = cli_agent(
    "third_cli",
    AgentCli(
        title="third",
        provider=PROVIDER,
        key="THIRD_KEY",
        overlay_path="/opt/securebench/third",
        home="/opt/securebench/third-home",
        command=lambda harness, prompt, _url: ("/opt/securebench/third/run", harness.model, prompt),
        preflight=("/opt/securebench/third/run", "--version"),
        environment=lambda _harness, url: {"THIRD_URL": url},
        events=Events,
    ),
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(AGENTS, AGENT.name, AGENT)
    monkeypatch.setitem(PROVIDERS, PROVIDER.name, PROVIDER)


@pytest.fixture
def world(tmp_path):
    made = {"harness": HARNESS, "key": "THIRD_KEY", "overlays": OVERLAYS}
    with opened(AgentWorld, tmp_path, **made) as world:
        yield world


def test_a_run_of_a_new_agent_ends_with_records(world):
    uid = world.begin()
    config = json.loads((world.root / "runs" / uid / "gateway/config.json").read_bytes())
    (harness,) = (
        json.dumps(raw)
        for name, raw in world.cluster.objects(ObjectKind.POD).items()
        if name.endswith("-0-1h1")
    )
    assert config["provider"]["name"] == "third-api"
    assert "overlay-third:3.0" in harness
    assert "THIRD_URL" in harness
    world.work(uid, rounds=30)
    assert world.condition()["status"] == "True"
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    record = json.loads(lines[0])["producer_metadata"]
    assert record["harness"] == "third_cli"
    assert (record["third_cli_model"], record["cli_version_resolved"]) == ("m-1", "3.0")
    assert record["usage"]["requests"] == 2
    assert record["allowed_domains"] == ["api.third.example"]


async def test_the_gateway_relays_its_api(tmp_path, monkeypatch):
    monkeypatch.setitem(HOSTS, "third-api", PROVIDER.host)
    body = {"read": 7, "written": 3}
    script = [answer(json.dumps(body).encode(), kind="application/json")]
    async with relayed("third-api", script, tmp_path) as relay:
        asked = {"model": "m-1", "text": "hi", "search": True}
        assert (await relay.ask(asked, path="/complete")).status == 200
        assert relay.script.asked[0].json == {"model": "m-1", "text": "hi"}
        assert (await relay.ask(asked, path="/other")).status == 404


def test_its_events_are_shown():
    cli = shown_agent("third_cli", "")
    (line,) = agent_lines(cli, '{"said": "hello"}', "")
    assert line.text == "third: hello"


def test_an_unknown_agent_is_an_error():
    with pytest.raises(ConfigErrors, match=r"harness\.type must be one of .*third_cli"):
        agent_named("fourth")
