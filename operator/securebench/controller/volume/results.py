"""The results of runs on the volume, as others get them. Every function blocks.

Records are read with the digest that they must have. A run that ends gets a statement beside its
records, and a copy of its results for viewers and submitters. That copy lies in a folder of its
own, the only one that the Pod for viewers mounts: whatever they do in that Pod, nothing else is
there. Published records lose what a check printed, since that may quote hidden tests, and the
digest of the row, from which short answers can be found by trying. Of runs with reference answers
nothing is published (decision 0038). At last come the folders of all runs: when each ended, and how
retention removes it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

from securebench.attestation.envelope import Signer, SigningFailedError, sealed
from securebench.attestation.statement import (
    attempt_fields,
    attempt_list,
    binding_fields,
    course_fields,
    encode,
    encode_attempts,
    evaluator_fields,
    start_fields,
    statement,
    summary_fields,
)
from securebench.clock import seconds_since_epoch
from securebench.controller.volume.folders import BASELINES, PUBLISHED, RUNS, run_folder
from securebench.controller.volume.journal import journal_lines, journal_names
from securebench.controller.volume.registers import READY, IndexEntry, RunIndex, RunStarts
from securebench.controller.volume.store import RunStore, file_digest, read_json
from securebench.digests import PREFIX
from securebench.errors import StorageError
from securebench.files import (
    FOLDER,
    UnreadableError,
    make_folder,
    open_regular,
    open_root,
    replace_file,
    replacing,
)
from securebench.json_values import object_at, text_at
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    FINAL_STATUS,
    JOURNAL,
    KEEP,
    RUN,
    STATEMENT,
    SUMMARY,
)
from securebench.reasons import PHASES_BEFORE_CHECKS
from securebench.run.records.reading import Record, parse_record
from securebench.run.state.entries import Entry
from securebench.run.state.entry_json import decode_entry
from securebench.run.state.history import RunHistory, whole_history
from securebench.version import VERSION

logger = logging.getLogger(__name__)


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
        sha256: Hex digest that they must have.
        read: Is given one record for each line, None for a damaged one.

    Raises:
        UnreadableError: They are not there, or have another digest.
    """
    return _read(root, records_path(uid), sha256, read)


def read_so_far(root: Path, uid: str, read: Reader[T]) -> T:
    """Return what a reader makes of the records of a run that goes on; nothing has sealed them yet.

    Args:
        read: As of ``read_run``.

    Raises:
        UnreadableError: There are none yet.
    """
    with open_root(root) as folder, open_regular(folder, records_path(uid)) as file:
        return read(map(parse_record, file))


def count_records(root: Path, uid: str) -> int:
    """Return how many records a run has so far, without parsing them."""
    with (
        suppress(UnreadableError),
        open_root(root) as folder,
        open_regular(folder, records_path(uid)) as file,
    ):
        return sum(1 for _ in file)
    return 0


def read_baseline(root: Path, path: str, digest: str, read: Reader[T]) -> T:
    """Return what a reader makes of a file of the folder for baselines; see ``read_run``.

    Args:
        path: Below that folder.
        digest: ``sha256:…`` that it must have.
        read: As of ``read_run``.

    Raises:
        UnreadableError: It is not there, or has another digest.
    """
    return _read(root, f"{BASELINES}/{path}", digest.removeprefix(PREFIX), read)


def records_path(uid: str) -> str:
    """Return the file of a run's records, relative to the volume's root."""
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


SIGN_AGAIN_SECONDS: Final = (1.0, 5.0)
"""Until a key management service that did not sign is asked again."""

SIGN_SECONDS: Final = 20.0
"""For one answer of a service. The clients have bounds of their own, of minutes for some."""


