"""Makes the files of a pack readable: read from the API server, or pulled to the volume."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath

from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.controller.admission.pack_image import pull_image
from securebench.controller.admission.pack_limits import pack_limits
from securebench.controller.admission.pack_source import (
    FolderSource,
    ImageSource,
    KeyedSource,
    PackSource,
)
from securebench.controller.admission.secret_rules import is_usable, no_secret
from securebench.controller.runtime.context import Context
from securebench.core.errors import InvariantViolationError, PackError, PackMissingError
from securebench.run.api.models import KeyedPack, Pack


async def fetch_pack(context: Context, pack: Pack) -> PackSource:
    """Return where the files of a pack are; an image is on the volume afterwards.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        pack: As a run or suite names it.

    Raises:
        PackMissingError: There is no such object or image, or it may not be used.
        PackError: It is refused.
        RegistryUnavailableError: The registry did not answer; transient.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    root, limits = context.settings.data_root, pack_limits(context.settings)
    if pack.volume is not None:
        return FolderSource(root, pack.volume.path, limits)
    if pack.image is not None:
        await pull_image(context, pack.image)
        return ImageSource(root, pack.image, limits)
    return KeyedSource(await keyed_files(context.cluster, pack))


async def keyed_files(cluster: Cluster, pack: Pack) -> Mapping[str, bytes]:
    """Return the files of a ConfigMap or Secret pack by path.

    Raises:
        PackMissingError: The object does not exist or may not be used.
        PackError: A path is named twice, or a key is not there.
    """
    if pack.secret is not None:
        secret = await cluster.get(ObjectKind.SECRET, pack.secret.name)
        if secret is None or not is_usable(secret):
            raise PackMissingError(*no_secret(f"Secret {pack.secret.name!r}"))
        return _files(pack.secret, secret)
    if pack.config_map is None:
        raise InvariantViolationError("a pack has no source, which its model refuses")
    name = pack.config_map.name
    raw = await cluster.get(ObjectKind.CONFIG_MAP, name)
    if raw is None:
        missing = f"ConfigMap {name!r} does not exist in this namespace"
        raise PackMissingError(missing, "create it, then a new run")
    return _files(pack.config_map, raw)


def _files(pack: KeyedPack, raw: Raw) -> dict[str, bytes]:
    places = {item.key: item.path for item in pack.items}
    content = _content(raw)
    missing = sorted(set(places) - set(content))
    if missing:
        raise PackError(f"{pack.name!r} has no key {', '.join(missing)}")
    files: dict[str, bytes] = {}
    for key, data in content.items():
        path = places.get(key, key)
        if path in files:
            raise PackError(f"{pack.name!r}: two keys are placed at {path!r}")
        files[path] = data
    for path in files:
        blocked = [str(parent) for parent in PurePosixPath(path).parents if str(parent) in files]
        if blocked:
            raise PackError(f"{pack.name!r}: {blocked[0]!r} is a file and the folder of {path!r}")
    return files


def _content(raw: Raw) -> dict[str, bytes]:
    is_secret = raw.get("kind") == ObjectKind.SECRET
    data, binary = raw.get("data"), raw.get("binaryData")
    content: dict[str, bytes] = {}
    for part, encoded in ((data, is_secret), (binary, True)):
        for key, value in part.items() if isinstance(part, Mapping) else ():
            content[str(key)] = _decode(str(value)) if encoded else str(value).encode()
    return content


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise PackError("a value is not base64") from error
