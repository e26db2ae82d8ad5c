"""The commands ``securebench pack build|push --image|pull``: packs as OCI artifacts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.benchmark.files.load import (
    check_upload,
    load_benchmark_manifest,
    pack_digest,
    pack_file,
)
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.client.output import print_line
from securebench.client.packs.source import PackFiles, pack_source, valid_pack
from securebench.client.volume.link import LOCAL_LIMITS
from securebench.errors import InvalidInputError
from securebench.names import ImageReference, image_reference
from securebench.oci.access import RegistryAccess, RegistryAdvice, RegistryLogin, docker_credentials
from securebench.oci.pack_image import PackLanes, build_pack, pull_pack, push_pack, write_layout
from securebench.oci.registry import Registry, registry_session
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How the command line asks a registry.

    Attributes:
        plain_http: Without TLS.
        ca_file: File with a certificate authority that is trusted besides the public ones.
    """

    plain_http: bool = False
    ca_file: Path | None = None


def build(files: PackFiles, folder: Path) -> int:
    """Write a pack's image as an OCI image layout into a new folder, and print its digests."""
    content = _content(files)
    built = write_layout(content, folder, LOCAL_LIMITS)
    print_line(f"pack {content.id} layout={folder} image={built.digest} digest={content.digest}")
    return 0


def push(files: PackFiles, image: str, options: RegistryOptions) -> int:
    """Push a pack's image and print what spec.pack.image of a run has to say."""
    reference = image_reference(image)
    if reference.digest:
        raise InvalidInputError(f"{image}: the pack decides its digest; name a tag, or none")
    content = _content(files)
    digest = asyncio.run(_push(content, reference, options))
    pinned = ImageReference(reference.host, reference.repository, reference.tag, digest)
    print_line(f"pack {content.id} image={pinned} digest={content.digest}")
    return 0


def pull(image: str, folder: Path, options: RegistryOptions) -> int:
    """Pull a pack's image into a new folder and print its digests."""
    reference = image_reference(image)
    if not reference.tag and not reference.digest:
        raise InvalidInputError(f"{image}: name a tag or a digest")
    if folder.exists():
        raise InvalidInputError(f"{folder} exists; name a new folder")
    digest = asyncio.run(_pull(reference, folder, options))
    manifest, tasks = pack_file(folder, MANIFEST_FILE), pack_file(folder, TASKS_FILE)
    loaded = load_benchmark_manifest(manifest)
    found = pack_digest(manifest, tasks, loaded.asset_roots)
    print_line(f"pack {loaded.id} folder={folder} image={digest} digest={found}")
    return 0


def _content(files: PackFiles) -> PackLanes:
    """Return a local pack by lanes: rows hold answers, so the task file is hidden as a whole."""
    source = pack_source(files)
    checked = check_upload(source.manifest, source.tasks)
    pack = valid_pack(source, checked)
    eval_root = safe_relative_path(
        load_benchmark_manifest(source.manifest).asset_roots.eval, "asset root"
    )
    is_hidden = {
        name: name == TASKS_FILE or name.startswith(f"{eval_root}/") for name in pack.files
    }
    hidden = {name: path for name, path in pack.files.items() if is_hidden[name]}
    public = {name: path for name, path in pack.files.items() if not is_hidden[name]}
    return PackLanes(pack.id, pack.digest, public, {**hidden, **_answers(source.manifest)})


def _answers(manifest: Path) -> Mapping[str, Path]:
    """Return the pack's reference answers; its digest does not cover them."""
    path = manifest.parent / ANSWERS_FILE
    return {ANSWERS_FILE: path} if path.exists() else {}


async def _push(content: PackLanes, reference: ImageReference, options: RegistryOptions) -> str:
    access = _access(reference, options)
    with TemporaryDirectory(prefix="securebench-pack-") as scratch:
        built = await asyncio.to_thread(build_pack, content, Path(scratch), LOCAL_LIMITS)
        async with registry_session(access) as session:
            registry = Registry(session, access, reference.repository, _credentials(reference))
            await push_pack(registry, reference, built)
    return built.digest


async def _pull(reference: ImageReference, folder: Path, options: RegistryOptions) -> str:
    access = _access(reference, options)
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with registry_session(access) as session:
        registry = Registry(session, access, reference.repository, _credentials(reference))
        return await pull_pack(registry, reference, folder, LOCAL_LIMITS)


def _access(reference: ImageReference, options: RegistryOptions) -> RegistryAccess:
    ca_file = options.ca_file
    return RegistryAccess(
        host=reference.host,
        plain_http=options.plain_http,
        authority=ca_file.read_text(encoding="utf-8", errors="replace") if ca_file else "",
        other_hosts=None,
        advice=RegistryAdvice(
            login=f"put credentials into {_docker_config()} (docker login {reference.host})",
            authority="name a file with the authority's certificate, in PEM, with --ca-file or in"
            " the environment variable SSL_CERT_FILE",
            plain_http="a registry without TLS needs --plain-http",
        ),
    )


def _docker_config() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _credentials(reference: ImageReference) -> RegistryLogin | None:
    path = _docker_config()
    if not path.exists():
        return None
    return docker_credentials(path.read_bytes(), reference.host, str(path))
