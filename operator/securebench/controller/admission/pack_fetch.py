"""Makes the files of a pack readable: read from the API server, or pulled to the volume."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath

from securebench.benchmark.pack.paths import safe_relative_path
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.controller.admission.pack_image import pull_image
from securebench.controller.admission.pack_limits import pack_limits
from securebench.controller.admission.pack_source import (
    FolderSource,
    ImageSource,
    KeyedSource,
    PackSource,
)
from securebench.controller.admission.secret_rules import AS_PACK, is_usable, no_secret
from securebench.controller.context import Context
from securebench.errors import InvariantViolationError, PackError, PackMissingError
from securebench.json_values import object_at, text_at
from securebench.names import PACK_PATHS_ANNOTATION
from securebench.protocol.messages import decode_object
from securebench.run.api.models import Pack


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

    The object is read whole, and it alone says which key is which file: whoever may create a run
    but not read the pack could otherwise place a hidden file where the agent sees it.

    Raises:
        PackMissingError: The object does not exist or may not be used.
        PackError: Its keys and its annotation do not name files.
    """
    if pack.secret is not None:
        secret = await cluster.get(ObjectKind.SECRET, pack.secret.name)
        if secret is None or not is_usable(secret, AS_PACK):
            raise PackMissingError(*no_secret(f"Secret {pack.secret.name!r}", AS_PACK))
        return _files(pack.secret.name, secret)
    if pack.config_map is None:
        raise InvariantViolationError("a pack has no source, which its model refuses")
    name = pack.config_map.name
    raw = await cluster.get(ObjectKind.CONFIG_MAP, name)
    if raw is None:
        missing = f"ConfigMap {name!r} does not exist in this namespace"
        raise PackMissingError(missing, "create it, then a new run")
    return _files(name, raw)


FOLDER_MARK = "--"
"""In a key, where the path of the file has a slash."""


def _files(name: str, raw: Raw) -> dict[str, bytes]:
    places, content = _places(name, raw), _content(raw)
    if missing := sorted(set(places) - set(content)):
        listed = ", ".join(missing)
        raise PackError(f"{name!r} has no key {listed}, which {PACK_PATHS_ANNOTATION} names")
    files: dict[str, bytes] = {}
    for key, data in content.items():
        named = places.get(key, key.replace(FOLDER_MARK, "/"))
        path = safe_relative_path(named, f"{name!r}: the path of key {key!r}")
        if path in files:
            raise PackError(f"{name!r}: two keys are placed at {path!r}")
        files[path] = data
    for path in files:
        blocked = [str(parent) for parent in PurePosixPath(path).parents if str(parent) in files]
        if blocked:
            raise PackError(f"{name!r}: {blocked[0]!r} is a file and the folder of {path!r}")
    return files


def _places(name: str, raw: Raw) -> dict[str, str]:
    """Return the paths that the object's annotation names, by key."""
    annotations = object_at(object_at(raw, "metadata"), "annotations")
    text = text_at(annotations, PACK_PATHS_ANNOTATION)
    try:
        places = decode_object(text.encode()) if text else {}
    except ValueError:
        places = {"": None}
    if not all(isinstance(path, str) for path in places.values()):
        raise PackError(
            f"{name!r}: the annotation {PACK_PATHS_ANNOTATION} must be a JSON object of keys and"
            ' paths, such as {"answers": "oracle/answers.jsonl"}'
        )
    return {key: str(path) for key, path in places.items()}


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
