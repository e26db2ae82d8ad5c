"""What a run's gateway is told of its provider, within the administrator's list (contract 12.7)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from securebench.agents.harness import DUMMY_KEY
from securebench.errors import SpecError
from securebench.protocol.gateway import ProviderConfig
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import AGENT_FOLDER, AGENT_HOME
from securebench.run.plan.model import ClusterProvider, RunPlan
from securebench.run.pods.gateway import gateway_config, gateway_pod
from securebench.run.pods.isolation import gateway_policy
from support.manifest_samples import GATEWAY
from unit.run.plan.test_build import built, inputs

URL = "https://models.example.org/v1"
INSIDE = "http://vllm.models.svc.cluster.local:80/v1"
LISTED = ClusterProvider("vllm.models.svc.cluster.local", 80, "models", 8000)
SECRET = {"secretRef": {"name": "key"}}


def plan_of(url: str, *, listed: tuple[ClusterProvider, ...] = (LISTED,), **config: Any) -> RunPlan:
    provider = {"url": url, **config.pop("provider", {})}
    given = inputs(
        harness={"type": "command", "config": {"command": "x", "provider": provider, **config}},
        **({"provider": SECRET} if "key" in provider else {}),
    )
    return built(given._replace(providers=listed))


def told(plan: RunPlan) -> ProviderConfig:
    provider = gateway_config(plan, GATEWAY).provider
    assert provider is not None
    return provider


def rules(plan: RunPlan) -> list[Any]:
    spec: Any = gateway_policy(plan)["spec"]
    return list(spec["egress"])


def test_a_command_with_a_provider_by_its_url() -> None:
    plan = plan_of(URL, provider={"key": "OWN_KEY"}, budget={"tokens": 9}, model="m/x")
    want_file = "/etc/securebench/provider/key"
    provider = told(plan)
    assert provider == ProviderConfig(
        "openai_chat",
        "models.example.org",
        provider.key_file,
        max_tokens=9,
        base="/v1",
        model="m/x",
    )
    assert provider.key_file.endswith("/key"), want_file
    assert plan.harness.environment == {
        "OPENAI_BASE_URL": "http://127.0.0.1:8081/v1",
        "OPENAI_API_KEY": DUMMY_KEY,
        "OPENAI_MODEL": "m/x",
        "NO_PROXY": "localhost,127.0.0.1,::1",
        "no_proxy": "localhost,127.0.0.1,::1",
    }
    (mounted,) = [
        each for each in gateway_pod(plan, 1, GATEWAY, 4)["spec"]["volumes"] if "secret" in each
    ]
    assert mounted["secret"]["secretName"] == "key"
    assert mounted["secret"]["items"][0]["key"] == "OWN_KEY"


def test_the_budget_of_the_run_reaches_the_gateway() -> None:
    budget = {"tokens": 7000}
    harness = {"type": "command", "config": {"command": "x", "provider": {"url": URL}}}
    plan = built(inputs(harness=harness, budget=budget))
    assert (plan.token_budget, told(plan).run_tokens) == (7000, 7000)
    assert plan.digest == built(inputs(harness=harness)).digest


@pytest.mark.parametrize("config", [{}, {"allowed_domains": ["docs.example.org"]}])
def test_a_budget_needs_a_provider_whose_tokens_are_counted(config: dict[str, Any]) -> None:
    harness = {"type": "command", "config": {"command": "x", **config}}
    with pytest.raises(SpecError, match=r"spec\.budget: the harness has no model provider"):
        built(inputs(harness=harness, budget={"tokens": 1}))


def test_a_provider_without_a_key_needs_no_secret() -> None:
    plan = plan_of(URL)
    assert told(plan).key_file == ""
    pod: Any = gateway_pod(plan, 1, GATEWAY, 4)
    assert not [each for each in pod["spec"]["volumes"] if "secret" in each]
    assert "/provider" not in str(pod["spec"]["containers"][0]["volumeMounts"])


def test_the_messages_api_has_the_variables_of_its_vendor() -> None:
    plan = plan_of("https://models.example.org", provider={"api": "messages"})
    assert plan.harness.environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8081"
    assert (told(plan).name, told(plan).base) == ("anthropic", "")


def test_what_the_administrator_lists_is_opened_and_nothing_else() -> None:
    plan = plan_of(INSIDE)
    provider = told(plan)
    assert (provider.host, provider.port) == ("vllm.models.svc.cluster.local", 80)
    assert (provider.is_inside, provider.is_plain) == (True, True)
    outside, _, inside = rules(plan)
    assert [port["port"] for port in outside["ports"]] == [443, 80]
    assert inside == {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}],
        "ports": [{"port": 8000, "protocol": "TCP"}],
    }


@pytest.mark.parametrize("url", [URL, "https://api.openai.com/v1"])
def test_another_provider_opens_no_namespace(url: str) -> None:
    assert len(rules(plan_of(url))) == 2


def test_a_port_of_its_own_is_opened_outside_only() -> None:
    outside, _ = rules(plan_of("https://models.example.org:8443/v1"))
    assert [port["port"] for port in outside["ports"]] == [443, 80, 8443]
    assert all("ipBlock" in peer for peer in outside["to"])


REFUSED = {
    "plain HTTP": ("http://models.example.org/v1", "has no TLS"),
    "the cluster": ("https://vllm.other.svc.cluster.local/v1", "is not public"),
    "a short name of the cluster": ("https://vllm.models.svc/v1", "is not public"),
    "another port": ("https://vllm.models.svc.cluster.local:6443/v1", "is not public"),
    "a metadata service": ("http://metadata.google.internal/v1", "has no TLS"),
    "the same with TLS": ("https://metadata.google.internal/v1", "is not public"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_listed_is_refused_in_one_line(name: str) -> None:
    url, want = REFUSED[name]
    with pytest.raises(SpecError) as caught:
        plan_of(url)
    assert want in caught.value.reason
    assert "settings.gateway.providers" in caught.value.reason


def test_without_a_list_nothing_is_inside() -> None:
    with pytest.raises(SpecError, match="has no TLS"):
        plan_of(INSIDE, listed=())


def test_an_agent_in_an_image_of_its_own() -> None:
    plan = plan_of(URL, image="registry.example/agent:1")
    agent = plan.harness.agent
    assert agent is not None
    assert (agent.overlay, agent.overlay_path, agent.home) == (
        "registry.example/agent:1", AGENT_FOLDER, AGENT_HOME,
    )  # fmt: skip
    assert agent.environment["HOME"] == AGENT_HOME
    assert agent.environment["OPENAI_API_KEY"] == DUMMY_KEY
    assert agent.search == (f"{AGENT_FOLDER}/bin",)


MISMATCHES = {
    "a key that is nowhere": ({"url": URL, "key": "OWN"}, None, "needs provider.secretRef"),
    "a Secret for nothing": ({"url": URL}, SECRET, "names no key in it"),
    "a Secret without a provider": (None, SECRET, "names no key in it"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_key_and_secret_belong_together(name: str) -> None:
    provider, secret, want = MISMATCHES[name]
    config = {"command": "x"} if provider is None else {"command": "x", "provider": provider}
    spec = {
        "pack": {"volume": {"path": "p"}},
        "harness": {"type": "command", "config": config},
        **({} if secret is None else {"provider": secret}),
    }
    with pytest.raises(ValidationError, match=want):
        BenchmarkRunSpec.model_validate(spec)
