"""Check the files of a run against its statement, each other and the list of started runs.

``verify_run`` reads all files once. Below it stand the checks of the files, then those of the list
of started runs, which also report how often a user tried.

Source: contract 15.9.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol, cast

from securebench.attestation.envelope import Key, OpenedEnvelope, open_envelope
from securebench.attestation.starts import (
    StartList,
    is_counted,
    read_starts,
    requesters_behind,
    same_agent_runs,
    same_runs,
)
from securebench.attestation.statement import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    AttemptFacts,
    attempt_fields,
    attempt_list,
    binding_fields,
    course_fields,
    decode_attempt,
    differing,
    start_fields,
    subjects,
    summary_fields,
)
from securebench.errors import InvalidInputError, InvariantViolationError
from securebench.json_values import object_at, objects_at, text_at
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    JOURNAL,
    RUN,
    STARTS,
    STATEMENT,
    SUMMARY,
    JournalLine,
    first_link,
    whole_line,
)
from securebench.run.state.entries import Entry
from securebench.run.state.entry_json import decode_entry
from securebench.run.state.history import RunHistory, whole_history
from securebench.text import listed

Raw = Mapping[str, object]

SHOWN_KEY_CHARACTERS = 12

OPTIONAL_FILES = {
    JOURNAL: "isolation, end and the list of attempts rest on the signature alone",
    STARTS: "runs that were started later, and whether the list is whole, were not checked",
}
"""Files that may be left out when a run is handed on, and what is not checked then."""

SUBJECTS = (CANDIDATES, SUMMARY, RUN, ATTEMPT_LIST, JOURNAL)
"""Files whose digests are in a statement."""

SHOWN_RUNS = 10
"""Runs that a finding names."""

MAX_FINDINGS = 20
"""Findings of one kind that are listed one by one."""


class Mismatch(NamedTuple):
    """Something that does not hold.

    Attributes:
        file: The file that it is about.
        place: Where in it, or which object: a line, a task, a run; empty for the whole file.
        problem: What is wrong, as the end of a sentence.
    """

    file: str
    place: str
    problem: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.file}{f', {self.place}' if self.place else ''}: {self.problem}"


class CheckedRun(NamedTuple):
    """The result of a check.

    Attributes:
        findings: What does not hold; empty where everything does.
        notes: What a reader should know besides, in sentences.
        predicate: Predicate of the statement; empty where that could not be read.
        signed_by: Ids of the given keys that signed it.
    """

    findings: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    predicate: Mapping[str, object]
    signed_by: tuple[str, ...] = ()


class RunFiles(Protocol):
    """The files of a run, wherever they lie."""

    def lines(self, name: str) -> Iterable[bytes] | None:
        """Return the lines of a file with their newlines, or None where there is no such file.

        Raises:
            InvalidInputError: Also while they are read: it is no such file.
        """
        ...


def bounded(findings: Iterable[Mismatch]) -> Iterator[Mismatch]:
    """Yield the first findings of one kind, and how many more there are."""
    source = iter(findings)
    last = None
    for last in islice(source, MAX_FINDINGS):
        yield last
    more = sum(1 for _ in source)
    if more and last is not None:
        yield Mismatch(last.file, "", f"{more} more findings of this kind")


class Trust(NamedTuple):
    """What a check may rely on.

    Attributes:
        keys: Keys of operators whose signatures count.
        is_signature_needed: False: files are only checked against each other.
        uid: The run that was asked for; empty: any.
    """

    keys: tuple[Key, ...] = ()
    is_signature_needed: bool = True
    uid: str = ""


def verify_run(files: RunFiles, trust: Trust) -> CheckedRun:
    """Check a run: signature, digests, records, launches, journal, starts.

    Args:
        files: Files of the run, as ``securebench verify --output-dir`` leaves them.
        trust: What the check may rely on.
    """
    try:
        content = files.lines(STATEMENT)
        if content is None:
            problem = (
                "is missing: the run has not ended, or the folder has its records alone;"
                " securebench verify RUN --output-dir FOLDER fetches all files"
            )
            return CheckedRun((Mismatch(STATEMENT, "", problem),), (), {})
        opened = open_envelope(b"".join(content), trust.keys)
    except (ValueError, InvalidInputError) as error:
        return CheckedRun((Mismatch(STATEMENT, "", str(error)),), (), {})
    predicate = object_at(opened.statement, "predicate")
    facts = _read_files(files, _uid(predicate))
    findings = (*_statement_findings(opened, trust), *_content_findings(opened, facts, trust))
    return CheckedRun(findings, tuple(_notes(predicate, facts)), predicate, opened.signed_by)


def _statement_findings(opened: OpenedEnvelope, trust: Trust) -> Iterator[Mismatch]:
    types = opened.statement.get("_type"), opened.statement.get("predicateType")
    if types != (STATEMENT_TYPE, PREDICATE_TYPE):
        yield Mismatch(STATEMENT, "", f"is a statement of another type: {types[1]}")
    if trust.is_signature_needed and not opened.signed_by:
        yield Mismatch(STATEMENT, "", _unsigned(opened))


def _unsigned(opened: OpenedEnvelope) -> str:
    if not opened.key_ids:
        return "is not signed: the operator had no key when the run ended"
    names = ", ".join(map(_shown_key, opened.key_ids))
    return f"no given key signed it, or it was changed afterwards; it names key {names}"


def _content_findings(opened: OpenedEnvelope, facts: FileFacts, trust: Trust) -> Iterator[Mismatch]:
    predicate = object_at(opened.statement, "predicate")
    told = _uid(predicate)
    if trust.uid not in ("", told):
        yield Mismatch(STATEMENT, f"run {told}", f"is about another run than {trust.uid}")
    if facts.uid not in ("", told):
        yield Mismatch(STATEMENT, f"run {told}", f"is about another run than run.json, {facts.uid}")
    yield from _file_findings(facts, predicate, subjects(opened.statement))
    if facts.starts is not None and facts.binding:
        yield from _start_findings(facts.starts, predicate, facts.binding)
    if trust.is_signature_needed:
        yield from _key_findings(predicate, trust)


def _key_findings(predicate: Raw, trust: Trust) -> Iterator[Mismatch]:
    """Find a run that began under another key than the one that vouches for its end."""
    begun_with = text_at(predicate, "begunWithKey")
    if begun_with and begun_with not in {key.keyid for key in trust.keys}:
        problem = (
            f"the run began with key {_shown_key(begun_with)}, which is none of those given: the "
            "operator's key was replaced meanwhile"
        )
        yield Mismatch(STATEMENT, "", problem)


def _notes(predicate: Raw, facts: FileFacts) -> Iterator[str]:
    for name, consequence in OPTIONAL_FILES.items():
        if name not in facts.digests:
            yield f"{name} is not here: {consequence}"
    yield from _start_notes(predicate, facts.starts)


def _uid(predicate: Raw) -> str:
    return text_at(object_at(predicate, "run"), "uid")


def _shown_key(key_id: str) -> str:
    return key_id[:SHOWN_KEY_CHARACTERS]


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


def _read_files(files: RunFiles, uid: str) -> FileFacts:
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


def _file_findings(facts: FileFacts, predicate: Raw, told: Mapping[str, str]) -> Iterator[Mismatch]:
    """Yield what is wrong with the files whose digests a statement tells."""
    yield from facts.faults
    yield from _digest_findings(facts, told)
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


def _digest_findings(facts: FileFacts, told: Mapping[str, str]) -> Iterator[Mismatch]:
    for name in SUBJECTS:
        found, wanted = facts.digests.get(name), told.get(name, "")
        if found is None and name not in OPTIONAL_FILES:
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


def _start_findings(starts: StartList, predicate: Raw, binding: Raw) -> Iterator[Mismatch]:
    """Yield what is wrong with the list, which may have grown since the statement."""
    yield from bounded(Mismatch(STARTS, "", fault) for fault in starts.faults)
    told = object_at(predicate, "starts")
    count, digest = told.get("count"), text_at(object_at(told, "digest"), "sha256")
    if not isinstance(count, int):
        return
    if starts.size < count:
        problem = f"has {starts.size} lines, the statement saw {count}: its end was cut off"
        yield Mismatch(STARTS, "", problem)
        return
    if count:
        yield from _prefix_findings(starts, count, digest)
    uid = text_at(object_at(predicate, "run"), "uid")
    if starts.of_uid(uid) is None:
        yield Mismatch(STARTS, f"run {uid}", "is not in the list")
    for name in differing(predicate, start_fields(starts, count, binding).items()):
        yield Mismatch(STARTS, "", f"differs from the statement in {name!r}")
    for line in starts.first(count):
        if line.start.get("fault"):
            problem = f"was written behind a damaged list: {line.start['fault']}"
            yield Mismatch(STARTS, f"line {line.number}", problem)


def _prefix_findings(starts: StartList, count: int, digest: str) -> Iterator[Mismatch]:
    last = starts.first(count)[-1:]
    if not last or last[0].number != count or last[0].digest != digest:
        problem = f"is not the line that the statement saw as line {count}: the list was edited"
        yield Mismatch(STARTS, f"line {count}", problem)


def _start_notes(predicate: Raw, starts: StartList | None) -> Iterator[str]:
    """Yield which other runs were started with this run id on this pack.

    Runs of other users are named apart: they are no tries behind this score.
    """
    run, told = object_at(predicate, "run"), object_at(predicate, "starts")
    found = objects_at(told, "runs")
    uid = text_at(run, "uid")
    listed_starts = [line.start for line in starts.lines] if starts is not None else []
    behind = requesters_behind([*listed_starts, *found], uid)
    known, others = _by_requester(found, behind)
    if len(known) > 1:
        names = _names(known)
        yield f"{len(known)} runs with run id {run.get('runId')!r} on this pack: {names}"
    if others:
        names = _names(others)
        yield f"{len(others)} more by others with run id {run.get('runId')!r}: {names}"
    own = [each for each in known if each.get("uid") == uid]
    if starts is None or not own:
        return
    last = cast("int", told["count"]) if isinstance(told.get("count"), int) else 0
    newer = [line for line in starts.lines if line.number > last]
    run_id, pack_digest = text_at(own[0], "run_id"), text_at(own[0], "pack_digest")
    later, _ = _by_requester(same_runs(newer, run_id, pack_digest), behind)
    tried, by_others = _by_requester(same_agent_runs(starts.lines, own[0]), behind)
    agent = f"agent {text_at(own[0], 'agent')} with {text_at(own[0], 'model') or 'any model'}"
    if len(tried) > len(known) + len(later):
        yield (
            f"{len(tried)} runs of {agent} on this pack, under any run id and with any other"
            f" settings: {_names(tried)}"
        )
    if later:
        yield f"{len(later)} more were started after this one had ended: {_names(later)}"
    if len(by_others) > len(others):
        yield f"{len(by_others)} more by others of {agent} on this pack: {_names(by_others)}"


def _by_requester(starts: list[Raw], behind: Collection[str]) -> tuple[list[Raw], list[Raw]]:
    """Return the runs that count as tries of some users, and those of others."""
    own: list[Raw] = []
    others: list[Raw] = []
    for each in starts:
        (own if is_counted(text_at(each, "requester"), behind) else others).append(each)
    return own, others


def _names(starts: list[Raw]) -> str:
    shown = [f"{text_at(each, 'run')} ({text_at(each, 'started_at')})" for each in starts]
    return listed(shown, SHOWN_RUNS)
