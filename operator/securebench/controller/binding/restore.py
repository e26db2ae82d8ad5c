"""A run that an earlier start bound, as that start bound it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from securebench.controller.binding.binding_file import pinned_inputs, read_answers
from securebench.controller.binding.plan_inputs import bound_plan, kept_tasks
from securebench.controller.binding.take_over import kept_entries, taken_over
from securebench.controller.context import Context, PreparedRun, RunObject
from securebench.controller.packs import frozen
from securebench.controller.volume.registers import IndexEntry, index_entry
from securebench.controller.volume.store import RunStore
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.model import RunPlan
from securebench.version import VERSION


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
