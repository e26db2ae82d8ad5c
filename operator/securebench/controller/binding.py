"""Binds a BenchmarkRun to what its results depend on, once; at later starts restores that.

A new run's pack is frozen, earlier results are taken over, and ``run.json`` gets the binding; what
was taken over and the reference answers of an oracle stand beside it. Each start makes the plan of
spec, frozen pack, binding and settings. Every function but ``prepare`` blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from securebench.agents.harness import ORACLE
from securebench.attestation.starts import RunStart
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.pack.oracle import Answers, reference_answers
from securebench.benchmark.pack.task import LoadedPack, SecureBenchTask
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.clock import rfc3339
from securebench.controller.context import Context, FrozenPack, RunObject
from securebench.controller.earlier_run import (
    check_binding,
    copy_records,
    kept_entries,
    regraded_run,
    resumed_run,
    take_over,
)
from securebench.controller.packs import (
    PackSource,
    fetch_pack,
    freeze,
    frozen,
    refuse_registry_domains,
)
from securebench.controller.policy_from_settings import (
    check_secrets,
    cluster_providers,
    launch_probes,
    limits,
    overlays,
    pod_policy,
    run_policy,
)
from securebench.controller.sealing import signing_key
from securebench.controller.volume.registers import (
    IndexEntry,
    RunIndex,
    RunStarts,
    index_entry,
    pack_audit,
    start_of,
)
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.digests import json_digest
from securebench.errors import ConfigErrors, PackError
from securebench.json_values import object_at, text_at
from securebench.protocol.volume import PackAudit
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import agent_image, build_plan, require_audit, selected
from securebench.run.plan.model import EarlierRun, RunIdentity, RunPlan, TaskLimits
from securebench.run.plan.score_fields import RunBinding, spec_harness
from securebench.run.state.entries import CandidateKept, Kept
from securebench.version import VERSION


async def prepare(context: Context, run: RunObject) -> RunPlan:
    """Bind a new run, or restore the binding of an earlier start; return the plan.

    Raises:
        InvalidInputError: The user must change something.
        RegistryUnavailableError: The registry of its pack did not answer.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    spec = BenchmarkRunSpec.parse(run.spec)
    store = RunStore(context.settings.data_root, run.uid, context.lead)
    if await on_volume(store.exists):
        return await bulk_on_volume(restored_plan, context, run, spec, store)
    await check_secrets(context.cluster, spec)
    require_audit(spec, audit=run.audit)
    refuse_registry_domains(context.settings, spec)
    source = await fetch_pack(context, spec.pack)
    resumed = await resumed_run(context, spec, run.uid)
    regraded = await regraded_run(context, spec, run.uid)
    bind = partial(bind_new_run, context, run, spec, source, resumed or regraded)
    return await bulk_on_volume(bind)


def bind_new_run(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    source: PackSource,
    earlier: IndexEntry | None,
) -> RunPlan:
    """Bind a new run; may be repeated until its binding is on the volume. Blocks.

    Args:
        source: Where the files of its pack are.
        earlier: The run that it resumes or grades again, or None.

    Raises:
        InvalidInputError: The user must change something.
        OSError: The volume did not do what was asked.
    """
    root = context.settings.data_root
    store = RunStore(root, run.uid, context.lead)
    pack = freeze(root, spec.pack, source)
    answers = source.answers() if spec.harness.type == ORACLE else None
    if answers is not None and earlier is not None and spec.regrade is not None:
        answers = RunStore(root, earlier.uid).answers() or answers
    records = kept_entries(root, earlier.uid) if earlier is not None and not spec.regrade else ()
    binding = _new_binding(context, run, spec, pack.digest, earlier)
    binding = replace(binding, kept=_tasks_of(records))
    plan = _plan(context, run, spec, binding, answers)
    kept: tuple[Kept | CandidateKept, ...] = records
    if earlier is not None and spec.regrade is not None:
        kept = take_over(store, earlier, plan, pack, context.reading.read)
    elif earlier is not None:
        check_binding(earlier, plan)
        copy_records(root, run.uid, records)
    if earlier is not None:
        store.keep(kept)
    if answers is not None:
        store.keep_answers(answers)
    entry = _register_start(context, store, plan, run, earlier)
    store.create(_written(run, binding, plan, entry))
    return replace(plan, identity=_identity(run, spec, entry))


