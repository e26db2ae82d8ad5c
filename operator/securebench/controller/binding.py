"""Binds a BenchmarkRun to what its results depend on, once; at later starts restores that.

``prepare`` leads from a BenchmarkRun to a bound run. A new run's pack is frozen, earlier results
are taken over, and the volume knows it. A later start restores the run as its first start bound it.
The plan is built from the frozen pack, the settings and what the first start pinned; ``run.json``
has that, and the oracle's answers are beside it. Every other function blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from securebench.agents.harness import ORACLE
from securebench.attestation.starts import RunStart
from securebench.benchmark.files.load import LoadedPack, load_tasks
from securebench.benchmark.pack.oracle import Answers, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.clock import rfc3339
from securebench.controller.capacity import MEMORY_FACTOR
from securebench.controller.context import Context, FrozenPack, PreparedRun, RunObject
from securebench.controller.earlier_run import (
    check_binding,
    copy_records,
    kept_entries,
    regraded_run,
    resumed_run,
    take_over,
    taken_over,
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
from securebench.files import make_folder, replace_file
from securebench.json_values import object_at, text_at
from securebench.protocol.volume import PackAudit
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import PlanInputs, build_plan, require_audit, selected
from securebench.run.plan.model import EarlierRun, PodPolicy, RunIdentity, RunPlan, TaskLimits
from securebench.run.plan.score_fields import Overlays, spec_harness
from securebench.run.state.entries import CandidateKept, Kept
from securebench.version import VERSION


async def prepare(context: Context, run: RunObject) -> PreparedRun:
    """Bind a new run, or restore the binding of an earlier start.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.

    Raises:
        InvalidInputError: The user must change something.
        RegistryUnavailableError: The registry of its pack did not answer.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    spec = BenchmarkRunSpec.parse(run.spec)
    store = RunStore(context.settings.data_root, run.uid, context.lead)
    if await on_volume(store.exists):
        return await bulk_on_volume(restore_run, context, run, spec, store)
    await check_secrets(context.cluster, spec)
    require_audit(spec, audit=run.audit)
    refuse_registry_domains(context.settings, spec)
    source = await fetch_pack(context, spec.pack)
    resumed = await resumed_run(context, spec, run.uid)
    regraded = await regraded_run(context, spec, run.uid)
    bind = partial(bind_new_run, context, run, spec, Sources(source, resumed, regraded))
    if regraded is None:
        return await bulk_on_volume(bind)
    # It judges patches once more, one at a time.
    need_bytes = MEMORY_FACTOR * limits(context.settings).patch_bytes
    return await context.reading.run_within(need_bytes, partial(bulk_on_volume, bind))


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
    entry = _register_start(context, store, plan, run, sources)
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
    run: RunObject,
    sources: Sources,
) -> IndexEntry:
    """Write a run into the list of starts and the index; return its line of the index."""
    resumed, earlier = sources.resumed, sources.resumed or sources.regraded
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


def restore_run(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, store: RunStore
) -> PreparedRun:
    """Restore the binding of a run. Blocks.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        spec: Spec of the run.
        store: Its folder, which has the binding.

    Raises:
        InvalidInputError: This version refuses spec or pack.
        OSError: The volume did not do what was asked.
    """
    binding = store.binding()
    entry = index_entry(binding["index"])
    pack = frozen(context.settings.data_root, str(binding["pack_digest"]))
    resumed_uid = str(binding["resumed_uid"])
    records = kept_entries(context.settings.data_root, resumed_uid) if resumed_uid else ()
    pinned = pinned_inputs(binding, read_answers(store), kept_tasks(records))
    plan, answers = bound_plan(context, run, spec, pack, pinned, is_checked=True)
    plan_mismatch = ""
    if plan.digest != binding["plan_digest"]:
        plan = _as_bound(plan, entry, binding)
        plan_mismatch = (
            f"the plan of run {run.name} is not the one it was started with; this operator is "
            f"version {VERSION}, the run began with {binding['operator_version']}"
        )
    kept = records if plan.regrade is None else taken_over(store)
    return PreparedRun(plan, store, pack, entry, kept, answers.by_id, plan_mismatch)


def _as_bound(plan: RunPlan, entry: IndexEntry, binding: Mapping[str, object]) -> RunPlan:
    """Return a plan that says of itself what the version that began the run bound it to."""
    return replace(
        plan,
        digest=str(binding["plan_digest"]),
        verifier_version=entry.verifier_version,
        policy_digest=str(binding.get("policy_digest") or plan.policy_digest),
        harness=replace(plan.harness, digest=entry.harness_digest),
    )


@dataclass(frozen=True, slots=True)
class PinnedInputs:
    """What a run keeps from its first start, whatever the settings are later.

    Attributes:
        bounds: Contract 15.7.
        audit: Whether the run examines a pack.
        answers: Content of the pack's reference answers, for an oracle.
        agent_version: Version of the tool of a model provider; empty: none was chosen yet. What a
            run continues began with counts too, so that ``latest`` means one version throughout.
        kept: Tasks whose records come from an earlier run.
        pack_audit: What the newest audit of the pack said when the run began; ``none`` for runs of
            operators that did not ask.
        overlay: Image of that version when this run began; empty before that. It counts where
            the settings offer the version no longer.
        regrade: The run that is graded again, or None.
    """

    bounds: TaskLimits
    audit: bool
    answers: bytes | None
    agent_version: str
    kept: frozenset[int] = frozenset()
    pack_audit: PackAudit = PackAudit.NONE
    overlay: str = ""
    regrade: EarlierRun | None = None


