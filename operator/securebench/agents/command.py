"""Command harnesses: the tester's own command, and the ``oracle`` and ``nop`` of audits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from securebench.agents.harness import (
    AUDIT_KEYS,
    COMMON_KEYS,
    EXTRACTIONS,
    NOP,
    ORACLE,
    PROVIDER_KEYS,
    Agent,
    AuditHarness,
    CommandHarness,
    HarnessConfig,
    common_fields,
    config_error,
    provider_fields,
)
from securebench.agents.providers.endpoint import APIS, provider_schema
from securebench.benchmark.pack import oracle
from securebench.benchmark.reading.shape import Shape
from securebench.errors import ConfigErrors
from securebench.json_values import ANYTHING, COMMAND, Schema, object_of
from securebench.protocol.candidate import ORACLE_FOLDER, ExtractionMode

_ANSWER: Final = (
    f"if [ -f {ORACLE_FOLDER}/{oracle.COMMAND} ];"
    f" then exec sh -l {ORACLE_FOLDER}/{oracle.COMMAND};"
    f" else exec cat {ORACLE_FOLDER}/{oracle.CANDIDATE}; fi"
)


def _command(config: Mapping[str, Any]) -> HarnessConfig:
    common, artifact = common_fields(config), config.get("artifact_path")
    extraction = config.get("extraction", EXTRACTIONS[0])
    if artifact is not None and artifact == common["task_file"]:
        raise ConfigErrors([config_error("artifact_path", "must not be the task file")])
    if artifact is not None and extraction == ExtractionMode.GIT_DIFF:
        problem = f"and extraction: {ExtractionMode.GIT_DIFF} name two candidates: keep one"
        raise ConfigErrors([config_error("artifact_path", problem)])
    alone = [name for name in PROVIDER_KEYS if name in config and "provider" not in config]
    if alone:
        raise ConfigErrors([config_error(alone[0], "says something of a provider: add provider")])
    command = config["command"]
    return CommandHarness(
        command=command if isinstance(command, str) else tuple(command),
        artifact_path=artifact,
        extraction=extraction,
        image=config.get("image", ""),
        model=config.get("model", ""),
        **provider_fields(config, next(iter(APIS))),
        **common,
    )


def _audit(name: str, script: str) -> Agent:
    def read(config: Mapping[str, Any]) -> HarnessConfig:
        return AuditHarness(type=name, command=("sh", "-c", script), **common_fields(config))

    return Agent(name=name, config=Shape(object_of(AUDIT_KEYS)), read=read, is_audit=True)


_IMAGE: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$(?!\n)",
    "description": "the name of an image",
}
_KEYS: Final[Mapping[str, Schema]] = {
    "command": COMMAND,
    "artifact_path": ANYTHING,
    "extraction": {"enum": list(EXTRACTIONS)},
    "image": _IMAGE,
    "provider": provider_schema(has_choice=True),
    **PROVIDER_KEYS,
    **COMMON_KEYS,
}
AGENT: Final = Agent(name="command", config=Shape(object_of(_KEYS, "command")), read=_command)
NOP_AGENT: Final = _audit(NOP, ":")
ORACLE_AGENT: Final = _audit(ORACLE, _ANSWER)
