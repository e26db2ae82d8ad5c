"""A job configuration of Harbor in place of a tester YAML: what it says as flags of ``run``.

Every key of the classes of Harbor 0.26 stands in the table: it has a counterpart, it is ignored, or
it is refused unless its value means what its absence means. A key that the table lacks is refused.

Source: ``harbor.models.job.config`` of the package harbor; docs/reference/harbor-keys.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from securebench.agents.registry import AGENTS
from securebench.benchmark.harbor.keys import KeyRule, KeyUse
from securebench.client.run import FolderAgent, RunOptions
from securebench.client.tester_config import read_yaml
from securebench.errors import ConfigError, ConfigErrors
from securebench.json_values import objects_at, text_at

Fields = Mapping[str, object]

_VENDORS: Final = {"api.anthropic.com": "anthropic", "api.openai.com": "openai"}
"""Prefix of a model's name that stands for the provider an agent has anyway, by its host."""


class HarborJob(NamedTuple):
    """What a job configuration says.

    Args:
        folder: With the tasks.
        agent: Harness type.
        model: Of the agent; may be empty.
        attempts: Of each task; None where the job does not say it.
        parallelism: As ``--parallelism``.
        tasks: Ids or patterns; empty for all.
        limit: As ``--limit``.
        is_quiet: Whether no progress is printed.
    """

    folder: Path
    agent: str
    model: str
    attempts: int | None
    parallelism: int | None
    tasks: tuple[str, ...]
    limit: int | None
    is_quiet: bool


def _run(about: str) -> KeyRule:
    return KeyRule(KeyUse.RUN, about)


def _ignored(about: str) -> KeyRule:
    return KeyRule(KeyUse.IGNORED, about, is_open=True)


def _refused(about: str, *neutral: object) -> KeyRule:
    accepts: Callable[[object], bool] = lambda value: value in ("", [], {}, *neutral)  # noqa: E731
    return KeyRule(KeyUse.REFUSED, about, accepts, is_open=True)


_OFF, _ON = False, True
_LIMITS = "limits of a task are those of its folder"
_TIME = "the time limits of a task are those of its folder"
_KEYS = "keys and variables are given with --env-file and harness.env of a tester YAML"
_HOSTS = "hosts are opened with harness.config.allowed_domains of a tester YAML"
_LOCAL = "the tasks are a folder of this machine"
_PLACE = "the cluster is where the tasks run"
_INSTRUCTIONS = "an instruction is that of its folder"

