"""The commands ``securebench pack lint|push|show|list|rm``."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from securebench.agents.harness_config import CommandHarness, HarnessConfig
from securebench.agents.registry import harness_config
from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.files.load import CheckedPack, check_pack
from securebench.benchmark.lint.graders import lint_graders
from securebench.benchmark.lint.pack_lint import LintFinding, Severity, lint_harness, lint_pack
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.client.commands.output import print_error, print_line, print_table
from securebench.client.submit.prepare import LocalPack, local_pack
from securebench.client.submit.submit import pack_folder
from securebench.client.submit.tester_config import TesterConfig, load_tester_config
from securebench.client.volume.connection import ClusterTarget, Connection, open_connection
from securebench.client.volume.link import LOCAL_LIMITS
from securebench.client.watch.follow import pack_path, run_state
from securebench.cluster.port import ObjectKind
from securebench.core.errors import ConfigErrors, InvalidInputError
from securebench.protocol.extraction import ExtractionMode


@dataclass(frozen=True, slots=True)
class PackFiles:
    """Locates a local pack: by a tester YAML that names it, or by manifest and task file."""

    config: Path | None = None
    manifest: Path | None = None
    tasks: Path | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    manifest: Path
    tasks: Path
    config: TesterConfig | None


def lint(files: PackFiles, *, strict: bool) -> int:
    """Lint a pack, print the findings and return the exit code."""
    findings = _findings(_source(files))
    for finding in findings:
        if finding.severity is Severity.ERROR:
            print_line(f"error: {finding}")
        else:
            print_line(f"warning: {finding}")
    errors = sum(1 for finding in findings if finding.severity is Severity.ERROR)
    warnings = len(findings) - errors
    print_line(f"pack lint errors={errors} warnings={warnings}")
    return 1 if errors or (strict and warnings) else 0


def show_local(files: PackFiles) -> int:
    """Print digests and size of a local pack."""
    source = _source(files)
    checked = check_pack(source.manifest, source.tasks)
    pack = _valid(source, checked)
    families = Counter(task.task_type for _, task in checked.tasks)
    receipt = files_receipt(pack.files, LOCAL_LIMITS)
    print_line(f"pack {pack.id} digest={pack.digest}")
    print_line(
        f"content={receipt.digest} files={receipt.files} size_bytes={receipt.size_bytes}"
        f" tasks={len(checked.tasks)}"
    )
    for family in sorted(families):
        print_line(f"{family}={families[family]}")
    return 0


def show_uploaded(name: str, target: ClusterTarget) -> int:
    """Print digest and size of a pack on the results volume."""
    answer = asyncio.run(_ask(name, target))
    if not answer.get("present"):
        print_error(f"there is no pack {name!r} on the results volume")
        return 1
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
    source = _source(files)
    pack = _valid(source, check_pack(source.manifest, source.tasks))
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


def _source(files: PackFiles) -> _Source:
    if files.config is not None:
        config = load_tester_config(files.config)
        return _Source(config.benchmark.manifest, config.benchmark.tasks, config)
    if files.manifest is None or files.tasks is None:
        raise InvalidInputError("name the pack with --config, or with --manifest and --tasks")
    return _Source(files.manifest, files.tasks, None)


def _valid(source: _Source, checked: CheckedPack) -> LocalPack:
    if checked.pack is None or checked.errors:
        raise ConfigErrors(checked.errors)
    return local_pack(source.manifest, source.tasks, checked.pack.manifest)


def _findings(source: _Source) -> list[LintFinding]:
    harness, findings = _harness(source.config)
    task_file = harness.task_file if harness is not None else TASK_FILE
    checked = check_pack(source.manifest, source.tasks, task_file=task_file)
    findings += (*lint_pack(checked), *lint_graders(checked))
    if source.config is not None:
        command = harness if isinstance(harness, CommandHarness) else None
        findings += lint_harness(
            source.config.harness.env,
            artifact_path=command.artifact_path if command is not None else None,
            takes_checkout=command is not None and command.extraction == ExtractionMode.GIT_DIFF,
            task_types={task.task_type for _, task in checked.tasks},
            path=str(source.config.source),
        )
    return sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)


def _harness(config: TesterConfig | None) -> tuple[HarnessConfig | None, list[LintFinding]]:
    if config is None:
        return None, []
    try:
        return harness_config(config.harness.type, config.harness.config), []
    except ConfigErrors as broken:
        errors = config.placed(broken).errors
        return None, [LintFinding(Severity.ERROR, None, None, str(error)) for error in errors]
