"""What of a task the agent will see, and what only its verifier sees, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from securebench.agents.harness import HarnessConfig
from securebench.benchmark.files.load import asset_source
from securebench.benchmark.pack.lane_plan import LaneFile, lane_plan
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.run.plan.build import task_plan
from securebench.run.plan.model import TaskPlan

_COPY_FOR_THE_EVALUATOR = "hidden/public/"


class VisibleFile(TypedDict):
    """A file, or a folder as a whole; paths of the agent are absolute, others relative."""

    path: str
    files: int
    size_bytes: int
    read_only: bool


class VisibleSide(TypedDict):
    """One side: values by name, and files."""

    values: Mapping[str, object]
    files: Sequence[VisibleFile]


class TaskVisibility(TypedDict):
    """One task; of a time limit null means none, an empty network that there is none."""

    id: str
    family: str
    image: str
    working_folder: str
    agent_seconds: float | None
    network: Sequence[str]
    candidate: Mapping[str, str | None]
    verifier: str
    check_seconds: float | None
    agent: VisibleSide
    evaluation_inputs: VisibleSide
    hidden: VisibleSide


def task_visibility(
    index: int,
    task: SecureBenchTask,
    harness: HarnessConfig,
    policy: VerificationPolicy,
    pack_root: Path,
) -> TaskVisibility:
    """Return both sides of a task that compiles.

    Args:
        index: Position of the row in the pack, from 0.
        task: The task.
        harness: What the agent is.
        policy: What the tester's verifiers may do.
        pack_root: Folder of the manifest.

    Raises:
        PackError: The plan of the task does not hold.
    """
    plan = task_plan(index, task, harness, policy)
    files = lane_plan(task, harness.task_file).files
    sides = {
        side: [_visible_file(file, plan, pack_root) for file in files if _side(file) == side]
        for side in Lane
    }
    return TaskVisibility(
        id=task.id,
        family=task.task_type,
        image=plan.image,
        working_folder=plan.workdir,
        agent_seconds=plan.timeout_seconds,
        network=harness.effective_domains,
        candidate={
            "kind": plan.extraction.kind,
            "from": plan.extraction.mode.value,
            "path": plan.extraction.path,
        },
        verifier=plan.verifier.value,
        check_seconds=_check_seconds(plan),
        agent=VisibleSide(values=task.agent_payload(), files=sides[Lane.PUBLIC]),
        evaluation_inputs=_values(task, Lane.EVALUATION_INPUTS, sides),
        hidden=_values(task, Lane.HIDDEN, sides),
    )


def _values(
    task: SecureBenchTask, lane: Lane, sides: Mapping[Lane, Sequence[VisibleFile]]
) -> VisibleSide:
    values = {resource.name: resource.value for resource in task.resources.in_lane(lane)}
    return VisibleSide(values=values, files=sides[lane])


def _check_seconds(plan: TaskPlan) -> float | None:
    limited = plan.check or plan.code
    return None if limited is None else limited.timeout_seconds


def _side(file: LaneFile) -> Lane | None:
    """Return whose a file is; copies of public values for the evaluator are nobody's secret."""
    if file.path.startswith(_COPY_FOR_THE_EVALUATOR):
        return None
    return Lane(file.path.split("/", 1)[0])


def _visible_file(file: LaneFile, plan: TaskPlan, pack_root: Path) -> VisibleFile:
    is_public = _side(file) is Lane.PUBLIC
    path = f"{plan.workspace.rstrip('/')}/{file.place}" if is_public else file.place
    if file.content is not None or file.reference is None:
        size = len(file.content or b"")
        return VisibleFile(path=path, files=1, size_bytes=size, read_only=not is_public)
    sizes = list(_sizes(asset_source(pack_root, file.root, file.reference)))
    return VisibleFile(
        path=path,
        files=len(sizes),
        size_bytes=sum(sizes),
        read_only=file.reference.read_only,
    )


def _sizes(source: Path) -> Iterator[int]:
    paths: Iterable[Path] = source.rglob("*") if source.is_dir() else [source]
    return (path.stat().st_size for path in paths if path.is_file())
