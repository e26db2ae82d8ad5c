"""Writes the results of a run: records as its journal grows, and its end in order, signed.

``seal_run`` ends a run on the volume, whoever ends it: with its plan or without. The key that signs
statements is looked up anew each time, as it may change while runs are active. ``ResultsExport``
writes candidates.jsonl during the run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
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
from securebench.controller.context import Context
from securebench.controller.run_ledger import RunLedger
from securebench.controller.settings import Settings, Signing
from securebench.controller.volume.registers import RunIndex, index_entry
from securebench.controller.volume.results import publish, write_statement
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import (
    ANSWER_SECONDS,
    bulk_on_volume,
    on_volume,
    on_volume_within,
)
from securebench.errors import ConfigError
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.plan.model import AttemptKey, RunPlan
from securebench.run.records.record import record_outcome, verdict_fields
from securebench.run.records.summary import RecordFacts, record_facts, regrade_summary, run_summary
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import CandidateKept
from securebench.run.state.history import RunHistory, total_usage, verdict_of
from securebench.stats.intervals import Estimates

logger = logging.getLogger(__name__)


READ_SECONDS = 0.01
"""That a volume which answers may take for each of many records."""


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
        records: As ``RunStore.export`` takes them, which also says what is returned and raised.
    """
    limit_seconds = ANSWER_SECONDS + READ_SECONDS * len(records)
    return await on_volume_within(limit_seconds, store.export, records)


async def seal_run(
    context: Context,
    store: RunStore,
    history: RunHistory,
    plan: RunPlan | None,
    reason: str,
    journal_end: Callable[[], Awaitable[None]],
) -> Exported:
    """Write the results of a run that ends, then that it ended; may be repeated.

    Each file is written before the file that refers to it: records and summary, what is published
    of them, the journal's last entry, the statement on all of that, the index, by which others
    resume the run. The status follows.

    Args:
        plan: Its plan, or None for a run that this version cannot plan.
        journal_end: Writes the last entry of the journal, unless that is there.

    Raises:
        StorageError: A record is not what the journal says, or the journal has another writer.
        OSError: The volume did not do what was asked.
    """
    binding = await on_volume(store.binding)
    index = index_entry(binding["index"])
    records, sha256 = await export(store, records_of(history))
    estimates = await bulk_on_volume(write_summary, store, history, sha256, plan)
    published = ""
    if binding["audit"] is not True:
        async with context.publishing:
            published = await bulk_on_volume(publish, store, index, reason)
    await journal_end()
    unsigned = await bulk_on_volume(_write_statement, store, context.settings)
    await on_volume(RunIndex(store.root, staging=store.staging).end, index.uid, reason)
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
    store: RunStore, history: RunHistory, sha256: str, plan: RunPlan | None = None
) -> Estimates:
    """Write ``summary.json`` of the records that have been exported. Blocks.

    Args:
        sha256: Hex digest of candidates.jsonl.
        plan: As of ``seal_run``.

    Returns:
        What it says of the verdicts.

    Raises:
        OSError: The volume did not do what was asked.
    """
    index, usage = index_entry(store.binding()["index"]), None
    if plan is not None and plan.asks_provider:
        usage = total_usage(history.attempts.values())
    facts = [_record_facts(each.finish) for each in history.finished]
    summary = run_summary(index.run_id, facts, usage, history.losses, history.noise)
    body = summary.to_json(str(store.folder), str(store.folder / CANDIDATES))
    if plan is not None and plan.regrade is not None:
        kept = store.kept()
        graded_again = sum(isinstance(entry, CandidateKept) for entry in kept)
        body["regrade"] = regrade_summary(plan.regrade, graded_again, len(kept) - graded_again)
    body |= {"tries": index.tries} if index.tries > 1 else {}
    body |= {"tries_by_others": index.tries_by_others} if index.tries_by_others else {}
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

        Raises:
            OSError: The volume did not do what was asked.
        """
        ledger = self._ledger
        journal_end = partial(ledger.end, reason, message)
        self.exported = await seal_run(
            self._context, ledger.store, ledger.history, ledger.plan, reason, journal_end
        )

    def _is_behind(self) -> bool:
        done = self._ledger.history.attempts.done
        return self._next_at is None or self.exported.records != done

    async def _export(self) -> None:
        began, finished = self._clock.monotonic(), records_of(self._ledger.history)
        records, sha256 = await export(self._ledger.store, finished)
        self.exported = Exported(records, sha256)
        ended = self._clock.monotonic()
        self._next_at = ended + max(self._interval, EXPORT_SHARE * (ended - began))
