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
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Final

from securebench.controller.volume.index import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore, read_json
from securebench.core.errors import StorageError
from securebench.core.reasons import PHASES_BEFORE_CHECKS
from securebench.files.durable import make_folder, replace_file, replacing
from securebench.protocol.volume import CANDIDATES, RUN, SUMMARY
from securebench.run.layout import PUBLISHED

logger = logging.getLogger(__name__)

READY: Final = ".ready"
"""File that tells the Pod for viewers that it mounts the operator's folder."""

PIECE_CHARACTERS = 1 << 16
_DECODER = json.JSONDecoder()
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
"""A text in JSON, matched without a way back for each character."""

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
        "regrade",
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
        sha256 = _publish_records(store.folder / CANDIDATES, folder / CANDIDATES, store.staging)
        summary = {**read_json(store.folder / SUMMARY), "sha256": sha256}
        replace_file(folder / SUMMARY, _json(summary), store.staging)
        binding = store.binding()
        told = {key: binding.get(key) for key in _BINDING}
        replace_file(folder / RUN, _json({**told, "index": asdict(entry)}), store.staging)
        RunIndex(store.root, PUBLISHED, staging=store.staging).keep(entry, outcome)
    except (StorageError, OSError, ValueError) as error:
        logger.warning("results of %s are not published: %s", entry.run, error)
        with suppress(OSError):
            shutil.rmtree(folder)
        return ""
    return sha256


def published_line(line: str) -> Iterator[str]:
    """Yield what is published of the line of a record, in pieces: nothing that a check said.

    The values stay as they are written: decoding them would take many times their memory.

    Args:
        line: As ``record_line`` writes it.

    Raises:
        ValueError: It is another text.
    """
    spans = dict(_spans(line))
    phase = spans.get("failure_phase")
    is_told = phase is not None and json.loads(line[phase]) in PHASES_BEFORE_CHECKS
    names = FIELDS | {"failure_message"} if is_told else FIELDS
    separator = "{"
    for name in sorted(spans.keys() & names):
        yield f"{separator}{json.dumps(name)}: "
        for at in range(spans[name].start, spans[name].stop, PIECE_CHARACTERS):
            yield line[at : min(at + PIECE_CHARACTERS, spans[name].stop)]
        separator = ", "
    yield "{}" if separator == "{" else "}"


def _spans(line: str) -> Iterator[tuple[str, slice]]:
    """Yield the place of the value of each field."""
    at = line.index("{") + 1
    while line[at : at + 1] not in ("}", ""):
        name, end = _DECODER.raw_decode(line, at)
        start = end + len(": ")
        text = _STRING.match(line, start)
        end = text.end() if text else _DECODER.raw_decode(line, start)[1]
        yield name, slice(start, end)
        at = end + len(", ") if line[end : end + 1] == "," else end


def _publish_records(source: Path, target: Path, staging: Path | None) -> str:
    content = hashlib.sha256()
    with source.open("rb") as lines, replacing(target, staging) as file:
        for line in map(bytes.decode, lines):
            for piece in chain(published_line(line), "\n"):
                data = piece.encode()
                file.write(data)
                content.update(data)
    return content.hexdigest()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode()
