"""From a tester's configuration to a BenchmarkRun and its Secrets.

The environment file is read first (contract 4). Harness and whole pack are validated locally,
before anything is created. Secrets hold the values for harness Pods and the provider key for the
gateway. Building objects is pure but for the random suffix of names.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from securebench.agents.harness import ORACLE, HarnessConfig
from securebench.agents.registry import (
    agent_named,
    forwarded_env,
    harness_config,
    harness_digest,
    key_variables,
    provider_key,
)
from securebench.benchmark.files.bundle import Content
from securebench.benchmark.files.folders import is_folder_pack, read_folder_pack
from securebench.benchmark.files.load import check_upload, pack_digest, read_answers, root_files
from securebench.benchmark.lint import LintFinding, LintRule, Severity, lint_graders, lint_pack
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.oracle import ANSWERS_FILE, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.rows import BenchmarkManifest
from securebench.client.tester_config import HarnessSection, TesterConfig
from securebench.cluster.port import Raw
from securebench.digests import PREFIX
from securebench.errors import ConfigError, ConfigErrors, InvalidInputError, PackError, SpecError
from securebench.json_values import object_at
from securebench.names import (
    APP_NAME,
    AUDIT,
    HARNESS_DIGEST_ANNOTATION,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    PURPOSE_LABEL,
    USABLE,
    USABLE_BY_GATEWAY,
    USABLE_LABEL,
    kubernetes_name,
)
from securebench.run.api.field_types import API_VERSION, KIND
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE, BenchmarkRunSpec
from securebench.run.plan.build import check_kinds, network_problem, selected

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_QUOTES = ("'", '"')


class EnvFileError(ConfigErrors, ValueError):
    """Invalid lines of an environment file."""


def load_env_file(
    path: str | Path,
    *,
    override: bool = False,
    environ: MutableMapping[str, str] | None = None,
) -> dict[str, str]:
    """Set environment variables from a file.

    Args:
        path: ``KEY=VALUE`` lines in UTF-8; a missing file counts as empty.
        override: Whether the file overrides variables that are already set.
        environ: Updated in place; by default the environment of this process.

    Returns:
        The variables that were set.

    Raises:
        EnvFileError: Lists every invalid line with file and line; nothing was set.
    """
    target = os.environ if environ is None else environ
    parsed = parse_env_text(_read(Path(path)), str(path))
    chosen = {name: value for name, value in parsed.items() if override or name not in target}
    target.update(chosen)
    return chosen


def parse_env_text(text: str, name: str) -> dict[str, str]:
    """Parse the text of an environment file; the last assignment of a name wins.

    Args:
        name: File name for messages.

    Raises:
        EnvFileError: Lists every invalid line with its number, never with its value.
    """
    found: dict[str, str] = {}
    problems: list[ConfigError] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, sign, value = line.removeprefix("export ").partition("=")
        problem = _problem(key.strip(), sign, value)
        if problem:
            problems.append(ConfigError(f"{name}:{number}: {problem}"))
        found[key.strip()] = _unquoted(value.strip())
    if problems:
        raise EnvFileError(problems)
    return found


def _problem(key: str, sign: str, value: str) -> str | None:
    if not sign:
        return "expected KEY=VALUE"
    if not key:
        return "expected KEY=VALUE, the key is empty"
    if "\0" in key + value:
        return "expected KEY=VALUE without NUL characters"
    return None


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] in _QUOTES and value[-1] == value[0]:
        return value[1:-1]
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise EnvFileError([ConfigError(f"{path}: cannot be read: it is not UTF-8 text")]) from None
    except OSError as error:
        raise EnvFileError([ConfigError(f"{path}: cannot be read: {error.strerror}")]) from None


@dataclass(frozen=True, slots=True)
class SecretNames:
    """Names of a run's Secrets; empty if not needed.

    Attributes:
        harness: Holds the values of ``harness.env``, which harness Pods receive.
        provider: Holds the model provider's key; only the gateway mounts it.
    """

    harness: str
    provider: str


def secret_names(run: str, harness: HarnessSection) -> SecretNames:
    """Return the names of a run's Secrets, derived from the run's name."""
    return SecretNames(
        harness=run if _forwarded(harness) else "",
        provider=f"{run}-provider" if provider_key(harness.type, harness.config) else "",
    )


def secret_values(
    run: str, harness: HarnessSection, environ: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the content of a run's Secrets by Secret name.

    Args:
        harness: Names the variables.
        environ: Environment of this process, including the env file.

    Raises:
        ConfigError: Variables of an agent are not set; lists all of them. A command harness runs
            without variables that are not set (contract 12.2, 12.4).
    """
    names = secret_names(run, harness)
    found: dict[str, dict[str, str]] = {}
    _require(harness, environ)
    if names.provider:
        key = provider_key(harness.type, harness.config)
        found[names.provider] = {key: _value(key, harness, environ)}
    if names.harness:
        variables = _forwarded(harness)
        found[names.harness] = {name: environ[name] for name in variables if environ.get(name)}
    return found


