"""Which keys of a Harbor ``task.toml`` an import carries over; every other one is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from securebench.benchmark.reading.plain import MAX_DEPTH, PlainProblem, is_too_deep
from securebench.core.spelling import did_you_mean

Accepts = Callable[[object], bool]


def _nothing(value: object) -> bool:
    """Accept what the key means where it is absent."""
    return value in ("", 0, [], {})


def _anything(_value: object) -> bool:
    return True


def _never(_value: object) -> bool:
    return False


def _text(value: object) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Args:
        accepts: Values that mean the same here; others are refused.
        hint: Says in a refusal what is possible.
        has_no_effect: The value is dropped with a remark: it says nothing about grading.
    """

    accepts: Accepts = _nothing
    hint: str = ""
    has_no_effect: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Known keys of a table and the tables in it.

    Args:
        carried: Keys of an open table that are carried over; its others have no effect. None for
            a table with known keys only.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    carried: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """What the keys of one file say.

    Args:
        refused: Why the task cannot be imported, each beginning with the key.
        without_effect: Keys that are dropped because they say nothing about grading.
    """

    refused: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)


_CARRIED = Key(_anything)
"""Checked where it is read."""
_ABOUT = Key(_anything, has_no_effect=True)
_VERSION = Key(_text, "it must be a string")
_RESOURCES = Key(_never, "the run's resources limit every task alike")
_USER = Key(_never, "harness and checks run as the image's user")
_NETWORK = {
    "network_mode": Key(
        lambda value: value == "no-network",
        hint="only 'no-network' means the same here; see harness.config.allowed_domains",
    ),
    "allowed_hosts": Key(hint="name hosts in harness.config.allowed_domains and take it away"),
}
_OPEN = Table(carried=frozenset())

_TASK_TOML = Table(
    keys={
        "schema_version": _VERSION,
        "version": _VERSION,
        "source": _ABOUT,
        "artifacts": Key(hint="checks see the working folder only"),
        "steps": Key(hint="tasks of several steps have no counterpart here"),
        "multi_step_reward_strategy": Key(),
    },
    tables={
        "task": _OPEN,
        "metadata": Table(carried=frozenset({"difficulty", "category", "tags"})),
        "environment": Table(
            keys={
                "docker_image": Key(_text, "it must be a string"),
                "build_timeout_sec": _ABOUT,
                "os": Key(
                    lambda value: isinstance(value, str) and value.lower() == "linux",
                    hint="tasks run on linux",
                ),
                **dict.fromkeys(("cpus", "memory_mb", "storage_mb"), _RESOURCES),
                **dict.fromkeys(("memory", "storage"), _RESOURCES),
                **dict.fromkeys(("gpus", "gpu_types", "tpu"), Key(hint="tasks get no GPU here")),
                "env": _CARRIED,
                "workdir": Key(hint="write it as WORKDIR of the Dockerfile"),
                **_NETWORK,
                "allow_internet": Key(
                    lambda value: value is False,
                    hint="only false means the same here; see harness.config.allowed_domains",
                ),
                "healthcheck": Key(),
                "mcp_servers": Key(),
                "skills_dir": Key(),
            }
        ),
        "agent": Table(keys={"timeout_sec": _CARRIED, "user": _USER, **_NETWORK}),
        "verifier": Table(
            keys={
                "timeout_sec": _CARRIED,
                "env": Key(),
                "user": _USER,
                "environment_mode": Key(
                    lambda value: value == "shared",
                    hint="checks run in the task's own image",
                ),
                "environment": Key(_never, "checks run in the task's own image"),
                "collect": Key(hint="nothing runs between the agent and the checks"),
                **_NETWORK,
            }
        ),
        "solution": Table(keys={"env": Key()}),
    },
)


def parse_toml(text: str) -> Mapping[str, object]:
    """Return the values of a file; dates, and numbers that are not finite, among them.

    Raises:
        PlainProblem: Not TOML, or too deeply nested values. Its reason has the line.
    """
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlainProblem(f"invalid TOML: {error}", None) from None
    except RecursionError:
        raise PlainProblem("invalid TOML: values are nested too deeply", None) from None
    except ValueError:
        raise PlainProblem("invalid TOML: a number has too many digits", None) from None
    if is_too_deep(config):
        raise PlainProblem(f"invalid TOML: more than {MAX_DEPTH} nested values", None)
    return config


def check_keys(config: Mapping[str, object]) -> KeyFindings:
    """Return what of a file is not carried over: nothing is dropped in silence.

    Source: harbor 2; the configuration classes of its release 0.25 (schema versions 1.0 to 1.4).
    """
    found = KeyFindings()
    _check(config, _TASK_TOML, "", found)
    return found


def _check(section: Mapping[str, object], table: Table, parent: str, found: KeyFindings) -> None:
    for key, value in section.items():
        name = f"{parent}{key}"
        if key in table.tables:
            _check_table(value, table.tables[key], name, found)
        elif key in table.keys:
            _check_value(value, table.keys[key], name, found)
        elif table.carried is None:
            known = table.keys.keys() | table.tables.keys()
            found.refused.append(f"{name} is an unknown key{did_you_mean([key], known)}")
        elif key not in table.carried:
            found.without_effect.append(name)


def _check_table(value: object, table: Table, name: str, found: KeyFindings) -> None:
    if isinstance(value, Mapping):
        _check(value, table, f"{name}.", found)
    else:
        found.refused.append(f"{name} must be a table")


def _check_value(value: object, key: Key, name: str, found: KeyFindings) -> None:
    if not key.accepts(value):
        hint = f": {key.hint}" if key.hint else ""
        found.refused.append(f"{name} has no counterpart here{hint}")
    elif key.has_no_effect:
        found.without_effect.append(name)
