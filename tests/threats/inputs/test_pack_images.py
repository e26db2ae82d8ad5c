"""F9: what a registry, or who names one, can do to the operator and to a pack."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from securebench.agents.providers.endpoint import is_listed
from securebench.benchmark.files.bundle import BundleReceipt
from securebench.controller import packs
from securebench.controller.context import Context
from securebench.controller.packs import IMAGES, fetch_pack, freeze, refuse_registry_domains
from securebench.errors import PackError, RegistryUnavailableError, SpecError
from securebench.oci import pack_image, registry
from securebench.oci.access import RegistryAccess
from securebench.oci.artifact import Descriptor
from securebench.oci.registry import Registry
from securebench.run.api.models import BenchmarkRunSpec, Pack
from support.build import FakeClock, context_of, run_body, settings_of
from support.fake_cluster import FakeCluster
from support.pack_registry import (
    Answer,
    PackImage,
    PackServer,
    blob_path,
    create_secret,
    image_with,
    pack_server,
    settings_for,
)
from support.pack_registry import (
    pack_image as image_of,
)

pytestmark = pytest.mark.short


@pytest.fixture
def server() -> Iterator[PackServer]:
    with pack_server() as opened:
        yield opened


@pytest.fixture
def inside() -> Iterator[PackServer]:
    """A server that the administrator did not list."""
    with pack_server() as opened:
        yield opened


@pytest.fixture
def image(tmp_path: Path) -> PackImage:
    (tmp_path / "honest").mkdir()
    return image_of(tmp_path / "honest", "a", "b")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def operator(root: Path, *servers: PackServer, **changes: object) -> Context:
    clock = FakeClock()
    cluster = FakeCluster(namespace="bench", clock=clock)
    return context_of(cluster, clock, root, **{**settings_for(*servers), **changes})


async def pulled_tasks(context: Context, reference: str) -> str:
    """Pull and freeze as a new run does, and return the task file."""
    pack = Pack(image=reference)
    source = await fetch_pack(context, pack)
    return freeze(context.settings.data_root, pack, source).tasks.read_text(encoding="utf-8")


def kept(root: Path) -> list[str]:
    return [path.name for path in (root / IMAGES).iterdir()] if (root / IMAGES).exists() else []


def found(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name))


# other content than its digest says


@pytest.fixture
def other(tmp_path: Path) -> PackImage:
    (tmp_path / "other").mkdir()
    return image_of(tmp_path / "other", "evil")


async def test_a_400_attack_on_the_manifest(
    server: PackServer, image: PackImage, other: PackImage, root: Path
) -> None:
    server.put(other)
    reference = server.put(image)
    server.answers[image.manifest_path] = Answer(other.manifest)

    with pytest.raises(PackError, match="sent another manifest than sha256:"):
        await pulled_tasks(operator(root, server), reference)

    assert kept(root) == []


async def test_a_400_attack_on_a_layer(server: PackServer, image: PackImage, root: Path) -> None:
    reference = server.put(image)
    for digest, content in image.layers.items():
        server.answers[blob_path(digest)] = Answer(content.replace(b'"a"', b'"c"'))

    with pytest.raises(PackError, match="sent other content than layer sha256:"):
        await pulled_tasks(operator(root, server), reference)

    assert kept(root) == []


async def test_a_400_attack_on_a_kept_image(
    server: PackServer, image: PackImage, root: Path
) -> None:
    context, reference = operator(root, server), server.put(image)
    await pulled_tasks(context, reference)
    (folder,) = (root / IMAGES).iterdir()
    tasks = folder / "pack" / "tasks.jsonl"
    honest = tasks.read_text(encoding="utf-8")
    tasks.write_text("{}", encoding="utf-8")

    assert await pulled_tasks(context, reference) == honest


async def test_a_400_twin(
    server: PackServer,
    image: PackImage,
    other: PackImage,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.put(other)
    reference = server.put(image)
    server.answers[image.manifest_path] = Answer(other.manifest)
    monkeypatch.setattr(registry, "content_digest", lambda _: image.digest)

    assert '"evil"' in await pulled_tasks(operator(root, server), reference)


async def test_a_400_honest(server: PackServer, image: PackImage, root: Path) -> None:
    context, reference = operator(root, server), server.put(image)

    assert '"a"' in await pulled_tasks(context, reference)
    asked = len(server.asked)
    assert '"a"' in await pulled_tasks(context, reference)
    assert len(server.asked) == asked


# half a layer


def cut_short(image: PackImage, server: PackServer) -> None:
    """Cut the hidden layer off behind its first file, where no reader of tars finds fault."""
    (_, _), (digest, content) = image.layers.items()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        second = archive.getmembers()[1]
    server.answers[blob_path(digest)] = Answer(content[: second.offset])


@pytest.fixture
def long_image(image: PackImage) -> PackImage:
    """An image whose hidden layer has two files."""
    return image_with(image, tar({"tasks.jsonl": b"{}\n", "zz": b"z"}))


@pytest.mark.parametrize("length", [None, 10_000_000])
async def test_a_401_attack(
    server: PackServer, long_image: PackImage, root: Path, length: int | None
) -> None:
    reference = server.put(long_image)
    cut_short(long_image, server)
    (_, _), (digest, content) = long_image.layers.items()
    server.answers[blob_path(digest)] = server.answers[blob_path(digest)]._replace(length=length)

    with pytest.raises(RegistryUnavailableError):
        await pulled_tasks(operator(root, server), reference)

    assert kept(root) == []
    server.answers[blob_path(digest)] = Answer(content)
    assert await pulled_tasks(operator(root, server), reference) == "{}\n"


async def test_a_401_twin(
    server: PackServer, long_image: PackImage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trusting(self: Registry, blob: Descriptor, target: Path) -> None:
        request = registry._Request("GET", self._base / "blobs" / blob.digest)
        async with self._ask(request) as response:
            await asyncio.to_thread(target.write_bytes, await response.read())

    reference = server.put(long_image)
    cut_short(long_image, server)
    monkeypatch.setattr(Registry, "fetch", trusting)

    assert await pulled_tasks(operator(root, server), reference) == "{}\n"
    assert found(root / IMAGES, "zz") == []


async def test_a_401_honest(server: PackServer, long_image: PackImage, root: Path) -> None:
    await pulled_tasks(operator(root, server), server.put(long_image))

    assert len(found(root / IMAGES, "zz")) == 1


# archives that reach out, or fill the volume


def tar(files: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return buffer.getvalue()


def special(kind: bytes, name: str = "x", target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def twice(name: str) -> bytes:
    return tar({name: b"1"})[: 2 * tarfile.BLOCKSIZE] + tar({name: b"2"})


ROWS = {"tasks.jsonl": b"{}\n"}
TRICKS: dict[str, bytes] = {
    "absolute": tar({**ROWS, "/tmp/absolute": b"x"}),
    "upwards": tar({**ROWS, "../../../../../upwards": b"x"}),
    "inner dots": tar({**ROWS, "a/../../x": b"x"}),
    "symlink": tar(ROWS, special(tarfile.SYMTYPE, target="/etc/passwd")),
    "hard link": tar(ROWS, special(tarfile.LNKTYPE, target="tasks.jsonl")),
    "device": tar(ROWS, special(tarfile.CHRTYPE)),
    "FIFO": tar(ROWS, special(tarfile.FIFOTYPE)),
    "sparse": tar(ROWS, special(tarfile.GNUTYPE_SPARSE)),
    "twice": twice("tasks.jsonl"),
    "below a file": tar({**ROWS, "tasks.jsonl/x": b"x"}),
    "of the public layer": tar({**ROWS, "manifest.yaml": b"id: evil"}),
    "below one of the public layer": tar({**ROWS, "manifest.yaml/x": b"x"}),
    "backslash": tar({**ROWS, "a\\b": b"x"}),
    "no archive": b"\x1f\x8b" * 512,
    "many files": tar({f"f{number}": b"" for number in range(60)}),
    "large": tar({"large": b"0" * 20_000}),
}
SMALL = {"bounds": {"packFiles": 50, "packBytes": 10_000}}


@pytest.mark.parametrize("name", TRICKS)
async def test_a_402_attack(
    server: PackServer, image: PackImage, root: Path, tmp_path: Path, name: str
) -> None:
    reference = server.put(image_with(image, TRICKS[name]))

    with pytest.raises(PackError, match=f"image {reference}"):
        await pulled_tasks(operator(root, server, **SMALL), reference)

    assert kept(root) == []
    assert found(tmp_path, "upwards") == []


async def test_a_402_attack_by_size(server: PackServer, image: PackImage, root: Path) -> None:
    reference = server.put(image_with(image, TRICKS["large"], size_bytes=10**12))

    with pytest.raises(PackError, match="has 1000000"):
        await pulled_tasks(operator(root, server), reference)

    assert not [asked for asked in server.asked if "blobs" in asked.path]


async def test_a_402_attack_by_a_layer_without_end(
    server: PackServer, image: PackImage, root: Path
) -> None:
    reference = server.put(image)
    for digest, content in image.layers.items():
        server.answers[blob_path(digest)] = Answer(content + b"0" * 50_000_000)

    with pytest.raises(PackError, match="sent other content than layer"):
        await pulled_tasks(operator(root, server), reference)


async def test_a_402_twin(
    server: PackServer, image: PackImage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def naive(source: io.BufferedReader, folder: Path, _: object) -> BundleReceipt:
        with tarfile.open(fileobj=source) as archive:
            archive.extractall(folder, filter="fully_trusted")  # noqa: S202 - the twin
        return BundleReceipt("", 0, 0)

    monkeypatch.setattr(pack_image, "unpack_bundle", naive)
    reference = server.put(image_with(image, TRICKS["upwards"]))

    await pulled_tasks(operator(root, server), reference)

    assert found(root, "upwards") == [root / "packs" / "upwards"]


async def test_a_402_honest(server: PackServer, image: PackImage, root: Path) -> None:
    reference = server.put(image_with(image, tar({**ROWS, "hidden/deep/x": b"x"})))

    assert await pulled_tasks(operator(root, server, **SMALL), reference) == "{}\n"


# a request to an address that the administrator did not list


def registry_elsewhere(server: PackServer, inside: PackServer, image: PackImage) -> str:
    server.put(image)
    return inside.put(image)


def redirect(server: PackServer, inside: PackServer, image: PackImage) -> str:
    inside.put(image)
    reference = server.put(image)
    place = f"http://{inside.host}{image.manifest_path}"
    server.answers[image.manifest_path] = Answer(
        status=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": place}
    )
    return reference


def token_service(server: PackServer, inside: PackServer, image: PackImage) -> str:
    inside.answers["/token?service=s"] = Answer(b'{"token": "t"}')
    reference = server.put(image)
    challenge = f'Bearer realm="http://{inside.host}/token",service="s"'
    server.answers[image.manifest_path] = Answer(
        status=HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": challenge}
    )
    return reference


WAYS: dict[str, Callable[[PackServer, PackServer, PackImage], str]] = {
    "by the reference": registry_elsewhere,
    "by a redirect": redirect,
    "by a token service": token_service,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_403_attack(
    server: PackServer, inside: PackServer, image: PackImage, root: Path, way: str
) -> None:
    reference = WAYS[way](server, inside, image)

    with pytest.raises(PackError, match=r"settings\.packRegistries"):
        await pulled_tasks(operator(root, server), reference)

    assert inside.asked == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_403_twin(
    server: PackServer,
    inside: PackServer,
    image: PackImage,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    reference = WAYS[way](server, inside, image)
    monkeypatch.setattr(RegistryAccess, "allows_redirect_to", lambda *_: True)
    anything = lambda found, _: RegistryAccess(found.host, plain_http=True)  # noqa: E731
    monkeypatch.setattr(packs, "listed_access", anything)

    try:
        await pulled_tasks(operator(root, server), reference)
    except PackError as error:
        assert "answers 401" in str(error)  # noqa: PT017 - the server wants a token for ever

    assert inside.asked != []


BASIC = "Basic " + base64.b64encode(b"operator:right").decode()


async def led_to_a_challenge(server: PackServer, inside: PackServer, image: PackImage) -> str:
    """Offer a listed host behind a redirect, which asks for credentials itself."""
    reference = redirect(server, inside, image)
    challenge = f'Bearer realm="http://{inside.host}/token",service="s"'
    inside.answers[image.manifest_path] = Answer(
        status=HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": challenge}
    )
    inside.answers["/token?service=s"] = Answer(b'{"token": "t"}')
    return reference


async def asks_with_credentials(
    root: Path, server: PackServer, inside: PackServer, reference: str
) -> None:
    listed = {"host": server.host, "plainHttp": True, "otherHosts": [inside.host]}
    context = operator(root, pack_registries={"registries": [listed], "secret": "packs"})
    await create_secret(context.cluster, server)
    with pytest.raises(PackError, match="answers 401"):
        await pulled_tasks(context, reference)


async def test_a_403_attack_behind_a_redirect(
    server: PackServer, inside: PackServer, image: PackImage, root: Path
) -> None:
    reference = await led_to_a_challenge(server, inside, image)

    await asks_with_credentials(root, server, inside, reference)

    assert [item.authorization for item in inside.asked] == [""]


async def test_a_403_twin_behind_a_redirect(
    server: PackServer,
    inside: PackServer,
    image: PackImage,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = await led_to_a_challenge(server, inside, image)
    monkeypatch.setattr(Registry, "_is_own", lambda *_: True)

    await asks_with_credentials(root, server, inside, reference)

    assert BASIC in [item.authorization for item in inside.asked]


async def test_a_403_honest(
    server: PackServer, inside: PackServer, image: PackImage, root: Path
) -> None:
    reference = redirect(server, inside, image)
    listed = {"host": server.host, "plainHttp": True, "otherHosts": [inside.host]}
    context = operator(root, pack_registries={"registries": [listed]})

    assert '"a"' in await pulled_tasks(context, reference)


# an agent that pulls the answers itself


def asking_for(*domains: str) -> BenchmarkRunSpec:
    harness = {"type": "command", "config": {"command": "x", "allowed_domains": [*domains]}}
    return BenchmarkRunSpec.parse(run_body(harness=harness)["spec"])


LISTED = {"registries": [{"host": "packs.example.org:5000", "otherHosts": ["blobs.example.net"]}]}


@pytest.mark.parametrize("domain", ["packs.example.org", "example.org", "example.net"])
def test_a_404_attack(root: Path, domain: str) -> None:
    settings = settings_of(root, pack_registries=LISTED)

    with pytest.raises(SpecError, match=r"allowed_domains leads to .*, a registry of packs"):
        refuse_registry_domains(settings, asking_for("docs.dev", domain))


def test_a_404_twin(root: Path) -> None:
    refuse_registry_domains(settings_of(root), asking_for("example.org"))

    assert is_listed("packs.example.org", ("example.org",))


def test_a_404_honest(root: Path) -> None:
    settings = settings_of(root, pack_registries=LISTED)

    refuse_registry_domains(settings, asking_for("docs.dev", "example.com"))