def without_value(harness: HarnessSection, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in ``harness.env`` that are not set, without duplicates, in order."""
    return tuple(dict.fromkeys(name for name in harness.env if not environ.get(name)))


def _require(harness: HarnessSection, environ: Mapping[str, str]) -> None:
    key = provider_key(harness.type, harness.config)
    own = () if agent_named(harness.type).cli is None else harness.env
    needed = dict.fromkeys((*own, *([key] if key else [])))
    missing: Sequence[str] = [name for name in needed if not _value(name, harness, environ)]
    if missing:
        raise ConfigError(
            f"harness type {harness.type} needs {', '.join(missing)}: set it in the environment"
            " or in the env file",
            key=("harness", "env"),
        )


def _forwarded(harness: HarnessSection) -> tuple[str, ...]:
    return forwarded_env(harness.type, harness.env, harness.config)


def _value(name: str, harness: HarnessSection, environ: Mapping[str, str]) -> str:
    names = key_variables(name, harness.config)
    return next(filter(None, (environ.get(each) for each in names)), "")


@dataclass(frozen=True, slots=True)
class LocalPack:
    """A local pack.

    Attributes:
        id: Manifest id.
        digest: ``sha256:…`` (contract 15.6).
        files: Files to upload, by path in the pack.
        answers_digest: ``sha256:…`` of the reference answers; empty if they are not uploaded.
    """

    id: str
    digest: str
    files: Mapping[str, Content]
    answers_digest: str = ""


@dataclass(frozen=True, slots=True)
class PreparedSubmission:
    """A validated configuration.

    Attributes:
        families: Family of each selected row by task id, in pack order.
        harness_digest: ``sha256:…`` (contract 15.6).
        warnings: Unknown keys and defects of graders, for stderr.
        skipped: What is wrong with task folders that do not run.
    """

    pack: LocalPack
    families: Mapping[str, str]
    harness_digest: str
    warnings: tuple[LintFinding, ...]
    skipped: tuple[PackError, ...] = ()

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
    checked = check_upload(
        manifest,
        tasks,
        limit=config.run.limit,
        task_file=task_file,
        folders=config.benchmark.folders,
    )
    if checked.pack is None or harness is None or errors or checked.errors:
        raise ConfigErrors([*errors, *checked.errors])
    check_kinds(item.task for item in checked.tasks)
    closed = network_problem((item.task for item in checked.tasks), harness)
    if closed is not None:
        raise ConfigErrors([PackError(closed, path=str(manifest.parent))])
    findings = lint_graders(checked)
    _require_passable(findings)
    families = _selected_families(config, [item.task for item in checked.tasks])
    registry = config.benchmark.folders.registry
    pack = local_pack(manifest, tasks, checked.pack.manifest, registry=registry)
    if harness.type == ORACLE:
        pack = _with_answers(pack, config, [item.task for item in checked.tasks])
    audit = agent_named(harness.type).is_audit
    return PreparedSubmission(
        pack=pack,
        families=families,
        harness_digest=harness_digest(
            harness, config.harness.env, audit=audit, answers=pack.answers_digest
        ),
        warnings=(
            *(item for item in lint_pack(checked) if item.rule is LintRule.UNKNOWN_KEY),
            *findings,
        ),
        skipped=checked.skipped,
    )


def _require_passable(findings: Sequence[LintFinding]) -> None:
    """Refuse rows that nobody can pass.

    Raises:
        ConfigErrors: There are such rows; one error for each finding.
    """
    errors = [
        PackError(_told(each), path=each.path, line=each.line)
        for each in findings
        if each.severity is Severity.ERROR
    ]
    if errors:
        raise ConfigErrors(errors)


def _selected_families(config: TesterConfig, tasks: Sequence[SecureBenchTask]) -> dict[str, str]:
    """Return the family of each selected task by its id, in pack order.

    Raises:
        ConfigErrors: None is selected.
    """
    chosen = selected(config.run.selector, [task.id for task in tasks])
    if not chosen:
        reason = (
            f"none of {len(tasks)} tasks matches {', '.join(config.run.tasks)}; securebench pack"
            " show lists them"
        )
        raise ConfigErrors([PackError(reason, path=str(config.benchmark.tasks))])
    return {tasks[index].id: tasks[index].task_type for index in chosen}


def _told(finding: LintFinding) -> str:
    return f"{finding.message}; {finding.hint}" if finding.hint else finding.message


def absent_files(config: TesterConfig) -> tuple[InvalidInputError, ...]:
    """Return which files of the section ``benchmark`` are not there, at the key that names them."""
    named = {"manifest": config.benchmark.manifest, "tasks": config.benchmark.tasks}
    folder = config.benchmark.folder
    if folder is not None and not folder.is_dir():
        reason = f"pack: there is no folder {folder}; the path is relative to the tester YAML"
        return config.placed(ConfigErrors([ConfigError(reason, key=("pack",))])).errors
    if is_folder_pack(config.benchmark.manifest, config.benchmark.tasks) and folder is not None:
        return ()
    errors = [
        ConfigError(
            f"benchmark.{key}: there is no file {path}; the path is relative to the tester YAML"
            if folder is None
            else f"pack: {folder} has no {path.name}, and holds no Harbor task folders",
            key=("benchmark", key) if folder is None else ("pack",),
        )
        for key, path in named.items()
        if not path.exists()
    ]
    return config.placed(ConfigErrors(errors)).errors if errors else ()


def local_pack(
    manifest: Path, tasks: Path, loaded: BenchmarkManifest, *, registry: str = ""
) -> LocalPack:
    """Collect the files of a pack for upload: manifest, task file and both asset roots.

    Args:
        registry: Where the images of task folders with a Dockerfile are.

    Raises:
        StorageError: A file cannot be read.
    """
    if is_folder_pack(manifest, tasks):
        found = read_folder_pack(manifest, registry=registry)
        return LocalPack(found.manifest.id, found.digest, found.files)
    roots = loaded.asset_roots
    files: dict[str, Content] = {
        MANIFEST_FILE: manifest,
        TASKS_FILE: tasks,
        **root_files(manifest, roots),
    }
    return LocalPack(loaded.id, pack_digest(manifest, tasks, roots), files)


def _with_answers(
    pack: LocalPack, config: TesterConfig, tasks: Sequence[SecureBenchTask]
) -> LocalPack:
    """Add the reference answers to the upload, for a run with the oracle harness."""
    folder = config.benchmark.manifest.parent
    content = read_answers(folder)
    answers = reference_answers(
        content,
        tasks,
        {task.id for task in tasks},
        is_whole=config.run.limit is None,
        path=str(folder / ANSWERS_FILE),
    )
    files = {**pack.files, **({} if content is None else {ANSWERS_FILE: folder / ANSWERS_FILE})}
    return replace(pack, files=files, answers_digest=answers.digest)


def _checked_harness(
    config: TesterConfig,
) -> tuple[HarnessConfig | None, tuple[InvalidInputError, ...]]:
    try:
        return harness_config(config.harness.type, config.harness.config), ()
    except ConfigErrors as broken:
        return None, config.placed(broken).errors


_MANAGED = {NAME_LABEL: APP_NAME, MANAGED_BY_LABEL: f"{APP_NAME}-cli"}
_SUFFIX_BYTES = 3
_DIGEST_CHARACTERS = 12
_NAME_LIMIT = 56
"""Leaves room for the suffix within a DNS label."""


def run_name(run_id: str, suffix: str) -> str:
    """Return the name of a new BenchmarkRun.

    Args:
        run_id: The tester's id; any text.
        suffix: Lower-case letters and digits that make the name unique, as of ``random_suffix``.
    """
    return f"{kubernetes_name(run_id, limit=_NAME_LIMIT)}-{suffix[: 2 * _SUFFIX_BYTES]}"


def random_suffix() -> str:
    """Return a suffix for the name of a new BenchmarkRun."""
    return token_hex(_SUFFIX_BYTES)


def pack_folder(pack: LocalPack) -> str:
    """Return the folder below ``packs/`` for a pack, derived from its content.

    With reference answers the pack gets a different folder, so that uploads with and without them
    do not replace each other.
    """
    digests = (pack.digest, pack.answers_digest)
    parts = [digest.removeprefix(PREFIX)[:_DIGEST_CHARACTERS] for digest in digests if digest]
    return "-".join((kubernetes_name(pack.id, limit=50), *parts))


def build_spec(
    config: TesterConfig,
    pack: LocalPack,
    *,
    name: str,
    parallelism: int | None,
    resume_from: Raw | None,
) -> Raw:
    """Return the spec of a run.

    Args:
        config: With the command line's overrides applied.
        pack: Uploaded to its ``pack_folder``.
        name: Name of the run, and prefix of the names of its Secrets.
        parallelism: Concurrent attempts; None uses the API's default.
        resume_from: The run to resume, by name and uid, or None.

    Raises:
        ConfigErrors: The spec is invalid.
    """
    secrets = secret_names(name, config.harness)
    spec: dict[str, object] = {
        "runId": config.run.id,
        "pack": {"volume": {"path": pack_folder(pack)}, "digest": pack.digest},
        "harness": _harness(config.harness, secrets.harness),
        "verification": {
            "disallowDangerousCommands": config.verification.disallow_dangerous_commands,
            "denyCommands": list(config.verification.deny_commands),
        },
    }
    if secrets.provider:
        spec["provider"] = {"secretRef": {"name": secrets.provider}}
    if config.run.attempts > 1:
        spec["attempts"] = config.run.attempts
    if config.run.budget_tokens is not None:
        spec["budget"] = {"tokens": config.run.budget_tokens}
    selector = config.run.selector.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    if selector:
        spec["taskSelector"] = selector
    if config.run.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = config.run.deadline_seconds
    if config.pods.resources:
        spec["resources"] = _as_texts(config.pods.resources)
    if config.pods.node_selector:
        spec["podTemplate"] = {"nodeSelector": _as_texts(config.pods.node_selector)}
    if parallelism is not None:
        spec["parallelism"] = parallelism
    if resume_from is not None:
        spec["resumeFrom"] = dict(resume_from)
    _check(spec)
    return spec


def _as_texts(values: Mapping[str, object]) -> Raw:
    """Return quantities and labels as the API has them: YAML reads `cpu: 2` as a number."""
    return {
        key: _as_texts(value) if isinstance(value, Mapping) else str(value)
        for key, value in values.items()
    }


def _harness(section: HarnessSection, secret: str) -> Raw:
    harness: dict[str, object] = {"type": section.type, "config": dict(section.config)}
    if secret:
        harness["env"] = list(
            dict.fromkeys(forwarded_env(section.type, section.env, section.config))
        )
        harness["secretRef"] = {"name": secret}
    return harness


def run_manifest(name: str, spec: Raw, harness_digest: str) -> Raw:
    """Return the BenchmarkRun; an oracle or nop harness gets the audit label."""
    harness = spec["harness"]
    is_audit = isinstance(harness, Mapping) and agent_named(str(harness.get("type"))).is_audit
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": {**_MANAGED, **({PURPOSE_LABEL: AUDIT} if is_audit else {})},
            "annotations": {HARNESS_DIGEST_ANNOTATION: harness_digest},
        },
        "spec": spec,
    }


def secret_manifest(name: str, values: Mapping[str, str], *, by_gateway: bool = False) -> Raw:
    """Return a Secret with the tester's values; ``by_gateway`` restricts it to the gateway."""
    usable = USABLE_BY_GATEWAY if by_gateway else USABLE
    encoded = {
        key: base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
        for key, value in values.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {**_MANAGED, USABLE_LABEL: usable}},
        "type": "Opaque",
        "data": encoded,
    }


def owner_patch(run: Raw) -> Raw:
    """Return the merge patch that makes a run the only owner of an object."""
    return {"metadata": {"ownerReferences": [_owner_reference(run)]}}


def shared_owners_patch(item: Raw, run: Raw) -> Raw:
    """Return the merge patch that adds a run to the owners of an object."""
    return {"metadata": {"ownerReferences": [*_owners(item), _owner_reference(run)]}}


def is_owned_by(item: Raw, run: Raw) -> bool:
    """Whether an object goes when a run is deleted."""
    uid = _owner_reference(run)["uid"]
    return any(owner.get("uid") == uid for owner in _owners(item))


def _owners(item: Raw) -> list[Raw]:
    owners = object_at(item, "metadata").get("ownerReferences")
    return owners if isinstance(owners, list) else []


def _owner_reference(run: Raw) -> Raw:
    meta = run["metadata"]
    if not isinstance(meta, Mapping):
        raise TypeError("the run has no metadata")
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _check(spec: Raw) -> None:
    try:
        BenchmarkRunSpec.parse(spec)
    except SpecError as error:
        problems = error.reason.splitlines()
        raise ConfigErrors([ConfigError(problem) for problem in problems]) from None
