"""The commands ``securebench pack``: packs on this machine, in registries and on the volume.

* ``lint`` checks a local pack, or Harbor task folders; with ``--watch`` it polls the files, which
  works on every file system.
* ``show`` prints the digests of a local pack, and who sees what of a task.
* ``build``, ``push --image`` and ``pull`` handle packs as OCI artifacts.
* ``push``, ``show NAME``, ``list`` and ``rm`` manage packs on the results volume.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypedDict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from securebench.agents.harness import CommandHarness, HarnessConfig
from securebench.agents.registry import harness_config
from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.files.folders import (
    built_image,
    is_folder_pack,
    read_folder_pack,
    refusals,
)
from securebench.benchmark.files.load import (
    CheckedPack,
    asset_source,
    check_upload,
    load_benchmark_manifest,
    pack_digest,
    pack_file,
    read_answers,
)
from securebench.benchmark.harbor.config import FindingKind
from securebench.benchmark.harbor.folder import (
    INSTRUCTION as INSTRUCTION_FILE,
)
from securebench.benchmark.harbor.folder import (
    FolderReading,
    HarborTask,
    built_folders,
    cannot_run,
    flags_of_run,
    holds_tasks,
    read_folders,
)
from securebench.benchmark.lint import (
    LintFinding,
    LintRule,
    Severity,
    lint_graders,
    lint_harness,
    lint_pack,
)
from securebench.benchmark.pack.lane_plan import TASK_FILE, LaneFile, lane_plan
from securebench.benchmark.pack.oracle import ANSWERS_FILE, reference_answers
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.benchmark.pack.task import CompiledTask, SecureBenchTask
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.client.follow import pack_path, run_state
from securebench.client.output import print_error, print_json, print_line, print_table
from securebench.client.submit import LocalPack, absent_files, local_pack, pack_folder
from securebench.client.tester_config import TESTER_FILE, TesterConfig, load_tester_config
from securebench.client.volume import LOCAL_LIMITS, ClusterTarget, Connection, open_connection
from securebench.cluster.port import ObjectKind
from securebench.errors import ConfigErrors, InvalidInputError, PackError, PlacedError
from securebench.names import ImageReference, image_reference
from securebench.oci.access import RegistryAccess, RegistryAdvice, RegistryLogin, docker_credentials
from securebench.oci.pack_image import PackLanes, build_pack, pull_pack, push_pack, write_layout
from securebench.oci.registry import Registry, registry_session
from securebench.protocol.candidate import ExtractionMode
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE
from securebench.run.plan.build import task_plan
from securebench.run.plan.model import TaskPlan
from securebench.text import did_you_mean, listed, printable, printable_lines, snippet


@dataclass(frozen=True, slots=True)
class PackFiles:
    """Locates a local pack: by its tester YAML, its folder, or manifest and task file."""

    config: Path | None = None
    manifest: Path | None = None
    tasks: Path | None = None


@dataclass(frozen=True, slots=True)
class PackSource:
    """The files of a local pack; ``config`` is None where no tester YAML names them."""

    manifest: Path
    tasks: Path
    config: TesterConfig | None


def pack_source(files: PackFiles) -> PackSource:
    """Return manifest and task file.

    Raises:
        InvalidInputError: Nothing names the pack.
        ConfigErrors: The tester YAML does not hold.
    """
    folder = _harbor_folder(files)
    if folder is not None:
        return PackSource(folder / MANIFEST_FILE, folder / TASKS_FILE, None)
    if files.config is not None:
        config = load_tester_config(files.config)
        return PackSource(config.benchmark.manifest, config.benchmark.tasks, config)
    if files.manifest is None or files.tasks is None:
        raise InvalidInputError("name the pack with --config, or with --manifest and --tasks")
    return PackSource(files.manifest, files.tasks, None)


def valid_pack(source: PackSource, checked: CheckedPack) -> LocalPack:
    """Return the pack as it is uploaded.

    Raises:
        ConfigErrors: All its defects.
    """
    if checked.pack is None or checked.errors:
        raise ConfigErrors(checked.errors)
    return local_pack(source.manifest, source.tasks, checked.pack.manifest)


POLL_SECONDS = 0.5
"""Between two looks."""

_Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def each_version(files: PackFiles) -> Iterator[Mapping[Path, _Stamp]]:
    """Yield what the pack's files look like: now, and after each change.

    Args:
        files: Looked up again each time, since a tester YAML may come to name other files.
    """
    seen: Mapping[Path, _Stamp] | None = None
    while True:
        found = stamps(files)
        if found != seen:
            seen = found
            yield found
        time.sleep(POLL_SECONDS)


def stamps(files: PackFiles) -> Mapping[Path, _Stamp]:
    """Return when each file that lint may read was changed; files that are not there are left out.

    Everything below the manifest's folder counts, but for the run's output folder.
    """
    paths = {path for path in (files.config, files.manifest, files.tasks) if path is not None}
    folder = _harbor_folder(files)
    if folder is not None:
        return _stamped({*paths, *folder.rglob("*")})
    try:
        source = pack_source(files)
    except ConfigErrors:
        return _stamped(paths)
    return _stamped({*paths, source.manifest, source.tasks, *_below(source)})


def _below(source: PackSource) -> Iterator[Path]:
    output = None if source.config is None else source.config.run.output_dir.resolve()
    for folder, folders, names in os.walk(source.manifest.parent.resolve()):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name != output]
        yield from (here / name for name in (*folders, *names))


def _stamped(paths: set[Path]) -> Mapping[Path, _Stamp]:
    found = {}
    for path in paths:
        try:
            state = path.lstat()
        except OSError:
            continue
        found[path] = (state.st_mtime_ns, state.st_size)
    return found


def lint(files: PackFiles, *, strict: bool, as_json: bool) -> int:
    """Lint a pack, print the findings and return the exit code."""
    findings = _linted(files, as_json=as_json)
    errors = _count(findings, Severity.ERROR)
    return 1 if errors or (strict and findings) else 0


def watch(files: PackFiles, *, as_json: bool) -> int:
    """Lint a pack now and after each change of its files; ends with an interrupt."""
    for _ in each_version(files):
        if not as_json:
            print_line("pack lint begins")
        _linted(files, as_json=as_json)
    return 0


def _linted(files: PackFiles, *, as_json: bool) -> Sequence[LintFinding]:
    """Print what is wrong with a pack, or with Harbor task folders, and return it."""
    folder = _harbor_folder(files)
    if folder is not None:
        return _lint_folders(folder, as_json=as_json)
    findings = pack_findings(files)
    _print(findings, as_json=as_json)
    return findings


def _harbor_folder(files: PackFiles) -> Path | None:
    """Return the folder with Harbor tasks that stands for a pack, unless it has a tester YAML."""
    folder = files.config
    if folder is None or (folder / TESTER_FILE).exists() or not holds_tasks(folder):
        return None
    return folder


def _lint_folders(folder: Path, *, as_json: bool) -> Sequence[LintFinding]:
    reading = read_folders(folder)
    findings = [finding for task in reading.tasks for finding in _folder_findings(task)]
    findings.sort(key=lambda finding: finding.severity is not Severity.ERROR)
    errors = _count(findings, Severity.ERROR)
    warnings = len(findings) - errors
    if as_json:
        print_json(
            {
                "errors": errors,
                "warnings": warnings,
                "findings": [_as_json(finding) for finding in findings],
                "folders": [_folder_as_json(task) for task in reading.tasks],
                "beside": reading.beside,
            }
        )
        return findings
    for task in reading.tasks:
        ignored = listed([each.key for each in task.of_kind(FindingKind.IGNORED)])
        verdict = " ".join(["runs", *_flags(task)]) if _runs(task) else "refused"
        print_line(f"{verdict}: {task.id}{f' (ignored: {ignored})' if ignored else ''}")
    if reading.beside:
        print_line(f"no task folders: {listed(reading.beside)}")
    _print_lines(findings)
    running = sum(map(_runs, reading.tasks))
    counts = f"folders={len(reading.tasks)} run={running} refused={len(reading.tasks) - running}"
    print_line(f"pack lint errors={errors} warnings={warnings} {counts}")
    return findings


def _runs(task: FolderReading) -> bool:
    return task.task is not None and not cannot_run(task.task)


def _flags(task: FolderReading) -> list[str]:
    return [] if task.task is None else flags_of_run(task.task)


def _folder_findings(task: FolderReading) -> Iterator[LintFinding]:
    severities = {FindingKind.REFUSED: Severity.ERROR, FindingKind.REMARK: Severity.WARNING}
    found = [] if task.task is None else cannot_run(task.task)
    for each in (*task.findings, *found):
        if each.kind in severities:
            path = str(task.folder / each.file)
            yield LintFinding(
                severities[each.kind], path, each.line, str(each), LintRule.HARBOR_FOLDER
            )


def _folder_as_json(task: FolderReading) -> dict[str, object]:
    ignored = [
        {"file": each.file, "key": each.key, "reason": each.reason}
        for each in task.of_kind(FindingKind.IGNORED)
    ]
    return {"id": task.id, "runs": _runs(task), "flags": _flags(task), "ignored": ignored}


def pack_findings(files: PackFiles) -> list[LintFinding]:
    """Return what is wrong with a pack and the tester YAML that names it, errors first."""
    try:
        source = pack_source(files)
    except ConfigErrors as broken:
        return _as_findings(broken.errors)
    absent = () if source.config is None else absent_files(source.config)
    if absent:
        return [*_harness(source.config)[1], *_as_findings(absent)]
    findings = _source_findings(source)
    return sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)


def _source_findings(source: PackSource) -> list[LintFinding]:
    harness, findings = _harness(source.config)
    task_file = harness.task_file if harness is not None else TASK_FILE
    checked = check_upload(source.manifest, source.tasks, task_file=task_file)
    findings += (*lint_pack(checked), *lint_graders(checked))
    findings += _answer_findings(source.manifest.parent, checked)
    if source.config is not None:
        findings += harness_findings(source.config, harness, checked)
    return findings


def harness_findings(
    config: TesterConfig, harness: HarnessConfig | None, checked: CheckedPack
) -> tuple[LintFinding, ...]:
    """Return the warnings of the harness that a tester YAML names.

    Args:
        config: Names harness and pack.
        harness: None where its configuration does not hold.
    """
    command = harness if isinstance(harness, CommandHarness) else None
    return lint_harness(
        config.harness.env,
        artifact_path=command.artifact_path if command is not None else None,
        takes_checkout=command is not None and command.extraction == ExtractionMode.GIT_DIFF,
        task_types=None if checked.errors else {task.task_type for _, task in checked.tasks},
        path=str(config.source),
    )


def _answer_findings(folder: Path, checked: CheckedPack) -> list[LintFinding]:
    """Return what is wrong with the reference answers: it stops audits, and runs of the oracle."""
    tasks = [item.task for item in checked.tasks]
    try:
        content = read_answers(folder)
        if content is not None:
            reference_answers(
                content,
                tasks,
                {task.id for task in tasks},
                is_whole=not checked.errors,
                path=str(folder / ANSWERS_FILE),
            )
    except ConfigErrors as broken:
        return _as_findings(broken.errors, Severity.WARNING)
    except InvalidInputError as error:
        return _as_findings([error], Severity.WARNING)
    return []


def _harness(config: TesterConfig | None) -> tuple[HarnessConfig | None, list[LintFinding]]:
    if config is None:
        return None, []
    try:
        return harness_config(config.harness.type, config.harness.config), []
    except ConfigErrors as broken:
        return None, _as_findings(config.placed(broken).errors)


def _as_findings(
    errors: Iterable[InvalidInputError], severity: Severity = Severity.ERROR
) -> list[LintFinding]:
    return [
        LintFinding(severity, error.path, error.line, error.reason)
        if isinstance(error, PlacedError)
        else LintFinding(severity, None, None, error.reason)
        for error in errors
    ]


def _print(findings: Sequence[LintFinding], *, as_json: bool) -> None:
    errors = _count(findings, Severity.ERROR)
    warnings = len(findings) - errors
    if as_json:
        items = [_as_json(finding) for finding in findings]
        print_json({"errors": errors, "warnings": warnings, "findings": items})
        return
    _print_lines(findings)
    print_line(f"pack lint errors={errors} warnings={warnings}")


def _print_lines(findings: Iterable[LintFinding]) -> None:
    for finding in findings:
        hint = f"; {finding.hint}" if finding.hint else ""
        print_line(f"{finding.severity}: {finding}{hint}")


def _as_json(finding: LintFinding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "path": finding.path,
        "line": finding.line,
        "rule": finding.rule.value,
        "message": finding.message,
        "hint": finding.hint or None,
    }


def _count(findings: Iterable[LintFinding], severity: Severity) -> int:
    return sum(1 for finding in findings if finding.severity is severity)


_SHOWN_CHARACTERS = 600
"""Of one value, in text; JSON has all of it."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What is shown beside the digests: one task, by id or ``#INDEX``, or all, or none."""

    task: str | None = None
    is_all: bool = False
    as_json: bool = False


