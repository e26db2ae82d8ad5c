import pytest

from securebench.errors import PackError
from securebench.oci.registry import token_from, token_url

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
