"""Whether a run may grade an earlier one again: its agent must have seen the same.

Source: decision 0071.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from securebench.agents.harness_config import HarnessConfig
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.files.public_data import public_digest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.controller.admission.pack_source import frozen
from securebench.controller.context import FrozenPack
from securebench.controller.volume.registers import IndexEntry
from securebench.errors import ConfigErrors, SpecError
from securebench.json_values import object_at
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.model import RunPlan, TaskPlan
from securebench.run.plan.score_fields import spec_harness
from securebench.run.plan.tasks import task_plan
from securebench.text import listed


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
        _check_tasks(earlier.run, _Shown(before, spec), plan, pack)


class _Shown:
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


def _check_tasks(run: str, shown: _Shown, plan: RunPlan, pack: FrozenPack) -> None:
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
    shown: _Shown, before: Mapping[int, TaskPlan], plan: RunPlan, pack: FrozenPack
) -> Iterator[str]:
    for index, task in plan.tasks.items():
        old, new = shown.aspects(before[index]), shown.aspects(task, pack)
        names = [name for name in old if old[name] != new[name]]
        if names:
            yield f"{task.task.id!r} ({', '.join(names)})"
