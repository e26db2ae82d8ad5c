"""Every key of a Harbor task.toml and of its compose file: run, refused or ignored, and why.

The refusals of a folder and the page docs/reference/harbor-keys.md come from these tables. The
value of a key that runs is checked and kept in the typed model. So is that of a key that this
release refuses until it can run it. Keys are those of the classes of Harbor in release 0.26 (schema
versions 1.0 to 1.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class KeyUse(StrEnum):
    """What happens with a key."""

    RUN = "run"
    REFUSED = "refused"
    IGNORED = "ignored"


def _never(_value: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One key of a table.

    Attributes:
        about: Meaning of a key that runs; reason of one that is refused or ignored.
        accepts: Values of a refused key that mean what its absence means.
        is_open: Whether the keys below are free.
        later: Why this release refuses to run a folder with a key that it can read; empty for a
            key that runs, or that no release reads.
    """

    use: KeyUse
    about: str
    accepts: Callable[[object], bool] = _never
    is_open: bool = False
    later: str = ""

    @property
    def effect(self) -> KeyUse:
        """What happens with the key in a run."""
        return KeyUse.REFUSED if self.later else self.use


def _read(about: str, *, is_open: bool = False) -> KeyRule:
    return KeyRule(KeyUse.RUN, about, is_open=is_open)


def _ignored(about: str) -> KeyRule:
    return KeyRule(KeyUse.IGNORED, about)


def _is_empty(value: object) -> bool:
    return value in (0, "", [], {})


def _refused(about: str, accepts: Callable[[object], bool] = _is_empty) -> KeyRule:
    return KeyRule(KeyUse.REFUSED, about, accepts, is_open=True)


def _is_linux(value: object) -> bool:
    return not isinstance(value, str) or value.lower() == "linux"


_HOSTS = (
    "Hosts of `allowlist`: exact names, `*.name`, addresses and address ranges; trimmed and in"
    " lower case. Those of the agent"
    " have to be among `allowed_domains` of the run, which opens what is below them, too."
)
_CLOSED: Final = (
    "All but `no-network` needs a run with `--network none`, which closes it; hosts of the agent"
    " may also be among the run's `allowed_domains`."
)
NO_STEPS: Final = "this release cannot run steps"
NO_OTHER_SERVICES: Final = "this release gives a separate verifier no services of its own"
NO_HOOKS: Final = "this release cannot run collect hooks"
NO_SKILLS: Final = "this release gives no agent the skills of a task"

_PHASE: Final[Mapping[str, KeyRule]] = {
    "network_mode": _read(f"Network of this phase; absent: that of the container. {_CLOSED}"),
    "allowed_hosts": _read(_HOSTS),
}
_USER = "User name or number; absent: the user of the image."
_HEALTHCHECK: Final[Mapping[str, KeyRule]] = {
    "command": _read("Required. Command of the shell; its first success ends the check."),
    "interval_sec": _read("Seconds between two tries; 5 when absent."),
    "timeout_sec": _read("Seconds that a try may take; 30 when absent."),
    "start_period_sec": _read("Seconds in which failures do not count; 0 when absent."),
    "start_interval_sec": _read("Seconds between two tries in that period; 5 when absent."),
    "retries": _read("Failures in a row that end the attempt; 3 when absent."),
}
_NO_COPY: Final = "The record has no copy; a separate verifier finds what was left in its place."
_STEP_ARTIFACT: Final = dict.fromkeys(
    ("source", "destination", "exclude", "service"), _ignored(_NO_COPY)
)
_ARTIFACT: Final[Mapping[str, KeyRule]] = {
    "source": _read(
        "Required. File or folder of the agent's container, absolute or below its working folder;"
        " a separate verifier has it at the same place."
    ),
    "destination": _ignored(_NO_COPY),
    "exclude": _read("Patterns of tar; what is in a folder and like one of them is left out."),
    "service": _read("`main` when absent; another one is refused with a separate verifier."),
}


def _below(place: str, table: Mapping[str, KeyRule]) -> dict[str, KeyRule]:
    return {f"{place}.{name}": key for name, key in table.items()}


