"""Packs that an installed operator pulls from a real registry on the node (``make packs``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.certificates import Authority, new_authority
from support.pack_registry import docker_config
from support.registry import HTPASSWD, PASSWORD, USER, registry
from support.release import Raw, Release, benchmark_run, call, condition, release
from support.runs import MANIFEST, row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODE_NETWORK = Path("/run/netns/sbnode")
"""As tests/cluster/env.sh names it. Pods do not reach other addresses of this machine."""

REPOSITORY = "team/packs"
SECRET = "pack-registries"
PROBE = """python3 -c '
import socket
try:
    socket.create_connection(("{address}", {port}), 5)
    print("reached")
except OSError:
    print("closed")'"""
"""What the agent does: it tries to reach the registry, and hands in how that went."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A registry with TLS that asks for credentials, and what the tester has for it."""

    host: str
    folder: Path
    authority: Authority

    def push(self, name: str) -> tuple[str, str]:
        """Push a pack of its own, and return the image's reference and the pack's digest."""
        pack = self.folder / name
        pack.mkdir()
        task = row(name, eval={"accepted_answers": ["closed"]})
        (pack / "manifest.yaml").write_bytes(MANIFEST)
        (pack / "tasks.jsonl").write_text(json.dumps(task) + "\n", encoding="utf-8")
        files = ("--manifest", f"{pack}/manifest.yaml", "--tasks", f"{pack}/tasks.jsonl")
        image = ("--image", f"{self.host}/{REPOSITORY}:{name}", "--ca-file", str(self.ca_file))
        printed = call("securebench", "pack", "push", *files, *image).decode()
        told = dict(word.split("=", 1) for word in printed.split() if "=" in word)
        return told["image"], told["digest"]

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def listed(self) -> Raw:
        """The registry as the chart lists it."""
        entry = {"repositories": ["team"], "certificateAuthority": self.authority.pem}
        return {"host": self.host, **entry}

    @property
    def probe(self) -> str:
        address, _, port = self.host.rpartition(":")
        return PROBE.format(address=address, port=port)

    def manifest(self, image: str) -> Path:
        """Return the file in which the registry keeps an image's manifest."""
        return self._blob(image.partition("@")[2])

    def hidden_layer(self, image: str) -> Path:
        """Return the file in which the registry keeps the layer with the tasks."""
        manifest = json.loads(self.manifest(image).read_bytes())
        return self._blob(manifest["layers"][-1]["digest"])

    def _blob(self, digest: str) -> Path:
        algorithm, _, text = digest.partition(":")
        blobs = self.folder / "data" / "docker" / "registry" / "v2" / "blobs"
        return blobs / algorithm / text[:2] / text / "data"


def node_address() -> str:
    """Return the address of the node, which its Pods reach unless a policy forbids it."""
    path = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
    return call("kubectl", "get", "nodes", "-o", path).decode()


@contextmanager
def shelf(folder: Path, authority: Authority) -> Iterator[Shelf]:
    (folder / "htpasswd").write_text(HTPASSWD + "\n", encoding="utf-8")
    (folder / "ca.crt").write_text(authority.pem, encoding="ascii")
    address = node_address()
    certificate = authority.issue(folder / "server.pem", [address])
    auth = {"htpasswd": {"realm": "here", "path": str(folder / "htpasswd")}}
    with registry(
        folder, auth, certificate=certificate, address=address, network=NODE_NETWORK
    ) as host:
        yield Shelf(host, folder, authority)


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shelf, Shelf]]:
    """Two registries; the operator has credentials for the first, the tester for both."""
    if not NODE_NETWORK.exists():
        pytest.skip("the registry has to be in the network of the node of tests/cluster")
    authority, docker = new_authority(), tmp_path_factory.mktemp("docker")
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    with shelf(first, authority) as known, shelf(second, authority) as guarded:
        auths: Raw = {"auths": {}}
        for each in (known, guarded):
            auths["auths"] |= json.loads(docker_config(each.host, USER, PASSWORD))["auths"]
        (docker / "config.json").write_text(json.dumps(auths), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_CONFIG", str(docker))
            yield known, guarded


@pytest.fixture(scope="module")
def installed(shelves: tuple[Shelf, Shelf]) -> Iterator[Release]:
    """The chart with both registries, whose canary has to find the first one closed."""
    values = {
        "settings.packRegistries.registries": [each.listed for each in shelves],
        "settings.packRegistries.secret": SECRET,
        "settings.canary.extraTargets": [shelves[0].host],
    }
    with release("sb-pack-images", values) as own:
        config = docker_config(shelves[0].host, USER, PASSWORD).decode()
        metadata, kind = {"name": SECRET}, "kubernetes.io/dockerconfigjson"
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}
        own.create({**body, "stringData": {".dockerconfigjson": config}})
        yield own


