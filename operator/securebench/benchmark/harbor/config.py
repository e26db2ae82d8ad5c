"""A Harbor task.toml as typed values, read as the classes of Harbor in release 0.26 read it.

For every file there are two ends: the values that Harbor would use, or a refusal that names the
key. Harbor coerces (``"2"`` is the number 2), drops unknown keys and checks no range. Coercion is
the same here; an unknown key is a remark; a value that cannot run (zero seconds, a negative limit)
is refused. All findings of a file are reported together: pydantic checks the values, and rules
across keys are checked on the raw tables, so that one does not hide the other.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from itertools import islice
from math import isfinite
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from securebench.benchmark.harbor.keys import KEYS, KeyRule, KeyUse
from securebench.benchmark.reading.plain import MAX_DEPTH, is_too_deep
from securebench.json_values import object_at, objects_at
from securebench.text import did_you_mean

TASK_FILE: Final = "task.toml"

MAIN: Final = "main"
"""Service of the agent."""

MAX_SECONDS: Final = 10**9
"""Longest time limit, in seconds; three decades."""

MAX_MIB: Final = 2**40
"""Largest limit of memory or disk, in MiB."""

MAX_CPUS: Final = 10**6

MAX_FINDINGS: Final = 200
"""Findings of one kind about one file; a hostile one has millions."""

MAX_USER: Final = 2**32 - 2
"""Largest user id that Linux has."""

VERSIONS: Final = ("1.0", "1.1", "1.2", "1.3", "1.4")


class FindingKind(StrEnum):
    """What a finding means for the folder."""

    REFUSED = "refused"
    REMARK = "remark"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class FolderFinding:
    """One fact about a folder that its author should know.

    Attributes:
        file: Path relative to the task folder.
        key: Dotted path of the key with positions of lists, or empty.
        reason: What is wrong, without file and key.
        line: Number from 1, or None.
    """

    kind: FindingKind
    file: str
    key: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        """Return key and reason as one sentence."""
        return f"{self.key}: {self.reason}" if self.key else self.reason


def refused(file: str, key: str, reason: str, line: int | None = None) -> FolderFinding:
    """Return why a folder is refused."""
    return FolderFinding(FindingKind.REFUSED, file, key, reason, line)


def remark(file: str, key: str, reason: str) -> FolderFinding:
    """Return what has no effect, or another one than its author may think."""
    return FolderFinding(FindingKind.REMARK, file, key, reason)


class HarborNetwork(NamedTuple):
    """Policy of a container or a phase; ``hosts`` are those of ``allowlist``."""

    mode: str
    hosts: tuple[str, ...] = ()


class Template(NamedTuple):
    """A value that comes from outside: name of the variable, and the value when it is not set."""

    name: str
    default: str | None


_TEMPLATE: Final = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")


def template(value: str) -> Template | None:
    """Return what a value of an ``env`` table asks for; None when it stands for itself."""
    match = _TEMPLATE.fullmatch(value)
    return Template(match[1], match[2]) if match else None


def resolved_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the values of an ``env`` table; of a template its default, or nothing."""
    found = {name: (template(value), value) for name, value in env.items()}
    return {
        name: value if asked is None else asked.default or ""
        for name, (asked, value) in found.items()
    }


_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SERVICE: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_PACKAGE: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_NOT_PORTABLE: Final = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE: Final = re.compile(r"CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³]", re.IGNORECASE)
_DRIVE: Final = re.compile(r"[A-Za-z]:[/\\]")
_NAME_BYTES: Final = 255
"""Bytes of a file name on the usual file systems."""


def _host(text: str) -> str:
    host = text.strip().lower().rstrip(".")
    if "/" in host or ":" in host:
        return _address(host)
    name = host.removeprefix("*.")
    if host != name and _is_address(name):
        raise ValueError("a wildcard is for names, not for addresses")
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(
            "must be a host name, *.name, an address or an address range, without scheme, port"
            " and path"
        )
    return host