JOB_KEYS: Final[Mapping[str, KeyRule]] = {
    "schema_version": _refused("known is 1", 1),
    "job_name": _ignored("the run id is made of folder and agent"),
    "jobs_dir": _ignored("securebench export harbor writes a job folder"),
    "n_attempts": _run("--attempts"),
    "n_concurrent_trials": _run("--parallelism"),
    "quiet": _run("--quiet"),
    "debug": _ignored("of Harbor's own log"),
    "skip_credential_checks": _ignored("of Harbor's own agents"),
    "install_only": _refused("a run has an agent", _OFF),
    "timeout_multiplier": _refused(_TIME, 1),
    "agent_timeout_multiplier": _refused(_TIME, 1),
    "verifier_timeout_multiplier": _refused(_TIME, 1),
    "agent_setup_timeout_multiplier": _ignored("agents are in images, nothing is installed"),
    "environment_build_timeout_multiplier": _ignored("images are built before a run"),
    "retry.max_retries": _refused("launches that the cluster lost are repeated, no others", 0),
    "retry.include_exceptions": _ignored("without retries"),
    "retry.exclude_exceptions": _ignored("without retries"),
    "retry.wait_multiplier": _ignored("without retries"),
    "retry.min_wait_sec": _ignored("without retries"),
    "retry.max_wait_sec": _ignored("without retries"),
    "override_error_policy": _refused("outcomes have fixed rules"),
    "environment.type": _ignored(_PLACE),
    "environment.import_path": _refused(_PLACE),
    "environment.force_build": _refused("images are built before a run", _OFF),
    "environment.delete": _refused("Pods are removed after a run", _ON),
    "environment.stream": _ignored("securebench logs -f shows an agent's output"),
    "environment.cpu_enforcement_policy": _refused(_LIMITS, "auto", "limit"),
    "environment.memory_enforcement_policy": _refused(_LIMITS, "auto", "limit"),
    "environment.override_cpus": _refused(_LIMITS),
    "environment.override_memory_mb": _refused(_LIMITS),
    "environment.override_storage_mb": _refused(_LIMITS),
    "environment.override_gpus": _refused(_LIMITS, 0),
    "environment.override_tpu": _refused(_LIMITS),
    "environment.suppress_override_warnings": _ignored("without overrides"),
    "environment.mounts": _refused("no folder of a machine is mounted"),
    "environment.extra_docker_compose": _refused("services are those of a task's folder"),
    "environment.env": _refused(_KEYS),
    "environment.kwargs": _refused(_PLACE),
    "environment.extra_allowed_hosts": _refused(_HOSTS),
    "verifier.override_timeout_sec": _refused(_TIME),
    "verifier.max_timeout_sec": _refused(_TIME),
    "verifier.include_logs": _ignored("records have the output of the tests"),
    "verifier.exclude_logs": _ignored("records have the output of the tests"),
    "verifier.env": _refused(_KEYS),
    "verifier.import_path": _refused("the verifier is the script of the task"),
    "verifier.kwargs": _refused("the verifier is the script of the task"),
    "verifier.disable": _refused("every task is verified", _OFF),
    "verifier.extra_allowed_hosts": _refused(_HOSTS),
    "metrics": _refused("a summary has pass rate and mean reward", [{"type": "mean"}]),
    "agents[].name": _run("--agent, where a dash is an underscore; without agents `oracle`"),
    "agents[].model_name": _run("--model, without the vendor that the agent has anyway"),
    "agents[].import_path": _refused("an agent of your own is an image or a command"),
    "agents[].base_url": _refused("name it in harness.config.provider of a tester YAML"),
    "agents[].model_api_key_name": _refused(_KEYS),
    "agents[].model_api_format": _refused("name it in harness.config.provider of a tester YAML"),
    "agents[].skip_model_parsing": _refused("models have the names of their provider", _OFF),
    "agents[].n_concurrent": _refused("use n_concurrent_trials"),
    "agents[].concurrency_group": _refused("use n_concurrent_trials"),
    "agents[].skills": _refused("skills are those of a task's image"),
    "agents[].override_timeout_sec": _refused(_TIME),
    "agents[].override_setup_timeout_sec": _ignored("agents are in images, nothing is installed"),
    "agents[].max_timeout_sec": _refused(_TIME),
    "agents[].resume_trajectory": _refused("each agent begins anew", _OFF),
    "agents[].load_trajectory": _refused("each agent begins anew"),
    "agents[].extra_allowed_hosts": _refused(_HOSTS),
    "agents[].include_logs": _ignored("records have the output of the agent"),
    "agents[].exclude_logs": _ignored("records have the output of the agent"),
    "agents[].kwargs": _refused("use harness.config of a tester YAML"),
    "agents[].env": _refused(_KEYS),
    "agents[].mcp_servers": _refused("no agent is configured with MCP servers"),
    "user_agent": _refused("no simulated user talks with an agent"),
    "datasets[].path": _run("FOLDER"),
    "datasets[].task_names": _run("--task"),
    "datasets[].n_tasks": _run("--limit; not beside task_names, after which Harbor counts"),
    "datasets[].exclude_task_names": _refused("use spec.tasks.exclude of a BenchmarkRun"),
    "datasets[].name": _refused(_LOCAL),
    "datasets[].version": _refused(_LOCAL),
    "datasets[].ref": _refused(_LOCAL),
    "datasets[].registry_url": _refused(_LOCAL),
    "datasets[].registry_path": _refused(_LOCAL),
    "datasets[].repo": _refused(_LOCAL),
    "datasets[].overwrite": _ignored("nothing is downloaded"),
    "datasets[].download_dir": _ignored("nothing is downloaded"),
    "tasks[].path": _run("FOLDER, of one task"),
    "tasks[].git_url": _refused(_LOCAL),
    "tasks[].git_commit_id": _refused(_LOCAL),
    "tasks[].name": _refused(_LOCAL),
    "tasks[].ref": _refused(_LOCAL),
    "tasks[].overwrite": _ignored("nothing is downloaded"),
    "tasks[].download_dir": _ignored("nothing is downloaded"),
    "tasks[].source": _ignored("the pack is named after its folder"),
    "artifacts": _refused("artifacts are those of a task's folder"),
    "extra_instruction_paths": _refused(_INSTRUCTIONS),
    "extra_instructions": _refused(_INSTRUCTIONS),
    "source_jobs": _refused("use securebench regrade"),
}
"""Null means absence for each of them."""

_TABLES: Final = {name.partition(".")[0] for name in JOB_KEYS if "." in name}
_WHOLE: Final = ("n_attempts", "n_concurrent_trials")


