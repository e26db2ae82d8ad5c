"""From a BenchmarkRun to a bound run: plan, folder and what it takes over from an earlier run."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from securebench.agents.harness_config import ORACLE
from securebench.attestation.starts import RunStart
from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.files.load import LoadedPack, load_tasks
from securebench.benchmark.pack.oracle import Answers, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.scorers.verifier_version import VERIFIER_VERSION
from securebench.controller.admission.pack_source import (
    answers_content,
    fetch_keyed,
    freeze,
    frozen,
)
from securebench.controller.admission.policy_from_settings import (
    cluster_providers,
    launch_probes,
    limits,
    overlays,
    pod_policy,
    run_policy,
)
from securebench.controller.admission.resume import (
    check_binding,
    copy_records,
    kept_entries,
    regraded_run,
    resumed_run,
)
from securebench.controller.admission.secret_rules import check_secrets
from securebench.controller.capture.reading import MEMORY_FACTOR
from securebench.controller.loop.regrade import take_over, taken_over
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.prepared_run import FrozenPack, PreparedRun, RunObject
from securebench.controller.runtime.signing import signing_key
from securebench.controller.volume.audits import pack_audit
from securebench.controller.volume.index import IndexEntry, RunIndex, index_entry
from securebench.controller.volume.starts import RunStarts, start_of
from securebench.controller.volume.store import RunStore
from securebench.core.clock import rfc3339
from securebench.core.digests import json_digest
from securebench.core.errors import ConfigErrors, PackError
from securebench.core.version import VERSION
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.audit_result import PackAudit
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import (
    Overlays,
    PlanInputs,
    build_plan,
    require_audit,
    selected,
    spec_harness,
)
from securebench.run.plan.model import EarlierRun, RunIdentity, RunPlan, TaskLimits
from securebench.run.state.history import CandidateKept, Kept

ANSWERS = "oracle.jsonl"
"""In the folder of an oracle's run: the reference answers as they were when it started."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """What a new run is bound from.

    Attributes:
        files: Content of a keyed pack by path, None for a folder of the volume.
        resumed: The run that it resumes, or None.
        regraded: The run that it grades again, or None.
    """

    files: Mapping[str, bytes] | None
    resumed: IndexEntry | None = None
    regraded: IndexEntry | None = None


async def prepare(context: Context, run: RunObject) -> PreparedRun:
    """Bind a new run, or restore the binding of an earlier start.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.

    Raises:
        InvalidInputError: The user must change something.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    spec = BenchmarkRunSpec.parse(run.spec)
    store = RunStore(context.settings.data_root, run.uid, context.lead)
    if store.exists():
        return await asyncio.to_thread(_prepare_again, context, run, spec, store)
    await check_secrets(context.cluster, spec)
    require_audit(spec, audit=run.audit)
    files = await fetch_keyed(context.cluster, spec.pack)
    resumed, regraded = await resumed_run(context, spec), await regraded_run(context, spec)
    bind = partial(_bind_new, context, run, spec, _Sources(files, resumed, regraded))
    if regraded is None:
        return await asyncio.to_thread(bind)
    # It judges patches once more, one at a time.
    need_bytes = MEMORY_FACTOR * limits(context.settings).patch_bytes
    return await context.reading.run_within(need_bytes, partial(asyncio.to_thread, bind))


