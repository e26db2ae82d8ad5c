"""The server side of the exec protocol: packs come in, results go out.

Runs as ``securebench operator-io …`` inside the operator's Pod, started through ``pods/exec`` by
a tester. Binary data travels over stdin and stdout; the last line on stderr is one JSON object,
the answer. A program of its own on purpose: it shares nothing with the operator's process but
the volume, where it writes below ``packs/`` only. Each call starts it anew, so that it imports
little; ``securebench.controller.exec_watching`` has the calls that read plans and journals.

The Pod for viewers runs the same calls. It mounts published results alone, where runs would lie.

Source: design 2.12, decision 0038; docs/reference/protocol.md, exec.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from securebench.benchmark.files.bundle import (
    CHUNK_BYTES,
    LOG_LIMITS,
    BundleLimits,
    files_receipt,
    folder_files,
    received_folder,
    require_digest,
    unpack_bundle,
    write_bundle,
)
from securebench.controller.volume.registers import (
    IndexEntry,
    RunIndex,
    is_ready_for_viewers,
    pack_limits,
    write_audit,
)
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_settings import DATA_ROOT, load_volume_settings
from securebench.digests import DIGEST
from securebench.errors import InvalidInputError, SecureBenchError, StorageError, TooLargeError
from securebench.protocol.exec_calls import (
    MAX_ANSWER_BYTES,
    PACK_OPERATIONS,
    UNKNOWN_OPERATION,
    WATCH_OPERATIONS,
    Operation,
    PrefixMark,
)
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    EGRESS,
    JOURNAL,
    MAX_AUDIT_BYTES,
    PACKS,
    RUN,
    STARTS,
    STATEMENT,
    SUMMARY,
    decode_audit,
)
from securebench.run.plan.model import AttemptKey

_INCOMING = ".incoming"
_STALE_SECONDS = 24 * 3600
"""No upload takes so long; what an end of the Pod left behind is removed after that."""

_PACK_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?")
_SIZE = re.compile(r"[0-9]{1,15}")

Answer = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Volume:
    """The results volume and what an upload may take of it.

    Attributes:
        root: Where it is mounted.
        pack_limits: Bounds of one uploaded pack.
    """

    root: Path
    pack_limits: BundleLimits


def _pack_answer(
    arguments: Sequence[str], volume: Volume, stdin: IO[bytes], stdout: IO[bytes]
) -> Answer:
    """Answer one of ``PACK_OPERATIONS``."""
    match list(arguments):
        case [Operation.PUT_PACK, name, digest, size]:
            return put_pack(volume, name, digest, _size(size), stdin)
        case [Operation.SHOW_PACK, name]:
            return show_pack(volume, name)
        case [Operation.LIST_PACKS]:
            return list_packs(volume.root, stdout)
        case [Operation.REMOVE_PACK, name]:
            return remove_pack(volume.root, name)
        case _:
            raise InvalidInputError(UNKNOWN_OPERATION)


def put_pack(volume: Volume, name: str, digest: str, size: int, source: IO[bytes]) -> Answer:
    """Receive a pack; a folder of that name appears, or is replaced, when all of it is right.

    Args:
        name: Folder below ``packs/``.
        digest: Tree digest of what is sent.
        size: Bytes of the tar; the stream need not end there.
        source: The tar.

    Raises:
        InvalidInputError: A bad argument or a bad entry.
        StorageError: Damaged on the way, or too large.
    """
    packs, limits = volume.root / PACKS, volume.pack_limits
    incoming, bounded = packs / _INCOMING, _BoundedReader(source, size)
    try:
        target = packs / checked(_PACK_NAME, name, "pack name")
        checked(DIGEST, digest, "digest")
        if size > limits.tar_bytes:
            raise TooLargeError(f"the pack has more than {limits.size_bytes} bytes")
        _remove_stale(incoming)
        with received_folder(target, incoming) as folder:
            receipt = unpack_bundle(bounded, folder, limits)
            bounded.finish()
            require_digest("the pack", expected=digest, found=receipt.digest)
    finally:
        bounded.drain()
    return {"digest": receipt.digest, "files": receipt.files, "size_bytes": receipt.size_bytes}


def show_pack(volume: Volume, name: str) -> Answer:
    """Say what lies in a pack's folder, its digest computed now."""
    folder = volume.root / PACKS / checked(_PACK_NAME, name, "pack name")
    if not folder.is_dir():
        return {"present": False}
    receipt = files_receipt(folder_files(folder), volume.pack_limits)
    return {
        "present": True,
        "digest": receipt.digest,
        "files": receipt.files,
        "size_bytes": receipt.size_bytes,
    }


