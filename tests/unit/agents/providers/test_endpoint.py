"""A model provider that is named by its URL (contract 12.7)."""

from __future__ import annotations

import pytest

from securebench.agents.harness import CommandHarness
from securebench.agents.providers.endpoint import CA_CHARACTERS, ProviderEndpoint
from securebench.agents.registry import (
    forwarded_env,
    harness_config,
    harness_digest,
    key_variables,
    provider_key,
)
from securebench.errors import ConfigErrors

URL = "https://models.example.org/v1"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


def endpoint(**provider: object) -> ProviderEndpoint:
    harness = harness_config("command", {"command": "x", "provider": {"url": URL, **provider}})
    assert harness.endpoint is not None
    return harness.endpoint


URLS = {
    "a usual one": (URL, (False, "models.example.org", 443, "/v1"), URL),
    "a slash": (f"{URL}/", (False, "models.example.org", 443, "/v1"), URL),
    "upper case": (
        "HTTPS://Models.Example.ORG./v1",
        (False, "models.example.org", 443, "/v1"),
        URL,
    ),
    "no path": ("https://a.b:8443", (False, "a.b", 8443, ""), "https://a.b:8443"),
    "Azure": (
        "https://r.openai.azure.com/openai/v1",
        (False, "r.openai.azure.com", 443, "/openai/v1"),
        "https://r.openai.azure.com/openai/v1",
    ),
    "in the cluster": (
        "http://vllm.models.svc:8000/v1",
        (True, "vllm.models.svc", 8000, "/v1"),
        "http://vllm.models.svc:8000/v1",
    ),
    "its usual port": ("http://a.svc:80/v1", (True, "a.svc", 80, "/v1"), "http://a.svc/v1"),
}


@pytest.mark.parametrize("name", URLS)
def test_a_url_is_taken_apart(name: str) -> None:
    url, want, want_url = URLS[name]
    found = endpoint(url=url)
    assert (found.is_plain, found.host, found.port, found.base) == want
    assert found.url == want_url


