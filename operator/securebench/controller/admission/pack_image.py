"""Packs in registries: the operator pulls them, and keeps them for runs that start soon."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.agents.allowed_domains import is_listed
from securebench.cluster.port import ObjectKind
from securebench.controller.admission.pack_limits import pack_limits
from securebench.controller.admission.pack_source import (
    IMAGE_PACK,
    IMAGES,
    image_folder,
    unused_folders,
)
from securebench.controller.context import Context
from securebench.controller.settings import PackRegistries, Settings
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import (
    ConfigError,
    RegistryUnavailableError,
    SpecError,
    StorageError,
)
from securebench.files.durable import make_folder, replace_file
from securebench.files.tree_digest import tree_digest
from securebench.json_values import object_at, text_at
from securebench.names import ImageReference, image_reference
from securebench.oci.access import (
    RegistryAccess,
    RegistryAdvice,
    RegistryLogin,
    docker_credentials,
    listed_access,
)
from securebench.oci.pull import pull_pack
from securebench.oci.registry import Registry, registry_session
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.score_fields import spec_harness

CONTENT_DIGEST = "digest"
"""Beside a pulled pack: the digest of its files, written when all of them are there."""

_SECRET_KEY = ".dockerconfigjson"  # noqa: S105 - the name of a key

_ADVICE = RegistryAdvice(
    login="the administrator gives credentials with the chart's settings.packRegistries.secret",
    authority="the administrator puts the authority's certificate, in PEM, into"
    " certificateAuthority of this registry in the chart's settings.packRegistries.registries",
    plain_http="for a registry without TLS the administrator sets plainHttp in the chart's"
    " settings.packRegistries.registries",
)


async def pull_image(context: Context, image: str) -> None:
    """Let the pack of an image be on the volume, whole.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        image: The whole reference, as ``spec.pack.image`` has it.

    Raises:
        PackImageMissingError: The registry does not have it (yet).
        PackError: It is refused.
        RegistryUnavailableError: The registry did not answer; transient.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    reference = image_reference(image)
    registries = context.settings.pack_registries
    access = listed_access(reference, _accesses(registries))
    folder = image_folder(context.settings.data_root, image)
    async with context.pulls.of(folder.name):
        if await bulk_on_volume(_is_intact, folder):
            return
        credentials = await _credentials(context, reference)
        try:
            async with asyncio.timeout(registries.timeout_seconds):
                await _pull(context, reference, access, credentials)
        except TimeoutError:
            raise RegistryUnavailableError(
                f"image {reference} was not pulled within {registries.timeout_seconds} seconds"
                " (settings.packRegistries.timeoutSeconds)"
            ) from None


def refuse_registry_domains(settings: Settings, spec: BenchmarkRunSpec) -> None:
    """Refuse an agent that could reach a registry of packs, and so pull their hidden data itself.

    Raises:
        SpecError: A domain of the harness leads there.
        ConfigError: The harness's configuration does not hold.
    """
    domains = spec_harness(spec).allowed_domains
    for registry in settings.pack_registries.registries:
        for host in (registry.host, *registry.other_hosts):
            if is_listed(host.partition(":")[0], domains):
                raise SpecError(
                    f"spec.harness.config.allowed_domains leads to {host}, a registry of packs"
                    " (settings.packRegistries): the agent could pull answers; take the domain away"
                )


def _accesses(registries: PackRegistries) -> list[RegistryAccess]:
    return [
        RegistryAccess(
            host=each.host,
            repositories=each.repositories,
            plain_http=each.plain_http,
            authority=each.certificate_authority,
            other_hosts=frozenset(each.other_hosts),
            advice=_ADVICE,
        )
        for each in registries.registries
    ]


async def _credentials(context: Context, reference: ImageReference) -> RegistryLogin | None:
    """Return the administrator's credentials for a registry.

    Raises:
        RegistryUnavailableError: The Secret cannot be used; the run waits for it.
    """
    name = context.settings.pack_registries.secret
    if not name:
        return None
    what = f"Secret {name} (settings.packRegistries.secret)"
    found = await context.cluster.get(ObjectKind.SECRET, name)
    encoded = text_at(object_at(found or {}, "data"), _SECRET_KEY)
    if not encoded:
        raise RegistryUnavailableError(
            f"{what} does not exist or has no key {_SECRET_KEY}; create it for the registry"
            f" {reference.host}"
        )
    try:
        content = base64.b64decode(encoded, validate=True)
        return docker_credentials(content, reference.host, what)
    except (binascii.Error, ConfigError) as error:
        raise RegistryUnavailableError(f"{what} cannot be read: {error}") from None


async def _pull(
    context: Context,
    reference: ImageReference,
    access: RegistryAccess,
    credentials: RegistryLogin | None,
) -> None:
    root = context.settings.data_root
    await bulk_on_volume(_evict_unused, root)
    async with _scratch(root / IMAGES) as scratch:
        new = scratch / "new"
        await on_volume(new.mkdir)
        async with registry_session(access) as session:
            registry = Registry(session, access, reference.repository, credentials)
            limits = pack_limits(context.settings)
            await pull_pack(registry, reference, new / IMAGE_PACK, limits)
        await bulk_on_volume(_install, new, image_folder(root, str(reference)))


@asynccontextmanager
async def _scratch(parent: Path) -> AsyncIterator[Path]:
    """Make a folder that is gone afterwards."""
    made = await on_volume(partial(TemporaryDirectory, dir=parent, prefix=".incoming-"))
    try:
        yield Path(made.name)
    finally:
        await bulk_on_volume(made.cleanup)


def _evict_unused(root: Path) -> None:
    """Remove what no run used lately: a bound run reads its frozen copy."""
    make_folder(root / IMAGES)
    for folder in unused_folders(root / IMAGES, time.time()):
        shutil.rmtree(folder, ignore_errors=True)


def _install(new: Path, folder: Path) -> None:
    replace_file(new / CONTENT_DIGEST, tree_digest(new / IMAGE_PACK).encode())
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def _is_intact(folder: Path) -> bool:
    """Return whether an image was pulled and all of it is on the disk still."""
    try:
        want = (folder / CONTENT_DIGEST).read_text(encoding="utf-8")
        found = tree_digest(folder / IMAGE_PACK)
        os.utime(folder)
    except (OSError, UnicodeDecodeError, StorageError):
        return False
    return want == found
