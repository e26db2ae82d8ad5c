"""What a run takes over from an earlier one, into its own folder.

A resumed run has the records of attempts with a result; a regrade has the candidates that were
sealed, and the other records (decision 0071). Every function blocks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from securebench.controller.binding.earlier_attempts import EarlierAttempt, earlier_attempts
from securebench.controller.capture import seal_patch
from securebench.controller.context import FrozenPack
from securebench.controller.earlier_run import check_regrade
from securebench.controller.volume.journal import read_journal
from securebench.controller.volume.registers import IndexEntry
from securebench.controller.volume.store import RunStore
from securebench.errors import DigestMismatchError, InvariantViolationError, SpecError
from securebench.files import (
    UnreadableError,
    make_folder,
    open_regular,
    open_root,
    pieces,
    replace_file,
    replacing,
)
from securebench.json_values import object_in
from securebench.protocol.candidate import STREAMS, TEXT_FILE
from securebench.protocol.volume import RECORD
from securebench.run.layout import CANDIDATE_NAME, PRODUCER_NAME, attempt_folder, run_folder
from securebench.run.plan.model import AttemptKey, EarlierRun, LaunchKey, Role, RunPlan, TaskPlan
from securebench.run.records.record import regrade_field
from securebench.run.state.attempts import (
    Finish,
    HarnessResult,
    SealedCandidate,
)
from securebench.run.state.entries import CandidateKept, Finished, Kept
from securebench.run.state.history import KEPT_ON_RESUME

TAKEN_OVER = "regrade.json"
"""In the folder of a regrade: what it took over, as the first entries of its journal have it."""

_ADAPTER = TypeAdapter(tuple[CandidateKept | Kept, ...])


def kept_entries(root: Path, uid: str) -> tuple[Kept, ...]:
    """Return what a resumed run takes over: attempts with a result, in the journal's order.

    Args:
        root: Root of the volume.
        uid: The earlier run.

    Raises:
        OSError: The volume did not do what was asked.
    """
    entries = read_journal(root / run_folder(uid), uid).entries
    return tuple(
        Kept(entry.finish, entry.record_sha256, uid)
        for entry in entries
        if isinstance(entry, Finished | Kept) and entry.finish.outcome in KEPT_ON_RESUME
    )


def copy_records(root: Path, uid: str, kept: Collection[Kept]) -> None:
    """Copy the records that a resumed run takes over into its folder.

    Args:
        root: Root of the volume.
        uid: The new run.
        kept: What it takes over.

    Raises:
        OSError: The volume did not do what was asked.
    """
    for entry in kept:
        key = entry.finish.key
        target = root / attempt_folder(uid, key.task, key.attempt)
        make_folder(target)
        source = root / attempt_folder(entry.run_uid, key.task, key.attempt)
        replace_file(target / RECORD, (source / RECORD).read_bytes())


def take_over(
    store: RunStore, earlier: IndexEntry, plan: RunPlan, pack: FrozenPack
) -> tuple[CandidateKept | Kept, ...]:
    """Copy candidates and records into the folder of a regrade; may be repeated.

    Args:
        store: Store of the regrade, which is not bound yet.
        earlier: The run that it grades again.
        plan: Plan of the regrade.
        pack: Pack of the regrade.

    Returns:
        The first entries of its journal, in pack order. An attempt that left neither candidate nor
        record has none.

    Raises:
        SpecError: The candidates were made under other conditions, or a candidate or a record is
            not what the earlier run sealed.
        PackError: The earlier run's copy of its pack is gone.
        OSError: The volume did not do what was asked.
    """
    check_regrade(store.root, earlier, RunStore(store.root, earlier.uid).binding(), plan, pack)
    make_folder(store.folder)
    attempts = earlier_attempts(store.root, earlier.uid)
    taken = tuple(_Source(store, plan).entries(attempts))
    replace_file(store.folder / TAKEN_OVER, _ADAPTER.dump_json(taken), store.staging)
    return taken


def taken_over(store: RunStore) -> tuple[CandidateKept | Kept, ...]:
    """Return what a regrade took over when it was bound."""
    return _ADAPTER.validate_json((store.folder / TAKEN_OVER).read_bytes())


class _Source:
    """Copies from the folder of an earlier run into that of a regrade."""

    def __init__(self, store: RunStore, plan: RunPlan) -> None:
        if plan.regrade is None:
            raise InvariantViolationError("only a regrade takes candidates over")
        self._store = store
        self._plan = plan
        self._earlier: EarlierRun = plan.regrade

    def entries(
        self, attempts: Mapping[AttemptKey, EarlierAttempt]
    ) -> Iterator[CandidateKept | Kept]:
        for key, known in sorted(attempts.items()):
            task = self._plan.tasks.get(key.task)
            if task is None:
                continue
            try:
                if known.candidate is not None:
                    yield self._candidate(key, task, known, known.candidate)
                elif known.finish is not None:
                    yield self._record(key, known, known.finish)
            except (DigestMismatchError, UnreadableError, FileNotFoundError) as error:
                found = "a file is missing" if isinstance(error, OSError) else error
                raise SpecError(
                    f"spec.regrade.run: attempt {key.attempt} of task {task.task.id!r} of run "
                    f"{self._earlier.name!r} is not as it was sealed: {found}; restore the results "
                    "volume from a copy, or leave the task out with taskSelector.exclude"
                ) from None

    def _candidate(
        self, key: AttemptKey, task: TaskPlan, known: EarlierAttempt, candidate: SealedCandidate
    ) -> CandidateKept:
        launch = LaunchKey(*key, Role.HARNESS, candidate.launch)
        source = RunStore(self._store.root, known.run_uid).launch_folder(launch)
        target = self._store.launch_folder(launch)
        self._store.make_launch_folders(launch)
        for name in STREAMS:
            with suppress(UnreadableError):
                self._copy(source, target, f"{PRODUCER_NAME}/{name}")
        path = f"{CANDIDATE_NAME}/{candidate.file}"
        self._copy(source, target, path)
        self._store.check_file(target / path, candidate.digest)
        sealed = replace(candidate, patch=None)
        if candidate.file == TEXT_FILE and task.check is not None and task.check.patch is not None:
            patch = seal_patch(task.check.patch, target / CANDIDATE_NAME)
            sealed = replace(sealed, patch=patch)
        production = replace(_produced(known), candidate=sealed)
        taken_from = self._earlier.uid
        return CandidateKept(key, production, known.at, known.usage, known.network, taken_from)

    def _record(self, key: AttemptKey, known: EarlierAttempt, finish: Finish) -> Kept:
        """Copy the record of an attempt that cannot be graded again, and let it say so."""
        data = b"".join(RunStore(self._store.root, self._earlier.uid).record_pieces(key))
        if hashlib.sha256(data).hexdigest() != known.record_sha256:
            raise DigestMismatchError("its record was changed")
        told = {
            "run_id": self._plan.identity.run_id,
            "regrade": regrade_field(self._earlier, graded_again=False),
        }
        line = json.dumps({**object_in(json.loads(data)), **told}, sort_keys=True)
        return Kept(finish, self._store.write_record(key, [line.encode()]), self._earlier.uid)

    def _copy(self, source: Path, target: Path, path: str) -> None:
        with (
            open_root(source) as folder,
            open_regular(folder, path) as file,
            replacing(target / path, self._store.staging) as copy,
        ):
            copy.writelines(pieces(file))


def _produced(known: EarlierAttempt) -> HarnessResult:
    if known.production is None:
        raise InvariantViolationError("a candidate comes with what its harness left")
    return known.production
