"""A registry of packs on the loopback that answers as a test wants; what it is asked is kept."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from securebench.benchmark.files.bundle import BundleLimits
from securebench.cluster.port import Cluster, ObjectKind
from securebench.digests import content_digest
from securebench.oci.artifact import (
    HIDDEN_LAYER,
    PUBLIC_LAYER,
    Descriptor,
    PackArtifact,
    encode_artifact,
)
from securebench.oci.pack_image import PackLanes, build_pack
from support.build import question, write_pack

REPOSITORY = "team/smoke"


class Answer(NamedTuple):
    """What is sent; without a length, the connection's end is the body's."""

    body: bytes = b""
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}
    length: int | None = None


class Asked(NamedTuple):
    path: str
    authorization: str


@dataclass
class PackServer:
    """Answers by path, other ones by what the header Authorization says; ``asked`` in order."""

    host: str
    when: dict[str, Mapping[str, Answer]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    is_over: Event = field(default_factory=Event)
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def put(self, image: PackImage) -> str:
        """Offer an image, and return the reference that a run names."""
        self.answers[image.manifest_path] = Answer(image.manifest)
        for digest, content in image.layers.items():
            self.answers[blob_path(digest)] = Answer(content)
        return f"{self.host}/{REPOSITORY}:1@{image.digest}"


@dataclass(frozen=True)
class PackImage:
    """An image in memory."""

    manifest: bytes
    layers: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return content_digest(self.manifest)

    @property
    def manifest_path(self) -> str:
        return f"/v2/{REPOSITORY}/manifests/{self.digest}"


def blob_path(digest: str) -> str:
    return f"/v2/{REPOSITORY}/blobs/{digest}"


def pack_image(folder: Path, *tasks: str) -> PackImage:
    """Return the image of a small pack, which is written to a folder too."""
    write_pack(folder / "pack", [question(task) for task in tasks])
    public = {"manifest.yaml": folder / "pack" / "manifest.yaml"}
    hidden = {"tasks.jsonl": folder / "pack" / "tasks.jsonl"}
    (folder / "layers").mkdir()
    content = PackLanes("smoke", "", public, hidden)
    built = build_pack(content, folder / "layers", BundleLimits())
    layers = {layer.digest: path.read_bytes() for layer, path in built.layers.items()}
    return PackImage(built.manifest, layers)


def image_with(image: PackImage, hidden: bytes, size_bytes: int | None = None) -> PackImage:
    """Return an image with another hidden layer."""
    public = next(iter(image.layers.items()))
    digest = content_digest(hidden)
    manifest = encode_artifact(
        PackArtifact(
            Descriptor(PUBLIC_LAYER, public[0], len(public[1])),
            Descriptor(HIDDEN_LAYER, digest, len(hidden) if size_bytes is None else size_bytes),
        )
    )
    return PackImage(manifest, {public[0]: public[1], digest: hidden})


def settings_for(*servers: PackServer, **changes: object) -> dict[str, object]:
    """Return settings of an operator that may pull from these servers."""
    listed = [{"host": server.host, "plainHttp": True} for server in servers]
    return {"pack_registries": {"registries": listed, **changes}}


def docker_config(host: str, user: str, password: str) -> bytes:
    """Return a .dockerconfigjson."""
    return json.dumps({"auths": {host: {"username": user, "password": password}}}).encode()


def secret_data(server: PackServer) -> dict[str, object]:
    """Return the content of the operator's Secret for a server."""
    config = docker_config(server.host, "operator", "right")
    return {"data": {".dockerconfigjson": base64.b64encode(config).decode()}}


async def create_secret(cluster: Cluster, server: PackServer) -> None:
    """Create the Secret ``packs``, which settings name."""
    body = {"metadata": {"name": "packs"}, **secret_data(server)}
    await cluster.create(ObjectKind.SECRET, body)


@contextmanager
def pack_server(tls: ssl.SSLContext | None = None) -> Iterator[PackServer]:
    """Serve on the loopback until the end of the block.

    Args:
        tls: Of the server; None: it has no TLS.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.asked.append(Asked(self.path, self.headers.get("Authorization", "")))
            if self.path in known.silent:
                known.is_over.wait()
            answers = known.when.get(known.asked[-1].authorization, known.answers)
            answer = answers.get(self.path, Answer(status=HTTPStatus.NOT_FOUND))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.length is not None:
                self.send_header("Content-Length", str(answer.length))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    known = PackServer(f"127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield known
    finally:
        known.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()
