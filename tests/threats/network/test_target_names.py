"""F7: the gateway knows a target by one canonical name, and dials what it checked of that name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from securebench.agents.providers import endpoint
from securebench.agents.providers.endpoint import is_listed, normalize_domains
from securebench.errors import ConfigError
from securebench.gateway import proxy, targets
from securebench.gateway.dial import Dialer, Endpoint
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.targets import Target
from support.gateways import PUBLIC, client_hello
from threats.network.loopback_gateway import LISTED, connect, get, status, way

pytestmark = pytest.mark.short
HELLO = client_hello(LISTED)

# addresses in place of names

LITERALS = {
    "v4": f"{PUBLIC}:443",
    "v4 without a port": PUBLIC,
    "v4 with a dot": f"{PUBLIC}.:443",
    "v6": "[2606:4700::1111]:443",
    "v6 without brackets": "2606:4700::1111",
    "zone": "[fe80::1%eth0]:443",
    "escaped zone": "[fe80::1%25eth0]:443",
    "mapped": "[::ffff:192.31.196.10]:443",
    "one number": "3223307274:443",
    "hexadecimal": "0xc01fc40a:443",
    "octal": "0300.037.0304.012:443",
    "short": "192.2081802:443",
}
LITERAL_DOMAINS = (LISTED, PUBLIC, "3223307274", "0xc01fc40a")
"""What no tester can list; the gateway does not rely on it."""


@pytest.mark.parametrize("literal", LITERALS)
async def test_a_130_attack(tmp_path: Path, literal: str) -> None:
    async with way(tmp_path, domains=LITERAL_DOMAINS) as out:
        answer = await out.say(connect(LITERALS[literal]) + HELLO)

        assert status(answer) == 403
        assert (out.origin.asked, out.origin.dialled) == ([], [])
        assert [line["reason"] for line in await out.log()] == ["address_literal"]


async def test_a_130_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_is_literal", lambda _: False)
    monkeypatch.setattr(targets, "_ends_in_number", lambda _: False)
    async with way(tmp_path, {PUBLIC: [PUBLIC]}, LITERAL_DOMAINS) as out:
        answer = await out.say(connect(f"{PUBLIC}:443") + HELLO)

        assert status(answer) == 200
        assert out.origin.dialled == [(PUBLIC, 443)]


async def test_a_130_honest(tmp_path: Path) -> None:
    async with way(tmp_path) as out:
        assert status(await out.say(connect(f"{LISTED}:443") + HELLO)) == 200
        assert out.sent() == HELLO


# what a name resolves to

NOT_PUBLIC = {
    "pod": "10.244.0.7",
    "service": "10.96.0.1",
    "node": "172.29.0.2",
    "metadata": "169.254.169.254",
    "loopback": "127.0.0.1",
    "mapped": "::ffff:10.96.0.1",
    "translated": "64:ff9b::a9fe:a9fe",
    "test net": "198.51.100.1",
    "local v6": "fd00::1",
}


class Changing:
    """A zone that answers with something else every time."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, _: str) -> list[str]:
        self.asked += 1
        return [self.answers[(self.asked - 1) % len(self.answers)]]


REQUESTS: Mapping[str, bytes] = {
    "tunnel": connect(f"{LISTED}:443") + HELLO,
    "plain": get(f"http://{LISTED}/"),
}


@pytest.mark.parametrize("kind", NOT_PUBLIC)
@pytest.mark.parametrize("form", REQUESTS)
async def test_a_133_attack(tmp_path: Path, form: str, kind: str) -> None:
    for answers in ([NOT_PUBLIC[kind]], [PUBLIC, NOT_PUBLIC[kind]], [NOT_PUBLIC[kind], PUBLIC]):
        async with way(tmp_path, {LISTED: answers}) as out:
            assert status(await out.say(REQUESTS[form])) == 403
            assert out.origin.dialled == []
            assert {line["reason"] for line in await out.log()} == {"address_not_public"}


@pytest.mark.parametrize("form", REQUESTS)
async def test_a_133_attack_by_a_changing_zone(tmp_path: Path, form: str) -> None:
    zone = Changing(PUBLIC, NOT_PUBLIC["metadata"])
    async with way(tmp_path, zone=zone) as out:
        statuses = [status(await out.say(REQUESTS[form])) for _ in range(4)]
        assert statuses == [200, 403, 200, 403]
        assert {address for address, _ in out.origin.dialled} == {PUBLIC}


async def test_a_133_attack_by_a_change_between_check_and_dial() -> None:
    zone, dialled = Changing(PUBLIC, NOT_PUBLIC["metadata"]), []
    dialer = Dialer(2, zone, recording(dialled))

    await dialer.dial(lookups(), LISTED, 443, None)

    assert (zone.asked, dialled) == (1, [PUBLIC])


async def test_a_133_twin_of_the_dial() -> None:
    """Who checks the answer and then connects by name asks the zone twice."""
    zone, dialled = Changing(PUBLIC, NOT_PUBLIC["metadata"]), []

    async def by_name(place: Endpoint) -> None:
        dialled.extend(await zone(place.host))

    await Dialer(2, zone, by_name).dial(lookups(), LISTED, 443, None)

    assert dialled == [NOT_PUBLIC["metadata"]]


def lookups() -> asyncio.Semaphore:
    return asyncio.Semaphore(1)


def recording(dialled: list[str]) -> Callable[[Endpoint], object]:
    async def connect_to(place: Endpoint) -> None:
        dialled.append(place.address)

    return connect_to


@pytest.mark.parametrize("form", REQUESTS)
async def test_a_133_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(Dialer.dial, "__defaults__", (lambda _: True,))
    async with way(tmp_path, {LISTED: [NOT_PUBLIC["metadata"]]}) as out:
        assert status(await out.say(REQUESTS[form])) == 200
        assert [address for address, _ in out.origin.dialled] == [NOT_PUBLIC["metadata"]]