class _Summary(TypedDict):
    pack: str
    digest: str
    content: str
    files: int
    size_bytes: int
    families: dict[str, int]


def show_local(files: PackFiles, options: ShowOptions) -> int:
    """Print digests and size of a local pack, and what agent and verifier see of its tasks.

    Of Harbor task folders it prints what they say.
    """
    folder = _harbor_folder(files)
    if folder is not None:
        return _show_folders(folder, options)
    source = pack_source(files)
    checked = check_upload(source.manifest, source.tasks)
    pack = valid_pack(source, checked)
    harness, policy = _shown_harness(source.config)
    visible_tasks = [
        task_visibility(index, item.task, harness, policy, source.manifest.parent)
        for index, item in _chosen(checked.tasks, options)
    ]
    if options.as_json:
        print_json({**_summary(pack, checked.tasks), "tasks": visible_tasks})
        return 0
    _print_summary(_summary(pack, checked.tasks))
    for visible in visible_tasks:
        _print_task(visible, "not chosen" if source.config is None else harness.type)
    return 0


def _show_folders(folder: Path, options: ShowOptions) -> int:
    reading = read_folders(folder)
    errors = [
        PackError(str(each), path=str(task.folder / each.file), line=each.line)
        for task in reading.tasks
        for each in task.of_kind(FindingKind.REFUSED)
    ]
    if errors:
        raise ConfigErrors(errors)
    tasks = [each.task for each in reading.tasks if each.task is not None]
    shown = [harbor_task_view(task) for task in _chosen_folders(tasks, options)]
    pack = read_folder_pack(folder / MANIFEST_FILE)
    digest = None if pack.errors else pack.digest
    if options.as_json:
        summary = {"pack": pack.manifest.id, "digest": digest}
        print_json({**summary, "folders": [task.id for task in tasks], "tasks": shown})
        return 0
    if digest is not None:
        print_line(f"pack {pack.manifest.id} digest={digest} tasks={len(pack.tasks)}")
    for task in tasks:
        print_line(f"folder {task.id} image={harbor_task_view(task)['image']}")
    for view in shown:
        print_line(f"task {view['id']}")
        for name, value in view.items():
            if name != "id" and value not in (None, [], {}):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                print_line(f"  {name}: {text}")
    return 0


