"""Access to registries."""

import base64
import json

import pytest

from securebench.errors import ConfigError, PackError
from securebench.names import image_reference
from securebench.oci.access import RegistryAccess, RegistryLogin, docker_credentials, listed_access
from securebench.oci.registry import token_from, token_url

HOST = "packs.example.org:5000"
TEAM = RegistryAccess(HOST, ("team", "shared/packs"))
ALL = RegistryAccess("other.example.org")


@pytest.mark.parametrize(
    ("place", "want"),
    [
        (f"{HOST}/team:1", TEAM),
        (f"{HOST}/team/smoke:1", TEAM),
        (f"{HOST}/shared/packs/a/b:1", TEAM),
        ("other.example.org/any/thing:1", ALL),
        (f"{HOST}/teams/smoke:1", None),
        (f"{HOST}/shared:1", None),
        (f"{HOST}/other/team:1", None),
        ("packs.example.org/team/smoke:1", None),
        ("packs.example.org:80/team/smoke:1", None),
        ("169.254.169.254/team/smoke:1", None),
        ("sub.other.example.org/smoke:1", None),
        ("other.example.org.evil.example/smoke:1", None),
    ],
)
def test_only_what_is_listed_is_asked(place, want):
    reference = image_reference(place)
    if want is not None:
        assert listed_access(reference, [TEAM, ALL]) is want
        return
    with pytest.raises(PackError, match=r"is not among the chart's settings\.packRegistries"):
        listed_access(reference, [TEAM, ALL])


def test_where_a_registry_may_lead():
    listed = RegistryAccess(HOST, other_hosts=frozenset({"tokens.example.org"}))
    assert listed.allows_redirect_to("https", "tokens.example.org")
    assert not listed.allows_redirect_to("http", "tokens.example.org")
    assert not listed.allows_redirect_to("https", "tokens.example.org:8443")
    assert not listed.allows_redirect_to("https", "169.254.169.254")
    assert RegistryAccess(HOST, other_hosts=None).allows_redirect_to(
        "https", "anywhere.example.org"
    )


def config(**auths):
    return json.dumps({"auths": auths}).encode()


AUTH = base64.b64encode(b"me:pass:word").decode()
ENTRIES = {
    "user and password": {"username": "me", "password": "pass:word"},
    "both in one": {"auth": AUTH},
    "all of it": {"username": "me", "password": "pass:word", "auth": AUTH},
}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/"])
def test_credentials(name, key):
    found = docker_credentials(config(**{"x.example": {}, key: ENTRIES[name]}), HOST, "here")
    assert found == RegistryLogin("me", "pass:word")
    assert found.basic == f"Basic {AUTH}"


@pytest.mark.parametrize("content", [b"{}", b"[]", config(), config(**{"x.example": {}})])
def test_no_credentials(content):
    assert docker_credentials(content, HOST, "here") is None


BROKEN = {
    "not JSON": (b"{s3cret", "here is not JSON"),
    "not base64": (config(**{HOST: {"auth": "s3cret!"}}), "has an auth that is not base64"),
    "no text": (config(**{HOST: {"auth": "//79"}}), "has an auth that is not base64"),
    "of a helper": (config(**{HOST: {}}), "log in without a credential helper"),
    "no password": (config(**{HOST: {"username": "s3cret"}}), "has no user and password"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_credentials_are_not_repeated(name):
    content, message = BROKEN[name]
    with pytest.raises(ConfigError, match="here") as raised:
        docker_credentials(content, HOST, "here")
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


CHALLENGES = {
    'Bearer realm="https://a.example/t",service="packs",scope="repository:a/b:pull,push"': (
        "https://a.example/t?service=packs&scope=repository:a/b:pull,push"
    ),
    'bearer realm="https://a.example/t?x=1"': "https://a.example/t?x=1",
    'Bearer scope="s", realm="https://a.example/t"': "https://a.example/t?scope=s",
}


@pytest.mark.parametrize("challenge", CHALLENGES)
def test_where_a_token_is_to_be_had(challenge):
    assert token_url(challenge).human_repr() == CHALLENGES[challenge]


@pytest.mark.parametrize(
    "challenge",
    ["Bearer ", "Bearer realm", 'Bearer realm=""', 'Bearer realm="/t"', 'Bearer realm="http://[x"'],
)
def test_a_challenge_without_a_place(challenge):
    with pytest.raises(PackError, match="does not name its token service"):
        token_url(challenge)


@pytest.mark.parametrize("content", [b'{"token": "t"}', b'{"access_token": "t", "expires_in": 1}'])
def test_a_token(content):
    assert token_from(content) == "t"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "a\\r\\nX: b"}', b"[" * 60_000]
)
def test_an_answer_without_a_token(content):
    with pytest.raises(PackError, match="answered without a token"):
        token_from(content)
