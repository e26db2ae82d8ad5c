"""F9: who can speak for a registry of packs whose certificate authority is its owner's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from securebench.controller import packs
from securebench.controller.context import Context
from securebench.controller.packs import fetch_pack
from securebench.controller.settings import PackRegistries
from securebench.errors import RegistryUnavailableError
from securebench.oci.access import RegistryAccess
from securebench.run.api.models import Pack
from support.build import FakeClock, context_of
from support.certificates import Authority, new_authority
from support.fake_cluster import FakeCluster
from support.pack_registry import PackServer, pack_server
from support.pack_registry import pack_image as image_of

pytestmark = pytest.mark.short


# the authority of one registry speaks for another


@pytest.fixture(scope="module")
def ours() -> Authority:
    return new_authority("ours")


@pytest.fixture(scope="module")
def neighbours() -> Authority:
    """The authority of another registry that the administrator lists."""
    return new_authority("the neighbours'")


@pytest.fixture
def impostor(tmp_path: Path, neighbours: Authority) -> Iterator[PackServer]:
    """A server at the place of our registry; the neighbours gave it a certificate of its name."""
    with pack_server(neighbours.server_context(tmp_path / "impostor.pem", ["127.0.0.1"])) as opened:
        yield opened


@pytest.fixture
def honest(tmp_path: Path, ours: Authority) -> Iterator[PackServer]:
    with pack_server(ours.server_context(tmp_path / "honest.pem", ["127.0.0.1"])) as opened:
        yield opened


def operator(root: Path, server: PackServer, ours: Authority, neighbours: Authority) -> Context:
    listed = [
        {"host": server.host, "certificateAuthority": ours.pem},
        {"host": "packs.neighbours.example", "certificateAuthority": neighbours.pem},
    ]
    root.mkdir(exist_ok=True)
    return context_of(FakeCluster(), FakeClock(), root, pack_registries={"registries": listed})


def offered(folder: Path, server: PackServer) -> Pack:
    (folder / "pack").mkdir()
    return Pack(image=server.put(image_of(folder / "pack", "a")))


async def test_a_406_attack(
    tmp_path: Path, impostor: PackServer, ours: Authority, neighbours: Authority
) -> None:
    pack = offered(tmp_path, impostor)
    with pytest.raises(RegistryUnavailableError, match="from an authority that is not trusted"):
        await fetch_pack(operator(tmp_path / "volume", impostor, ours, neighbours), pack)

    assert impostor.asked == []


async def test_a_406_twin(
    tmp_path: Path,
    impostor: PackServer,
    ours: Authority,
    neighbours: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weakened: all authorities are in one bundle, as of a process that has one trust store."""
    real = packs._accesses

    def in_one_bundle(registries: PackRegistries) -> list[RegistryAccess]:
        bundle = "".join(each.certificate_authority for each in registries.registries)
        listed = [
            each.model_copy(update={"certificate_authority": bundle})
            for each in registries.registries
        ]
        return real(registries.model_copy(update={"registries": tuple(listed)}))

    monkeypatch.setattr(packs, "_accesses", in_one_bundle)

    await fetch_pack(
        operator(tmp_path / "volume", impostor, ours, neighbours), offered(tmp_path, impostor)
    )

    assert impostor.asked != []


async def test_a_406_honest(
    tmp_path: Path, honest: PackServer, ours: Authority, neighbours: Authority
) -> None:
    await fetch_pack(
        operator(tmp_path / "volume", honest, ours, neighbours), offered(tmp_path, honest)
    )

    assert honest.asked != []
