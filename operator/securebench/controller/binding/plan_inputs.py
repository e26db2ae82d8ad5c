"""What a run's plan is built from: its frozen pack, the settings, and what its first start pinned.

Every function blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from securebench.agents.harness import ORACLE
from securebench.benchmark.files.load import LoadedPack, load_tasks
from securebench.benchmark.pack.oracle import Answers, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.controller.context import Context, FrozenPack, RunObject
from securebench.controller.policy_from_settings import (
    cluster_providers,
    launch_probes,
    overlays,
    pod_policy,
    run_policy,
)
from securebench.errors import ConfigErrors, PackError
from securebench.protocol.audit_result import PackAudit
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import PlanInputs, build_plan, selected
from securebench.run.plan.model import EarlierRun, PodPolicy, RunIdentity, RunPlan, TaskLimits
from securebench.run.plan.score_fields import Overlays, spec_harness
from securebench.run.state.entries import Kept


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
