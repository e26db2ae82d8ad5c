"""Check the files of a run against its statement, and against each other.

Source: contract 15.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from securebench.attestation.envelope import Key, OpenedEnvelope, open_envelope
from securebench.attestation.file_checks import FileFacts, file_findings, read_files
from securebench.attestation.findings import CheckedRun, Mismatch, RunFiles
from securebench.attestation.start_checks import start_findings, start_notes
from securebench.attestation.statement import PREDICATE_TYPE, STATEMENT_TYPE, subjects
from securebench.errors import InvalidInputError
from securebench.json_values import object_at, text_at
from securebench.protocol.volume import JOURNAL, STARTS, STATEMENT

Raw = Mapping[str, object]

SHOWN_KEY_CHARACTERS = 12

OPTIONAL_FILES = {
    JOURNAL: "isolation, end and the list of attempts rest on the signature alone",
    STARTS: "runs that were started later, and whether the list is whole, were not checked",
}
"""Files that may be left out when a run is handed on, and what is not checked then."""


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
    facts = read_files(files, _uid(predicate))
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
    yield from file_findings(facts, predicate, subjects(opened.statement), OPTIONAL_FILES)
    if facts.starts is not None and facts.binding:
        yield from start_findings(facts.starts, predicate, facts.binding)
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
    yield from start_notes(predicate, facts.starts)


def _uid(predicate: Raw) -> str:
    return text_at(object_at(predicate, "run"), "uid")


def _shown_key(key_id: str) -> str:
    return key_id[:SHOWN_KEY_CHARACTERS]
