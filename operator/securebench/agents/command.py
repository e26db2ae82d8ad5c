"""Commands as harnesses: the tester's own, and what stands in for an agent during an audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from securebench.agents.agent import Agent
from securebench.agents.harness_config import (
    AUDIT_KEYS,
    COMMON_KEYS,
    EXTRACTIONS,
    GIT_DIFF,
    NOP,
    ORACLE,
    ORACLE_FOLDER,
    AuditHarness,
    CommandHarness,
    ConfigReader,
    HarnessConfig,
)
from securebench.benchmark.pack import oracle
from securebench.benchmark.pack.lane_plan import TASK_FILE

_ANSWER: Final = (
    f"if [ -f {ORACLE_FOLDER}/{oracle.COMMAND} ];"
    f" then exec sh -l {ORACLE_FOLDER}/{oracle.COMMAND};"
    f" else exec cat {ORACLE_FOLDER}/{oracle.CANDIDATE}; fi"
)


def _command(reader: ConfigReader) -> HarnessConfig | None:
    reader.only(("command", "artifact_path", "extraction", *COMMON_KEYS))
    task_file, artifact = reader.path("task_file"), reader.path("artifact_path")
    if artifact is not None and artifact == (task_file or TASK_FILE):
        reader.fail_at("artifact_path", "must not be the task file")
    extraction = reader.word("extraction", EXTRACTIONS)
    if artifact is not None and extraction == GIT_DIFF:
        reader.fail_at("artifact_path", f"and extraction: {GIT_DIFF} name two candidates: keep one")
    timeout = reader.timeout(default=None)
    domains = reader.domains()
    command = reader.command()
    if command is None:
        return None
    return CommandHarness(
        command=command,
        artifact_path=artifact,
        extraction=extraction,
        task_file=task_file or TASK_FILE,
        timeout_seconds=timeout,
        is_default_timeout=not reader.has("timeout_seconds"),
        allowed_domains=domains,
    )


def _audit(name: str, script: str) -> Callable[[ConfigReader], HarnessConfig]:
    def read(reader: ConfigReader) -> HarnessConfig:
        reader.only(AUDIT_KEYS)
        return AuditHarness(
            type=name,
            command=("sh", "-c", script),
            task_file=reader.path("task_file") or TASK_FILE,
            timeout_seconds=reader.timeout(default=None),
            is_default_timeout=not reader.has("timeout_seconds"),
        )

    return read


AGENT: Final = Agent(name="command", read=_command)
NOP_AGENT: Final = Agent(name=NOP, read=_audit(NOP, ":"), is_audit=True)
ORACLE_AGENT: Final = Agent(name=ORACLE, read=_audit(ORACLE, _ANSWER), is_audit=True)