def list_packs(root: Path, sink: IO[bytes]) -> Answer:
    """Send name, files and bytes of every uploaded pack as a JSON list, in order of name."""
    packs = root / PACKS
    names = sorted(path.name for path in packs.iterdir()) if packs.is_dir() else []
    found = [_listed(packs / name) for name in names if _PACK_NAME.fullmatch(name)]
    sink.write(json.dumps(found, sort_keys=True).encode() + b"\n")
    return {"packs": len(found)}


def remove_pack(root: Path, name: str) -> Answer:
    """Remove an uploaded pack; it is gone as a whole at once.

    Bound runs continue: they read a frozen copy. The caller checks for runs that are not bound.
    """
    packs = root / PACKS
    folder = packs / checked(_PACK_NAME, name, "pack name")
    if not folder.is_dir() or folder.is_symlink():
        return {"present": False}
    incoming = packs / _INCOMING
    incoming.mkdir(exist_ok=True)
    grave = Path(mkdtemp(dir=incoming))
    folder.rename(grave / name)
    shutil.rmtree(grave, ignore_errors=True)
    return {"present": True}


def _listed(folder: Path) -> Answer:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    return {"name": folder.name, "files": len(files), "size_bytes": size}


class _BoundedReader:
    """At most so many bytes of a stream that may never end."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source = source
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted) if wanted else b""
        self._left -= len(data)
        return data

    def drain(self) -> None:
        """Read on to the end: a command that ends with unread input is never seen to end."""
        while self.read(CHUNK_BYTES):
            pass

    def finish(self) -> None:
        self.drain()
        if self._left:
            raise StorageError(f"the upload ended {self._left} bytes early; send it again")


def _remove_stale(incoming: Path) -> None:
    if not incoming.is_dir():
        return
    for work in incoming.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - work.lstat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(work, ignore_errors=True)


def _size(text: str) -> int:
    """Return the number of bytes that the asker announces."""
    return int(checked(_SIZE, text, "size"))


def checked(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return an argument that has the right form.

    Raises:
        InvalidInputError: It has another.
    """
    if pattern.fullmatch(text) is None:
        form = "; it has small letters, digits and inner hyphens" if pattern is _PACK_NAME else ""
        raise InvalidInputError(f"{text!r} is no {what}{form}")
    return text


RUN_FILES = frozenset(
    {
        CANDIDATES,
        RUN,
        SUMMARY,
        EGRESS,
        JOURNAL,
        ATTEMPT_LIST,
        STARTS,
        STATEMENT,
    }
)
"""What may be fetched of a run; lanes and candidates stay on the volume."""

_RUN_UID = re.compile(r"[0-9a-f]([-0-9a-f]{0,62}[0-9a-f])?")