_ENVIRONMENT: Final[Mapping[str, KeyRule]] = {
    "build_timeout_sec": _ignored("SecureBench builds no image of a task during a run."),
    "docker_image": _read("Ready image; it comes before a Dockerfile."),
    "os": _refused("tasks run on Linux", _is_linux),
    "cpus": _read("CPU limit of the container `main`."),
    "memory_mb": _read("Memory limit of `main` in MiB."),
    "storage_mb": _read("Disk limit of `main` in MiB."),
    "memory": _read("Old form of `memory_mb`: `2G`, `512M`, `64K`; a number has no effect."),
    "storage": _read("Old form of `storage_mb`."),
    "gpus": _refused("tasks get no GPU"),
    "gpu_types": _refused("tasks get no GPU"),
    "tpu": _refused("tasks get no TPU", _never),
    "env": _read(
        "Variables of `main`. A whole value `${NAME:-default}` is its default; `${NAME}` is"
        " refused.",
        is_open=True,
    ),
    "workdir": _read("Absolute working folder of every command; absent: that of the image."),
    "network_mode": _read(
        f"`public`, `no-network` or `allowlist`; `public` when absent. {_CLOSED}"
    ),
    "allowed_hosts": _read(_HOSTS),
    "allow_internet": _read(
        "Old form of `network_mode`; no effect beside `network_mode` or `allowed_hosts`."
    ),
    "healthcheck": _read(
        "Runs in `main` after the start, before the agent, as the agent's user. An attempt whose"
        " check does not succeed ends as infrastructure."
    ),
    **_below("healthcheck", _HEALTHCHECK),
    "mcp_servers": _refused("no agent of SecureBench is configured with the MCP servers of a task"),
    "skills_dir": _read("Folder in the container with skills for the agent."),
}
_NOT_IN_VERIFIER = "Harbor has no agent in this container and runs no healthcheck there."
_VERIFIER_ENVIRONMENT: Final[Mapping[str, KeyRule]] = {
    **_ENVIRONMENT,
    **dict.fromkeys(("skills_dir", "healthcheck"), _ignored(_NOT_IN_VERIFIER)),
    **_below("healthcheck", dict.fromkeys(_HEALTHCHECK, _ignored(_NOT_IN_VERIFIER))),
    "build_timeout_sec": _ignored("Harbor takes the value of the task's environment."),
}
_AGENT: Final[Mapping[str, KeyRule]] = {
    "timeout_sec": _read("Seconds of the agent; absent: the task sets no limit."),
    "user": _read(_USER),
    **_PHASE,
}
_VERIFIER: Final[Mapping[str, KeyRule]] = {
    "timeout_sec": _read("Seconds of the verification; 600 when absent."),
    "env": _read(
        "Variables of the test script alone; templates as in `environment.env`.", is_open=True
    ),
    "user": _read(_USER),
    "environment_mode": _read(
        "`shared` or `separate`; absent: `separate` if a table `environment` is here, else"
        " `shared`. A separate verifier gets the artifacts alone, in an image of its own."
    ),
    "environment": _read("Container of the separate verifier, with keys of `[environment]`."),
    **_below("environment", _VERIFIER_ENVIRONMENT),
    "collect": _read("Commands between the agent and the collection of artifacts."),
    **_below(
        "collect[]",
        {
            "command": _read("Required. Command of the shell."),
            "service": _read("Service in which it runs; `main` when absent."),
            "timeout_sec": _read("Seconds that it may take; 60 when absent."),
            "user": _read("User name or number; absent: the user of the container."),
        },
    ),
    **_PHASE,
}

