"""What viewers and submitters may fetch of a run that has ended.

It lies in a folder of its own on the volume, the only one that the Pod for them mounts: whatever
they do in that Pod, nothing else is there. Records lose what a check printed, since that may quote
hidden tests, and the digest of the row, from which short answers can be found by trying. Of runs
with reference answers nothing is published.

Source: decision 0038.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from securebench.durable import make_folder, replace_file, replacing
from securebench.ledger.index import IndexEntry, RunIndex
from securebench.ledger.store import CANDIDATES, RUN, SUMMARY, RunStore, read_json
from securebench.manifests.layout import PUBLISHED
from securebench.protocol import decode_object
from securebench.reasons import PHASES_BEFORE_CHECKS

logger = logging.getLogger(__name__)

READY: Final = ".ready"
"""File that tells the Pod for viewers that it mounts the operator's folder."""

FIELDS: Final = frozenset(
    {
        "attempt",
        "benchmark_id",
        "candidate_patch",
        "candidate_text",
        "candidate_workspace",
        "failure_phase",
        "failure_reason",
        "harness_digest",
        "hidden_values",
        "labels",
        "launches",
        "outcome",
        "pack_digest",
        "passed",
        "producer_metadata",
        "producer_stderr",
        "producer_stdout",
        "record_truncated",
        "resource_summary",
        "resume_generation",
        "run_id",
        "run_ordinal",
        "score",
        "task_id",
        "task_type",
        "timing",
        "verification_status",
        "verifier_version",
    }
)
"""What is kept of a record; what is not named here is withheld."""

_BINDING = ("operator_version", "pack_digest", "plan_digest")


def prepare_published(root: Path) -> None:
    """Make the folder, also in place of an empty one that the kubelet made for a Pod.

    Args:
        root: Where the volume is mounted.

    Raises:
        OSError: The volume did not do what was asked.
    """
    folder = root / PUBLISHED
    try:
        make_folder(folder)
        replace_file(folder / READY, b"")
    except PermissionError:
        folder.rmdir()
        make_folder(folder)
        replace_file(folder / READY, b"")


def publish(store: RunStore, entry: IndexEntry, outcome: str) -> str:
    """Publish the results of a run that has ended; may be repeated.

    Publishing is a courtesy: a volume that refuses it does not keep the run from its end.

    Args:
        store: The run, with records and summary.
        entry: Its line of the index.
        outcome: How it ended.

    Returns:
        Hex SHA-256 of the published ``candidates.jsonl``; empty when nothing was published.
    """
    folder = store.root / PUBLISHED / entry.uid
    try:
        make_folder(folder)
        sha256 = _publish_records(store.folder / CANDIDATES, folder / CANDIDATES)
        summary = {**read_json(store.folder / SUMMARY), "sha256": sha256}
        replace_file(folder / SUMMARY, _json(summary))
        binding = store.binding()
        told = {key: binding.get(key) for key in _BINDING}
        replace_file(folder / RUN, _json({**told, "index": asdict(entry)}))
        RunIndex(store.root, PUBLISHED).keep(entry, outcome)
    except (OSError, ValueError) as error:
        logger.warning("results of %s are not published: %s", entry.run, error)
        with suppress(OSError):
            shutil.rmtree(folder)
        return ""
    return sha256


def published_record(record: Mapping[str, object]) -> dict[str, object]:
    """Return what is published of a record: nothing that a check said."""
    kept = {key: value for key, value in record.items() if key in FIELDS}
    if record.get("failure_phase") in PHASES_BEFORE_CHECKS and "failure_message" in record:
        kept["failure_message"] = record["failure_message"]
    return kept


def _publish_records(source: Path, target: Path) -> str:
    content = hashlib.sha256()
    with source.open("rb") as lines, replacing(target) as file:
        for line in lines:
            kept = json.dumps(published_record(decode_object(line)), sort_keys=True).encode()
            file.write(kept + b"\n")
            content.update(kept + b"\n")
    return content.hexdigest()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode()
