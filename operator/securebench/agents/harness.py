"""A harness: ``harness.config``, the interface of an agent's CLI, and its work on one task.

An agent names the keys of its configuration, builds its command line and environment, and reads its
events; ``agents.registry`` lists all. A task gives a harness its prompt and time limit; where its
candidate comes from depends on both.
Source: contract 3.1, 12.2, 12.5, 13.1, 15.8 and 21.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from securebench.agents.providers.bodies import model_problem
from securebench.agents.providers.endpoint import (
    ProviderEndpoint,
    normalize_domains,
    provider_schema,
    read_endpoint,
)
from securebench.agents.providers.provider import ProviderRules
from securebench.benchmark.families.counted_commands import SHELL
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.paths import PathError, author_path, timeout_problem
from securebench.benchmark.reading.shape import Shape
from securebench.benchmark.resources import Component
from securebench.errors import ConfigError, ConfigErrors
from securebench.json_values import (
    ANYTHING,
    BOOLEAN,
    SECONDS,
    STRING,
    Schema,
    first_limit,
    nullable,
    object_of,
)
from securebench.protocol.candidate import KINDS, CandidateForm, Extraction, ExtractionMode

NOP: Final = "nop"
ORACLE: Final = "oracle"
LATEST: Final = "latest"
"""Alias for a CLI version that the administrator chooses."""
EXTRACTIONS: Final = (ExtractionMode.STDOUT, ExtractionMode.GIT_DIFF)
"""Extraction modes of a command on a repo_patch task; the first is the default (decision 0027)."""
NO_NETWORK: Final = "none"
"""Value of ``harness.config.network``: tasks that ask for an open network run without one."""
AUDIT_KEYS: Final[Mapping[str, Schema]] = {
    "task_file": ANYTHING,
    "timeout_seconds": nullable(SECONDS),
    "network": {"enum": [NO_NETWORK]},
}
COMMON_KEYS: Final[Mapping[str, Schema]] = {
    **AUDIT_KEYS,
    "allowed_domains": {
        "type": "array",
        "items": STRING,
        "description": "a list of strings",
    },
}
"""Keys of ``harness.config``: those of audit harnesses, and those common to all others."""
MODEL: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9._+-][A-Za-z0-9._+:/@-]*$(?!\n)",
    "description": "a word of letters, digits, '.', '_', '+', '-', ':', '/' and '@' only",
}
_COUNT: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 1,
    "description": "a positive whole number",
}
PROVIDER_KEYS: Final[Mapping[str, Schema]] = {
    "model": MODEL,
    "budget": object_of({"requests": _COUNT, "tokens": _COUNT}),
    "allow_external_tools": BOOLEAN,
}
"""Keys of a harness that works with a model provider, besides ``provider`` itself."""
_PLACE: Final = "harness.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessConfig:
    """Fields common to all harness types.

    Args:
        type: A name in ``registry.AGENTS``.
        task_file: Workspace-relative path of the task file.
        timeout_seconds: Set by the tester, or the type's default; None for no limit.
        is_default_timeout: Whether ``timeout_seconds`` is the type's default.
        allowed_domains: Normalised, in order, without duplicates.
        provider_host: Host of its model provider, or empty.
        endpoint: Its model provider, if the tester names one by URL.
        model: Name of the model; may be empty for a command.
        max_requests: Budget of requests per launch, or None.
        max_tokens: Budget of tokens per launch, or None.
        allow_external_tools: Whether tools hosted by the provider may be used.
        network: What tasks that ask for an open network get: ``none``, or empty to refuse them.
    """

    type: str
    task_file: str = TASK_FILE
    timeout_seconds: float | None = None
    is_default_timeout: bool = True
    allowed_domains: tuple[str, ...] = ()
    provider_host: str = ""
    endpoint: ProviderEndpoint | None = None
    model: str = ""
    max_requests: int | None = None
    max_tokens: int | None = None
    allow_external_tools: bool = False
    network: str = ""

    @property
    def effective_domains(self) -> tuple[str, ...]:
        """Return the provider's host and the configured domains, without duplicates."""
        hosts = (self.provider_host, *self.allowed_domains)
        return tuple(dict.fromkeys(host for host in hosts if host))

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in.

        ``network`` is omitted if it is not set, so that digests from before it existed do not
        change.
        """
        network = {"network": self.network} if self.network else {}
        return {
            "task_file": self.task_file,
            "timeout_seconds": self.timeout_seconds,
            "allowed_domains": list(self.allowed_domains),
            **network,
        }

    def provider_config(self) -> dict[str, object]:
        """Return the part about the model provider.

        ``provider`` is omitted if there is none, so that digests from before it existed do not
        change.
        """
        endpoint = {} if self.endpoint is None else {"provider": self.endpoint.filled_config()}
        return {
            "model": self.model,
            "budget": {"requests": self.max_requests, "tokens": self.max_tokens},
            "allow_external_tools": self.allow_external_tools,
            **endpoint,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHarness(HarnessConfig):
    """A command in the task image.

    Args:
        command: A string for the shell, or an argv.
        artifact_path: Workspace-relative path of the candidate file, or None.
        extraction: Candidate of a repo_patch task: ``stdout``, or ``git_diff`` for the command's
            changes to the checkout.
        image: Image with the agent, mounted beside the task's image; may be empty.
    """

    type: str = "command"
    command: str | tuple[str, ...]
    artifact_path: str | None = None
    extraction: str = ExtractionMode.STDOUT
    image: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the argv; a string runs as ``sh -lc``."""
        return (*SHELL, self.command) if isinstance(self.command, str) else self.command

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in.

        ``extraction`` is omitted if it is the default, so that digests from before it existed do
        not change.
        """
        command = self.command if isinstance(self.command, str) else list(self.command)
        extraction = (
            {} if self.extraction == ExtractionMode.STDOUT else {"extraction": self.extraction}
        )
        provider = {} if self.endpoint is None else self.provider_config()
        image = {"image": self.image} if self.image else {}
        return {
            **HarnessConfig.filled_config(self),
            "command": command,
            "artifact_path": self.artifact_path,
            **extraction,
            **provider,
            **image,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHarness(CommandHarness):
    """A harness with a built-in command that replaces the agent during an audit.

    ``nop`` succeeds at once and hands in nothing. ``oracle`` hands in the reference answer from a
    file in ``ORACLE_FOLDER``, so that the answer is not visible in the Pod object.
    """

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in."""
        config = HarnessConfig.filled_config(self)
        return {key: config[key] for key in AUDIT_KEYS if key in config}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderHarness(HarnessConfig):
    """The CLI of a model provider.

    Args:
        version: Version of the CLI, or ``latest``.
    """

    version: str = LATEST

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in."""
        return {
            **HarnessConfig.filled_config(self),
            **self.provider_config(),
            "version": self.version,
        }


def normal_config(config: Mapping[str, object], shape: Shape) -> Mapping[str, Any]:
    """Validate a ``harness.config`` and normalise its paths and domains.

    Args:
        config: As written.
        shape: Schema of the harness type.

    Raises:
        ConfigErrors: Lists all defects; each error's fact ``key`` is the path of its key.
    """
    defects = shape.defects(config)
    errors = [
        ConfigError(defect.said_of(_PLACE, unknown="contains unsupported"), key=_key(*defect.key))
        for defect in defects
    ]
    broken = {defect.key[0] for defect in defects}
    normal: dict[str, object] = {**config}
    for name, rule in _NORMAL_FORMS.items():
        if config.get(name) is not None and name not in broken:
            try:
                normal[name] = rule(config[name])
            except (ConfigError, PathError) as error:
                errors.append(config_error(name, error.reason.removeprefix(f"{name} ")))
    if errors:
        raise ConfigErrors(errors)
    return normal


def config_error(name: str, problem: str) -> ConfigError:
    """Return the error about one key of ``harness.config``."""
    return ConfigError(f"{_PLACE}.{name} {problem}", key=_key(name))


def common_fields(config: Mapping[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
    """Return the common fields of ``HarnessConfig``.

    Args:
        config: Normalised.
        timeout: Default time limit in seconds; None for no limit.
    """
    seconds = config.get("timeout_seconds", timeout)
    return {
        "task_file": config.get("task_file") or TASK_FILE,
        "timeout_seconds": None if seconds is None else float(seconds),
        "is_default_timeout": "timeout_seconds" not in config,
        "allowed_domains": config.get("allowed_domains", ()),
        "network": config.get("network", ""),
    }


def provider_fields(config: Mapping[str, Any], api: str) -> dict[str, Any]:
    """Return the fields of ``HarnessConfig`` about the model provider.

    Args:
        config: Normalised.
        api: Default of ``provider.api``.

    Raises:
        ConfigErrors: The provider's URL or certificates are wrong, or the model uses tools of its
            provider and ``allow_external_tools`` is not set.
    """
    budget, given = config.get("budget", {}), config.get("provider")
    model, is_open = config.get("model", ""), config.get("allow_external_tools", False)
    problem = "" if is_open else model_problem(model, model)
    if problem:
        raise ConfigErrors([config_error("model", f"{model!r}: {problem}")])
    try:
        endpoint = None if given is None else read_endpoint(given, api)
    except ConfigError as error:
        raise ConfigErrors([error]) from None
    host = {} if endpoint is None else {"provider_host": endpoint.host}
    return {
        "endpoint": endpoint,
        "max_requests": budget.get("requests"),
        "max_tokens": budget.get("tokens"),
        "allow_external_tools": is_open,
        **host,
    }


def _author_path(name: str) -> Callable[[Any], object]:
    return lambda value: author_path(value, Component.AGENT, name)


_NORMAL_FORMS: Final[Mapping[str, Callable[[Any], object]]] = {
    "task_file": _author_path("task_file"),
    "artifact_path": _author_path("artifact_path"),
    "allowed_domains": normalize_domains,
}


def _key(*names: str) -> tuple[str, ...]:
    return ("harness", "config", *names)


DUMMY_KEY: Final = "securebench-holds-the-key"
"""API key that a CLI is given. It is worthless: the gateway replaces it with the real one."""

TIMEOUT_SECONDS: Final = 900.0
"""Default time limit of an agent CLI."""

_NAME: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9._+-]+$(?!\n)",
    "description": "a word of letters, digits, '.', '_', '+' and '-' only",
}
_KEYS: Final[Mapping[str, Schema]] = {
    **COMMON_KEYS,
    **PROVIDER_KEYS,
    "version": _NAME,
    "provider": provider_schema(has_choice=False),
}


class EventKind(StrEnum):
    """Kinds of events that an agent reports while it works."""

    SAID = "said"
    STARTED = "started"
    """A command or a tool."""
    ENDED = "ended"
    COMPLETED = "completed"
    """Its turn."""
    FAILED = "failed"
    """Its turn."""


class AgentEvent(NamedTuple):
    """One thing that an agent reports; its values are untrusted.

    Attributes:
        text: A message, a command, or why the turn failed.
        exit_code: Exit code of an ended command, as the agent reports it.
    """

    kind: EventKind
    text: str = ""
    exit_code: object = None


class AgentEventReader(Protocol):
    """Reads the events of one launch, in order."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object of stdout; most have none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCli:
    """The CLI of an agent that works with a model provider.

    Attributes:
        title: Prefix of lines about the agent.
        provider: The API that it uses.
        key: Environment variable of the provider's key, and its entry in the Secret.
        key_aliases: Other variables from which the CLI reads a key.
        overlay_path: Absolute path at which the overlay image is mounted.
        home: Absolute path of its home folder.
        search: Folders appended to the image's PATH.
        command: Returns the argv of one turn from the harness, the prompt and the provider's base
            URL as seen by the agent, without a path. Standard input is closed.
        preflight: Argv that must succeed before the agent's turn (contract 12.3).
        environment: Returns variables from the harness and that base URL; they override those of
            the image and of the tester.
        events: Creates a reader for the stdout of one launch.
        invocation: Substring by which a command harness is recognised as starting this CLI; may be
            empty.
    """

    title: str
    provider: ProviderRules
    key: str
    key_aliases: tuple[str, ...] = ()
    overlay_path: str
    home: str
    search: tuple[str, ...] = ()
    command: Callable[[ProviderHarness, str, str], tuple[str, ...]]
    preflight: tuple[str, ...]
    environment: Callable[[ProviderHarness, str], Mapping[str, str]]
    events: Callable[[], AgentEventReader]
    invocation: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Variables that may hold the provider's key, the Secret's entry first."""
        return (self.key, *self.key_aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One harness type.

    Attributes:
        name: Value of ``harness.type``; overlay versions are listed under it.
        config: Schema of ``harness.config``.
        read: Builds the harness from a normalised configuration; raises ConfigErrors if keys
            contradict each other.
        is_audit: Whether it audits a pack instead of being evaluated itself.
        cli: Present if a provider's CLI runs in the task's image.
    """

    name: str
    config: Shape
    read: Callable[[Mapping[str, Any]], HarnessConfig]
    is_audit: bool = False
    cli: AgentCli | None = None