WRONG = {
    "another scheme": ("ftp://a.b/v1", "must begin with https://"),
    "no scheme": ("models.example.org/v1", "must begin with https://"),
    "a password": ("https://user:secret@a.b/v1", "must not hold a user or password"),
    "another host behind an at": ("https://a.b@10.0.0.1/v1", "must not hold a user or password"),
    "a query": (f"{URL}?key=secret", "without query and fragment"),
    "a fragment": (f"{URL}#x", "without query and fragment"),
    "steps up": ("https://a.b/v1/../admin", "must have a path"),
    "an encoded step": ("https://a.b/%2e%2e/v1", "must have a path"),
    "a line": ("https://a.b/v1\nx", "must begin with https://"),
    "a line behind the host": ("https://a.b\n/v1", "must have no white space beside its host"),
    "a blank before the host": ("https:// a.b/v1", "must have no white space beside its host"),
    "a tab before the port": ("https://a.b\t:8443/v1", "must have no white space beside its host"),
    "a blank in the host": ("https://a b.c/v1", "names a host that"),
    "a backslash": ("https://a.b\\@c.d/v1", "must not hold a user or password"),
    "the whole path": (f"{URL}/chat/completions", "must end before /chat/completions"),
    "an address": ("https://10.0.0.1/v1", "must not be an IP address"),
    "an address as a number": ("https://a.0x7f000001/v1", "must not be an IP address"),
    "an IPv6 address": ("https://[::1]/v1", "names a host that"),
    "the local host": ("https://x.localhost/v1", "must not be the local host"),
    "one label": ("http://vllm/v1", "must have at least two labels"),
    "a port of no number": ("https://a.b:x/v1", "has a port"),
    "a port too large": ("https://a.b:65536/v1", "has a port"),
    "the port 0": ("https://a.b:0/v1", "has a port"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_url_is_refused_in_one_line(name: str) -> None:
    url, want = WRONG[name]
    with pytest.raises(ConfigErrors) as caught:
        endpoint(url=url)
    (error,) = caught.value.errors
    assert error.reason.startswith("harness.config.provider.url ")
    assert want in error.reason
    assert "secret" not in error.reason
    assert error.facts["key"] == ("harness", "config", "provider", "url")


@pytest.mark.parametrize("ca", ["x", "-----BEGIN PRIVATE KEY-----", "a" * (CA_CHARACTERS + 1)])
def test_what_is_no_certificate_is_refused(ca: str) -> None:
    with pytest.raises(ConfigErrors, match=r"provider\.ca must hold certificates in PEM form"):
        endpoint(ca=ca)


def test_an_api_has_the_ending_of_its_own() -> None:
    assert endpoint(api="responses", url=f"{URL}/chat/completions").base.endswith("completions")
    with pytest.raises(ConfigErrors, match="must end before /responses"):
        endpoint(api="responses", url=f"{URL}/responses")


def test_agents_have_their_own_api_and_take_a_url() -> None:
    codex = harness_config("codex", {"model": "m", "provider": {"url": URL}})
    assert codex.endpoint is not None
    assert (codex.endpoint.api, codex.effective_domains) == ("responses", ("models.example.org",))
    claude = harness_config("claude_code", {"provider": {"url": "https://a.b"}})
    assert claude.endpoint is not None
    assert claude.endpoint.api == "messages"
    with pytest.raises(ConfigErrors, match=r"provider contains unsupported field\(s\): api"):
        harness_config("codex", {"model": "m", "provider": {"url": URL, "api": "responses"}})


def test_models_have_the_names_of_open_ones() -> None:
    for name in ("Qwen/Qwen3-8B", "qwen3:8b", "@cf/meta/llama-3"):
        given = {"command": "x", "provider": {"url": URL}, "model": name}
        if name.startswith("@"):
            with pytest.raises(ConfigErrors):
                harness_config("command", given)
        else:
            assert harness_config("command", given).model == name


@pytest.mark.parametrize("name", ["model", "budget", "allow_external_tools"])
def test_a_command_without_a_provider_has_none_of_its_fields(name: str) -> None:
    value = {"model": "m", "budget": {}, "allow_external_tools": True}[name]
    with pytest.raises(ConfigErrors, match=f"{name} says something of a provider"):
        harness_config("command", {"command": "x", name: value})


def test_digests_without_a_provider_are_those_of_before() -> None:
    harness = harness_config("command", {"command": "echo hi"})
    assert set(harness.filled_config()) == {
        "command", "artifact_path", "task_file", "timeout_seconds", "allowed_domains",
    }  # fmt: skip
    codex = harness_config("codex", {"model": "m"})
    assert "provider" not in codex.filled_config()


def test_a_digest_knows_the_provider_and_no_certificate() -> None:
    plain = harness_config("command", {"command": "x", "provider": {"url": URL}})
    trusting = harness_config(
        "command", {"command": "x", "provider": {"url": URL, "ca": CERTIFICATE}}
    )
    assert isinstance(plain, CommandHarness)
    assert plain.filled_config()["provider"] == {
        "url": URL, "api": "chat_completions", "key": "",
    }  # fmt: skip
    assert "QUJD" not in str(trusting.filled_config())
    assert harness_digest(plain) != harness_digest(trusting)


KEYS = {
    "no provider": ("command", {}, "", ("OPENAI_API_KEY", "OWN")),
    "a vendor": ("codex", {}, "OPENAI_API_KEY", ("OWN",)),
    "a URL without a key": ("codex", {"provider": {"url": URL}}, "", ("OWN",)),
    "a URL with a key": ("codex", {"provider": {"url": URL, "key": "OWN"}}, "OWN", ()),
    "a command with a key": (
        "command",
        {"provider": {"url": URL, "key": "OWN"}},
        "OWN",
        ("OPENAI_API_KEY",),
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_only_the_gateway_gets_the_key(name: str) -> None:
    harness, config, want, want_forwarded = KEYS[name]
    assert provider_key(harness, config) == want
    assert forwarded_env(harness, ("OPENAI_API_KEY", "OWN"), config) == want_forwarded


def test_the_key_of_a_vendor_never_goes_to_a_url() -> None:
    assert key_variables("OPENAI_API_KEY", {}) == ("OPENAI_API_KEY", "CODEX_API_KEY")
    given = {"provider": {"url": URL, "key": "OPENAI_API_KEY"}}
    assert key_variables("OPENAI_API_KEY", given) == ("OPENAI_API_KEY",)