def _new_binding(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    pack_digest: str,
    earlier: IndexEntry | None,
) -> RunBinding:
    """Return what a new run keeps; a regrade keeps what the run before it was bound to."""
    settings, version, image, regrade = context.settings, "", "", None
    if earlier is not None:
        before = RunStore(settings.data_root, earlier.uid).binding()
        version = text_at(before, "agent_version")
        if spec.regrade is not None:
            image = text_at(before, "overlay")
            regrade = EarlierRun(earlier.run, earlier.uid, earlier.run_id)
    version, image = agent_image(spec_harness(spec), overlays(settings), version, image)
    return RunBinding(
        identity=_identity(run, spec),
        pack_digest=pack_digest,
        limits=limits(settings),
        audit=run.audit,
        pack_audit=pack_audit(settings.data_root, pack_digest, VERIFIER_VERSION),
        agent_version=version,
        overlay=image,
        regrade=regrade,
    )


def _identity(
    run: RunObject, spec: BenchmarkRunSpec, entry: IndexEntry | None = None
) -> RunIdentity:
    identity = RunIdentity(run.uid, run.name, run.namespace, spec.run_id or run.name)
    if entry is None:
        return identity
    ordinal, generation = entry.run_ordinal, entry.resume_generation
    return replace(identity, run_ordinal=ordinal, resume_generation=generation)


def _tasks_of(kept: Collection[Kept | CandidateKept]) -> frozenset[int]:
    return frozenset(entry.key.task for entry in kept)


