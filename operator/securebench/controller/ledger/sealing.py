"""The end of a run on the volume, in order, whoever ends it: with its plan or without."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from securebench.attestation.envelope import SigningFailedError
from securebench.controller.ledger.signing import signing_key
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.reading_budget import MEMORY_FACTOR
from securebench.controller.runtime.volume_calls import (
    ANSWER_SECONDS,
    bulk_on_volume,
    on_volume,
    on_volume_within,
)
from securebench.controller.settings.settings import Settings
from securebench.controller.volume.index import IndexEntry, RunIndex
from securebench.controller.volume.published import publish
from securebench.controller.volume.statement import write_statement
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.plan.keys import AttemptKey
from securebench.run.records.record import record_outcome, verdict_fields
from securebench.run.records.summary import RecordFacts, record_facts, run_summary
from securebench.run.state.attempts import Finish, Usage
from securebench.run.state.resource_noise import ResourceNoise
from securebench.run.state.tally import verdict_of
from securebench.stats.intervals import Estimates

logger = logging.getLogger(__name__)

READ_SECONDS = 0.01
"""That a volume which answers may take for each of many records."""


class Totals(NamedTuple):
    """What a summary says of all launches of a run.

    Attributes:
        usage: Usage of the model provider; None for a run without one.
        losses: Number of launches that were lost, by reason.
        noise: Number of launches that met a limit, by how.
        regrade: What it says of the run that was graded again; None for a run that is no regrade.
        tries: Runs of this agent and model on this pack that were started up to this one.
    """

    usage: Usage | None
    losses: Mapping[str, int]
    noise: Mapping[ResourceNoise, int]
    regrade: Mapping[str, object] | None = None
    tries: int = 1


@dataclass(frozen=True, slots=True)
class EndedRun:
    """What is sealed of a run.

    Attributes:
        index: Its line of the index.
        records: Its finished attempts with the digests of their records, in pack order.
        finishes: How they ended, in the same order.
        totals: Totals of its launches.
        is_audit: Whether it examines a pack: then nothing is published.
        record_bytes: Bound of one record.
    """

    index: IndexEntry
    records: Sequence[tuple[AttemptKey, str]]
    finishes: Sequence[Finish]
    totals: Totals
    is_audit: bool
    record_bytes: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What lies in candidates.jsonl.

    Attributes:
        records: Lines.
        sha256: Hex digest of the file.
        is_sealed: Whether nothing will change any more.
        published_sha256: Hex digest of what viewers may fetch; empty while there is nothing.
        unsigned: Why the statement is not signed although it should be; empty for nothing.
        estimates: What the summary says of the verdicts; None before it is written.
    """

    records: int = 0
    sha256: str = ""
    is_sealed: bool = False
    published_sha256: str = ""
    unsigned: str = ""
    estimates: Estimates | None = None


async def export(store: RunStore, records: Collection[tuple[AttemptKey, str]]) -> tuple[int, str]:
    """Write candidates.jsonl anew.

    Args:
        store: The run's folder.
        records: As ``RunStore.export`` takes them, which also says what is returned and raised.
    """
    limit_seconds = ANSWER_SECONDS + READ_SECONDS * len(records)
    return await on_volume_within(limit_seconds, store.export, records)


async def seal_run(
    context: Context,
    store: RunStore,
    run: EndedRun,
    reason: str,
    journal_end: Callable[[], Awaitable[None]],
) -> Exported:
    """Write the results of a run that ends, then that it ended; may be repeated.

    The order is that of what one may read when the other is there: records and summary, what is
    published of them, the journal's last entry, the statement on all of that, the index, by which
    others resume the run. What comes behind it is the status.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        store: The run's folder.
        run: What is sealed.
        reason: Reason of ``Succeeded``.
        journal_end: Writes the last entry of the journal, unless that is there.

    Raises:
        StorageError: A record is not what the journal says, or the journal has another writer.
        OSError: The volume did not do what was asked.
    """
    # What is published of the records is read from them, one at a time.
    need_bytes = MEMORY_FACTOR * run.record_bytes
    seal = partial(_seal, context.settings, store, run, reason, journal_end)
    return await context.reading.run_within(need_bytes, seal)


async def _seal(
    settings: Settings,
    store: RunStore,
    run: EndedRun,
    reason: str,
    journal_end: Callable[[], Awaitable[None]],
) -> Exported:
    records, sha256 = await export(store, run.records)
    run_id = run.index.run_id
    estimates = await bulk_on_volume(write_summary, store, run_id, run.finishes, sha256, run.totals)
    published = "" if run.is_audit else await bulk_on_volume(publish, store, run.index, reason)
    await journal_end()
    unsigned = await bulk_on_volume(_write_statement, store, settings)
    index = RunIndex(store.root, staging=store.staging)
    await on_volume(index.end, run.index.uid, reason)
    return Exported(
        records,
        sha256,
        is_sealed=True,
        published_sha256=published,
        unsigned=unsigned,
        estimates=estimates,
    )


def _write_statement(store: RunStore, settings: Settings) -> str:
    """Write the statement; return why it is not signed although the settings name a key."""
    key = signing_key(settings)
    problem = key.problem
    try:
        write_statement(store, key.signer)
    except SigningFailedError as error:
        problem = f"the key {settings.signing.uri} did not sign: {error}"
        write_statement(store, None)
    if problem:
        logger.warning("the statement on run %s is not signed: %s", store.folder.name, problem)
    return problem


def write_summary(
    store: RunStore, run_id: str, finishes: Iterable[Finish], sha256: str, totals: Totals
) -> Estimates:
    """Write ``summary.json`` of the records that have been exported. Blocks.

    Args:
        store: The run's folder.
        run_id: Run ID of the summary.
        finishes: How each of the attempts ended.
        sha256: Hex digest of candidates.jsonl.
        totals: Totals of the run's launches.

    Returns:
        What it says of the verdicts.

    Raises:
        OSError: The volume did not do what was asked.
    """
    facts = map(_record_facts, finishes)
    summary = run_summary(run_id, facts, totals.usage, totals.losses, totals.noise)
    body = summary.to_json(str(store.folder), str(store.folder / CANDIDATES))
    body |= {} if totals.regrade is None else {"regrade": dict(totals.regrade)}
    body |= {"tries": totals.tries} if totals.tries > 1 else {}
    store.write_json(SUMMARY, body | {"sha256": sha256})
    return Estimates(summary.pass_rate, summary.pass_at_k)


def _record_facts(finish: Finish) -> RecordFacts:
    outcome, fields = record_outcome(finish.outcome), verdict_fields(verdict_of(finish))
    labels = {"grading": finish.grading}
    return record_facts(
        {"task_id": finish.key.task, "outcome": outcome, "labels": labels, **fields}
    )