@dataclass(frozen=True, slots=True)
class Streams:
    """The three binary streams of one call."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


def serve(arguments: Sequence[str], *, volume: Volume, streams: Streams) -> int:
    """Answer one call.

    Args:
        arguments: Operation and its arguments, as the asker wrote them.
        streams: Data in, data out, answer.

    Returns:
        Exit code: 0, or 1 when the answer says ``"ok": false``.
    """
    try:
        answer = {"ok": True, **_dispatch(arguments, volume, streams)}
    except SecureBenchError as error:
        answer = {"ok": False, "kind": type(error).__name__, "error": str(error)}
    except OSError as error:
        reason = f"the results volume refused: {error.strerror or error}"
        answer = {"ok": False, "kind": StorageError.__name__, "error": reason}
    streams.stdout.flush()
    streams.stderr.write(json.dumps(answer, sort_keys=True).encode() + b"\n")
    streams.stderr.flush()
    return 0 if answer["ok"] else 1


def _dispatch(arguments: Sequence[str], volume: Volume, streams: Streams) -> Answer:
    match list(arguments):
        case [Operation.GET_RUN, uid, file, *marks]:
            return get_run(volume.root, uid, file, marks, streams.stdout)
        case [Operation.FIND_RUN, run_id]:
            return find_run(volume.root, run_id, streams.stdout)
        case [Operation.FIND_NAMED, name]:
            return find_named(volume.root, name, streams.stdout)
        case [Operation.GET_LOG, uid, task_id, *attempt]:
            return get_log(volume.root, uid, task_id, streams.stdout, *attempt)
        case [operation, uid, *words] if operation in WATCH_OPERATIONS:
            # These read plans and journals; the other calls start without what that needs.
            from securebench.controller.exec_watching import (  # noqa: PLC0415
                watch_answer,
            )

            run = checked(_RUN_UID, uid, "run uid")
            return watch_answer(operation, volume.root, run, words, streams.stdout)
        case [Operation.PUT_AUDIT, size]:
            return put_audit(volume.root, size, streams.stdin)
        case [operation, *_] if operation in PACK_OPERATIONS:
            return _pack_answer(arguments, volume, streams.stdin, streams.stdout)
        case _:
            raise InvalidInputError(UNKNOWN_OPERATION)


def put_audit(root: Path, size: str, source: IO[bytes]) -> Answer:
    """Keep the result of an audit.

    Args:
        size: Bytes of the result; the stream need not end there.
        source: The result as JSON.

    Raises:
        InvalidInputError: This is no result.
    """
    wanted = int(size) if size.isdecimal() else 0
    if not 0 < wanted <= MAX_AUDIT_BYTES:
        raise InvalidInputError(f"the result of an audit has at most {MAX_AUDIT_BYTES} bytes")
    result = decode_audit(source.read(wanted))
    write_audit(root, result)
    return {"digest": result.pack_digest, "result": result.result.value}


def get_run(root: Path, uid: str, file: str, marks: Sequence[str], sink: IO[bytes]) -> Answer:
    """Send a file of a run, from the longest prefix on that the asker has already.

    The file is replaced as a whole when it changes, so that one call sees one version of it.

    Args:
        file: One of ``RUN_FILES``.
        marks: ``OFFSET:SHA256`` of prefixes that the asker has.
        sink: Where the bytes go.

    Returns:
        ``present``, and then ``offset`` (where the bytes begin), ``sent``, ``size`` of the whole
        file, and ``sha256`` over its first ``offset + sent`` bytes.
    """
    if file not in RUN_FILES:
        raise InvalidInputError(f"{file!r} is no file of a run that may be fetched")
    folder = _store(root, uid).folder
    known = sorted(map(PrefixMark.decode, marks))
    source = _open_file(folder, file)
    if source is None:
        return {"present": False}
    with source:
        size = source.seek(0, os.SEEK_END)
        offset, content = _longest_prefix(source, known, size)
        source.seek(offset)
        end = min(size, offset + MAX_ANSWER_BYTES)
        for data in _chunks(source, end - offset):
            content.update(data)
            sink.write(data)
    return {
        "present": True,
        "offset": offset,
        "sent": end - offset,
        "size": size,
        "sha256": content.hexdigest(),
    }


def find_run(root: Path, run_id: str, sink: IO[bytes]) -> Answer:
    """Send the entries of the runs with this run id as a JSON list, oldest first.

    Raises:
        StorageError: The index of runs is damaged.
    """
    entries = RunIndex(root).entries()
    return _send_entries([entry for entry in entries if entry.run_id == run_id], sink)


def find_named(root: Path, name: str, sink: IO[bytes]) -> Answer:
    """Send the entries of the runs whose BenchmarkRun or run id has this name, as ``find_run``.

    They outlive their BenchmarkRuns.

    Raises:
        StorageError: The index of runs is damaged.
    """
    entries = RunIndex(root).entries()
    found = [entry for entry in entries if name in (entry.run, entry.run_id)]
    return _send_entries(found, sink)


def get_log(root: Path, uid: str, task_id: str, sink: IO[bytes], attempt: str = "") -> Answer:
    """Send what the last launches of an attempt printed, as a bundle.

    Args:
        task_id: Id of the row.
        sink: Gets a tar of ``producer/…`` and ``verification/…``.
        attempt: Number of the attempt; empty for the last one that has finished.

    Raises:
        InvalidInputError: The task, or that attempt of it, has no record in this run.
    """
    store = _store(root, uid)
    finished = _finished_attempts(store, task_id)
    if not finished:
        raise InvalidInputError(
            f"the run has no finished task {task_id!r}; running tasks have no log yet"
        )
    key = next((key for key in finished if str(key.attempt) == attempt), None)
    if attempt and key is None:
        numbers = ", ".join(str(key.attempt) for key in finished)
        raise InvalidInputError(
            f"task {task_id!r} has no finished attempt {attempt}; it has {numbers}"
        )
    key = key or finished[-1]
    receipt = write_bundle(store.streams(key), sink, LOG_LIMITS)
    return {"digest": receipt.digest, "files": receipt.files, "attempt": key.attempt}


def _send_entries(entries: Sequence[IndexEntry], sink: IO[bytes]) -> Answer:
    sink.write(json.dumps([asdict(entry) for entry in entries], sort_keys=True).encode() + b"\n")
    return {"runs": len(entries)}


def _open_file(folder: Path, file: str) -> IO[bytes] | None:
    """Open a file of a run, or None where it is absent; a journal of several files as one."""
    if file == JOURNAL and folder.is_dir():
        from securebench.controller.volume.journal import (  # noqa: PLC0415
            journal_bytes,
            journal_parts,
        )

        if len(journal_parts(folder)) > 1:
            return BytesIO(journal_bytes(folder))
    return _open_if_present((folder.parent if file == STARTS else folder) / file)


def _longest_prefix(
    source: IO[bytes], marks: Sequence[PrefixMark], size: int
) -> tuple[int, hashlib._Hash]:
    source.seek(0)
    running, position = hashlib.sha256(), 0
    best, kept = 0, running.copy()
    for mark in marks:
        if mark.offset > size:
            break
        for data in _chunks(source, mark.offset - position):
            running.update(data)
        position = mark.offset
        if running.hexdigest() != mark.sha256:
            break
        best, kept = position, running.copy()
    return best, kept


def _chunks(source: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        data = source.read(min(size, CHUNK_BYTES))
        if not data:
            raise StorageError("the file became shorter while it was read")
        size -= len(data)
        yield data


def _finished_attempts(store: RunStore, task_id: str) -> list[AttemptKey]:
    for task in store.tasks():
        keys = [AttemptKey(task, number) for number in store.attempts(task)]
        ended = [(key, found) for key in keys if (found := _task_id(store, key)) is not None]
        if ended and ended[-1][1] == task_id:
            return [key for key, _ in ended]
    return []


def _task_id(store: RunStore, key: AttemptKey) -> str | None:
    try:
        record = json.loads(b"".join(store.record_pieces(key)))
    except (OSError, ValueError):
        return None
    return record.get("task_id") if isinstance(record, dict) else None


def _open_if_present(path: Path) -> IO[bytes] | None:
    try:
        source = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
        source.close()
        raise StorageError(f"{path.name} on the volume is no regular file")
    return source


def _store(root: Path, uid: str) -> RunStore:
    return RunStore(root, checked(_RUN_UID, uid, "run uid"))


def operator_io(arguments: Sequence[str]) -> int:
    """Answer one call of a tester; see ``securebench.controller.exec_io``."""
    settings = load_volume_settings()
    volume = Volume(settings.data_root, pack_limits(settings))
    streams = Streams(sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    return serve(arguments, volume=volume, streams=streams)


_READY_SECONDS = 60.0
"""The operator makes the folder when it starts. Until then the kubelet mounts one of its own, and
only a new start of the container mounts the right one."""

_PAUSE_SECONDS = 0.5


def viewer_io(arguments: Sequence[str], root: Path = DATA_ROOT) -> int:
    """Answer one call of a viewer, as the operator's Pod does for testers."""
    streams = Streams(sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    return serve(arguments, volume=Volume(root, BundleLimits()), streams=streams)


def wait_for_viewers(
    root: Path = DATA_ROOT,
    *,
    pause: Callable[[], object] = signal.pause,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Keep the Pod running, once it is known to mount the operator's folder.

    Returns:
        1 when the folder is not the operator's; otherwise this ends by a signal only.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    late = clock() + _READY_SECONDS
    while not is_ready_for_viewers(root):
        if clock() > late:
            sys.stderr.write("the folder of published results is not there yet\n")
            return 1
        sleep(_PAUSE_SECONDS)
    while True:
        pause()
