"""A run's folder on the volume: what is written where, and in which order it reaches the disk.

Every method blocks; the controller calls them in threads. Below the store stand two readers of the
folder: the texts of a finished attempt, as courier and verifier left them, and what the launches
of a run wait for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from securebench.controller.volume.artifacts import ArtifactStore, operator_side
from securebench.controller.volume.folders import (
    LAUNCHES,
    TASKS,
    attempt_folder,
    run_folder,
    task_folder,
)
from securebench.controller.volume.journal import Journal, open_journal
from securebench.controller.volume.lead import VolumeLead
from securebench.digests import PREFIX
from securebench.errors import DigestMismatchError, InvariantViolationError
from securebench.files import content_sha256, make_folder, replace_file, replacing
from securebench.protocol.candidate import STREAMS, TEXT_FILE
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import (
    CANDIDATES,
    FINAL_STATUS,
    LAUNCH_WAITS,
    MAX_WAITS_BYTES,
    PARKED,
    RECORD,
    RUN,
    SUMMARY,
    SharedWait,
    decode_waits,
    encode_waits,
)
from securebench.run.artifacts import (
    Artifact,
    GatewayFiles,
    LaunchPart,
    MountProbe,
    Part,
)
from securebench.run.layout import launch_part
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.records.record import RecordTexts
from securebench.run.state.attempts import AttemptHistory, SealedCandidate
from securebench.run.state.entries import CandidateKept, Kept
from securebench.sizes import KIB, MIB

PIECE_BYTES = MIB

KEPT = "kept.json"
"""In the folder of a run that resumes or grades again another one: what it took over from it."""

ANSWERS = "oracle.jsonl"
"""In the folder of an oracle's run: the reference answers as they were when it started."""

_KEPT = TypeAdapter(tuple[CandidateKept | Kept, ...])