def _chosen_folders(tasks: Sequence[HarborTask], options: ShowOptions) -> Sequence[HarborTask]:
    if options.task is None:
        return tasks if options.is_all else ()
    for index, task in enumerate(tasks):
        if options.task in (task.id, f"#{index}"):
            return [task]
    hint = did_you_mean([options.task], [task.id for task in tasks])
    raise InvalidInputError(f"there is no task folder {options.task!r}{hint}")


def harbor_task_view(task: HarborTask) -> Mapping[str, object]:
    """Return what a Harbor task folder says, in values that have a JSON form."""
    config, environment = task.config, task.config.environment
    return {
        "id": task.id,
        "name": None if config.task is None else config.task.name,
        "image": environment.docker_image or f"environment/{task.image}",
        "limits": {
            name: value
            for name in ("cpus", "memory_mb", "storage_mb")
            if (value := getattr(environment, name)) is not None
        },
        "workdir": environment.workdir,
        "skills_dir": environment.skills_dir,
        "agent": {
            "timeout_sec": config.agent.timeout_sec,
            "user": config.agent.user,
            "network": config.agent_network()._asdict(),
        },
        "verifier": {
            "mode": config.verifier_mode(),
            "timeout_sec": config.verifier.timeout_sec,
            "user": config.verifier.user,
            "network": config.verifier_network()._asdict(),
        },
        "separate_verifiers": [
            {"step": each.step, "image": each.image or each.folder, "tests": each.brings_tests}
            for each in task.verifiers
        ],
        "artifacts": [each.source for each in config.artifacts],
        "collect": [each.command for each in config.verifier.collect],
        "steps": [each.name for each in task.steps],
        "services": [each.name for each in task.services],
        "variables_from_outside": {place: found._asdict() for place, found in config.templates()},
        "files": {"tests": len(task.tests), "solution": len(task.solution)},
        "instruction": snippet(task.instruction),
    }