def read_job(path: Path) -> HarborJob:
    """Return what a job configuration says.

    Args:
        path: The file, YAML or JSON.

    Raises:
        ConfigErrors: A key or value has no counterpart; all are listed.
    """
    document = read_yaml(path).value
    if not isinstance(document, Mapping):
        raise ConfigErrors([ConfigError("a job configuration is a mapping", path=str(path))])
    problems = [*_refusals(document, ""), *_shape_problems(document)]
    if not problems:
        found = _job(document)
        if isinstance(found, HarborJob):
            return found
        problems = [found]
    raise ConfigErrors([ConfigError(problem, path=str(path)) for problem in problems])


def _refusals(table: Fields, place: str) -> Iterator[str]:
    for name, value in table.items():
        key = f"{place}{name}"
        rule = JOB_KEYS.get(key)
        if rule is not None:
            if rule.use is KeyUse.REFUSED and value is not None and not rule.accepts(value):
                yield f"{key}: {rule.about}"
        elif key in _TABLES and isinstance(value, Mapping):
            yield from _refusals(value, f"{key}.")
        elif f"{key}[]" in _TABLES and isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    yield from _refusals(item, f"{key}[].")
                else:
                    yield f"{key}: its items are mappings"
        elif key not in _TABLES and f"{key}[]" not in _TABLES:
            yield f"{key}: Harbor has no such key"
        elif value is not None:
            yield f"{key}: it has another form"


def _shape_problems(job: Fields) -> Iterator[str]:
    for name in _WHOLE:
        if not _is_count(job.get(name, 1)):
            yield f"{name}: a whole number from 1"
    if not isinstance(job.get("quiet", False), bool | None):
        yield "quiet: true or false"
    if len(objects_at(job, "agents")) > 1:
        yield "agents: a run has one agent; make a suite of several"
    places = [*objects_at(job, "datasets"), *objects_at(job, "tasks")]
    if len(places) != 1:
        yield f"datasets and tasks: a run has one folder, and these name {len(places)}"
    for place in places:
        yield from _place_problems(place)


def _place_problems(place: Fields) -> Iterator[str]:
    if not text_at(place, "path"):
        yield f"path: {_LOCAL}; name it"
    names = place.get("task_names")
    if names is not None and not (isinstance(names, list) and all(map(_is_text, names))):
        yield "datasets[].task_names: a list of names"
    if not _is_count(place.get("n_tasks", 1)):
        yield "datasets[].n_tasks: a whole number from 1"
    if names and place.get("n_tasks") is not None:
        yield "datasets[].n_tasks: not beside task_names, after which Harbor counts"


def options_of_job(options: RunOptions, path: Path) -> RunOptions:
    """Return the options of a run that a job configuration describes; flags take precedence.

    Raises:
        ConfigErrors: See ``read_job``.
    """
    job = read_job(path)
    return replace(
        options,
        config=job.folder,
        agent=FolderAgent(job.agent, job.model, ""),
        attempts=options.attempts or job.attempts,
        parallelism=options.parallelism or job.parallelism,
        tasks=options.tasks or job.tasks,
        limit=options.limit if options.limit is not None else job.limit,
        quiet=options.quiet or job.is_quiet,
    )


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _job(job: Fields) -> HarborJob | str:
    """Return what a job of the right form says, or why it cannot be run."""
    agent = next(iter(objects_at(job, "agents")), {})
    place = next(iter([*objects_at(job, "datasets"), *objects_at(job, "tasks")]))
    name = (text_at(agent, "name") or "oracle").replace("-", "_")
    if name not in AGENTS:
        return f"agents[].name: there is no agent {name!r}; known are {', '.join(AGENTS)}"
    cli = AGENTS[name].cli
    vendor, _, model = text_at(agent, "model_name").rpartition("/")
    if vendor and (cli is None or _VENDORS.get(cli.provider.host) != vendor):
        return (
            f"agents[].model_name: {name} has another provider than {vendor!r}; name it in"
            " harness.config.provider of a tester YAML"
        )
    return HarborJob(
        folder=Path(text_at(place, "path")).expanduser(),
        agent=name,
        model=model,
        attempts=_count(job, "n_attempts"),
        parallelism=_count(job, "n_concurrent_trials"),
        tasks=_texts(place.get("task_names")),
        limit=_count(place, "n_tasks"),
        is_quiet=job.get("quiet") is True,
    )


def _count(table: Fields, name: str) -> int | None:
    value = table.get(name)
    return value if isinstance(value, int) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