class RunStore:
    """The folder of one run.

    Args:
        lead: Who writes; None only reads.
        artifacts: The operator's side of the run's medium; by default the volume's.

    Attributes:
        root: The same.
        staging: Where files are written that then replace others; None where nothing is written.
        artifacts: What Pods of the run take and give.
    """

    def __init__(
        self,
        root: Path,
        run_uid: str,
        lead: VolumeLead | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.root = root
        self._lead = lead
        self.uid = run_uid
        self.staging = None if lead is None else lead.folder
        self.artifacts = artifacts or operator_side(root, self.staging)
        self.folder = root / run_folder(run_uid)

    def __getstate__(self) -> dict[str, object]:
        """Return what another process gets: it writes files, and opens no journal."""
        return {**self.__dict__, "_lead": None}

    def exists(self) -> bool:
        """Whether this run was bound before."""
        return (self.folder / RUN).exists()

    def create(self, binding: Mapping[str, object]) -> None:
        """Make the folder and write what the run is bound to."""
        make_folder(self.folder)
        self.artifacts.prepare(MountProbe(self.uid))
        self.write_json(RUN, binding)

    def binding(self) -> Mapping[str, object]:
        """Return what the run is bound to."""
        return read_json(self.folder / RUN)

    def keep(self, entries: tuple[Kept | CandidateKept, ...]) -> None:
        """Write what a run takes over from an earlier one, as its journal begins with it."""
        make_folder(self.folder)
        replace_file(self.folder / KEPT, _KEPT.dump_json(entries), self.staging)

    def kept(self) -> tuple[Kept | CandidateKept, ...]:
        """Return what the run took over when it was bound; most runs take nothing over."""
        path = self.folder / KEPT
        return _KEPT.validate_json(path.read_bytes()) if path.exists() else ()

    def keep_answers(self, answers: bytes) -> None:
        """Write the reference answers that an oracle's run begins with."""
        make_folder(self.folder)
        replace_file(self.folder / ANSWERS, answers, self.staging)

    def answers(self) -> bytes | None:
        """Return the reference answers that a run began with; None for one without an oracle."""
        path = self.folder / ANSWERS
        return path.read_bytes() if path.exists() else None

    def open_journal(self) -> Journal:
        """Open the journal as its only writer.

        Raises:
            StorageError: A later leader has it.
            JournalCorruptError: A line does not hold or is out of its place.
        """
        if self._lead is None:
            raise InvariantViolationError("who only reads the volume opens no journal")
        return open_journal(self.folder, self.uid, self._lead)

    @property
    def gateway(self) -> GatewayFiles:
        """Where the run's gateway reads its configuration and leaves reports and logs."""
        return GatewayFiles(self.uid)

    def part(self, launch: LaunchKey, part: Part) -> LaunchPart:
        """Return the name of a part of what a launch leaves."""
        return launch_part(self.uid, launch, part)

    def make_launch_folders(self, launch: LaunchKey) -> None:
        """Prepare what Pods of a launch give, and the folder by which ``launches`` knows it."""
        make_folder(self._attempt(launch.attempt_key) / LAUNCHES / str(launch.launch))
        for part in Part:
            self.artifacts.prepare(self.part(launch, part))

    def lane_note(self, task: int) -> Path:
        """Return the file that describes the lanes of a task once all of them are written."""
        return self.root / task_folder(self.uid, task) / "lanes.json"

    def check_file(self, artifact: Artifact, name: str, digest: str) -> None:
        """Hash a sealed file again.

        Raises:
            DigestMismatchError: It is not what the courier sealed.
            OSError: It cannot be read.
        """
        with self.artifacts.opened(artifact, name) as file:
            found = PREFIX + content_sha256(file)
        if found != digest:
            raise DigestMismatchError(
                f"{name} has digest {found}, the courier sealed {digest}",
                found=found,
                sealed=digest,
            )

    def write_record(self, key: AttemptKey, line: Iterable[bytes]) -> str:
        """Write a finished record.

        Args:
            key: Its attempt.
            line: JSON without a newline, in pieces.

        Returns:
            Hex SHA-256 of the line.
        """
        folder = self._attempt(key)
        make_folder(folder)
        digest = hashlib.sha256()
        with replacing(folder / RECORD, self.staging) as file:
            for piece in line:
                file.write(piece)
                digest.update(piece)
        return digest.hexdigest()

    def record_pieces(self, key: AttemptKey) -> Iterator[bytes]:
        """Yield a finished record's line without a newline; it may be too long for one piece."""
        with (self._attempt(key) / RECORD).open("rb") as file:
            yield from iter(partial(file.read, PIECE_BYTES), b"")

    def has_record(self, key: AttemptKey) -> bool:
        """Whether an attempt has ended."""
        return (self._attempt(key) / RECORD).exists()

    def has_task(self, task: int) -> bool:
        """Whether anything of a task was written."""
        return (self.root / task_folder(self.uid, task)).is_dir()

    def tasks(self) -> list[int]:
        """Return the indices of tasks of which anything was written, in order."""
        return _numbers(self.folder / TASKS)

    def attempts(self, task: int) -> list[int]:
        """Return the numbers of a task's attempts, in order."""
        return _numbers(self._attempt(AttemptKey(task, 1)).parent)

    def launches(self, key: AttemptKey) -> list[int]:
        """Return the numbers of an attempt's launches, in order."""
        return _numbers(self._attempt(key) / LAUNCHES)

    def streams(self, key: AttemptKey) -> dict[str, bytes]:
        """Return what the last launches of an attempt printed, by ``producer/stdout`` and so on."""
        launches = self.launches(key)
        found: dict[str, bytes] = {}
        for part in (Part.PRODUCER, Part.VERIFICATION):
            for launch in reversed(launches):
                texts = self._streams(LaunchPart(self.uid, *key, launch, part))
                if texts:
                    found |= {f"{part}/{name}": text for name, text in texts.items()}
                    break
        return found

    def _streams(self, artifact: LaunchPart) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name in STREAMS:
            with (
                suppress(FileNotFoundError, DigestMismatchError),
                self.artifacts.opened(artifact, name) as file,
            ):
                found[name] = file.read()
        return found

    def _attempt(self, key: AttemptKey) -> Path:
        return self.root / attempt_folder(self.uid, key.task, key.attempt)

    def export(self, finished: Iterable[tuple[AttemptKey, str]]) -> tuple[int, str]:
        """Write candidates.jsonl anew.

        Args:
            finished: Attempts with the digests of their records, in the order of the file.

        Returns:
            Number of lines and hex SHA-256 of the file.

        Raises:
            DigestMismatchError: A record is not what the journal says.
        """
        whole = hashlib.sha256()
        count = 0
        with replacing(self.folder / CANDIDATES, self.staging) as file:
            for key, digest in finished:
                found = hashlib.sha256()
                for piece in self.record_pieces(key):
                    file.write(piece)
                    whole.update(piece)
                    found.update(piece)
                if found.hexdigest() != digest:
                    raise DigestMismatchError(f"the record of attempt {key} was changed")
                file.write(b"\n")
                whole.update(b"\n")
                count += 1
        return count, whole.hexdigest()

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Replace one JSON file of the run."""
        data = json.dumps(value, indent=2, sort_keys=True).encode()
        replace_file(self.folder / name, data, self.staging)

    def write_final_status(self, status: Mapping[str, object]) -> None:
        """Keep the status of a run that has ended; the run need not have begun."""
        make_folder(self.folder)
        self.write_json(FINAL_STATUS, status)

    def read_final_status(self) -> Mapping[str, object] | None:
        """Return the status of a run that has ended, or None."""
        path = self.folder / FINAL_STATUS
        return read_json(path) if path.exists() else None

    def read_summary(self) -> Mapping[str, object]:
        """Return the summary of a run whose records are sealed; empty before."""
        path = self.folder / SUMMARY
        return read_json(path) if path.exists() else {}

    def park(self, started_at: float | None) -> None:
        """Write down that nothing of the run is under way and nobody works on it.

        Args:
            started_at: When it began, seconds since the epoch.
        """
        self.write_json(PARKED, {"is_parked": True, "started_at": started_at})

    def unpark(self) -> None:
        """Write down that the run is worked on again."""
        self.write_json(PARKED, {"is_parked": False})

    def read_parked(self) -> Mapping[str, object] | None:
        """Return what ``park`` wrote of a run that rests, or None."""
        path = self.folder / PARKED
        found = read_json(path) if path.exists() else {}
        return found if found.get("is_parked") is True else None


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_json(path: Path) -> Mapping[str, object]:
    """Return the object in a JSON file of ours.

    Raises:
        ValueError: It holds no object.
    """
    return decode_object(path.read_bytes())


def file_digest(path: Path) -> str:
    """Return ``sha256:…`` of a file that is no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return PREFIX + content_sha256(file)


LAST_WORDS: Final = 300
"""Characters of a last line that a failure_message repeats; a record has the whole stream."""

_END_BYTES: Final = 16 * KIB
"""How much of the end of a stream is searched for its last line."""


def read_texts(store: RunStore, history: AttemptHistory) -> RecordTexts:
    """Read what an attempt's launches left. Blocks.

    Args:
        history: The attempt; what its launches did not leave is empty.
    """
    produced = history.production
    if produced is None:
        return RecordTexts()
    producer = LaunchKey(*history.key, Role.HARNESS, produced.launch)
    stdout, stderr = _streams(store, store.part(producer, Part.PRODUCER))
    verified = history.verification
    verifier_stdout = verifier_stderr = b""
    if verified is not None:
        verifier = LaunchKey(*history.key, Role.VERIFIER, verified.launch)
        verifier_stdout, verifier_stderr = _streams(store, store.part(verifier, Part.VERIFICATION))
    candidate = store.part(producer, Part.CANDIDATE)
    return RecordTexts(
        producer_stdout=stdout,
        producer_stderr=stderr,
        verifier_stdout=verifier_stdout,
        verifier_stderr=verifier_stderr,
        candidate=_candidate(store, produced.candidate, candidate),
    )


def last_words(store: RunStore, launch: LaunchKey) -> str:
    """Return the last line of a harness's stderr that is not blank. Blocks.

    Args:
        launch: A harness launch whose courier has ended.

    Returns:
        At most ``LAST_WORDS`` characters, all printable; empty where nothing was said.
    """
    try:
        with store.artifacts.opened(store.part(launch, Part.PRODUCER), "stderr") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(each if each.isprintable() else "\ufffd" for each in last)
    return shown if len(shown) <= LAST_WORDS else f"{shown[:LAST_WORDS]}…"


def _candidate(
    store: RunStore, candidate: SealedCandidate | None, artifact: Artifact
) -> str | bytes | None:
    """Read a text; a patch, which may be ten times as long, stays the bytes that it is."""
    if candidate is None or candidate.file != TEXT_FILE:
        return None
    if candidate.patch is None:
        return _text(store, artifact, TEXT_FILE)
    with store.artifacts.opened(artifact, TEXT_FILE) as file:
        return file.read()


def _streams(store: RunStore, artifact: Artifact) -> tuple[bytes, bytes]:
    stdout, stderr = (_text(store, artifact, name).encode() for name in STREAMS)
    return stdout, stderr


def _text(store: RunStore, artifact: Artifact, name: str) -> str:
    try:
        with store.artifacts.opened(artifact, name) as file:
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def read_launch_waits(folder: Path) -> tuple[SharedWait, ...]:
    """Return the waits in a run's folder; none where its file is missing, too long or damaged.

    Raises:
        OSError: The volume failed.
    """
    try:
        with (folder / LAUNCH_WAITS).open("rb") as file:
            text = file.read(MAX_WAITS_BYTES + 1)
    except FileNotFoundError:
        return ()
    if len(text) > MAX_WAITS_BYTES:
        return ()
    try:
        return decode_waits(text)
    except ValueError:
        return ()


def write_launch_waits(store: RunStore, waits: Iterable[SharedWait]) -> None:
    """Replace the file of a run's waits.

    Raises:
        OSError: Another leader has the volume, or it failed.
    """
    store.write_json(LAUNCH_WAITS, encode_waits(waits))
