"""Writes the results of a run: records as its journal grows, and its end in order, signed.

``seal_run`` ends a run on the volume, whoever ends it: with its plan or without. The key that signs
statements is looked up anew each time, as it may change while runs are active. ``ResultsExport``
writes candidates.jsonl during the run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from securebench.attestation.envelope import (
    Signer,
    SigningFailedError,
    key_id,
    pem_signer,
    service_signer,
)
from securebench.controller.capacity import MEMORY_FACTOR
from securebench.controller.context import Context
from securebench.controller.run_ledger import RunLedger
from securebench.controller.settings import Settings, Signing
from securebench.controller.volume.registers import IndexEntry, RunIndex, index_entry
from securebench.controller.volume.results import publish, write_statement
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import (
    ANSWER_SECONDS,
    bulk_on_volume,
    on_volume,
    on_volume_within,
)
from securebench.errors import ConfigError
from securebench.json_values import number_at, object_at
from securebench.protocol.candidate import RECORD_BYTES
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.plan.model import AttemptKey
from securebench.run.records.record import record_outcome, verdict_fields
from securebench.run.records.summary import RecordFacts, record_facts, regrade_summary, run_summary
from securebench.run.state.attempts import Finish, Usage
from securebench.run.state.entries import CandidateKept, ResourceNoise
from securebench.run.state.history import RunHistory, total_usage, verdict_of
from securebench.stats.intervals import Estimates

logger = logging.getLogger(__name__)


READ_SECONDS = 0.01
"""That a volume which answers may take for each of many records."""


class Totals(NamedTuple):
    """What a summary says of all launches of a run, and of runs like it.

    Attributes:
        usage: Usage of the model provider; None for a run without one.
        losses: Number of launches that were lost, by reason.
        noise: Number of launches that met a limit, by how.
        regrade: What it says of the run that was graded again; None for a run that is no regrade.
        tries: As of ``IndexEntry``.
        tries_by_others: The same.
    """

    usage: Usage | None
    losses: Mapping[str, int]
    noise: Mapping[ResourceNoise, int]
    regrade: Mapping[str, object] | None = None
    tries: int = 1
    tries_by_others: int = 0


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


def ended_run(
    binding: Mapping[str, object],
    history: RunHistory,
    usage: Usage | None = None,
    regrade: Mapping[str, object] | None = None,
) -> EndedRun:
    """Return what is sealed of a run with this history.

    Args:
        binding: What it is bound to.
        history: What its journal tells.
        usage: As of ``Totals``.
        regrade: The same.
    """
    index, ends = index_entry(binding["index"]), history.finished
    return EndedRun(
        index=index,
        records=records_of(history),
        finishes=[each.finish for each in ends],
        totals=Totals(
            usage, history.losses, history.noise, regrade, index.tries, index.tries_by_others
        ),
        is_audit=binding["audit"] is True,
        record_bytes=int(number_at(object_at(binding, "limits"), "record_bytes") or RECORD_BYTES),
    )


def records_of(history: RunHistory) -> list[tuple[AttemptKey, str]]:
    """Return the finished attempts with the digests of their records, in pack order."""
    return [(each.finish.key, each.record_sha256) for each in history.finished]


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
    body |= {"tries_by_others": totals.tries_by_others} if totals.tries_by_others else {}
    store.write_json(SUMMARY, body | {"sha256": sha256})
    return Estimates(summary.pass_rate, summary.pass_at_k, summary.mean_reward)


def _record_facts(finish: Finish) -> RecordFacts:
    outcome = record_outcome(finish.outcome)
    fields = verdict_fields(verdict_of(finish), finish.score)
    labels = {"grading": finish.grading}
    return record_facts(
        {"task_id": finish.key.task, "outcome": outcome, "labels": labels, **fields}
    )


class SigningKey(NamedTuple):
    """The operator's key at one time.

    Attributes:
        signer: Signs with it; None without one.
        problem: Why there is none although the settings name one, in one sentence, or empty.
    """

    signer: Signer | None = None
    problem: str = ""

    @property
    def id(self) -> str:
        """Identifies the key; empty without one."""
        return key_id(self.signer)


def signing_key(settings: Settings) -> SigningKey:
    """Return the key that the settings name, of a Secret or a service; never an error. Blocks."""
    wanted = settings.signing
    if wanted.uri:
        return _key_of_service(wanted)
    if not wanted.secret:
        return SigningKey()
    place = f"key {wanted.key} of Secret {wanted.secret}"
    try:
        return SigningKey(pem_signer((settings.signing_root / wanted.key).read_bytes()))
    except FileNotFoundError:
        problem = f"{place} is not there; create it, and see that settings.signing names it"
    except OSError as error:
        problem = f"{place} cannot be read: {error.strerror}"
    except ConfigError as error:
        problem = f"{place} {error.reason}; replace it"
    return SigningKey(problem=problem)


def _key_of_service(wanted: Signing) -> SigningKey:
    try:
        return SigningKey(service_signer(wanted.uri, wanted.public_key.encode()))
    except ConfigError as error:
        problem = f"the key {wanted.uri} of settings.signing {error.reason}"
    return SigningKey(problem=problem)


EXPORT_SHARE: Final = 10.0
"""Writing candidates.jsonl takes at most one part in so many of the time."""


class ResultsExport:
    """Exports finished records to candidates.jsonl as the journal grows, and seals the results.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        ledger: The run, with its journal and records.
    """

    def __init__(self, context: Context, ledger: RunLedger) -> None:
        self._context = context
        self._clock = context.clock
        self._interval = context.settings.status_interval_seconds
        self._ledger = ledger
        self._next_at: float | None = None
        self.exported = Exported()

    def due_at(self) -> float | None:
        """Return when held back records have to be exported, monotonic seconds, or None."""
        return self._next_at if self._is_behind() else None

    async def export(self, *, at_once: bool = False) -> None:
        """Write candidates.jsonl anew when records were added; a long file less often.

        Raises:
            OSError: The volume did not do what was asked.
        """
        is_due = at_once or self._next_at is None or self._clock.monotonic() >= self._next_at
        if is_due and self._is_behind():
            await self._export()

    async def seal(self, reason: str, message: str) -> None:
        """End the run: results and summary, the last entry of the journal, then the statement.

        Args:
            reason: Reason of ``Succeeded``.
            message: One plain sentence.

        Raises:
            OSError: The volume did not do what was asked.
        """
        context, store = self._context, self._ledger.store
        journal_end = partial(self._ledger.end, reason, message)
        binding = await on_volume(store.binding)
        run = ended_run(binding, self._ledger.history, self._usage(), await self._regrade())
        self.exported = await seal_run(context, store, run, reason, journal_end)

    def _is_behind(self) -> bool:
        done = self._ledger.history.attempts.done
        return self._next_at is None or self.exported.records != done

    async def _export(self) -> None:
        began, finished = self._clock.monotonic(), records_of(self._ledger.history)
        records, sha256 = await export(self._ledger.store, finished)
        self.exported = Exported(records, sha256)
        ended = self._clock.monotonic()
        self._next_at = ended + max(self._interval, EXPORT_SHARE * (ended - began))

    def _usage(self) -> Usage | None:
        if not self._ledger.plan.asks_provider:
            return None
        return total_usage(self._ledger.history.attempts.values())

    async def _regrade(self) -> Mapping[str, object] | None:
        earlier = self._ledger.plan.regrade
        if earlier is None:
            return None
        kept = await on_volume(self._ledger.store.kept)
        graded_again = sum(isinstance(entry, CandidateKept) for entry in kept)
        return regrade_summary(earlier, graded_again, len(kept) - graded_again)