def _bind_new(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    sources: _Sources,
) -> PreparedRun:
    root, resumed = context.settings.data_root, sources.resumed
    pack = freeze(root, spec.pack, sources.files, _pack_limits(context))
    records = kept_entries(root, resumed.uid) if resumed is not None else ()
    inputs = _new_inputs(context, run, spec, sources)
    inputs = replace(
        inputs,
        kept=frozenset(_tasks(records)),
        pack_audit=pack_audit(root, pack.digest, VERIFIER_VERSION),
    )
    plan, answers = _plan(context, run, spec, pack, inputs)
    store = RunStore(root, run.uid, context.lead)
    if resumed is not None:
        check_binding(resumed, plan)
    copy_records(root, run.uid, records)
    kept: tuple[Kept | CandidateKept, ...] = records
    if sources.regraded is not None:
        kept = take_over(store, sources.regraded, plan, pack)
    if inputs.answers is not None:
        make_folder(store.folder)
        replace_file(store.folder / ANSWERS, inputs.answers, store.staging)
    new_entry = _index_entry(plan, rfc3339(context.clock.now()), resumed)
    number = RunStarts(root, store.staging).add(_run_start(context, new_entry, resumed))
    entry = RunIndex(root, staging=store.staging).add(replace(new_entry, start=number))
    agent = plan.harness.agent
    store.create(
        {
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
            "pack_digest": pack.digest,
            "pack_version": plan.pack_version,
            "rows_digest": _rows_digest(plan),
            "spec": dict(run.spec),
        }
    )
    return PreparedRun(plan, store, pack, entry, kept, answers.by_id)


def _run_start(context: Context, entry: IndexEntry, earlier: IndexEntry | None) -> RunStart:
    return replace(
        start_of(entry),
        resumed_uid=earlier.uid if earlier is not None else "",
        epoch=context.lead.epoch,
        operator_version=VERSION,
        key_id=signing_key(context.settings).id,
    )


def _rows_digest(plan: RunPlan) -> str:
    """Return the digest over the digests of the rows that the run works on."""
    return json_digest({task.task.id: task.row_digest for task in plan.tasks.values()})


def _new_inputs(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, sources: _Sources
) -> _PinnedInputs:
    """Return what a new run keeps; a regrade keeps what the run before it was bound to."""
    root, earlier = context.settings.data_root, sources.resumed or sources.regraded
    before = RunStore(root, earlier.uid) if earlier is not None else None
    binding = before.binding() if before is not None else {}
    answers = None
    if spec.harness.type == ORACLE:
        answers = answers_content(root, spec.pack, sources.files)
    inputs = _PinnedInputs(
        bounds=limits(context.settings),
        audit=run.audit,
        answers=answers,
        agent_version=_agent_version(binding),
    )
    if sources.regraded is None or before is None:
        return inputs
    found = sources.regraded
    return replace(
        inputs,
        answers=answers and (_bound_answers(before) or answers),
        overlay=str(binding.get("overlay") or ""),
        regrade=EarlierRun(found.run, found.uid, found.run_id),
    )


def _pack_limits(context: Context) -> BundleLimits:
    bounds = context.settings.bounds
    return BundleLimits(bounds.pack_files, bounds.pack_bytes)


def _prepare_again(
    context: Context, run: RunObject, spec: BenchmarkRunSpec, store: RunStore
) -> PreparedRun:
    binding = store.binding()
    entry = index_entry(binding["index"])
    pack = frozen(context.settings.data_root, spec.pack, str(binding["pack_digest"]))
    resumed_uid = str(binding["resumed_uid"])
    records = kept_entries(context.settings.data_root, resumed_uid) if resumed_uid else ()
    inputs = _PinnedInputs(
        kept=frozenset(_tasks(records)),
        bounds=TaskLimits(**_numbers(binding["limits"])),
        audit=binding.get("audit") is True,
        answers=_bound_answers(store),
        agent_version=_agent_version(binding),
        pack_audit=PackAudit(str(binding.get("pack_audit", PackAudit.NONE))),
        overlay=str(binding.get("overlay") or ""),
        regrade=_regrade(binding),
    )
    plan, oracle_answers = _plan(context, run, spec, pack, inputs)
    plan_mismatch = ""
    if plan.digest != binding["plan_digest"]:
        plan = _as_bound(plan, entry, binding)
        plan_mismatch = (
            f"the plan of run {run.name} is not the one it was started with; this operator is "
            f"version {VERSION}, the run began with {binding['operator_version']}"
        )
    kept = records if plan.regrade is None else taken_over(store)
    return PreparedRun(plan, store, pack, entry, kept, oracle_answers.by_id, plan_mismatch)


