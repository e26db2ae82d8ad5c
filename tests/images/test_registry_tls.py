"""Packs in a real registry whose certificate is from an authority of its owner."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from images.test_packs import FILES, printed, told
from securebench.controller.packs import fetch_pack, freeze
from securebench.errors import RegistryUnavailableError
from securebench.run.api.models import Pack
from support.build import FakeClock, context_of
from support.certificates import Authority, new_authority
from support.fake_cluster import FakeCluster
from support.registry import registry

CA_FILE = "name a file with the authority's certificate, in PEM, with --ca-file or in the"
CA_VALUE = "puts the authority's certificate, in PEM, into certificateAuthority of this registry"


class Owned(NamedTuple):
    """A registry, and the file with the authority of its owner."""

    host: str
    ca_file: Path

    @property
    def pem(self) -> str:
        return self.ca_file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Owned]:
    folder = tmp_path_factory.mktemp("registry")
    ca_file = folder / "ca.crt"
    ca_file.write_text(f"# Autorité de la société\n{authority.pem}", encoding="utf-8")
    certificate = authority.issue(folder / "server.pem", ["127.0.0.1"])
    with registry(folder, certificate=certificate) as host:
        yield Owned(host, ca_file)


@pytest.fixture(scope="module")
def pushed(owned: Owned) -> str:
    """A reference to a pack that the command line pushed."""
    words = ("push", "--ca-file", str(owned.ca_file), "--image", f"{owned.host}/a/b:1", *FILES)
    return told("image", printed(*words))


def test_the_command_line_trusts_the_authority_that_it_is_given(
    owned: Owned, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed("pull", pushed, str(tmp_path / "by-flag"), "--ca-file", str(owned.ca_file))
    monkeypatch.setenv("SSL_CERT_FILE", str(owned.ca_file))
    printed("pull", pushed, str(tmp_path / "by-variable"))
    for folder in ("by-flag", "by-variable"):
        assert (tmp_path / folder / "tasks.jsonl").exists()


def pulled(root: Path, image: str, **listed: object) -> str:
    """Pull as the operator does for a run, and return the pack's digest."""
    registries = {"registries": [{"host": image.partition("/")[0], **listed}]}
    context = context_of(FakeCluster(), FakeClock(), root, pack_registries=registries)
    source = asyncio.run(fetch_pack(context, Pack(image=image)))
    return freeze(root, Pack(image=image), source).digest


def test_the_operator_trusts_the_authority_that_its_chart_names(
    owned: Owned, pushed: str, tmp_path: Path
) -> None:
    folder = tmp_path / "by-the-command-line"
    want = told("digest", printed("pull", pushed, str(folder), "--ca-file", str(owned.ca_file)))
    assert pulled(tmp_path / "volume", pushed, certificateAuthority=owned.pem) == want


def refused(folder: Path, image: str, ca_file: Path | None) -> tuple[str, str]:
    """Return what the command line and the operator say."""
    words = () if ca_file is None else ("--ca-file", str(ca_file))
    line = printed("pull", image, str(folder / "pack"), *words, code=1)
    text = "" if ca_file is None else ca_file.read_bytes().decode(errors="replace")
    with pytest.raises(RegistryUnavailableError) as raised:
        pulled(folder / "volume", image, certificateAuthority=text)
    assert not (folder / "pack").exists()
    said = str(raised.value)
    assert "\n" not in said
    return line, said


@pytest.mark.parametrize("given", ["none", "another"])
def test_an_unknown_authority_is_said_with_what_to_set(
    pushed: str, tmp_path: Path, given: str
) -> None:
    (tmp_path / "another.crt").write_text(new_authority("another").pem, encoding="ascii")
    ca_file = None if given == "none" else tmp_path / "another.crt"
    host = pushed.partition("/")[0]
    told_to_user, told_to_author = refused(tmp_path, pushed, ca_file)
    for said in (told_to_user, told_to_author):
        assert f"registry {host}: its certificate is from an authority that is not trusted" in said
    assert CA_FILE in told_to_user
    assert CA_VALUE in told_to_author


@pytest.mark.parametrize("content", [b"\x30\x82\x01\x0a\xff", b"-----BEGIN CERTIFICATE-----\nAA"])
def test_an_authority_that_is_none_is_said(pushed: str, tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.crt"
    broken.write_bytes(content)
    told_to_user, told_to_author = refused(tmp_path, pushed, broken)
    for said in (told_to_user, told_to_author):
        assert "the certificate authority that is given for it is no certificate in PEM" in said
    assert CA_FILE in told_to_user
    assert CA_VALUE in told_to_author


def test_a_file_that_is_not_there(pushed: str, tmp_path: Path) -> None:
    absent = tmp_path / "absent.crt"
    line = printed("pull", pushed, str(tmp_path / "pack"), "--ca-file", str(absent), code=1)
    assert f"error: {absent}: No such file or directory" in line


class Wrong(NamedTuple):
    names: tuple[str, ...] = ("127.0.0.1",)
    life: dt.timedelta = dt.timedelta(days=1)


WRONG = {
    "its certificate is for another name (ip address mismatch, certificate is not valid for"
    " '127.0.0.1'); name the registry as its certificate does": Wrong(("127.0.0.2", "packs.test")),
    "its certificate has expired; renew it on the registry": Wrong(life=dt.timedelta(days=-1)),
}


@pytest.mark.parametrize("want", WRONG)
def test_a_wrong_certificate_is_said(authority: Authority, tmp_path: Path, want: str) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(authority.pem, encoding="ascii")
    certificate = authority.issue(tmp_path / "server.pem", *WRONG[want])
    image = f"a/b@sha256:{'a' * 64}"
    with registry(tmp_path, certificate=certificate) as host:
        for said in refused(tmp_path, f"{host}/{image}", ca_file):
            assert f"registry {host}: {want}" in said


def test_a_registry_without_tls_is_said(host: str, tmp_path: Path) -> None:
    told_to_user, told_to_author = refused(tmp_path, f"{host}/a/b@sha256:{'a' * 64}", None)
    for said in (told_to_user, told_to_author):
        assert f"registry {host}: TLS fails: wrong version number; " in said
    assert "a registry without TLS needs --plain-http" in told_to_user
    assert "sets plainHttp in the chart's settings.packRegistries" in told_to_author


def test_a_registry_with_tls_that_is_asked_without_is_said(pushed: str, tmp_path: Path) -> None:
    line = printed("pull", pushed, str(tmp_path / "pack"), "--plain-http", code=1)
    assert "the registry answers 400, which is no answer to this request without TLS" in line
