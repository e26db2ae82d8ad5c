"""The earlier run that a new one names: whether it may be resumed, or graded again.

Names and run ids can be used again by anybody. So one that several runs on the volume have names
none of them; the spec then has the uid. A run is bound to the uid that it found when it began.
A run grades an earlier one again only if its agent must have seen the same (decision 0071).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from securebench.agents.harness import HarnessConfig
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.files.materialize import public_digest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.cluster.port import ObjectKind
from securebench.controller.context import Context, FrozenPack
from securebench.controller.packs import frozen
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import on_volume
from securebench.errors import ConfigErrors, SpecError
from securebench.json_values import object_at, object_in, text_at
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import task_plan
from securebench.run.plan.model import RunPlan, TaskPlan
from securebench.run.plan.score_fields import spec_harness
from securebench.text import listed


async def resumed_run(context: Context, spec: BenchmarkRunSpec, uid: str) -> IndexEntry | None:
    """Return the run that a new one resumes, or None where it resumes none.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        spec: Spec of the new run.
        uid: UID of the new run, which may be in the index already.

    Raises:
        SpecError: There is no such run, or more than one, its results are gone, it has not
            ended, or it is a regrade.
        ClusterError: The API server did not answer.
    """
    if spec.resume_from is None:
        return None
    name = spec.resume_from.run
    named = await on_volume(RunIndex(context.settings.data_root).named, name)
    others = [entry for entry in named if entry.uid != uid]
    entry = _only(others, "resumeFrom", name, spec.resume_from.uid)
    found = await _ended(context, entry, "resumeFrom")
    if found.regrade_of:
        raise SpecError(
            f"spec.resumeFrom.run: run {name!r} only graded another run again; resume that one"
        )
    return found


async def regraded_run(context: Context, spec: BenchmarkRunSpec, uid: str) -> IndexEntry | None:
    """Return the run that a new one grades again, or None where it grades none.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        spec: Spec of the new run.
        uid: UID of the new run, which may be in the index already.

    Raises:
        SpecError: There is no such run, or more than one, its results are gone, or it has not
            ended.
        ClusterError: The API server did not answer.
    """
    if spec.regrade is None:
        return None
    name = spec.regrade.run
    entries = await on_volume(RunIndex(context.settings.data_root).entries)
    others = [each for each in entries if each.uid != uid and name in (each.run, each.run_id)]
    return await _ended(context, _only(others, "regrade", name, spec.regrade.uid), "regrade")


def _only(entries: Collection[IndexEntry], field: str, name: str, uid: str | None) -> IndexEntry:
    """Return the one run that a name means, or the one that has the uid of the spec."""
    found = [entry for entry in entries if uid in (None, entry.uid)]
    if not found:
        which = f" with uid {uid}" if uid is not None else ""
        raise SpecError(f"spec.{field}.run: there is no run {name!r}{which} on this volume")
    if len(found) > 1:
        which = listed([f"{each.run} of {each.started_at}, uid {each.uid}" for each in found])
        raise SpecError(
            f"spec.{field}.run: {name!r} may be any of {len(found)} runs on this volume: {which}; "
            f"set spec.{field}.uid to the one that is meant"
        )
    return found[0]


async def _ended(context: Context, entry: IndexEntry, field: str) -> IndexEntry:
    name = entry.run
    if entry.removed_at:
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} were removed at {entry.removed_at}; "
            f"start a run without {field}"
        )
    store = RunStore(context.settings.data_root, entry.uid)
    if not await on_volume(store.exists):
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} are not on this volume any more; "
            f"start a run without {field}"
        )
    there = text_at(object_at(await on_volume(store.binding), "index"), "uid")
    if there != entry.uid:
        raise SpecError(
            f"spec.{field}.run: the folder of run {name!r}, uid {entry.uid}, holds results of uid"
            f" {there}: restore the results volume from a copy"
        )
    if not entry.outcome and await _is_there(context, entry):
        raise SpecError(f"spec.{field}.run: run {name!r} has not ended; cancel it or wait")
    return entry


async def _is_there(context: Context, entry: IndexEntry) -> bool:
    """Whether the BenchmarkRun of an entry still exists; a deleted one will never end."""
    found = await context.cluster.get(ObjectKind.BENCHMARK_RUN, entry.run)
    return text_at(object_at(object_in(found), "metadata"), "uid") == entry.uid


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


def check_regrade(
    root: Path,
    earlier: IndexEntry,
    binding: Mapping[str, object],
    plan: RunPlan,
    pack: FrozenPack,
) -> None:
    """Refuse a regrade whose candidates were made under other conditions. Blocks.

    Args:
        root: Root of the volume.
        earlier: The run that is graded again.
        binding: What that is bound to.
        plan: Plan of the regrade.
        pack: Pack of the regrade.

    Raises:
        SpecError: Harness or attempts differ, a task is another one or shows its agent other data,
            or this version does not read the earlier run's pack.
        PackError: The earlier run's copy of its pack is gone.
    """
    spec = BenchmarkRunSpec.parse(object_at(binding, "spec"))
    pairs = (
        ("harness", earlier.harness_digest, plan.harness.digest),
        ("attempts", spec.attempts, plan.policy.attempts),
    )
    for name, old, new in pairs:
        if old != new:
            raise SpecError(
                f"spec.regrade: {name} differs: run {earlier.run!r} had {old}, this run has {new}"
            )
    if earlier.pack_digest != plan.pack_digest:
        before = frozen(root, earlier.pack_digest)
        _check_tasks(earlier.run, _ShownTasks(before, spec), plan, pack)


class _ShownTasks:
    """What an earlier run showed its agent of its tasks."""

    def __init__(self, pack: FrozenPack, spec: BenchmarkRunSpec) -> None:
        self.harness: HarnessConfig = spec_harness(spec)
        self._pack = pack

    def tasks(self, wanted: Iterable[int]) -> dict[int, TaskPlan]:
        """Return the tasks at these places of the pack that it has."""
        places = set(wanted)
        try:
            loaded = load_tasks(
                self._pack.manifest,
                self._pack.tasks,
                limit=max(places) + 1,
                task_file=self.harness.task_file,
            )
        except ConfigErrors as errors:
            message = f"this version does not read the earlier run's pack: {errors.errors[0]}"
            raise SpecError(f"spec.regrade: {message}") from None
        policy = VerificationPolicy()
        return {
            index: task_plan(index, task, self.harness, policy)
            for index, task in enumerate(loaded.tasks)
            if index in places
        }

    def aspects(self, task: TaskPlan, pack: FrozenPack | None = None) -> dict[str, object]:
        """Return what an agent saw of a task, by what a message calls it."""
        root = (pack or self._pack).manifest.parent
        return {
            "family": task.task.task_type,
            "image": task.image,
            "workspace": (task.workspace, task.workdir, task.materialize_from),
            "time limit": task.timeout_seconds,
            "form of the answer": (task.extraction, task.command),
            "public data": public_digest(task.task, root, self.harness.task_file),
        }


def _check_tasks(run: str, shown: _ShownTasks, plan: RunPlan, pack: FrozenPack) -> None:
    before = shown.tasks(plan.tasks)
    others = [
        repr(task.task.id)
        for index, task in plan.tasks.items()
        if index not in before or before[index].task.id != task.task.id
    ]
    if others:
        raise SpecError(
            f"spec.regrade: {listed(others)} stood elsewhere or not at all in the pack of run "
            f"{run!r}; keep its rows and their order, or choose tasks with taskSelector"
        )
    changed = list(_changed(shown, before, plan, pack))
    if changed:
        raise SpecError(
            f"spec.regrade: the agent of run {run!r} saw something else of {listed(changed)}; "
            "only hidden data and tests may change, start a new run for the rest"
        )


def _changed(
    shown: _ShownTasks, before: Mapping[int, TaskPlan], plan: RunPlan, pack: FrozenPack
) -> Iterator[str]:
    for index, task in plan.tasks.items():
        old, new = shown.aspects(before[index]), shown.aspects(task, pack)
        names = [name for name in old if old[name] != new[name]]
        if names:
            yield f"{task.task.id!r} ({', '.join(names)})"