_KEYS: Final[Mapping[str, KeyRule]] = {
    "schema_version": _read("Any string; it changes no meaning."),
    "version": _read("Old name of `schema_version`; no effect beside it."),
    "source": _ignored("Label of the data set, for people."),
    "multi_step_reward_strategy": _read("`mean` or `final`; `mean` when absent."),
    "task": _read("Identity of the published task."),
    **_below(
        "task",
        {
            "name": _read("Required in this table: `org/name`. The id is the folder's name."),
            "version": _read("Any string that is not empty."),
            "description": _read("For people."),
            "authors": _read("Tables with `name` and `email`."),
            "authors[].name": _read("Required."),
            "authors[].email": _read("For people."),
            "keywords": _read("List of strings."),
        },
    ),
    "metadata": _read("Free values; nothing reads them.", is_open=True),
    "environment": _read("Container `main`, where the agent works."),
    **_below("environment", _ENVIRONMENT),
    "agent": _read("Phase of the agent."),
    **_below("agent", _AGENT),
    "verifier": _read("Phase of the tests."),
    **_below("verifier", _VERIFIER),
    "solution": _read("Reference solution."),
    "solution.env": _read("Variables of `solution/solve.sh` alone.", is_open=True),
    "artifacts": _read(
        "What a separate verifier gets, besides `/logs/artifacts`; a shared one finds all that the"
        " agent changed."
    ),
    **_below("artifacts[]", _ARTIFACT),
    "steps": _read("Instructions one after the other in one environment."),
    **_below(
        "steps[]",
        {
            "name": _read("Required. Name of the folder below `steps/`."),
            "min_reward": _read(
                "Least reward, or a table of them, below which the rest is skipped.", is_open=True
            ),
            "healthcheck": _read("Runs before the agent of this step."),
            **_below("healthcheck", _HEALTHCHECK),
            "artifacts": _ignored(_NO_COPY),
            **_below("artifacts[]", _STEP_ARTIFACT),
            "agent": _read("As `[agent]`; absent keys are those of the task."),
            **_below("agent", _AGENT),
            "verifier": _read("As `[verifier]`; `timeout_sec` is not taken from the task."),
            **_below("verifier", _VERIFIER),
        },
    ),
}
_LATER: Final[Mapping[str, str]] = {
    "steps": NO_STEPS,
    "multi_step_reward_strategy": NO_STEPS,
    "verifier.collect": NO_HOOKS,
    "environment.skills_dir": NO_SKILLS,
}
"""Keys that this release refuses, with all below them."""


def _reason(name: str) -> str:
    for place, reason in _LATER.items():
        if name == place or name.startswith((f"{place}.", f"{place}[")):
            return reason
    return ""


KEYS: Final[Mapping[str, KeyRule]] = {
    name: replace(key, later=_reason(name)) for name, key in _KEYS.items()
}
"""By path; ``[]`` stands for the items of a list."""

_NODE = "it would give the container a part of the node"
COMPOSE_REFUSED: Final[Mapping[str, str]] = {
    "privileged": _NODE,
    "cap_add": _NODE,
    "devices": _NODE,
    "device_cgroup_rules": _NODE,
    "gpus": "tasks get no GPU",
    "pid": _NODE,
    "ipc": _NODE,
    "uts": _NODE,
    "userns_mode": _NODE,
    "cgroup": _NODE,
    "cgroup_parent": _NODE,
    "sysctls": _NODE,
    "security_opt": "a service keeps the security settings of the installation",
    "runtime": "the installation chooses the runtime",
    "volumes_from": "name the volume in both services instead",
    "extends": "write the service out in this file",
    "env_file": "write the variables into `environment`",
    "secrets": "give the value as a variable",
    "configs": "put the file into the image",
    "external_links": "services reach only one another",
    "provider": "only containers can be services",
    "develop": "it watches files of a machine",
}
"""Keys of a service that are refused unless they are empty or false, and why."""

COMPOSE_READ: Final = frozenset(
    {
        "image", "build", "command", "entrypoint", "environment", "depends_on", "healthcheck",
        "volumes", "networks", "network_mode", "ports", "expose", "user", "working_dir", "hostname",
        "domainname", "dns", "extra_hosts", "links", "tmpfs", "read_only", "cap_drop", "group_add",
        "cpus", "mem_limit", "deploy", "shm_size", "ulimits", "stop_grace_period", "stop_signal",
        "init", "restart", "profiles", "platform",
    }
)  # fmt: skip
COMPOSE_IGNORED: Final = frozenset(
    {
        "container_name", "stdin_open", "tty", "pull_policy", "labels", "annotations", "logging",
        "attach", "memswap_limit", "mem_reservation", "mem_swappiness", "oom_score_adj",
        "oom_kill_disable", "pids_limit", "cpu_shares", "cpu_quota", "cpu_period", "cpuset",
        "scale", "blkio_config", "storage_opt",
    }
)  # fmt: skip
"""Keys of a service that say nothing about what the task is."""