def _address(host: str) -> str:
    try:
        if "%" not in host:
            return (ip_network(host) if "/" in host else ip_address(host)).compressed
    except ValueError:
        pass
    raise ValueError(
        "must be a host name, *.name, an address or an address range without host bits; no scheme,"
        " port or path"
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _service(text: str) -> str:
    name = text.strip()
    if not _SERVICE.fullmatch(name):
        raise ValueError("must be a name of a compose service")
    return name


def _source(text: str) -> str:
    if ".." in PurePosixPath(text).parts:
        raise ValueError("must not have '..' in it")
    if not text or "\0" in text:
        raise ValueError("must be a path")
    return text


def _destination(text: str) -> str | None:
    if not text:
        return None
    path = PurePosixPath(text)
    if "\\" in text or "\0" in text or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("must be a relative path with '/' and without '..'")
    if text.rstrip("/") == "manifest.json":
        raise ValueError("must not be manifest.json, the list of what was kept")
    return text


def _step_name(name: str) -> str:
    device = name.partition(".")[0].rstrip(" ")
    bad = not name.strip() or name in {".", ".."} or name.endswith((".", " "))
    if bad or _NOT_PORTABLE.search(name) or _DEVICE.fullmatch(device):
        raise ValueError("must be a file name that is valid on every system")
    if len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        raise ValueError(f"must have at most {_NAME_BYTES} bytes")
    return name


def _package(name: str) -> str:
    if not _PACKAGE.fullmatch(name) or ".." in name:
        raise ValueError("must be org/name of letters, digits, '-', '_' and '.'")
    return name


def _cpus(value: float) -> float:
    if not isfinite(value) or not 0 < value <= MAX_CPUS:
        raise ValueError("must be a finite number above 0")
    return int(value) if value == int(value) else value


def _user(value: str | int) -> str | int:
    if isinstance(value, int) and not 0 <= value <= MAX_USER:
        raise ValueError("must be a user name or a number of Linux")
    if isinstance(value, str) and (not value.strip() or not value.isprintable()):
        raise ValueError("must be a user name or a number")
    return value


def _workdir(path: str) -> str:
    if path and (not path.startswith("/") or "\0" in path):
        raise ValueError("must be an absolute path")
    return path


def _variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or not name.isprintable():
            raise ValueError("holds a name that no variable can have")
        if "\0" in value:
            raise ValueError("holds a value that no variable can have")
    return env


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _as_artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


_NUMBER = Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)
Seconds = Annotated[float, _NUMBER]
Mebibytes = Annotated[int, Field(gt=0, le=MAX_MIB)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Hosts = tuple[Annotated[str, AfterValidator(_host)], ...]
Mode = Literal["public", "no-network", "allowlist"]
User = Annotated[str | int, AfterValidator(_user)]
Variables = Annotated[dict[str, str], AfterValidator(_variables)]
ServiceName = Annotated[str, AfterValidator(_service)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class Author(_Table):
    """One author of a published task."""

    name: str
    email: str | None = None


class Package(_Table):
    """Identity of a published task: the table ``[task]``."""

    name: Annotated[str, AfterValidator(_package)]
    version: Annotated[str, StringConstraints(min_length=1)] | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class Healthcheck(_Table):
    """A command that succeeds when a container is ready."""

    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 3


class HarborEnvironment(_Table):
    """A container: that of the task, or that of a separate verifier.

    The old keys ``memory`` and ``storage`` are in ``memory_mb`` and ``storage_mb``.
    """

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    cpus: Annotated[int | float, AfterValidator(_cpus)] | None = None
    memory_mb: Mebibytes | None = None
    storage_mb: Mebibytes | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    env: Variables = Field(default_factory=dict)
    workdir: Annotated[str, AfterValidator(_workdir)] | None = None
    network_mode: Mode | None = None
    allowed_hosts: Hosts | None = None
    allow_internet: bool | None = None
    healthcheck: Healthcheck | None = None
    mcp_servers: tuple[object, ...] = ()
    skills_dir: str | None = None

    @property
    def network(self) -> HarborNetwork:
        """Policy of the container: Harbor's default is the open network."""
        is_old = self.network_mode is None and self.allowed_hosts is None
        if is_old and self.allow_internet is False:
            return HarborNetwork("no-network")
        return HarborNetwork(self.network_mode or "public", self.allowed_hosts or ())


class _Phase(_Table):
    network_mode: Mode | None = None
    allowed_hosts: Hosts | None = None

    @property
    def network(self) -> HarborNetwork | None:
        """Policy of the phase; None when that of the container holds."""
        if self.network_mode is None:
            return None
        return HarborNetwork(self.network_mode, self.allowed_hosts or ())


class AgentTable(_Phase):
    """Phase of the agent; without ``timeout_sec`` the task sets no limit."""

    timeout_sec: Seconds | None = None
    user: User | None = None


class Collect(_Table):
    """A command between the agent and the collection of artifacts."""

    command: str
    service: ServiceName = MAIN
    timeout_sec: Seconds = 60.0
    user: User | None = None


class VerifierMode(StrEnum):
    """Where the tests run: in the agent's container, or in one of their own."""

    SHARED = "shared"
    SEPARATE = "separate"


class VerifierTable(_Phase):
    """Phase of the tests."""

    timeout_sec: Seconds = 600.0
    env: Variables = Field(default_factory=dict)
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: HarborEnvironment | None = None
    collect: tuple[Collect, ...] = ()

    @property
    def mode(self) -> VerifierMode | None:
        """Mode that this table names or implies; None when it says nothing."""
        if self.environment_mode is not None:
            return VerifierMode(self.environment_mode)
        return None if self.environment is None else VerifierMode.SEPARATE


class Artifact(_Table):
    """A path that is kept, and that a separate verifier gets."""

    source: Annotated[str, AfterValidator(_source)]
    destination: Annotated[str, AfterValidator(_destination)] | None = None
    exclude: tuple[str, ...] = ()
    service: ServiceName | None = None


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_as_artifact)], ...]