def _regrade(binding: Mapping[str, object]) -> EarlierRun | None:
    known = binding.get("regrade")
    return TypeAdapter(EarlierRun).validate_python(known) if known is not None else None


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
class _PinnedInputs:
    """What a run keeps from its first start, whatever the settings are later.

    Attributes:
        kept: Tasks whose records come from an earlier run.
        bounds: Contract 15.7.
        audit: Whether the run examines a pack.
        answers: Content of the pack's reference answers, for an oracle.
        agent_version: Of the tool of a model provider; empty: none was chosen yet. What a run
            continues began with counts too, so that ``latest`` means one version throughout.
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


def _overlays(offered: Overlays, harness_type: str, inputs: _PinnedInputs) -> Overlays:
    """Add to what the settings offer the version that a run began with."""
    if not inputs.overlay:
        return offered
    begun_with = {inputs.agent_version: inputs.overlay}
    return {**offered, harness_type: begun_with | dict(offered.get(harness_type, {}))}


def _agent_version(binding: Mapping[str, object]) -> str:
    return str(binding.get("agent_version") or "")


def _tasks(kept: Iterable[Kept]) -> Iterator[int]:
    return (entry.finish.key.task for entry in kept)


def _numbers(value: object) -> dict[str, int]:
    return TypeAdapter(dict[str, int]).validate_python(value)


def _plan(
    context: Context,
    run: RunObject,
    spec: BenchmarkRunSpec,
    pack: FrozenPack,
    inputs: _PinnedInputs,
) -> tuple[RunPlan, Answers]:
    harness = spec_harness(spec)
    loaded = _load(pack, spec, harness.task_file, inputs.kept)
    answers = _answers(spec, loaded.tasks, inputs.answers)
    plan = build_plan(
        PlanInputs(
            identity=RunIdentity(run.uid, run.name, run.namespace, spec.run_id or run.name),
            spec=spec,
            manifest=loaded.pack.manifest,
            tasks=loaded.tasks,
            pack_digest=pack.digest,
            pods=pod_policy(
                spec,
                context.settings,
                context.node_name,
                launch_probes(spec, context.targets),
                context.tools,
                run.queue,
            ),
            policy=run_policy(spec, context.settings),
            limits=inputs.bounds,
            audit=inputs.audit,
            pack_audit=inputs.pack_audit,
            answers_digest=answers.digest,
            kept=inputs.kept,
            overlays=_overlays(overlays(context.settings), harness.type, inputs),
            agent_version=inputs.agent_version,
            providers=cluster_providers(context.settings),
            regrade=inputs.regrade,
        )
    )
    return plan, answers


def _bound_answers(store: RunStore) -> bytes | None:
    """Return the reference answers that a run began with; None for one without an oracle."""
    path = store.folder / ANSWERS
    return path.read_bytes() if path.exists() else None


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
    pack: FrozenPack, spec: BenchmarkRunSpec, task_file: str, kept: Collection[int]
) -> LoadedPack:
    limit = spec.task_selector.limit
    if limit is not None and kept:
        limit = max(limit, max(kept) + 1)
    try:
        return load_tasks(pack.manifest, pack.tasks, limit=limit, task_file=task_file)
    except ConfigErrors as errors:
        raise ConfigErrors([_relative(error, pack.folder) for error in errors.errors]) from None


def _relative(error: Exception, folder: Path) -> PackError:
    if not isinstance(error, PackError):
        return PackError(str(error))
    path = error.path
    if path is not None and Path(path).is_relative_to(folder):
        path = str(Path(path).relative_to(folder))
    return PackError(error.reason, path=path, line=error.line)


def _index_entry(plan: RunPlan, now: str, resumed: IndexEntry | None) -> IndexEntry:
    return IndexEntry(
        run=plan.identity.name,
        uid=plan.identity.uid,
        run_id=plan.identity.run_id,
        pack=plan.pack_id,
        pack_digest=plan.pack_digest,
        harness_digest=plan.harness.digest,
        verifier_version=plan.verifier_version,
        started_at=now,
        resume_generation=resumed.resume_generation + 1 if resumed is not None else 0,
        regrade_of=plan.regrade.uid if plan.regrade is not None else "",
    )