def _shown_harness(config: TesterConfig | None) -> tuple[HarnessConfig, VerificationPolicy]:
    if config is None:
        return CommandHarness(command=("true",)), VerificationPolicy()
    try:
        return harness_config(config.harness.type, config.harness.config), config.verification
    except ConfigErrors as broken:
        raise config.placed(broken) from None


def _chosen(
    tasks: Sequence[CompiledTask], options: ShowOptions
) -> Iterable[tuple[int, CompiledTask]]:
    if options.task is None:
        return enumerate(tasks) if options.is_all else ()
    for index, item in enumerate(tasks):
        if options.task in (item.task.id, f"#{index}"):
            return [(index, item)]
    hint = did_you_mean([options.task], [item.task.id for item in tasks])
    raise InvalidInputError(f"the pack has no task {options.task!r}{hint}")


def _summary(pack: LocalPack, tasks: Sequence[CompiledTask]) -> _Summary:
    receipt = files_receipt(pack.files, LOCAL_LIMITS)
    families = Counter(item.task.task_type for item in tasks)
    return _Summary(
        pack=pack.id,
        digest=pack.digest,
        content=receipt.digest,
        files=receipt.files,
        size_bytes=receipt.size_bytes,
        families=dict(sorted(families.items())),
    )


def _print_summary(summary: _Summary) -> None:
    families = summary["families"]
    print_line(f"pack {summary['pack']} digest={summary['digest']}")
    print_line(
        f"content={summary['content']} files={summary['files']}"
        f" size_bytes={summary['size_bytes']} tasks={sum(families.values())}"
    )
    for family, count in families.items():
        print_line(f"{family}={count}")


