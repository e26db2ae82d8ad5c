"""Records on the volume, read with the digest that they must have. Every function blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from securebench.controller.volume.store import RunStore
from securebench.core.digests import PREFIX
from securebench.core.errors import StorageError
from securebench.core.json_values import object_at, text_at
from securebench.files.untrusted import UnreadableError, open_regular, open_root
from securebench.protocol.volume import CANDIDATES
from securebench.run.layout import BASELINES, run_folder
from securebench.run.records.reading import Record, parse_record

T = TypeVar("T")
Reader = Callable[[Iterable[Record | None]], T]


def sealed_digest(root: Path, uid: str) -> str:
    """Return the hex digest of an ended run's records; empty where none is known.

    Raises:
        StorageError: Its final status or its summary is none of ours.
    """
    store = RunStore(root, uid)
    try:
        final = store.read_final_status()
        if final is None:
            # The API server has the end of a run before the volume has its last status.
            return text_at(store.read_summary(), "sha256")
    except ValueError:
        raise StorageError(
            f"the results of run {uid} on the volume are damaged: put its folder back from a copy"
        ) from None
    return text_at(object_at(object_at(final, "status"), "results"), "sha256")


def read_run(root: Path, uid: str, sha256: str, read: Reader[T]) -> T:
    """Return what a reader makes of a run's records.

    Args:
        root: Where the volume is mounted.
        uid: UID of the run.
        sha256: Hex digest that they must have.
        read: Is given one record for each line, None for a damaged one.

    Raises:
        UnreadableError: They are not there, or have another digest.
    """
    return _read(root, _records_path(uid), sha256, read)


def read_so_far(root: Path, uid: str, read: Reader[T]) -> T:
    """Return what a reader makes of the records of a run that goes on; nothing has sealed them yet.

    Args:
        root: Where the volume is mounted.
        uid: UID of the run.
        read: As of ``read_run``.

    Raises:
        UnreadableError: There are none yet.
    """
    with open_root(root) as folder, open_regular(folder, _records_path(uid)) as file:
        return read(map(parse_record, file))


def count_records(root: Path, uid: str) -> int:
    """Return how many records a run has so far, without parsing them."""
    with (
        suppress(UnreadableError),
        open_root(root) as folder,
        open_regular(folder, _records_path(uid)) as file,
    ):
        return sum(1 for _ in file)
    return 0


def read_baseline(root: Path, path: str, digest: str, read: Reader[T]) -> T:
    """Return what a reader makes of a file of the folder for baselines; see ``read_run``.

    Args:
        root: Where the volume is mounted.
        path: Below that folder.
        digest: ``sha256:…`` that it must have.
        read: As of ``read_run``.

    Raises:
        UnreadableError: It is not there, or has another digest.
    """
    return _read(root, f"{BASELINES}/{path}", digest.removeprefix(PREFIX), read)


def _records_path(uid: str) -> str:
    return f"{run_folder(uid)}/{CANDIDATES}"


def _read(root: Path, path: str, sha256: str, read: Reader[T]) -> T:
    whole = hashlib.sha256()
    with open_root(root) as folder, open_regular(folder, path) as file:
        found = read(_records(file, whole.update))
    if whole.hexdigest() != sha256:
        raise UnreadableError(
            f"{path} has digest {PREFIX}{whole.hexdigest()}, not {PREFIX}{sha256 or '(none)'}:"
            " somebody changed it"
        )
    return found


def _records(file: BinaryIO, update: Callable[[bytes], object]) -> Iterator[Record | None]:
    for line in file:
        update(line)
        yield parse_record(line)
