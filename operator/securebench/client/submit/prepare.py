"""Validate harness and whole pack locally, before anything is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from securebench.agents.harness import ORACLE, HarnessConfig
from securebench.agents.registry import agent_named, harness_config, harness_digest
from securebench.benchmark.files.load import check_upload, pack_digest, read_answers, root_files
from securebench.benchmark.lint import LintFinding, LintRule, lint_graders, lint_pack
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.oracle import ANSWERS_FILE, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.rows import BenchmarkManifest
from securebench.client.submit.tester_config import TesterConfig
from securebench.errors import ConfigError, ConfigErrors, InvalidInputError
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE


@dataclass(frozen=True, slots=True)
class LocalPack:
    """A local pack.

    Attributes:
        id: Manifest id.
        digest: ``sha256:…`` (contract 15.6).
        files: Files to upload: local file by path in the pack.
        answers_digest: ``sha256:…`` of the reference answers; empty if they are not uploaded.
    """

    id: str
    digest: str
    files: Mapping[str, Path]
    answers_digest: str = ""


@dataclass(frozen=True, slots=True)
class PreparedSubmission:
    """A validated configuration.

    Attributes:
        families: Family of each selected row by task id, in pack order.
        harness_digest: ``sha256:…`` (contract 15.6).
        warnings: Unknown keys and defects of graders, for stderr.
    """

    pack: LocalPack
    families: Mapping[str, str]
    harness_digest: str
    warnings: tuple[LintFinding, ...]

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Ids of the selected rows, in pack order."""
        return tuple(self.families)


def prepare(config: TesterConfig) -> PreparedSubmission:
    """Validate a configuration and its pack.

    Raises:
        ConfigErrors: Lists all defects, first of the harness, then of the pack in file order.
    """
    harness, errors = _checked_harness(config)
    manifest, tasks = config.benchmark.manifest, config.benchmark.tasks
    absent = absent_files(config)
    if absent:
        raise ConfigErrors([*errors, *absent])
    task_file = harness.task_file if harness is not None else TASK_FILE
    checked = check_upload(manifest, tasks, limit=config.run.limit, task_file=task_file)
    if checked.pack is None or harness is None or errors or checked.errors:
        raise ConfigErrors([*errors, *checked.errors])
    pack = local_pack(manifest, tasks, checked.pack.manifest)
    if harness.type == ORACLE:
        pack = _with_answers(pack, config, [item.task for item in checked.tasks])
    audit = agent_named(harness.type).is_audit
    return PreparedSubmission(
        pack=pack,
        families={item.task.id: item.task.task_type for item in checked.tasks},
        harness_digest=harness_digest(
            harness, config.harness.env, audit=audit, answers=pack.answers_digest
        ),
        warnings=(
            *(item for item in lint_pack(checked) if item.rule is LintRule.UNKNOWN_KEY),
            *lint_graders(checked),
        ),
    )


def absent_files(config: TesterConfig) -> tuple[InvalidInputError, ...]:
    """Return which files of the section ``benchmark`` are not there, at the key that names them."""
    named = {"manifest": config.benchmark.manifest, "tasks": config.benchmark.tasks}
    errors = [
        ConfigError(
            f"benchmark.{key}: there is no file {path}; the path is relative to the tester YAML",
            key=("benchmark", key),
        )
        for key, path in named.items()
        if not path.exists()
    ]
    return config.placed(ConfigErrors(errors)).errors if errors else ()


def local_pack(manifest: Path, tasks: Path, loaded: BenchmarkManifest) -> LocalPack:
    """Collect the files of a pack for upload: manifest, task file and both asset roots.

    Args:
        manifest: Manifest file.
        tasks: Task file.
        loaded: The parsed manifest.

    Raises:
        StorageError: A file cannot be read.
    """
    roots = loaded.asset_roots
    files = {MANIFEST_FILE: manifest, TASKS_FILE: tasks, **root_files(manifest, roots)}
    return LocalPack(loaded.id, pack_digest(manifest, tasks, roots), files)


def _with_answers(
    pack: LocalPack, config: TesterConfig, tasks: Sequence[SecureBenchTask]
) -> LocalPack:
    """Add the reference answers to the upload, for a run with the oracle harness."""
    folder = config.benchmark.manifest.parent
    answers = reference_answers(
        read_answers(folder),
        tasks,
        {task.id for task in tasks},
        is_whole=config.run.limit is None,
        path=str(folder / ANSWERS_FILE),
    )
    files = {**pack.files, ANSWERS_FILE: folder / ANSWERS_FILE}
    return replace(pack, files=files, answers_digest=answers.digest)


def _checked_harness(
    config: TesterConfig,
) -> tuple[HarnessConfig | None, tuple[InvalidInputError, ...]]:
    try:
        return harness_config(config.harness.type, config.harness.config), ()
    except ConfigErrors as broken:
        return None, config.placed(broken).errors
