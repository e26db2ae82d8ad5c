"""Writes the statement on a run that has ended, beside its records. Blocks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from securebench.attestation.attempt_list import JournalFacts
from securebench.attestation.envelope import Signer, SigningFailedError, sealed
from securebench.attestation.statement import (
    attempt_fields,
    binding_fields,
    course_fields,
    encode,
    evaluator_fields,
    start_fields,
    statement,
    summary_fields,
)
from securebench.controller.volume.journal_files import journal_lines
from securebench.controller.volume.starts import RunStarts
from securebench.controller.volume.store import RunStore, file_digest, read_json
from securebench.core.digests import PREFIX
from securebench.core.version import VERSION
from securebench.files.durable import replace_file
from securebench.protocol.journal_lines import whole_line
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    JOURNAL,
    RUN,
    STATEMENT,
    SUMMARY,
)

SIGN_AGAIN_SECONDS: Final = (1.0, 5.0)
"""Until a key management service that did not sign is asked again."""

SIGN_SECONDS: Final = 20.0
"""For one answer of a service. The clients have bounds of their own, of minutes for some."""


def write_statement(store: RunStore, signer: Signer | None) -> None:
    """Write the list of attempts and the statement; may be repeated, with the same result.

    Everything is read from the volume, where records, summary and the journal's last entry are.

    Args:
        store: The run, ended.
        signer: Signs the statement; None leaves it unsigned.

    Raises:
        OSError: The volume did not do what was asked.
        SigningFailedError: The signer did not sign; there is no new statement.
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    course, journal_sha256 = _course(store.folder)
    replace_file(store.folder / ATTEMPT_LIST, b"".join(course.lines()), store.staging)
    binding = store.binding()
    starts = RunStarts(store.root, store.staging).read()
    predicate = {
        **evaluator_fields(VERSION),
        **binding_fields(binding),
        **summary_fields(read_json(store.folder / SUMMARY)),
        **attempt_fields([*course.attempts.values()]),
        **course_fields(course),
        **start_fields(starts, starts.size, binding),
    }
    digests = {**dict(_digests(store.folder)), JOURNAL: journal_sha256}
    data = _sealed(encode(statement(digests, predicate)), signer)
    replace_file(store.folder / STATEMENT, data, store.staging)


def _sealed(payload: bytes, signer: Signer | None) -> bytes:
    for seconds in SIGN_AGAIN_SECONDS:
        try:
            return _sealed_in_time(payload, signer)
        except SigningFailedError:
            time.sleep(seconds)
    return _sealed_in_time(payload, signer)


def _sealed_in_time(payload: bytes, signer: Signer | None) -> bytes:
    """Sign in a thread, which is left behind if the service does not answer."""
    pool = ThreadPoolExecutor(1, "signing")
    try:
        return pool.submit(sealed, payload, signer).result(SIGN_SECONDS)
    except TimeoutError:
        raise SigningFailedError(f"no answer within {SIGN_SECONDS:.0f} seconds") from None
    finally:
        pool.shutdown(wait=False)


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (CANDIDATES, SUMMARY, RUN, ATTEMPT_LIST):
        yield name, file_digest(folder / name).removeprefix(PREFIX)


def _course(folder: Path) -> tuple[JournalFacts, str]:
    """Return what the journal tells, and the hex digest of its lines."""
    course, digest = JournalFacts(), hashlib.sha256()
    for text in journal_lines(folder):
        line = whole_line(text.removesuffix(b"\n"))
        if line is not None:
            digest.update(text)
            course.apply_body(line.body)
    return course, digest.hexdigest()
