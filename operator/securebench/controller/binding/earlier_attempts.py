"""What the journal of an earlier run tells of its attempts, for a run that grades them again.

Source: decision 0071.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from securebench.controller.volume.journal import read_journal
from securebench.reasons import PROVIDER_REASONS
from securebench.run.api.field_types import Outcome
from securebench.run.layout import run_folder
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import (
    Finish,
    HarnessResult,
    ProducerNetwork,
    SealedCandidate,
    Usage,
    usage_of,
)
from securebench.run.state.entries import (
    AttemptEntry,
    CandidateKept,
    Finished,
    IsolationResult,
    Kept,
    LaunchLost,
    Produced,
    attempt_of,
)


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An attempt of an earlier run.

    Attributes:
        run_uid: The run whose folder has its candidate.
        finish: How it ended, or None.
        record_sha256: Hex digest of its record's line; empty without one.
        production: What its harness left last, or None.
        at: When that was captured, seconds since the epoch, or 0.
        usage: Usage of the model provider, by all its launches.
        network: Network of the run that produced its candidate.
    """

    run_uid: str
    finish: Finish | None = None
    record_sha256: str = ""
    production: HarnessResult | None = None
    at: float = 0.0
    usage: Usage = field(default_factory=Usage)
    network: ProducerNetwork = field(default_factory=ProducerNetwork)

    @property
    def candidate(self) -> SealedCandidate | None:
        """What was sealed and can be verified; None where that is no file.

        What an outage of the model provider left counts for nothing (contract 15.1).
        """
        is_outage = self.finish is not None and self.finish.outcome is Outcome.PROVIDER
        candidate = self.production.candidate if self.production is not None else None
        is_file = candidate is not None and candidate.file is not None
        return candidate if is_file and not is_outage else None


def earlier_attempts(root: Path, uid: str) -> Mapping[AttemptKey, EarlierAttempt]:
    """Return the attempts of a run of which its journal knows something.

    A record that it took over from a run before it comes with that run's candidate, while that is
    on the volume. Blocks.

    Raises:
        JournalCorruptError: A journal is damaged.
        OSError: The volume did not do what was asked.
    """
    found: dict[AttemptKey, EarlierAttempt] = {}
    before: dict[str, Mapping[AttemptKey, EarlierAttempt]] = {}
    network = ProducerNetwork()
    for entry in read_journal(root / run_folder(uid), uid).entries:
        if isinstance(entry, IsolationResult):
            network = ProducerNetwork(entry.verified, entry.node_reachable)
        if not isinstance(entry, AttemptEntry):
            continue
        key = attempt_of(entry)
        known = found.get(key, EarlierAttempt(uid, network=network))
        if isinstance(entry, Kept):
            if entry.run_uid not in before:
                before[entry.run_uid] = _attempts_before(root, entry.run_uid)
            known = before[entry.run_uid].get(key, known)
        found[key] = _advanced(known, entry)
    return found


def _attempts_before(root: Path, uid: str) -> Mapping[AttemptKey, EarlierAttempt]:
    with suppress(FileNotFoundError):
        return earlier_attempts(root, uid)
    return {}


def _advanced(known: EarlierAttempt, entry: AttemptEntry) -> EarlierAttempt:
    match entry:
        case Produced(_, production, at):
            usage = known.usage + usage_of(production.egress)
            return replace(known, production=production, at=at, usage=usage)
        case CandidateKept(_, production, at, usage, network):
            taken = replace(known, production=production, at=at, usage=usage)
            return replace(taken, network=network)
        case LaunchLost(lost):
            is_void = lost.reason in PROVIDER_REASONS
            left = None if is_void else known.production
            return replace(known, production=left, usage=known.usage + lost.usage)
        case Finished(finish, sha256, _, usage):
            return replace(known, finish=finish, record_sha256=sha256, usage=known.usage + usage)
        case Kept(finish, sha256):
            return replace(known, finish=finish, record_sha256=sha256)
        case _:
            return known
