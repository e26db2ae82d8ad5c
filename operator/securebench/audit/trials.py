"""Runs of a pack with its own answers and with none: what must pass, and what must fail."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.client.session.facade import open_session
from securebench.client.submit.prepare import prepare
from securebench.client.submit.tester_config import (
    TESTER_FILE,
    BenchmarkSection,
    HarnessSection,
    RunSection,
    TesterConfig,
    load_tester_config,
)
from securebench.client.volume.connection import ClusterTarget
from securebench.client.watch.progress import NullReporter
from securebench.core.errors import SecureBenchError
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE
from securebench.run.records.reading import Record

TrialKind = Literal["oracle", "nop"]


@dataclass(frozen=True, slots=True)
class Trial:
    """How a pack did with an oracle or a nop.

    Attributes:
        family_by_task: Family of each task of the run, in pack order.
        scored: Records that have a verdict.
        seconds: From the first request to the last record.
    """

    pack_id: str
    family_by_task: Mapping[str, str]
    kind: TrialKind
    passed: int
    scored: int
    tasks: int
    seconds: float
    records: tuple[Record, ...]

    @property
    def score(self) -> float | None:
        """Passed by all tasks; None for a run without tasks."""
        return self.passed / self.tasks if self.tasks else None


async def run_trial(
    target: ClusterTarget,
    pack: Path,
    kind: TrialKind,
    *,
    limit: int | None = None,
    parallelism: int | None = None,
) -> Trial:
    """Run a pack with an oracle or a nop on the cluster.

    Args:
        target: Where the operator is.
        pack: Folder of the pack; its tester YAML, where it has one, says which files the pack has
            and what its verifiers may do.
        kind: What stands in for the agent.
        limit: Only the first rows; None for all.
        parallelism: Attempts at the same time; None leaves it to the API's default.

    Raises:
        ConfigErrors: The pack or its reference answers are wrong; nothing was created.
        SecureBenchError: The cluster refused, or the run ended without finishing its work.
    """
    with TemporaryDirectory(prefix="securebench-audit-") as folder:
        config = _trial_config(pack, kind, Path(folder), limit)
        prepared = prepare(config)
        begun = time.monotonic()
        async with open_session(config, prepared, NullReporter(), target, parallelism) as session:
            end = await session.execute()
        seconds = time.monotonic() - begun
        if end.exit_code != 0 or end.summary is None:
            raise SecureBenchError(end.failure())
        records = _read_records(config.run.output_dir / CANDIDATES)
    return Trial(
        pack_id=prepared.pack.id,
        family_by_task=prepared.families,
        kind=kind,
        passed=sum(record.get("passed") is True for record in records),
        scored=sum(record.get("passed") is not None for record in records),
        tasks=len(prepared.families),
        seconds=seconds,
        records=records,
    )


def _read_records(path: Path) -> tuple[Record, ...]:
    return tuple(map(decode_object, filter(None, path.read_bytes().split(b"\n"))))


def _trial_config(pack: Path, kind: TrialKind, output: Path, limit: int | None) -> TesterConfig:
    tester = pack / TESTER_FILE
    if tester.exists():
        config = load_tester_config(tester)
    else:
        benchmark = BenchmarkSection(pack / MANIFEST_FILE, pack / TASKS_FILE)
        run = RunSection(pack.resolve().name, output)
        config = TesterConfig(run, benchmark, HarnessSection(kind), VerificationPolicy())
    run = RunSection(f"{config.run.id}-{kind}", output, limit=limit)
    return replace(config, run=run, harness=HarnessSection(kind), source=None, lines={})
