"""The texts of a finished attempt, as courier and verifier left them on the volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from securebench.controller.volume.store import RunStore
from securebench.core.sizes import KIB
from securebench.protocol.extraction import STREAMS, TEXT_FILE
from securebench.run.layout import CANDIDATE_NAME, PRODUCER_NAME, VERIFICATION_NAME
from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.records.record import RecordTexts
from securebench.run.state.attempts import AttemptHistory, SealedCandidate

LAST_WORDS: Final = 300
"""Characters of a last line that a failure_message repeats; a record has the whole stream."""

_END_BYTES: Final = 16 * KIB
"""How much of the end of a stream is searched for its last line."""


def read_texts(store: RunStore, history: AttemptHistory) -> RecordTexts:
    """Read what an attempt's launches left. Blocks.

    Args:
        store: The run's folder.
        history: The attempt; what its launches did not leave is empty.
    """
    produced = history.production
    if produced is None:
        return RecordTexts()
    folder = store.launch_folder(LaunchKey(*history.key, Role.HARNESS, produced.launch))
    stdout, stderr = _streams(folder / PRODUCER_NAME)
    verified = history.verification
    verifier_stdout = verifier_stderr = b""
    if verified is not None:
        key = LaunchKey(*history.key, Role.VERIFIER, verified.launch)
        verifier_stdout, verifier_stderr = _streams(store.launch_folder(key) / VERIFICATION_NAME)
    return RecordTexts(
        producer_stdout=stdout,
        producer_stderr=stderr,
        verifier_stdout=verifier_stdout,
        verifier_stderr=verifier_stderr,
        candidate=_candidate(produced.candidate, folder / CANDIDATE_NAME / TEXT_FILE),
    )


def last_words(store: RunStore, launch: LaunchKey) -> str:
    """Return the last line of a harness's stderr that is not blank. Blocks.

    Args:
        store: The run's folder.
        launch: A harness launch whose courier has ended.

    Returns:
        At most ``LAST_WORDS`` characters, all printable; empty where nothing was said.
    """
    try:
        with (store.launch_folder(launch) / PRODUCER_NAME / "stderr").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(each if each.isprintable() else "\ufffd" for each in last)
    return shown if len(shown) <= LAST_WORDS else f"{shown[:LAST_WORDS]}…"


def _candidate(candidate: SealedCandidate | None, path: Path) -> str | bytes | None:
    """Read a text; a patch, which may be ten times as long, stays the bytes that it is."""
    if candidate is None or candidate.file != TEXT_FILE:
        return None
    return path.read_bytes() if candidate.patch is not None else _text(path)


def _streams(folder: Path) -> tuple[bytes, bytes]:
    stdout, stderr = (_text(folder / name).encode() for name in STREAMS)
    return stdout, stderr


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
