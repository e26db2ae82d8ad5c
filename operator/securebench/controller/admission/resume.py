"""The earlier run that a new one names, and what a resumed one takes over from it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from securebench.cluster.port import ObjectKind
from securebench.controller.runtime.context import Context
from securebench.controller.volume.index import IndexEntry, RunIndex
from securebench.controller.volume.journal_files import read_journal
from securebench.controller.volume.store import RunStore
from securebench.core.errors import ConfigErrors, SpecError
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.volume import RECORD
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.layout import attempt_folder, run_folder
from securebench.run.plan.model import RunPlan
from securebench.run.state.history import Finished, Kept
from securebench.run.state.tally import KEPT_ON_RESUME


async def resumed_run(context: Context, spec: BenchmarkRunSpec) -> IndexEntry | None:
    """Return the run that a new one resumes, or None where it resumes none.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        spec: Of the new run.

    Raises:
        SpecError: There is no such run, its results are gone, it has not ended, or it is a regrade.
        ClusterError: The API server did not answer.
    """
    if spec.resume_from is None:
        return None
    name = spec.resume_from.run
    entry = await asyncio.to_thread(RunIndex(context.settings.data_root).latest, name)
    found = await _ended(context, entry, "resumeFrom", name)
    if found.regrade_of:
        raise SpecError(
            f"spec.resumeFrom.run: run {name!r} only graded another run again; resume that one"
        )
    return found


async def regraded_run(context: Context, spec: BenchmarkRunSpec) -> IndexEntry | None:
    """Return the run that a new one grades again, or None where it grades none.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        spec: Of the new run.

    Raises:
        SpecError: There is no such run, its results are gone, or it has not ended.
        ClusterError: The API server did not answer.
    """
    if spec.regrade is None:
        return None
    name = spec.regrade.run
    entry = await asyncio.to_thread(RunIndex(context.settings.data_root).named, name)
    return await _ended(context, entry, "regrade", name)


async def _ended(context: Context, entry: IndexEntry | None, field: str, name: str) -> IndexEntry:
    if entry is None:
        raise SpecError(f"spec.{field}.run: there is no run {name!r} on this volume")
    if entry.removed_at:
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} were removed at {entry.removed_at}; "
            f"start a run without {field}"
        )
    if not await asyncio.to_thread(RunStore(context.settings.data_root, entry.uid).exists):
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} are not on this volume any more; "
            f"start a run without {field}"
        )
    if not entry.outcome and await _is_there(context, entry):
        raise SpecError(f"spec.{field}.run: run {name!r} has not ended; cancel it or wait")
    return entry


async def _is_there(context: Context, entry: IndexEntry) -> bool:
    """Whether the BenchmarkRun of an entry still exists; a deleted one will never end."""
    found = await context.cluster.get(ObjectKind.BENCHMARK_RUN, entry.run)
    metadata = found.get("metadata") if found is not None else None
    return isinstance(metadata, Mapping) and metadata.get("uid") == entry.uid


def check_binding(earlier: IndexEntry, plan: RunPlan) -> None:
    """Refuse a run that is not of the same kind as the one that it resumes.

    Raises:
        ConfigErrors: Run id, pack, harness or verifiers differ.
    """
    pairs = (
        ("run_id", earlier.run_id, plan.identity.run_id),
        ("pack_digest", earlier.pack_digest, plan.pack_digest),
        ("harness_digest", earlier.harness_digest, plan.harness.digest),
        ("verifier_version", earlier.verifier_version, plan.verifier_version),
    )
    problems = [
        f"spec.resumeFrom: {name} differs: run {earlier.run!r} had {old}, this run has {new}"
        for name, old, new in pairs
        if old != new
    ]
    if problems:
        raise ConfigErrors([SpecError(problem) for problem in problems])


def kept_entries(root: Path, uid: str) -> tuple[Kept, ...]:
    """Return what is taken over from a run: its attempts with a result, in the journal's order.

    Args:
        root: Of the volume.
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
    """Copy the records that are taken over into the folder of a new run.

    Args:
        root: Of the volume.
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
