"""Check a run's files against the digests of a statement, its predicate and each other."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from securebench.attestation.attempt_list import AttemptFacts, attempt_list, decode_attempt
from securebench.attestation.findings import Mismatch, RunFiles, bounded
from securebench.attestation.starts import StartList, read_starts
from securebench.attestation.statement import (
    attempt_fields,
    binding_fields,
    course_fields,
    differing,
    summary_fields,
)
from securebench.errors import InvalidInputError, InvariantViolationError
from securebench.json_values import object_at, text_at
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    JOURNAL,
    RUN,
    STARTS,
    SUMMARY,
    JournalLine,
    first_link,
    whole_line,
)
from securebench.run.state.entries import Entry
from securebench.run.state.entry_json import decode_entry
from securebench.run.state.history import RunHistory, whole_history

Raw = Mapping[str, object]

SUBJECTS = (CANDIDATES, SUMMARY, RUN, ATTEMPT_LIST, JOURNAL)
"""Files whose digests are in a statement."""


@dataclass(slots=True)
class FileFacts:
    """What was read of a run's files.

    Attributes:
        digests: Hex SHA-256 of each file that is there.
        faults: What could not be read.
        binding: ``run.json``.
        summary: ``summary.json``.
        records: Hex digests of the lines of ``candidates.jsonl``, without their newlines.
        attempts: ``attempts.jsonl``.
        history: What the journal tells; None without one, or where its chain does not hold.
        starts: The list of started runs, or None.
    """

    digests: dict[str, str] = field(default_factory=dict)
    faults: list[Mismatch] = field(default_factory=list)
    binding: Raw = field(default_factory=dict)
    summary: Raw = field(default_factory=dict)
    records: Sequence[str] = ()
    attempts: Sequence[AttemptFacts] = ()
    history: RunHistory | None = None
    starts: StartList | None = None

    @property
    def uid(self) -> str:
        """The run, as its binding has it."""
        return text_at(object_at(self.binding, "index"), "uid")


def read_files(files: RunFiles, uid: str) -> FileFacts:
    """Read all of a run's files once; what is wrong with one becomes a finding.

    Args:
        files: Files of the run.
        uid: Whose journal it is where no binding says so.
    """
    facts = FileFacts()
    facts.binding = _object(files, RUN, facts)
    facts.summary = _object(files, SUMMARY, facts)
    facts.records = [
        hashlib.sha256(line.removesuffix(b"\n")).hexdigest()
        for line in _read(files, CANDIDATES, facts)
    ]
    facts.attempts = list(_attempts(files, facts))
    facts.history = _history(files, facts, facts.uid or uid)
    starts = b"".join(_read(files, STARTS, facts))
    if STARTS in facts.digests:
        facts.starts = read_starts(starts)
    return facts


def file_findings(
    facts: FileFacts, predicate: Raw, told: Mapping[str, str], optional: Mapping[str, str]
) -> Iterator[Mismatch]:
    """Yield what is wrong with the files that a statement is about.

    Args:
        facts: What was read.
        predicate: Predicate of the statement.
        told: Digests of the statement, by file.
        optional: Files that may be missing.
    """
    yield from facts.faults
    yield from _digest_findings(facts, told, optional)
    yield from bounded(_record_findings(facts))
    yield from _count_findings(facts)
    yield from _course_findings(facts)
    sources = {
        RUN: binding_fields(facts.binding) if RUN in facts.digests else {},
        SUMMARY: summary_fields(facts.summary) if SUMMARY in facts.digests else {},
        ATTEMPT_LIST: attempt_fields(facts.attempts) if ATTEMPT_LIST in facts.digests else {},
        JOURNAL: course_fields(facts.history) if facts.history is not None else {},
    }
    for name, fields in sources.items():
        for differs in differing(predicate, fields.items()):
            yield Mismatch(name, "", f"differs from the statement in {differs!r}")


def _digest_findings(
    facts: FileFacts, told: Mapping[str, str], optional: Mapping[str, str]
) -> Iterator[Mismatch]:
    for name in SUBJECTS:
        found, wanted = facts.digests.get(name), told.get(name, "")
        if found is None and name not in optional:
            yield Mismatch(name, "", "is missing")
        if found is not None and found != wanted:
            yield Mismatch(name, "", f"has SHA-256 {found}, the statement says {wanted or 'none'}")


def _record_findings(facts: FileFacts) -> Iterator[Mismatch]:
    if not {CANDIDATES, ATTEMPT_LIST} <= facts.digests.keys():
        return
    finished = [each for each in facts.attempts if each.record_sha256]
    for number, (found, known) in enumerate(zip_longest(facts.records, finished), start=1):
        place = f"line {number}"
        if known is None:
            yield Mismatch(CANDIDATES, place, "is the record of no attempt in attempts.jsonl")
            continue
        name = f"{place}, task {known.task}, attempt {known.attempt}"
        if found is None:
            yield Mismatch(CANDIDATES, name, "the record is missing")
        elif found != known.record_sha256:
            yield Mismatch(CANDIDATES, name, "is not the record that was written for this attempt")


def _count_findings(facts: FileFacts) -> Iterator[Mismatch]:
    """Find a summary that counts other results than the attempts had."""
    if not {SUMMARY, ATTEMPT_LIST} <= facts.digests.keys():
        return
    finished = [each for each in facts.attempts if each.record_sha256]
    counts = {"total": len(finished), "passed": sum(each.passed is True for each in finished)}
    for name, count in counts.items():
        if facts.summary.get(name) != count:
            told = facts.summary.get(name)
            yield Mismatch(SUMMARY, name, f"is {told}, attempts.jsonl has {count}")


def _course_findings(facts: FileFacts) -> Iterator[Mismatch]:
    if facts.history is None or ATTEMPT_LIST not in facts.digests:
        return
    if facts.attempts != attempt_list(facts.history):
        yield Mismatch(ATTEMPT_LIST, "", "differs from what the journal tells")
    ends = {each.record_sha256 for each in facts.history.finished}
    missing = [digest for digest in facts.records if digest not in ends]
    if missing:
        yield Mismatch(CANDIDATES, "", f"{len(missing)} records are not in the journal")


def _read(files: RunFiles, name: str, facts: FileFacts) -> Iterator[bytes]:
    """Yield the lines of a file, and note its digest; nothing of one that is missing.

    What cannot be read becomes a finding.
    """
    digest = hashlib.sha256()
    try:
        lines = files.lines(name)
        if lines is None:
            return
        for line in lines:
            digest.update(line)
            yield line
    except InvalidInputError as error:
        facts.faults.append(Mismatch(name, "", str(error)))
        return
    facts.digests[name] = digest.hexdigest()


def _object(files: RunFiles, name: str, facts: FileFacts) -> Raw:
    content = b"".join(_read(files, name, facts))
    if name not in facts.digests:
        return {}
    try:
        return decode_object(content)
    except ValueError as error:
        facts.faults.append(Mismatch(name, "", f"is no JSON object: {error}"))
        return {}


def _attempts(files: RunFiles, facts: FileFacts) -> Iterator[AttemptFacts]:
    for number, line in enumerate(_read(files, ATTEMPT_LIST, facts), start=1):
        try:
            yield decode_attempt(line)
        except ValueError as error:
            facts.faults.append(Mismatch(ATTEMPT_LIST, f"line {number}", str(error)))


def _history(files: RunFiles, facts: FileFacts, uid: str) -> RunHistory | None:
    """Fold the journal; a line that is damaged, out of place or contradicts others ends that."""
    number = 0

    def entries() -> Iterator[Entry]:
        nonlocal number
        link = first_link(uid)
        for number, text in enumerate(lines, start=1):  # noqa: B007
            line = _line_behind(text, link)
            link = line.checksum
            yield decode_entry(line.body)

    lines = _read(files, JOURNAL, facts)
    try:
        history = whole_history(entries())
    except (ValueError, InvariantViolationError) as error:
        facts.faults.append(Mismatch(JOURNAL, f"line {number}", str(error)))
        deque(lines, maxlen=0)  # its digest is that of the whole file
        return None
    return history if number else None


def _line_behind(text: bytes, link: bytes) -> JournalLine:
    """Return a line of the journal that follows another one."""
    line = whole_line(text.removesuffix(b"\n")) if text.endswith(b"\n") else None
    if line is None or line.link != link:
        raise ValueError("is damaged, or does not follow the line before it")
    return line