class Solution(_Table):
    """The reference solution."""

    env: Variables = Field(default_factory=dict)


class Step(_Table):
    """One of several instructions in one environment."""

    name: Annotated[str, AfterValidator(_step_name)]
    agent: AgentTable = Field(default_factory=AgentTable)
    verifier: VerifierTable = Field(default_factory=VerifierTable)
    min_reward: Finite | dict[str, Finite] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = ()


class TaskConfig(_Table):
    """A whole task.toml."""

    schema_version: str = "1.4"
    task: Package | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    source: str | None = None
    environment: HarborEnvironment = Field(default_factory=HarborEnvironment)
    agent: AgentTable = Field(default_factory=AgentTable)
    verifier: VerifierTable = Field(default_factory=VerifierTable)
    solution: Solution = Field(default_factory=Solution)
    artifacts: Artifacts = ()
    steps: tuple[Step, ...] | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None

    def verifier_mode(self, step: Step | None = None) -> VerifierMode:
        """Return where the tests of the task, or of one of its steps, run."""
        own = None if step is None else step.verifier.mode
        return own or self.verifier.mode or VerifierMode.SHARED

    def verifier_environment(self, step: Step | None = None) -> HarborEnvironment | None:
        """Return limits, variables and network of a separate verifier; None for a shared one.

        Tables are not merged: the first of step and task counts as a whole, else a copy of the
        task's environment.
        """
        if self.verifier_mode(step) is VerifierMode.SHARED:
            return None
        own = None if step is None else step.verifier.environment
        return own or self.verifier.environment or self.environment

    def agent_network(self, step: Step | None = None) -> HarborNetwork:
        """Return the policy while the agent works: of step, task or container."""
        own = None if step is None else step.agent.network
        return own or self.agent.network or self.environment.network

    def verifier_network(self, step: Step | None = None) -> HarborNetwork:
        """Return the policy while the tests run: of step, task or the container they run in."""
        own = None if step is None else step.verifier.network
        container = self.verifier_environment(step) or self.environment
        return own or self.verifier.network or container.network

    def templates(self) -> Iterator[tuple[str, Template]]:
        """Yield the variables whose value comes from outside, with the place of their table."""
        tables = [("environment.env", self.environment.env), ("verifier.env", self.verifier.env)]
        tables.append(("solution.env", self.solution.env))
        if self.verifier.environment is not None:
            tables.append(("verifier.environment.env", self.verifier.environment.env))
        for index, step in enumerate(self.steps or ()):
            place = f"steps[{index}].verifier"
            tables.append((f"{place}.env", step.verifier.env))
            if step.verifier.environment is not None:
                tables.append((f"{place}.environment.env", step.verifier.environment.env))
        for place, env in tables:
            for name, value in env.items():
                if (found := template(value)) is not None:
                    yield f"{place}.{name}", found


