"""Packs as OCI artifacts in a real registry: pushed, read by other tools, pulled, and run from."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.cluster.port import ObjectKind
from securebench.controller.packs import PackSource, fetch_pack, freeze
from securebench.errors import PackError
from securebench.oci.artifact import ARTIFACT_TYPE, HIDDEN_LAYER, PUBLIC_LAYER
from securebench.run.api.models import Pack
from support.build import FakeClock, context_of
from support.fake_cluster import FakeCluster
from support.pack_registry import docker_config
from support.registry import HTPASSWD, PASSWORD, USER, registry
from support.release import call

PACK = Path(__file__).parents[2] / "benchmarks" / "terminal-task-smoke"
FILES = ("--manifest", str(PACK / "manifest.yaml"), "--tasks", str(PACK / "tasks.jsonl"))


def printed(*words: str, code: int = 0) -> str:
    """Run ``securebench pack`` and return what it prints."""
    result = CliRunner().invoke(app, ["pack", *words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def told(name: str, text: str) -> str:
    """Return a value of a line such as ``pack a image=b digest=c``."""
    (found,) = re.findall(rf" {name}=(\S+)", text)
    return str(found)


@pytest.fixture(scope="module")
def pack_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the same pack from a folder."""
    return told("digest", printed("build", str(tmp_path_factory.mktemp("b") / "layout"), *FILES))


def test_a_pack_goes_there_and_back(host: str, tmp_path: Path, pack_digest: str) -> None:
    pushed = printed("push", "--plain-http", "--image", f"{host}/team/terminal:1", *FILES)
    image = told("image", pushed)
    assert image.startswith(f"{host}/team/terminal:1@sha256:")
    again = printed("push", "--plain-http", "--image", f"{host}/team/terminal:2", *FILES)
    assert told("image", again).partition("@")[2] == image.partition("@")[2]

    for number, reference in enumerate((image, f"{host}/team/terminal:1")):
        folder = tmp_path / f"pulled-{number}"
        pulled = printed("pull", reference, str(folder), "--plain-http")
        assert told("image", pulled) == image.partition("@")[2]
        assert told("digest", pushed) == told("digest", pulled) == pack_digest
        assert (folder / "tasks.jsonl").read_bytes() == (PACK / "tasks.jsonl").read_bytes()


def test_other_tools_read_it_and_push_the_same(
    host: str, oras: str, crane: str, tmp_path: Path
) -> None:
    pushed = told("image", printed("push", "--plain-http", "--image", f"{host}/a/b:1", *FILES))
    manifest = json.loads(call(crane, "manifest", pushed))
    assert manifest["artifactType"] == ARTIFACT_TYPE
    assert [layer["mediaType"] for layer in manifest["layers"]] == [PUBLIC_LAYER, HIDDEN_LAYER]
    layout = tmp_path / "layout"
    built = told("image", printed("build", str(layout), *FILES))
    assert pushed.endswith(built)

    call(
        oras, "cp", "--from-oci-layout", f"{layout}@{built}", "--to-plain-http", f"{host}/c/d:1"
    )  # fmt: skip

    assert call(crane, "digest", f"{host}/c/d:1").decode().strip() == built


def test_what_is_wrong_is_said_in_one_line(host: str, tmp_path: Path) -> None:
    absent = printed("pull", f"{host}/team/absent:1", str(tmp_path / "a"), "--plain-http", code=1)
    assert "the registry has no such content (404)" in absent
    assert "names no image" in printed("pull", "Absent", str(tmp_path / "a"), code=1)
    assert "name a tag or a digest" in printed("pull", f"{host}/a", str(tmp_path / "a"), code=1)
    assert "name a new folder" in printed("pull", f"{host}/a:1", str(tmp_path), code=1)
    digest = "sha256:" + "a" * 64
    pinned = printed("push", "--image", f"{host}/a@{digest}", *FILES, code=1)
    assert "the pack decides its digest" in pinned
    nobody = printed("push", "--plain-http", "--image", "127.0.0.1:1/a:1", *FILES, code=1)
    assert "registry 127.0.0.1:1: no connection: connection refused" in nobody
    assert list(tmp_path.glob("a*")) == []


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A registry that asks for credentials, which the command line has."""
    passwords = tmp_path / "htpasswd"
    passwords.write_text(HTPASSWD + "\n", encoding="utf-8")
    (tmp_path / "docker").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with registry(tmp_path, {"htpasswd": {"realm": "here", "path": str(passwords)}}) as host:
        yield host


def test_without_the_right_credentials_nothing_is_pushed(guarded: str, tmp_path: Path) -> None:
    push = ("push", "--plain-http", "--image", f"{guarded}/a:1", *FILES)
    assert f"docker login {guarded}" in printed(*push, code=1)
    wrong = docker_config(guarded, USER, "wrong")
    (tmp_path / "docker" / "config.json").write_bytes(wrong)
    assert "the registry answers 401" in printed(*push, code=1)


def test_the_operator_pulls_with_its_secret(guarded: str, tmp_path: Path, pack_digest: str) -> None:
    config = docker_config(guarded, USER, PASSWORD)
    (tmp_path / "docker" / "config.json").write_bytes(config)
    push = ("push", "--plain-http", "--image", f"{guarded}/a:1", *FILES)
    pack = Pack(image=told("image", printed(*push)))
    registries = {"registries": [{"host": guarded, "plainHttp": True}], "secret": "packs"}
    cluster, root = FakeCluster(), tmp_path / "volume"
    context = context_of(cluster, FakeClock(), root, pack_registries=registries)

    async def pull(content: bytes) -> PackSource:
        data = {".dockerconfigjson": base64.b64encode(content).decode()}
        if "packs" not in cluster.objects(ObjectKind.SECRET):
            body = {"metadata": {"name": "packs"}, "data": data}
            await cluster.create(ObjectKind.SECRET, body)
        cluster.edit(ObjectKind.SECRET, "packs", {"data": data})
        return await fetch_pack(context, pack)

    with pytest.raises(PackError, match=r"answers 401; .* settings\.packRegistries\.secret"):
        asyncio.run(pull(docker_config(guarded, USER, "wrong")))
    source = asyncio.run(pull(config))

    assert freeze(root, pack, source).digest == pack_digest
    oracle = (PACK / "oracle" / "answers.jsonl").read_bytes()
    assert source.answers() == oracle