def bound_plan(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    pack: FrozenPack,
    pinned: PinnedInputs,
    *,
    is_checked: bool = False,
) -> tuple[RunPlan, Answers]:
    """Return the plan of a run, and what an oracle hands in.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        spec: Spec of the run.
        pack: Its frozen pack.
        pinned: What its first start pinned.
        is_checked: Whether the pack was checked before. A run that goes on has a frozen pack of the
            same digest, and its operator should work soon.

    Raises:
        InvalidInputError: Spec or pack do not hold.
    """
    harness = spec_harness(spec)
    loaded = _load(pack, spec, harness.task_file, pinned.kept, is_checked=is_checked)
    answers = _answers(spec, loaded.tasks, pinned.answers)
    plan = build_plan(
        PlanInputs(
            identity=RunIdentity(run.uid, run.name, run.namespace, spec.run_id or run.name),
            spec=spec,
            manifest=loaded.pack.manifest,
            tasks=loaded.tasks,
            pack_digest=pack.digest,
            pods=_pods(context, run, spec),
            policy=run_policy(spec, context.settings),
            limits=pinned.bounds,
            audit=pinned.audit,
            pack_audit=pinned.pack_audit,
            answers_digest=answers.digest,
            kept=pinned.kept,
            overlays=_overlays(overlays(context.settings), harness.type, pinned),
            agent_version=pinned.agent_version,
            providers=cluster_providers(context.settings),
            regrade=pinned.regrade,
        )
    )
    return plan, answers


def _pods(context: Context, run: RunObject, spec: BenchmarkRunSpec) -> PodPolicy:
    probes = launch_probes(spec, context.targets)
    return pod_policy(spec, context.settings, context.node_name, probes, context.tools, run.queue)


def kept_tasks(kept: Collection[Kept]) -> frozenset[int]:
    """Return the tasks of which records are taken over."""
    return frozenset(entry.finish.key.task for entry in kept)


def _overlays(offered: Overlays, harness_type: str, pinned: PinnedInputs) -> Overlays:
    """Add to what the settings offer the version that a run began with."""
    if not pinned.overlay:
        return offered
    begun_with = {pinned.agent_version: pinned.overlay}
    return {**offered, harness_type: begun_with | dict(offered.get(harness_type, {}))}


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
    pack: FrozenPack,
    spec: BenchmarkRunSpec,
    task_file: str,
    kept: Collection[int],
    *,
    is_checked: bool,
) -> LoadedPack:
    limit = spec.task_selector.limit
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


ANSWERS = "oracle.jsonl"
"""In the folder of an oracle's run: the reference answers as they were when it started."""


def new_binding(
    run: RunObject, plan: RunPlan, entry: IndexEntry, resumed: IndexEntry | None
) -> Mapping[str, object]:
    """Return what a new run is bound to.

    Args:
        run: The BenchmarkRun.
        plan: Plan of the run.
        entry: Its line of the index.
        resumed: That of the run that it resumes, or None.
    """
    agent = plan.harness.agent
    return {
        "index": asdict(entry),
        "limits": asdict(plan.limits),
        "audit": plan.audit,
        "pack_audit": plan.pack_audit,
        "agent_version": agent.version if agent is not None else "",
        "overlay": agent.overlay if agent is not None else "",
        "resumed_uid": resumed.uid if resumed is not None else "",
        "regrade": asdict(plan.regrade) if plan.regrade is not None else None,
        "operator_version": VERSION,
        "plan_digest": plan.digest,
        "policy_digest": plan.policy_digest,
        "pack_digest": plan.pack_digest,
        "pack_version": plan.pack_version,
        "rows_digest": json_digest({task.task.id: task.row_digest for task in plan.tasks.values()}),
        "spec": dict(run.spec),
    }


def pinned_inputs(
    binding: Mapping[str, object], answers: bytes | None, kept: frozenset[int]
) -> PinnedInputs:
    """Return what a run's first start pinned.

    Args:
        binding: What it is bound to.
        answers: Content of its reference answers, for an oracle.
        kept: Tasks whose records come from an earlier run.

    Raises:
        ValueError: The binding was edited.
    """
    return PinnedInputs(
        bounds=TaskLimits(**_numbers(binding["limits"])),
        audit=binding.get("audit") is True,
        answers=answers,
        agent_version=agent_version(binding),
        kept=kept,
        pack_audit=PackAudit(str(binding.get("pack_audit", PackAudit.NONE))),
        overlay=overlay(binding),
        regrade=_regrade(binding),
    )


def agent_version(binding: Mapping[str, object]) -> str:
    """Return the version of the agent's tool that a run was bound to, or empty."""
    return str(binding.get("agent_version") or "")


def overlay(binding: Mapping[str, object]) -> str:
    """Return the image of that version, or empty."""
    return str(binding.get("overlay") or "")


def read_answers(store: RunStore) -> bytes | None:
    """Return the reference answers that a run began with; None for one without an oracle."""
    path = store.folder / ANSWERS
    return path.read_bytes() if path.exists() else None


def write_answers(store: RunStore, answers: bytes) -> None:
    """Keep the reference answers that a run begins with."""
    make_folder(store.folder)
    replace_file(store.folder / ANSWERS, answers, store.staging)


def _numbers(value: object) -> dict[str, int]:
    return TypeAdapter(dict[str, int]).validate_python(value)


def _regrade(binding: Mapping[str, object]) -> EarlierRun | None:
    known = binding.get("regrade")
    return TypeAdapter(EarlierRun).validate_python(known) if known is not None else None