class ConfigReading(NamedTuple):
    """What a task.toml says.

    Attributes:
        config: None when a value has no type of its key; it is there when a finding refuses
            the file for another reason.
    """

    config: TaskConfig | None
    findings: tuple[FolderFinding, ...]


def read_config(text: str) -> ConfigReading:
    """Return the typed values of a task.toml and everything that its author should know.

    Args:
        text: The file with LF as line ends, as Harbor reads it.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return ConfigReading(None, (_toml_problem(text, error),))
    if is_too_deep(raw):
        return ConfigReading(None, (_depth_problem(text),))
    findings = [*_bounded(_walk(raw, "", "")), *_bounded(_rule_findings(raw))]
    values = deepcopy(raw)
    for place, table in _environments(values):
        findings += _take_old_sizes(place, table)
    findings += _take_old_version(values)
    config = None
    try:
        config = TaskConfig.model_validate(values)
    except ValidationError as error:
        findings += _bounded(_value_findings(values, error))
    return ConfigReading(config, tuple(dict.fromkeys(findings)))


def _bounded(findings: Iterator[FolderFinding]) -> Iterator[FolderFinding]:
    """Yield the first findings; that others follow is a finding too, so that none is silent."""
    yield from islice(findings, MAX_FINDINGS)
    if (following := next(findings, None)) is not None:
        reason = f"more than {MAX_FINDINGS} findings of one kind; the others are not listed"
        yield FolderFinding(following.kind, TASK_FILE, "", reason)


_AT_LINE: Final = re.compile(r" \(at line (\d+), column (\d+)\)$")
_AT_END: Final = " (at end of document)"


def _toml_problem(text: str, error: Exception) -> FolderFinding:
    """Return the refusal of a text that is no TOML; it always has a line."""
    if not isinstance(error, tomllib.TOMLDecodeError):
        is_deep = isinstance(error, RecursionError)
        reason = "values are nested too deeply" if is_deep else "a number has too many digits"
        return refused(TASK_FILE, "", f"invalid TOML: {reason}", _first_line(text, _overtaxes))
    words = str(error)
    if match := _AT_LINE.search(words):
        reason = f"invalid TOML: {words[: match.start()]} (column {match[2]})"
        return refused(TASK_FILE, "", reason, int(match[1]))
    last = text.rstrip("\n").count("\n") + 1
    return refused(TASK_FILE, "", f"invalid TOML: {words.removesuffix(_AT_END)} (at the end)", last)


def _overtaxes(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    except (ValueError, RecursionError):
        return True
    return False


def _depth_problem(text: str) -> FolderFinding:
    def is_deep(part: str) -> bool:
        try:
            return is_too_deep(tomllib.loads(part))
        except (ValueError, RecursionError):
            return False

    reason = f"invalid TOML: more than {MAX_DEPTH} nested values"
    return refused(TASK_FILE, "", reason, _first_line(text, is_deep))


def _first_line(text: str, is_bad: Callable[[str], bool]) -> int:
    """Return the number of the line with which a text becomes bad; later lines do not mend it."""
    lines = text.split("\n")
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if is_bad("\n".join(lines[:middle])):
            high = middle
        else:
            low = middle + 1
    return low


def _walk(value: object, pattern: str, shown: str) -> Iterator[FolderFinding]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            place = f"{shown}.{_quoted(name)}" if shown else _quoted(name)
            yield from _walk_key(below, f"{pattern}.{name}" if pattern else name, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{pattern}[]", f"{shown}[{index}]")


def _walk_key(value: object, pattern: str, shown: str) -> Iterator[FolderFinding]:
    key = KEYS.get(pattern)
    if key is None:
        yield _unknown(pattern, shown)
        return
    yield from _of_key(key, value, shown)
    if not key.is_open:
        yield from _walk(value, pattern, shown)


def _of_key(key: KeyRule, value: object, shown: str) -> Iterator[FolderFinding]:
    if key.use is KeyUse.REFUSED and not key.accepts(value):
        yield refused(TASK_FILE, shown, key.about)
    elif key.use is KeyUse.IGNORED:
        yield FolderFinding(FindingKind.IGNORED, TASK_FILE, shown, key.about)


def _unknown(pattern: str, shown: str) -> FolderFinding:
    parent, _, name = pattern.rpartition(".")
    siblings = [key.rpartition(".")[2] for key in KEYS if key.rpartition(".")[0] == parent]
    hint = did_you_mean([name], siblings)
    if parent and name in KEYS:
        hint = f"; {name} stands before the first table of the file"
    return remark(TASK_FILE, shown, f"unknown key, which Harbor drops{hint}")


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else repr(name)


def _verifiers(raw: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield "verifier", object_at(raw, "verifier")
    for index, step in enumerate(objects_at(raw, "steps")):
        yield f"steps[{index}].verifier", object_at(step, "verifier")


def _phases(raw: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield from _verifiers(raw)
    yield "agent", object_at(raw, "agent")
    for index, step in enumerate(objects_at(raw, "steps")):
        yield f"steps[{index}].agent", object_at(step, "agent")


def _environments(raw: Mapping[str, object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, table in [("", raw), *((f"{name}.", each) for name, each in _verifiers(raw))]:
        found = table.get("environment")
        if isinstance(found, dict):
            yield f"{place}environment", found


def _rule_findings(raw: Mapping[str, object]) -> Iterator[FolderFinding]:
    """Yield what several keys say together."""
    for place, environment in _environments(raw):
        yield from _network_findings(place, environment)
    for place, table in _phases(raw):
        hosts, mode = table.get("allowed_hosts"), table.get("network_mode")
        if hosts is not None and mode != "allowlist" and (mode is None or hosts):
            yield _only_allowlist(place)
    for place, verifier in _verifiers(raw):
        if verifier.get("environment_mode") == "shared" and "environment" in verifier:
            reason = "a shared verifier has no container of its own; take the table away"
            yield refused(TASK_FILE, f"{place}.environment", reason)
    for place, artifact in _artifacts(raw):
        service, source = artifact.get("service"), artifact.get("source")
        if not isinstance(service, str) or not isinstance(source, str):
            continue
        if service.strip() != MAIN and not source.startswith("/") and not _DRIVE.match(source):
            yield refused(TASK_FILE, f"{place}.source", f"must be absolute in {service.strip()!r}")
    yield from _step_findings(raw)


def _network_findings(place: str, environment: Mapping[str, object]) -> Iterator[FolderFinding]:
    hosts, mode = environment.get("allowed_hosts"), environment.get("network_mode")
    if hosts and mode != "allowlist":
        yield _only_allowlist(place)
    if "allow_internet" in environment and (hosts is not None or mode is not None):
        reason = "no effect beside network_mode or allowed_hosts"
        yield remark(TASK_FILE, f"{place}.allow_internet", reason)


def _only_allowlist(place: str) -> FolderFinding:
    reason = "it needs network_mode = 'allowlist' in the same table"
    return refused(TASK_FILE, f"{place}.allowed_hosts", reason)


def _artifacts(raw: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for index, artifact in enumerate(objects_at(raw, "artifacts")):
        yield f"artifacts[{index}]", artifact
    for number, step in enumerate(objects_at(raw, "steps")):
        for index, artifact in enumerate(objects_at(step, "artifacts")):
            yield f"steps[{number}].artifacts[{index}]", artifact


def _step_findings(raw: Mapping[str, object]) -> Iterator[FolderFinding]:
    seen: dict[str, int] = {}
    for index, step in enumerate(objects_at(raw, "steps")):
        name = step.get("name")
        if not isinstance(name, str):
            continue
        first = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), index)
        if first != index:
            reason = f"the name of steps[{first}] again, or one that some systems do not tell apart"
            yield refused(TASK_FILE, f"steps[{index}].name", reason)
    if "multi_step_reward_strategy" in raw and not raw.get("steps"):
        yield remark(TASK_FILE, "multi_step_reward_strategy", "no effect without steps")


_UNITS: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def _take_old_sizes(place: str, table: dict[str, Any]) -> Iterator[FolderFinding]:
    """Replace ``memory`` and ``storage`` of a table by the keys with a unit in their name."""
    for old in ("memory", "storage"):
        if old not in table:
            continue
        value, key, new = table.pop(old), f"{place}.{old}", f"{old}_mb"
        if not isinstance(value, str):
            yield remark(TASK_FILE, key, f"no effect, it is no string; write {new}")
            continue
        size = _mebibytes(value)
        if size is None:
            yield refused(TASK_FILE, key, "must be a size such as '2G', '512M' or '64K'")
        elif table.setdefault(new, size) != size:
            yield refused(TASK_FILE, key, f"says another size than {new}")


def _mebibytes(text: str) -> int | None:
    size = text.strip().upper()
    try:
        number = float(size[:-1])
        return int(number / 1024 if size[-1:] == "K" else number * _UNITS[size[-1:]])
    except (ValueError, OverflowError, KeyError):
        return None


def _take_old_version(values: dict[str, Any]) -> Iterator[FolderFinding]:
    if "version" in values:
        version = values.pop("version")
        if "schema_version" in values:
            yield remark(TASK_FILE, "version", "no effect beside schema_version")
        values.setdefault("schema_version", version)
    version = values.get("schema_version", "1.4")
    if isinstance(version, str) and version not in VERSIONS:
        reason = f"not one of {', '.join(VERSIONS)}; read as these"
        yield remark(TASK_FILE, "schema_version", reason)


def _value_findings(
    values: Mapping[str, object], error: ValidationError
) -> Iterator[FolderFinding]:
    """Yield one refusal for each key that has no valid value."""
    reasons: dict[str, list[str]] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        key = _shown(values, each["loc"], is_missing=each["type"] == "missing")
        words = each["msg"].removeprefix("Value error, ")
        words = "is missing" if each["type"] == "missing" else _must(words)
        if words not in reasons.setdefault(key, []):
            reasons[key].append(words)
    for key, words_of_key in reasons.items():
        yield refused(TASK_FILE, key, ", or ".join(words_of_key))


def _must(words: str) -> str:
    return re.sub(r"^Input should ", "must ", words)


def _shown(value: object, path: tuple[str | int, ...], *, is_missing: bool) -> str:
    """Return the key of an error; names of union members, which pydantic adds, are left out."""
    shown = ""
    for number, part in enumerate(path, start=1):
        is_last = is_missing and number == len(path)
        if isinstance(part, int) and isinstance(value, list):
            shown, value = f"{shown}[{part}]", value[part]
        elif isinstance(value, Mapping) and isinstance(part, str) and (part in value or is_last):
            shown = f"{shown}.{_quoted(part)}" if shown else _quoted(part)
            value = value.get(part)
    return shown
