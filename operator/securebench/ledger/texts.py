"""The texts of a finished attempt, as courier and verifier left them on the volume."""

from __future__ import annotations

from pathlib import Path

from securebench.candidates.extraction import TEXT_FILE
from securebench.engine.model import AttemptHistory
from securebench.ledger.records import RecordTexts
from securebench.ledger.store import RunStore
from securebench.manifests.layout import CANDIDATE_NAME, PRODUCER_NAME, VERIFICATION_NAME
from securebench.plan.model import LaunchKey, Role


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
    candidate = produced.candidate
    is_text = candidate is not None and candidate.file == TEXT_FILE
    stdout, stderr = _streams(folder / PRODUCER_NAME)
    verified = history.verification
    verifier_stdout = verifier_stderr = ""
    if verified is not None:
        key = LaunchKey(*history.key, Role.VERIFIER, verified.launch)
        verifier_stdout, verifier_stderr = _streams(store.launch_folder(key) / VERIFICATION_NAME)
    return RecordTexts(
        producer_stdout=stdout,
        producer_stderr=stderr,
        verifier_stdout=verifier_stdout,
        verifier_stderr=verifier_stderr,
        candidate=_text(folder / CANDIDATE_NAME / TEXT_FILE) if is_text else None,
    )


def _streams(folder: Path) -> tuple[str, str]:
    return _text(folder / "stdout"), _text(folder / "stderr")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