@pytest.mark.parametrize("form", REQUESTS)
async def test_a_133_honest(tmp_path: Path, form: str) -> None:
    async with way(tmp_path, {LISTED: [PUBLIC, "2606:4700::1111"]}) as out:
        assert status(await out.say(REQUESTS[form])) == 200
        assert [address for address, _ in out.origin.dialled] == [PUBLIC]


# spellings

SPELLINGS: Mapping[str, int] = {
    "docs.dev:443": 200,
    "DOCS.DEV:443": 200,
    "Docs.Dev.:443": 200,
    "docs.dev": 200,
    "docs.dev:00443": 200,
    "docs.dev..:443": 400,
    ".docs.dev:443": 400,
    "docs..dev:443": 400,
    "docs.dev%2e:443": 400,
    "docs%2edev:443": 400,
    "docs.dev%00.evil.example:443": 400,
    "docs.dev\x00.evil.example:443": 400,
    "docs.dev\t:443": 400,
    "docs.dev@evil.example:443": 400,
    "evil.example@docs.dev:443": 400,
    "evil.example#.docs.dev:443": 400,
    "evil.example/.docs.dev:443": 400,
    "evil.example\\.docs.dev:443": 400,
    "evil.example?.docs.dev:443": 400,
    "evil.example;.docs.dev:443": 400,
    "evil.example:443:docs.dev:443": 400,
    "[docs.dev]:443": 400,
    "d\xf6cs.dev:443": 400,
    "*.docs.dev:443": 400,
    "docs.dev:https": 400,
    "docs.dev:": 400,
    "xn--docs-.dev:443": 400,
    "xn--dcs-sna.dev:443": 403,
    "evil.example:443": 403,
    "EVIL.example.:443": 403,
    "docs.dev.evil.example:443": 403,
    "mydocs.dev:443": 403,
}


@pytest.mark.parametrize("text", [text for text, want in SPELLINGS.items() if want != 200])
async def test_a_135_attack(tmp_path: Path, text: str) -> None:
    async with way(tmp_path) as out:
        answer = await out.say(connect(text) + HELLO)

        assert status(answer) == SPELLINGS[text]
        assert (out.origin.asked, out.origin.dialled) == ([], [])


def naive_target(text: str) -> Target:
    """A gateway that cuts the port off and takes the rest as it stands."""
    return Target(text.rpartition(":")[0].lower(), 443)


NAIVE = (
    "evil.example#.docs.dev:443",
    "evil.example/.docs.dev:443",
    "evil.example;.docs.dev:443",
    "*.docs.dev:443",
)


@pytest.mark.parametrize("text", NAIVE)
async def test_a_135_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(proxy, "connect_target", naive_target)
    async with way(tmp_path) as out:
        assert status(await out.say(connect(text) + HELLO)) == 200
        assert out.origin.asked == [text.removesuffix(":443")]


@pytest.mark.parametrize("text", [text for text, want in SPELLINGS.items() if want == 200])
async def test_a_135_honest(tmp_path: Path, text: str) -> None:
    async with way(tmp_path) as out:
        assert status(await out.say(connect(text) + HELLO)) == 200
        assert out.origin.asked == [LISTED]
        assert out.sent() == HELLO


# patterns

DECISIONS = {
    "docs.dev": True,
    "api.docs.dev": True,
    "a.b.docs.dev": True,
    "mydocs.dev": False,
    "my-docs.dev": False,
    "docs-dev": False,
    "docs.dev.evil.example": False,
    "docs.devil": False,
    "docs.de": False,
    "ocs.dev": False,
    "dev": False,
    "docs": False,
    "docs.dev.dev": False,
    "docsxdev": False,
    "evil.example": False,
}
BAD_PATTERNS = (
    *("*", "*.docs.dev", "docs.*", "dev", "localhost", "a.localhost", "", " ", ".dev"),
    *("http://docs.dev", "docs.dev/", "docs.dev:443", "127.0.0.1", "[::1]", "::1", "0x7f.1"),
    *("-a.dev", "a-.dev", "a..dev", "docs_.dev", "d\xf6cs.dev", "a" * 64 + ".dev", "a b.dev"),
)


def suffix_only(_: RunGateway, host: str) -> bool:
    return host.endswith(LISTED)


async def asked(folder: Path) -> list[str]:
    """Return the names of the table that the gateway looks up."""
    async with way(folder) as out:
        for name in DECISIONS:
            await out.say(connect(f"{name}:443") + HELLO)
        return list(out.origin.asked)


async def test_a_136_attack(tmp_path: Path) -> None:
    assert await asked(tmp_path) == [name for name, want in DECISIONS.items() if want]
    assert {name: is_listed(name, (LISTED,)) for name in DECISIONS} == DECISIONS


async def test_a_136_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunGateway, "is_listed", suffix_only)

    assert {"mydocs.dev", "my-docs.dev"} <= set(await asked(tmp_path))


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_a_136_attack_by_a_pattern(pattern: str) -> None:
    with pytest.raises(ConfigError, match="allowed_domains"):
        normalize_domains([pattern])


def test_a_136_twin_of_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "domain_problem", lambda _: None)

    assert len(normalize_domains(BAD_PATTERNS)) > len(BAD_PATTERNS) // 2


async def test_a_136_honest(tmp_path: Path) -> None:
    assert normalize_domains(["Docs.Dev.", "docs.dev", "a.example"]) == ("docs.dev", "a.example")
    async with way(tmp_path, domains=normalize_domains([" DOCS.dev. "])) as out:
        assert status(await out.say(REQUESTS["plain"])) == 200