def _print_task(visible: TaskVisibility, harness: str) -> None:
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    table = Table(expand=True, show_lines=True)
    for side in ("the agent sees", "only the verifier sees"):
        table.add_column(side, overflow="fold")
    table.title = Text(f"{printable(visible['id'])} ({printable(visible['family'])})")
    table.title_justify = "left"
    secret = [("evaluation_inputs", visible["evaluation_inputs"]), ("hidden", visible["hidden"])]
    table.add_row(Text("\n".join(_agent_facts(visible, harness))), Text(_verifier_facts(visible)))
    table.add_row(
        Text("\n".join(_value_lines(visible["agent"]))),
        Text("\n".join(line for lane, side in secret for line in _value_lines(side, lane))),
    )
    table.add_row(
        Text("\n".join(_file_lines(visible["agent"]["files"]))),
        Text("\n".join(line for _, side in secret for line in _file_lines(side["files"]))),
    )
    console.print(table)


def _agent_facts(visible: TaskVisibility, harness: str) -> Iterator[str]:
    candidate = visible["candidate"]
    yield f"image: {printable(visible['image'])}"
    yield f"harness: {harness}, starts in {visible['working_folder']}"
    yield f"time: {_seconds(visible['agent_seconds'])}"
    yield f"network: {', '.join(visible['network']) or 'none'}"
    path = f" {candidate['path']}" if candidate["path"] else ""
    source = "" if candidate["from"] == candidate["kind"] else f" from {candidate['from']}"
    yield f"hands in: {candidate['kind']}{source}{path}"


_NOT_JUDGED = "none: the task stays pending"


def _verifier_facts(visible: TaskVisibility) -> str:
    how, limit = f"verifier: {visible['verifier_does']}", visible["check_seconds"]
    return how if limit is None else f"{how}\ntime: {_seconds(limit)}"


def _seconds(limit: float | None) -> str:
    return "no limit" if limit is None else f"at most {limit:g} s"