def cli_agent(name: str, cli: AgentCli, default_model: str | None = None) -> Agent:
    """Return an agent with the configuration common to all CLIs.

    Args:
        name: Harness type.
        default_model: Default of ``model``; None makes ``model`` required.
    """

    def read(config: Mapping[str, Any]) -> HarnessConfig:
        vendor = {"provider_host": cli.provider.host}
        return ProviderHarness(
            type=name,
            model=config.get("model", default_model),
            version=config.get("version", LATEST),
            **vendor | provider_fields(config, cli.provider.api),
            **common_fields(config, timeout=TIMEOUT_SECONDS),
        )

    return Agent(name=name, config=_shape(default_model), read=read, cli=cli)


def _shape(default_model: str | None) -> Shape:
    if default_model is None:
        return Shape(object_of(_KEYS, "model"))
    return Shape(object_of({**_KEYS, "model": {**_KEYS["model"], "default": default_model}}))


def candidate_form(kind: str) -> CandidateForm:
    """Return how agents hand in a kind of candidate.

    Raises:
        ConfigError: Nobody knows it.
    """
    form = KINDS.get(kind)
    if form is None:
        raise ConfigError(f"no installed package has the kind of candidate {kind!r}")
    return form


def extraction_for(family: str, harness: HarnessConfig) -> Extraction:
    """Return how the candidate of a task is extracted.

    Args:
        family: Task type; nothing is extracted for deferred families.
        harness: A command hands in on stdout unless it names a file, works on a workspace or asks
            for the diff of a checkout. The stdout of a provider's CLI is never a candidate.

    Raises:
        ConfigError: Nobody knows the family's kind of candidate.
    """
    known = FAMILIES.get(family)
    if known is None:
        return Extraction(mode=ExtractionMode.UNSUPPORTED, kind="none", path=None)
    kind = known.candidate_kind
    form = candidate_form(kind)
    if not isinstance(harness, CommandHarness):
        return Extraction(mode=form.from_agent, kind=kind, path=form.path)
    if harness.artifact_path is not None:
        text_kind = "text" if form.from_command is ExtractionMode.WORKSPACE else kind
        return Extraction(mode=ExtractionMode.FILE, kind=text_kind, path=harness.artifact_path)
    wanted = harness.extraction == form.from_agent
    return Extraction(mode=form.from_agent if wanted else form.from_command, kind=kind)