def _register_start(
    context: Context,
    store: RunStore,
    plan: RunPlan,
    run: RunObject,
    earlier: IndexEntry | None,
) -> IndexEntry:
    """Write a run into the list of starts and the index; return its line of the index."""
    resumed = earlier if plan.regrade is None else None
    harness = object_at(run.spec, "harness")
    entry = IndexEntry(
        run=plan.identity.name,
        uid=plan.identity.uid,
        run_id=plan.identity.run_id,
        pack=plan.pack_id,
        pack_digest=plan.pack_digest,
        harness_digest=plan.harness.digest,
        verifier_version=plan.verifier_version,
        started_at=rfc3339(context.clock.now()),
        agent=text_at(harness, "type"),
        model=text_at(object_at(harness, "config"), "model"),
        resume_generation=resumed.resume_generation + 1 if resumed is not None else 0,
        regrade_of=plan.regrade.uid if plan.regrade is not None else "",
        requester=run.requester if context.settings.trusts_requesters else "",
        behind=tuple(sorted(earlier.requesters)) if earlier is not None else (),
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


def restored_plan(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, store: RunStore
) -> RunPlan:
    """Return the plan of a run that was bound before. Blocks.

    Args:
        store: Its folder, which has the binding.

    Raises:
        InvalidInputError: This version refuses spec or pack.
        OSError: The volume did not do what was asked.
    """
    known = store.binding()
    entry = index_entry(known["index"])
    kept = frozenset[int]() if spec.regrade is not None else _tasks_of(store.kept())
    binding = replace(_restored_binding(known, _identity(run, spec, entry)), kept=kept)
    version, image = agent_image(
        spec_harness(spec), overlays(context.settings), binding.agent_version, binding.overlay
    )
    binding = replace(binding, agent_version=version, overlay=image)
    plan = _plan(context, run, spec, binding, store.answers(), is_checked=True)
    return plan if plan.digest == known["plan_digest"] else _as_bound(plan, entry, known)


def _restored_binding(known: Mapping[str, object], identity: RunIdentity) -> RunBinding:
    """Return the binding that ``run.json`` has.

    Raises:
        ValueError: It was edited.
    """
    return RunBinding(
        identity=identity,
        pack_digest=text_at(known, "pack_digest"),
        limits=_LIMITS.validate_python(known["limits"]),
        audit=known["audit"] is True,
        pack_audit=PackAudit(text_at(known, "pack_audit")),
        agent_version=text_at(known, "agent_version"),
        overlay=text_at(known, "overlay"),
        regrade=_REGRADE.validate_python(known["regrade"]),
    )


_LIMITS = TypeAdapter(TaskLimits)
_REGRADE = TypeAdapter[EarlierRun | None](EarlierRun | None)


def _as_bound(plan: RunPlan, entry: IndexEntry, known: Mapping[str, object]) -> RunPlan:
    """Return a plan that says of itself what the version that began the run bound it to."""
    return replace(
        plan,
        digest=text_at(known, "plan_digest"),
        verifier_version=entry.verifier_version,
        policy_digest=text_at(known, "policy_digest"),
        harness=replace(plan.harness, digest=entry.harness_digest),
        mismatch=(
            f"the plan of run {plan.identity.name} is not the one it was started with; this "
            f"operator is version {VERSION}, the run began with {known['operator_version']}"
        ),
    )


def _written(
    run: RunObject, binding: RunBinding, plan: RunPlan, entry: IndexEntry
) -> Mapping[str, object]:
    """Return what ``run.json`` has: the binding, and digests of what it led to."""
    return {
        "index": asdict(entry),
        "limits": asdict(binding.limits),
        "audit": binding.audit,
        "pack_audit": binding.pack_audit,
        "agent_version": binding.agent_version,
        "overlay": binding.overlay,
        "regrade": asdict(binding.regrade) if binding.regrade is not None else None,
        "operator_version": VERSION,
        "plan_digest": plan.digest,
        "policy_digest": plan.policy_digest,
        "pack_digest": binding.pack_digest,
        "pack_version": plan.pack_version,
        "rows_digest": json_digest({task.task.id: task.row_digest for task in plan.tasks.values()}),
        "spec": dict(run.spec),
    }


def _plan(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    binding: RunBinding,
    answers: bytes | None,
    *,
    is_checked: bool = False,
) -> RunPlan:
    """Return the plan of a run.

    Args:
        binding: What it keeps from its first start; its answers come from ``answers``.
        answers: Content of the pack's reference answers, for an oracle.
        is_checked: Whether the pack was checked before. A run that goes on has a frozen pack of the
            same digest, and its operator should work soon.

    Raises:
        InvalidInputError: Spec or pack do not hold.
    """
    pack = frozen(context.settings.data_root, binding.pack_digest)
    loaded = _load(pack, spec, binding.kept, is_checked=is_checked)
    probes = launch_probes(spec, context.targets)
    settings, queue = context.settings, run.queue
    return build_plan(
        spec,
        loaded,
        replace(binding, answers=_answers(spec, loaded.tasks, answers)),
        pod_policy(spec, settings, context.node_name, probes, context.tools, queue),
        run_policy(spec, settings),
        cluster_providers(settings),
    )


def _answers(
    spec: BenchmarkRunSpec, tasks: Sequence[SecureBenchTask], content: bytes | None
) -> Answers:
    """Return what an oracle hands in; nothing for the other harnesses."""
    if spec.harness.type != ORACLE:
        return Answers()
    ids = [task.id for task in tasks]
    wanted = {ids[index] for index in selected(spec.task_selector, ids)}
    return reference_answers(content, tasks, wanted, is_whole=spec.task_selector.limit is None)


def _load(
    pack: FrozenPack, spec: BenchmarkRunSpec, kept: Collection[int], *, is_checked: bool
) -> LoadedPack:
    limit, task_file = spec.task_selector.limit, spec_harness(spec).task_file
    if limit is not None and kept:
        limit = max(limit, max(kept) + 1)
    try:
        return load_tasks(
            pack.manifest, pack.tasks, limit=limit, task_file=task_file, is_checked=is_checked
        )
    except ConfigErrors as errors:
        raise ConfigErrors([_relative(error, pack.folder) for error in errors.errors]) from None


def _relative(error: Exception, folder: Path) -> PackError:
    if not isinstance(error, PackError):
        return PackError(str(error))
    path = error.path
    if path is not None and Path(path).is_relative_to(folder):
        path = str(Path(path).relative_to(folder))
    return PackError(error.reason, path=path, line=error.line)