def begin(own: Release, name: str, image: str, command: str, **spec: object) -> str:
    harness = {"type": "command", "config": {"command": command}}
    own.create(benchmark_run(name, {"pack": {"image": image}, "harness": harness, **spec}))
    return name


def test_the_operator_pulls_and_no_agent_can(
    installed: Release, shelves: tuple[Shelf, Shelf]
) -> None:
    known = shelves[0]
    image, digest = known.push("honest")
    run = begin(installed, "pulled", image, known.probe)

    assert condition(installed.wait_ended(run))["reason"] == "Completed"

    (record,) = installed.records(run)
    assert (record["passed"], record["pack_digest"]) == (True, digest)
    assert json.loads(installed.file(run, "run.json"))["spec"]["pack"]["image"] == image
    canary = condition(installed.get("benchmarkrun", run), "IsolationVerified")
    assert (canary["status"], canary["reason"]) == ("True", "Verified")
    script = known.probe.partition("-c '")[2].removesuffix("'")
    assert installed.operator("python3", "-c", script).strip() == b"reached"


def absent(known: Shelf, _: Shelf) -> str:
    return f"{known.host}/{REPOSITORY}@sha256:{'0' * 64}"


def unlisted(known: Shelf, _: Shelf) -> str:
    return f"{known.host}/other/packs@sha256:{'0' * 64}"


def guarded(_: Shelf, other: Shelf) -> str:
    return other.push("guarded")[0]


def another_manifest(known: Shelf, _: Shelf) -> str:
    image, _digest = known.push("another-manifest")
    manifest = known.manifest(image)
    manifest.write_bytes(known.manifest(known.push("other")[0]).read_bytes())
    return image


def another_layer(known: Shelf, _: Shelf) -> str:
    image, _digest = known.push("another-layer")
    layer = known.hidden_layer(image)
    layer.write_bytes(layer.read_bytes().replace(b"closed", b"Closed"))
    return image


ENDS: Mapping[Callable[[Shelf, Shelf], str], str] = {
    absent: "the registry has no such content (404); push it with",
    unlisted: "is not among the chart's settings.packRegistries.registries",
    guarded: "the registry answers 401; the administrator gives credentials",
    another_manifest: "sent another manifest than sha256:",
    another_layer: "sent other content than layer sha256:",
}


@pytest.mark.parametrize("offered", ENDS, ids=lambda offered: offered.__name__)
def test_what_is_not_the_pack_ends_the_run(
    installed: Release, shelves: tuple[Shelf, Shelf], offered: Callable[[Shelf, Shelf], str]
) -> None:
    name = offered.__name__.replace("_", "-")
    run = begin(installed, name, offered(*shelves), "echo closed")

    seen = condition(installed.wait_ended(run))

    assert (seen["status"], seen["reason"]) == ("False", "PackInvalid")
    assert ENDS[offered] in seen["message"]
    assert installed.pods(run) == []


def test_half_a_layer_is_waited_out(installed: Release, shelves: tuple[Shelf, Shelf]) -> None:
    known = shelves[0]
    image, digest = known.push("half")
    layer = known.hidden_layer(image)
    whole = layer.read_bytes()
    layer.write_bytes(whole[: len(whole) // 2])
    run = begin(installed, "half", image, "echo closed", isolation={"require": "Declared"})

    held = installed.wait(run, lambda seen: condition(seen)["reason"] == "RegistryUnavailable")
    assert condition(held)["status"] == "Unknown"
    want = f"sent {len(whole) // 2} of {len(whole)} bytes of layer sha256:"
    assert want in condition(held)["message"]
    assert installed.pods(run) == []

    layer.write_bytes(whole)
    assert condition(installed.wait_ended(run))["reason"] == "Completed"
    (record,) = installed.records(run)
    assert (record["passed"], record["pack_digest"]) == (True, digest)