def write_statement(store: RunStore, signer: Signer | None) -> None:
    """Write the list of attempts and the statement; may be repeated, with the same result.

    Everything is read from the volume, where records, summary and the journal's last entry are.

    Args:
        store: The run, ended.
        signer: Signs the statement; None leaves it unsigned.

    Raises:
        OSError: The volume did not do what was asked.
        SigningFailedError: The signer did not sign; there is no new statement.
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    history, journal_sha256 = _history(store.folder)
    attempts = attempt_list(history)
    replace_file(store.folder / ATTEMPT_LIST, b"".join(encode_attempts(attempts)), store.staging)
    binding = store.binding()
    starts = RunStarts(store.root, store.staging).read()
    predicate = {
        **evaluator_fields(VERSION),
        **binding_fields(binding),
        **summary_fields(read_json(store.folder / SUMMARY)),
        **attempt_fields(attempts),
        **course_fields(history),
        **start_fields(starts, starts.size, binding),
    }
    digests = {**dict(_digests(store.folder)), JOURNAL: journal_sha256}
    data = _sealed(encode(statement(digests, predicate)), signer)
    replace_file(store.folder / STATEMENT, data, store.staging)


def _sealed(payload: bytes, signer: Signer | None) -> bytes:
    for seconds in SIGN_AGAIN_SECONDS:
        try:
            return _sealed_in_time(payload, signer)
        except SigningFailedError:
            time.sleep(seconds)
    return _sealed_in_time(payload, signer)


def _sealed_in_time(payload: bytes, signer: Signer | None) -> bytes:
    """Sign in a thread, which is left behind if the service does not answer."""
    pool = ThreadPoolExecutor(1, "signing")
    try:
        return pool.submit(sealed, payload, signer).result(SIGN_SECONDS)
    except TimeoutError:
        raise SigningFailedError(f"no answer within {SIGN_SECONDS:.0f} seconds") from None
    finally:
        pool.shutdown(wait=False)


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (CANDIDATES, SUMMARY, RUN, ATTEMPT_LIST):
        yield name, file_digest(folder / name).removeprefix(PREFIX)


def _history(folder: Path) -> tuple[RunHistory, str]:
    """Return what the journal tells, and the hex digest of its lines."""
    digest = hashlib.sha256()

    def entries() -> Iterator[Entry]:
        for text, line in journal_lines(folder):
            digest.update(text)
            yield decode_entry(line.body)

    return whole_history(entries()), digest.hexdigest()


PIECE_CHARACTERS = 1 << 16
_DECODER = json.JSONDecoder()
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
"""A text in JSON, matched without a way back for each character."""

FIELDS: Final = frozenset(
    {
        "attempt",
        "benchmark_id",
        "candidate_patch",
        "candidate_text",
        "candidate_workspace",
        "failure_phase",
        "failure_reason",
        "harness_digest",
        "hidden_values",
        "labels",
        "launches",
        "outcome",
        "pack_digest",
        "passed",
        "producer_metadata",
        "producer_stderr",
        "producer_stdout",
        "record_truncated",
        "regrade",
        "resource_summary",
        "resume_generation",
        "run_id",
        "run_ordinal",
        "score",
        "task_id",
        "task_type",
        "timing",
        "verification_status",
        "verifier_version",
    }
)
"""What is kept of a record; what is not named here is withheld."""

_BINDING = ("operator_version", "pack_digest", "plan_digest")


def prepare_published(root: Path) -> None:
    """Make the folder, also in place of an empty one that the kubelet made for a Pod.

    Raises:
        OSError: The volume did not do what was asked.
    """
    folder = root / PUBLISHED
    try:
        make_folder(folder)
        replace_file(folder / READY, b"")
    except PermissionError:
        folder.rmdir()
        make_folder(folder)
        replace_file(folder / READY, b"")


def publish(store: RunStore, entry: IndexEntry, outcome: str) -> str:
    """Publish the results of a run that has ended; may be repeated.

    Publishing is a courtesy: a volume that refuses it does not keep the run from its end.

    Args:
        store: The run, with records and summary.
        entry: Its line of the index.
        outcome: How it ended.

    Returns:
        Hex SHA-256 of the published ``candidates.jsonl``; empty when nothing was published.
    """
    folder = store.root / PUBLISHED / entry.uid
    try:
        make_folder(folder)
        sha256 = _publish_records(store.folder / CANDIDATES, folder / CANDIDATES, store.staging)
        summary = {**read_json(store.folder / SUMMARY), "sha256": sha256}
        replace_file(folder / SUMMARY, _json(summary), store.staging)
        binding = store.binding()
        told = {key: binding.get(key) for key in _BINDING}
        replace_file(folder / RUN, _json({**told, "index": asdict(entry)}), store.staging)
        RunIndex(store.root, PUBLISHED, staging=store.staging).keep(entry, outcome)
    except (StorageError, OSError, ValueError) as error:
        logger.warning("results of %s are not published: %s", entry.run, error)
        with suppress(OSError):
            shutil.rmtree(folder)
        return ""
    return sha256


def published_line(line: str) -> Iterator[str]:
    """Yield what is published of the line of a record, in pieces: nothing that a check said.

    The values stay as they are written: decoding them would take many times their memory.

    Args:
        line: As ``record_line`` writes it.

    Raises:
        ValueError: It is another text.
    """
    spans = dict(_spans(line))
    phase = spans.get("failure_phase")
    is_told = phase is not None and json.loads(line[phase]) in PHASES_BEFORE_CHECKS
    names = FIELDS | {"failure_message"} if is_told else FIELDS
    separator = "{"
    for name in sorted(spans.keys() & names):
        yield f"{separator}{json.dumps(name)}: "
        for at in range(spans[name].start, spans[name].stop, PIECE_CHARACTERS):
            yield line[at : min(at + PIECE_CHARACTERS, spans[name].stop)]
        separator = ", "
    yield "{}" if separator == "{" else "}"


def _spans(line: str) -> Iterator[tuple[str, slice]]:
    """Yield the place of the value of each field."""
    at = line.index("{") + 1
    while line[at : at + 1] not in ("}", ""):
        name, end = _DECODER.raw_decode(line, at)
        start = end + len(": ")
        text = _STRING.match(line, start)
        end = text.end() if text else _DECODER.raw_decode(line, start)[1]
        yield name, slice(start, end)
        at = end + len(", ") if line[end : end + 1] == "," else end


def _publish_records(source: Path, target: Path, staging: Path | None) -> str:
    content = hashlib.sha256()
    with source.open("rb") as lines, replacing(target, staging) as file:
        for line in map(bytes.decode, lines):
            for piece in chain(published_line(line), "\n"):
                data = piece.encode()
                file.write(data)
                content.update(data)
    return content.hexdigest()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode()


COMPLETION_TIME = "completionTime"
"""In the status that a run leaves on the volume when it ends."""


class FolderState(NamedTuple):
    """The folder of a run.

    Attributes:
        uid: The run.
        ended_at: When it ended, in seconds since the epoch, or None.
        touched_at: When its journal, or else the folder, was written last.
        has_results: Whether more is left than its final status.
    """

    uid: str
    ended_at: float | None
    touched_at: float
    has_results: bool


def run_indexes(root: Path, staging: Path) -> list[RunIndex]:
    """Return the index of all runs, and that of published results."""
    return [RunIndex(root, each, staging=staging) for each in (RUNS, PUBLISHED)]


def run_folders(root: Path) -> list[str]:
    """Return the uids of all runs with a folder on a volume."""
    runs = root / RUNS
    if not runs.is_dir():
        return []
    return sorted(path.name for path in runs.iterdir() if path.is_dir() and not path.is_symlink())


def folder_state(root: Path, uid: str) -> FolderState:
    """Return what retention asks of the folder of a run.

    Raises:
        ValueError: Its final status is none of ours.
    """
    path = root / run_folder(uid)
    touched = [name.stat().st_mtime for name in journal_names(path)]
    return FolderState(
        uid=uid,
        ended_at=ended_at(root, uid),
        touched_at=max(touched, default=path.stat().st_mtime),
        has_results=any(item.name != FINAL_STATUS for item in path.iterdir()),
    )


def ended_at(root: Path, uid: str) -> float | None:
    """Return when a run ended, in seconds since the epoch; None for one that is active.

    Raises:
        ValueError: Its final status is none of ours.
    """
    final = RunStore(root, uid).read_final_status() or {}
    status = final.get("status")
    time = status.get(COMPLETION_TIME) if isinstance(status, Mapping) else None
    return seconds_since_epoch(time) if isinstance(time, str) else None


def kept_runs(root: Path) -> Collection[str]:
    """Return the uids of the runs that a file ``KEEP`` in their folder keeps."""
    return [uid for uid in run_folders(root) if os.path.lexists(root / run_folder(uid) / KEEP)]


def remove_results(root: Path, uid: str) -> None:
    """Remove all of an ended run but how it ended; what is gone already is no error.

    What is published of it goes first. No link is followed, in the place of no folder.

    Raises:
        OSError: The volume did not do what was asked, or a link is in the place of a folder.
    """
    with suppress(FileNotFoundError), _opened(root, PUBLISHED) as published:
        shutil.rmtree(uid, dir_fd=published)
    with _opened(root, RUNS, uid) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == FINAL_STATUS:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)


def remove_folder(root: Path, uid: str) -> None:
    """Remove the folder of a run; what is gone already is no error.

    Its final status goes last: an interrupted removal does not make it look like an active run.

    Raises:
        OSError: As of ``remove_results``.
    """
    remove_results(root, uid)
    with _opened(root, RUNS) as runs:
        shutil.rmtree(uid, dir_fd=runs)


@contextmanager
def _opened(root: Path, *names: str) -> Iterator[int]:
    """Open a folder below the volume's root by a descriptor, one component at a time."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            child = os.open(name, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def bindings(root: Path) -> Iterator[Mapping[str, object]]:
    """Yield ``run.json`` of every run whose results were not removed."""
    for path in sorted((root / RUNS).glob(f"*/{RUN}")):
        yield read_json(path)