def _value_lines(side: VisibleSide, lane: str = "") -> Iterator[str]:
    for name, value in side["values"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = printable_lines(text[:_SHOWN_CHARACTERS])
        more = f"… ({len(text)} characters)" if len(text) > _SHOWN_CHARACTERS else ""
        yield f"{printable(name)}{f' [{lane}]' if lane else ''}: {shown}{more}"


def _file_lines(files: Iterable[VisibleFile]) -> Iterator[str]:
    for file in files:
        count = f", {file['files']} files" if file["files"] != 1 else ""
        only = ", read-only" if file["read_only"] else ""
        yield f"{printable(file['path'])} ({file['size_bytes']} B{count}{only})"


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
    verifier_does: str
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
        harness: What the agent is.
        policy: What the tester's verifiers may do.
        pack_root: Folder of the manifest.

    Raises:
        PackError: The plan of the task does not hold.
    """
    plan = task_plan(index, task, harness, policy)
    judge = plan.verification
    files = lane_plan(task, harness.task_file).files
    sides = {
        side: [_visible_file(file, plan, pack_root) for file in files if _side(file) == side]
        for side in Lane
    }
    return TaskVisibility(
        id=task.id,
        family=task.task_type,
        image=plan.environment.image,
        working_folder=plan.environment.workdir,
        agent_seconds=plan.environment.timeout_seconds,
        network=harness.effective_domains,
        candidate={
            "kind": plan.extraction.kind,
            "from": plan.extraction.mode.value,
            "path": plan.extraction.path,
        },
        verifier="none" if judge is None else judge.name,
        verifier_does=_NOT_JUDGED if judge is None else judge.description,
        check_seconds=None if judge is None else judge.time_limit_seconds,
        agent=VisibleSide(values=task.agent_payload(), files=sides[Lane.PUBLIC]),
        evaluation_inputs=_values(task, Lane.EVALUATION_INPUTS, sides),
        hidden=_values(task, Lane.HIDDEN, sides),
    )


def _values(
    task: SecureBenchTask, lane: Lane, sides: Mapping[Lane, Sequence[VisibleFile]]
) -> VisibleSide:
    values = {resource.name: resource.value for resource in task.resources.in_lane(lane)}
    return VisibleSide(values=values, files=sides[lane])


def _side(file: LaneFile) -> Lane | None:
    """Return whose a file is; copies of public values for the evaluator are nobody's secret."""
    if file.path.startswith(_COPY_FOR_THE_EVALUATOR):
        return None
    return Lane(file.path.split("/", 1)[0])


def _visible_file(file: LaneFile, plan: TaskPlan, pack_root: Path) -> VisibleFile:
    is_public = _side(file) is Lane.PUBLIC
    path = plan.environment.inside(file.place) if is_public else file.place
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


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How the command line asks a registry.

    Attributes:
        plain_http: Without TLS.
        ca_file: File with a certificate authority that is trusted besides the public ones.
    """

    plain_http: bool = False
    ca_file: Path | None = None


def build(files: PackFiles, folder: Path) -> int:
    """Write a pack's image as an OCI image layout into a new folder, and print its digests."""
    content = _content(files)
    built = write_layout(content, folder, LOCAL_LIMITS)
    print_line(f"pack {content.id} layout={folder} image={built.digest} digest={content.digest}")
    return 0


def push_image(files: PackFiles, image: str, options: RegistryOptions) -> int:
    """Push a pack's image and print what spec.pack.image of a run has to say."""
    reference = image_reference(image)
    if reference.digest:
        raise InvalidInputError(f"{image}: the pack decides its digest; name a tag, or none")
    content = _content(files)
    digest = asyncio.run(_push(content, reference, options))
    pinned = ImageReference(reference.host, reference.repository, reference.tag, digest)
    print_line(f"pack {content.id} image={pinned} digest={content.digest}")
    return 0


def pull(image: str, folder: Path, options: RegistryOptions) -> int:
    """Pull a pack's image into a new folder and print its digests."""
    reference = image_reference(image)
    if not reference.tag and not reference.digest:
        raise InvalidInputError(f"{image}: name a tag or a digest")
    if folder.exists():
        raise InvalidInputError(f"{folder} exists; name a new folder")
    digest = asyncio.run(_pull(reference, folder, options))
    manifest, tasks = pack_file(folder, MANIFEST_FILE), pack_file(folder, TASKS_FILE)
    loaded = load_benchmark_manifest(manifest)
    found = pack_digest(manifest, tasks, loaded.asset_roots)
    print_line(f"pack {loaded.id} folder={folder} image={digest} digest={found}")
    return 0


def _content(files: PackFiles) -> PackLanes:
    """Return a local pack by lanes: rows hold answers, so the task file is hidden as a whole."""
    source = pack_source(files)
    checked = check_upload(source.manifest, source.tasks)
    pack = valid_pack(source, checked)
    if is_folder_pack(source.manifest, source.tasks):
        return _folder_lanes(pack)
    eval_root = safe_relative_path(
        load_benchmark_manifest(source.manifest).asset_roots.eval, "asset root"
    )
    is_hidden = {
        name: name == TASKS_FILE or name.startswith(f"{eval_root}/") for name in pack.files
    }
    hidden = {name: path for name, path in pack.files.items() if is_hidden[name]}
    public = {name: path for name, path in pack.files.items() if not is_hidden[name]}
    return PackLanes(pack.id, pack.digest, public, {**hidden, **_answers(source.manifest)})


def _folder_lanes(pack: LocalPack) -> PackLanes:
    """Return a pack of task folders by lanes: agents may get their instructions, nothing else."""
    shown = {
        name: content
        for name, content in pack.files.items()
        if "/" not in name or name.partition("/")[2] == INSTRUCTION_FILE
    }
    hidden = {name: content for name, content in pack.files.items() if name not in shown}
    return PackLanes(pack.id, pack.digest, shown, hidden)


def _answers(manifest: Path) -> Mapping[str, Path]:
    """Return the pack's reference answers; its digest does not cover them."""
    path = manifest.parent / ANSWERS_FILE
    return {ANSWERS_FILE: path} if path.exists() else {}


async def _push(content: PackLanes, reference: ImageReference, options: RegistryOptions) -> str:
    access = _access(reference, options)
    with TemporaryDirectory(prefix="securebench-pack-") as scratch:
        built = await asyncio.to_thread(build_pack, content, Path(scratch), LOCAL_LIMITS)
        async with registry_session(access) as session:
            registry = Registry(session, access, reference.repository, _credentials(reference))
            await push_pack(registry, reference, built)
    return built.digest


async def _pull(reference: ImageReference, folder: Path, options: RegistryOptions) -> str:
    access = _access(reference, options)
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with registry_session(access) as session:
        registry = Registry(session, access, reference.repository, _credentials(reference))
        return await pull_pack(registry, reference, folder, LOCAL_LIMITS)


def _access(reference: ImageReference, options: RegistryOptions) -> RegistryAccess:
    ca_file = options.ca_file
    return RegistryAccess(
        host=reference.host,
        plain_http=options.plain_http,
        authority=ca_file.read_text(encoding="utf-8", errors="replace") if ca_file else "",
        other_hosts=None,
        advice=RegistryAdvice(
            login=f"put credentials into {_docker_config()} (docker login {reference.host})",
            authority="name a file with the authority's certificate, in PEM, with --ca-file or in"
            " the environment variable SSL_CERT_FILE",
            plain_http="a registry without TLS needs --plain-http",
        ),
    )


def _docker_config() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _credentials(reference: ImageReference) -> RegistryLogin | None:
    path = _docker_config()
    if not path.exists():
        return None
    return docker_credentials(path.read_bytes(), reference.host, str(path))


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How the images of task folders are built.

    Attributes:
        registry: Prefix of their names.
        pushes: Whether they are pushed afterwards.
        script: File for a script that builds them with kaniko, instead of building them here.
    """

    registry: str
    pushes: bool = False
    script: Path | None = None


_BUILDERS: Final = ("docker", "buildah")
_SCRIPT: Final = """\
#!/bin/sh
# Builds and pushes the images of the tasks in {root}: run it where that folder is the current one.
# Written by `securebench pack build-images`; EXECUTOR is kaniko's.
set -e
build() {{
  "${{EXECUTOR:-/kaniko/executor}}" --context "dir://$PWD/$1" --dockerfile Dockerfile \\
    --destination "$2"
}}
"""


def build_images(folder: Path, options: ImageOptions) -> int:
    """Build the images of task folders that have a Dockerfile and no ready image."""
    reading = read_folders(folder)
    errors = [error for task in reading.tasks for error in refusals(task)]
    if errors:
        raise ConfigErrors(errors)
    tasks = [each.task for each in reading.tasks if each.task is not None]
    images = {
        built_image(task, name, options.registry): task.folder / name
        for task in tasks
        for name in built_folders(task)
    }
    if options.script is not None:
        options.script.write_text(_build_script(folder, images), encoding="utf-8")
        print_line(f"pack build-images images={len(images)} written={options.script}")
        return 0
    builder = next(filter(shutil.which, _BUILDERS), None)
    if images and builder is None:
        raise InvalidInputError(
            f"{len(images)} images are to be built, and there is neither docker nor buildah:"
            " write a script for kaniko with --write FILE"
        )
    for image, context in images.items():
        _call([str(builder), "build", "-t", image, str(context)])
        if options.pushes:
            _call([str(builder), "push", image])
        print_line(f"image {image}")
    ready = sum(not built_folders(task) for task in tasks)
    print_line(f"pack build-images images={len(images)} ready={ready}")
    return 0


def _build_script(folder: Path, images: Mapping[str, Path]) -> str:
    places = {image: context.relative_to(folder) for image, context in images.items()}
    lines = [
        f"build {shlex.quote(place.as_posix())} {shlex.quote(image)}\n"
        for image, place in places.items()
    ]
    return "".join([_SCRIPT.format(root=printable(folder.resolve().name)), *lines])


_STDERR: Final = 2
"""What a builder prints is no output of ours."""


def _call(words: Sequence[str]) -> None:
    done = subprocess.run(words, check=False, stdout=_STDERR)  # noqa: S603 - a builder by its name
    if done.returncode != 0:
        raise InvalidInputError(f"{shlex.join(words)} ended with exit code {done.returncode}")


_OF_A_PACK = ("digest", "files", "size_bytes")


def show_uploaded(name: str, target: ClusterTarget, *, as_json: bool = False) -> int:
    """Print digest and size of a pack on the results volume."""
    answer = asyncio.run(_ask(name, target))
    if not answer.get("present"):
        print_error(f"there is no pack {name!r} on the results volume")
        return 1
    if as_json:
        print_json({"pack": name, **{key: answer.get(key) for key in _OF_A_PACK}})
        return 0
    print_line(
        f"pack {name} content={answer.get('digest')} files={answer.get('files')}"
        f" size_bytes={answer.get('size_bytes')}"
    )
    return 0


def list_uploaded(target: ClusterTarget) -> int:
    """Print a table of the packs on the results volume."""
    packs, readers = asyncio.run(_listed(target))
    rows = [
        (str(pack.get("name")), str(pack.get("files")), str(pack.get("size_bytes")))
        for pack in packs
    ]
    print_table(
        ("NAME", "FILES", "BYTES", "ACTIVE RUNS"),
        [(*row, " ".join(readers.get(row[0], ()))) for row in rows],
    )
    return 0


def remove(name: str, target: ClusterTarget) -> int:
    """Remove a pack from the results volume, unless an active run uses it."""
    if asyncio.run(_remove(name, target)):
        print_line(f"pack {name} removed")
        return 0
    print_error(f"there is no pack {name!r} on the results volume")
    return 1


def push(files: PackFiles, name: str | None, target: ClusterTarget) -> int:
    """Upload a pack and print its folder below ``packs/``; without a name, from id and digest."""
    source = pack_source(files)
    pack = valid_pack(source, check_upload(source.manifest, source.tasks))
    folder = name or pack_folder(pack)
    sent = asyncio.run(_upload(pack, folder, target))
    print_line(f"pack {pack.id} path={folder} digest={pack.digest} uploaded={str(sent).lower()}")
    return 0


async def _listed(
    target: ClusterTarget,
) -> tuple[Sequence[Mapping[str, object]], Mapping[str, Sequence[str]]]:
    async with open_connection(target) as connection:
        return await connection.link.list_packs(), await _readers(connection)


async def _remove(name: str, target: ClusterTarget) -> bool:
    async with open_connection(target) as connection:
        readers = (await _readers(connection)).get(name)
        if readers:
            raise InvalidInputError(
                f"the pack {name!r} is in use by {', '.join(readers)}; wait, or end the run with"
                " securebench cancel"
            )
        return await connection.link.remove_pack(name)


async def _readers(connection: Connection) -> Mapping[str, Sequence[str]]:
    """Return the names of the active runs by the folder of their pack."""
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for run in (await connection.cluster.list(ObjectKind.BENCHMARK_RUN, "")).items:
        state = run_state(run)
        path = pack_path(run)
        if state.end is None and path:
            readers[path.split("/")[0]].append(state.name)
    return readers


async def _ask(name: str, target: ClusterTarget) -> Mapping[str, object]:
    async with open_connection(target) as connection:
        return await connection.link.show_pack(name)


async def _upload(pack: LocalPack, folder: str, target: ClusterTarget) -> bool:
    receipt = files_receipt(pack.files, LOCAL_LIMITS)
    async with open_connection(target) as connection:
        if await connection.link.pack_digest(folder) == receipt.digest:
            return False
        await connection.link.put_pack(folder, pack.files)
        return True