_SOLVE: Final = (
    "Read the task in the file {task_file} and solve it. Use nothing but what the workspace"
    " {workspace} gives you: everything that you need is there."
)
_REPOSITORY: Final = (
    "The current working directory is the checkout of the repository: work in it, do not clone it"
    " anew. Edit implementation files only; leave tests, evaluation files, dependency, lock and"
    " build files as they are unless the task requires otherwise."
)


def task_prompt(extraction: Extraction, workspace: str, task_file: str) -> str:
    """Return the prompt of a task, which names files but not their content.

    Args:
        extraction: How the candidate is extracted.
        workspace: Absolute path of the workspace.
        task_file: Workspace-relative path of the task file.
    """
    parts = [_SOLVE, *([_REPOSITORY] if extraction.kind == "patch" else [])]
    hand_in = KINDS[extraction.kind].hand_in
    text = "\n".join([*parts, *([hand_in] if hand_in else [])])
    return text.format(
        task_file=f"{workspace.rstrip('/')}/{task_file}",
        workspace=workspace,
        path=extraction.path or "",
    )


def positional(prompt: str) -> tuple[str, ...]:
    """Return a prompt as the last argument of a CLI, which must not read it as an option."""
    return ("--", prompt) if prompt.startswith("-") else (prompt,)


def agent_time_limit(environment: Mapping[str, object], harness: HarnessConfig) -> float | None:
    """Return the time limit of the agent's command in seconds, or None for no limit.

    It is the smaller of the task's and the tester's limit, or else the harness's default.

    Raises:
        ConfigError: ``environment.timeout_seconds`` is no time limit.
    """
    task_limit = environment.get("timeout_seconds")
    tester_limit = None if harness.is_default_timeout else harness.timeout_seconds
    if task_limit is None:
        return harness.timeout_seconds
    problem = timeout_problem(task_limit)
    if problem is not None:
        raise ConfigError(problem)
    seconds = first_limit([task_limit], 0)
    return seconds if tester_limit is None else min(seconds, tester_limit)
