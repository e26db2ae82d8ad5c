"""Binds a new run: its pack is frozen, earlier results are taken over, and the volume knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from securebench.agents.harness import ORACLE
from securebench.attestation.starts import RunStart
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.clock import rfc3339
from securebench.controller.binding.binding_file import (
    agent_version,
    new_binding,
    overlay,
    read_answers,
    write_answers,
)
from securebench.controller.binding.plan_inputs import PinnedInputs, bound_plan, kept_tasks
from securebench.controller.binding.take_over import copy_records, kept_entries, take_over
from securebench.controller.context import Context, PreparedRun, RunObject
from securebench.controller.earlier_run import check_binding
from securebench.controller.packs import PackSource, freeze
from securebench.controller.policy_from_settings import limits
from securebench.controller.sealing import signing_key
from securebench.controller.volume.registers import (
    IndexEntry,
    RunIndex,
    RunStarts,
    pack_audit,
    start_of,
)
from securebench.controller.volume.store import RunStore
from securebench.json_values import text_at
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.model import EarlierRun, RunPlan
from securebench.run.state.entries import CandidateKept, Kept
from securebench.version import VERSION


@dataclass(frozen=True, slots=True)
class Sources:
    """What a new run is bound from.

    Attributes:
        pack: Where the files of its pack are.
        resumed: The run that it resumes, or None.
        regraded: The run that it grades again, or None.
    """

    pack: PackSource
    resumed: IndexEntry | None = None
    regraded: IndexEntry | None = None


def bind_new_run(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, sources: Sources
) -> PreparedRun:
    """Bind a new run; may be repeated until its binding is on the volume. Blocks.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        spec: Spec of the run.
        sources: What it is bound from.

    Raises:
        InvalidInputError: The user must change something.
        OSError: The volume did not do what was asked.
    """
    root, resumed = context.settings.data_root, sources.resumed
    pack = freeze(root, spec.pack, sources.pack)
    records = kept_entries(root, resumed.uid) if resumed is not None else ()
    pinned = replace(
        _pinned_inputs(context, run, spec, sources),
        kept=kept_tasks(records),
        pack_audit=pack_audit(root, pack.digest, VERIFIER_VERSION),
    )
    plan, answers = bound_plan(context, run, spec, pack, pinned)
    store = RunStore(root, run.uid, context.lead)
    if resumed is not None:
        check_binding(resumed, plan)
    copy_records(root, run.uid, records)
    kept: tuple[Kept | CandidateKept, ...] = records
    if sources.regraded is not None:
        kept = take_over(store, sources.regraded, plan, pack)
    if pinned.answers is not None:
        write_answers(store, pinned.answers)
    entry = _register_start(context, store, plan, spec, resumed)
    store.create(new_binding(run, plan, entry, resumed))
    return PreparedRun(plan, store, pack, entry, kept, answers.by_id)


def _pinned_inputs(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, sources: Sources
) -> PinnedInputs:
    """Return what a new run keeps; a regrade keeps what the run before it was bound to."""
    root, earlier = context.settings.data_root, sources.resumed or sources.regraded
    before = RunStore(root, earlier.uid) if earlier is not None else None
    binding = before.binding() if before is not None else {}
    answers = None
    if spec.harness.type == ORACLE:
        answers = sources.pack.answers()
    pinned = PinnedInputs(
        bounds=limits(context.settings),
        audit=run.audit,
        answers=answers,
        agent_version=agent_version(binding),
    )
    if sources.regraded is None or before is None:
        return pinned
    found = sources.regraded
    return replace(
        pinned,
        answers=answers and (read_answers(before) or answers),
        overlay=overlay(binding),
        regrade=EarlierRun(found.run, found.uid, found.run_id),
    )


def _register_start(
    context: Context,
    store: RunStore,
    plan: RunPlan,
    spec: BenchmarkRunSpec,
    resumed: IndexEntry | None,
) -> IndexEntry:
    """Write a run into the list of starts and the index; return its line of the index."""
    entry = IndexEntry(
        run=plan.identity.name,
        uid=plan.identity.uid,
        run_id=plan.identity.run_id,
        pack=plan.pack_id,
        pack_digest=plan.pack_digest,
        harness_digest=plan.harness.digest,
        verifier_version=plan.verifier_version,
        started_at=rfc3339(context.clock.now()),
        agent=spec.harness.type,
        model=text_at(spec.harness.config, "model"),
        resume_generation=resumed.resume_generation + 1 if resumed is not None else 0,
        regrade_of=plan.regrade.uid if plan.regrade is not None else "",
    )
    number = RunStarts(store.root, store.staging).add(_run_start(context, entry, resumed))
    return RunIndex(store.root, staging=store.staging).add(replace(entry, start=number))


def _run_start(context: Context, entry: IndexEntry, resumed: IndexEntry | None) -> RunStart:
    return replace(
        start_of(entry),
        resumed_uid=resumed.uid if resumed is not None else "",
        epoch=context.lead.epoch,
        operator_version=VERSION,
        key_id=signing_key(context.settings).id,
    )
