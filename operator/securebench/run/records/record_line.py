"""Encode a record as one line of bounded size.

Source: contract 15.2, 15.7.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING

from securebench.benchmark.patch.reader import utf8
from securebench.json_values import object_at, object_in
from securebench.protocol.candidate import STREAMS, bounded_text
from securebench.sizes import KIB

if TYPE_CHECKING:
    from securebench.run.plan.model import TaskLimits

OUTPUT_BYTES = 64 * KIB
"""Kept of each output of a record that is too large (contract 15.7)."""

BARE_CHARACTERS = 1024
"""Kept of each text if the record is still too large after all other steps (contract 21.21)."""

PIECE_BYTES = 1 << 16

SIDES = ("producer", "verifier")
OUTPUTS = frozenset(f"{side}_{name}" for side in SIDES for name in STREAMS)
CANDIDATES = ("candidate_text", "candidate_patch", "candidate_workspace")

Record = dict[str, object]


def record_line(record: Mapping[str, object], limits: TaskLimits) -> Iterator[bytes]:
    """Yield a record as one line of JSON, in chunks, without the newline.

    Keys are sorted, separators are ``, `` and ``: ``, and the line is ASCII. A line above its bound
    is shortened in steps: outputs, public values, candidate, then all long values; it then has
    ``record_truncated``. The line is never in memory as a whole.

    Args:
        record: From ``candidate_record``; not modified. Bytes are UTF-8.
        limits: The bound of a line; only a record of nothing but short fields may exceed it.
    """
    shortened: Record = dict(record)
    for shorten in _STEPS:
        if sum(map(len, _encoded(shortened))) < limits.record_bytes:
            break
        shortened = {**shorten(shortened), "record_truncated": True}
    yield from (piece.encode() for piece in _encoded(shortened))


def _encoded(record: Mapping[str, object]) -> Iterator[str]:
    """Yield the JSON of a record in ASCII chunks; long texts are never encoded as a whole."""
    separator = "{"
    for name in sorted(record):
        yield f"{separator}{json.dumps(name)}: "
        value = record[name]
        if isinstance(value, str | bytes):
            yield '"'
            yield from (encode_basestring_ascii(piece)[1:-1] for piece in _pieces(value))
            yield '"'
        else:
            yield json.dumps(value, sort_keys=True, allow_nan=False)
        separator = ", "
    yield "}"


def cut(text: str | bytes, keep_bytes: int, total_bytes: int) -> str:
    """Return head and tail of a text with a line between them that says how much was cut.

    Args:
        text: May already be truncated.
        keep_bytes: Bytes of UTF-8 to keep, half of them from each end; characters stay whole.
        total_bytes: Size of the text before any truncation.
    """
    data = utf8(text)
    half = keep_bytes // 2
    total = max(total_bytes, len(data))
    return bounded_text(data[:half], data[len(data) - half :], total, keep_bytes).text


def _pieces(text: str | bytes) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for at in range(0, len(text), PIECE_BYTES):
        piece = text[at : at + PIECE_BYTES]
        yield piece if isinstance(piece, str) else decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _without_outputs(record: Record) -> Record:
    result = dict(record)
    for side in SIDES:
        metadata = dict(object_at(record, f"{side}_metadata"))
        for stream in STREAMS:
            text = record.get(f"{side}_{stream}")
            if isinstance(text, str | bytes):
                result[f"{side}_{stream}"] = _bounded(text, stream, metadata)
        answer = metadata.get("candidate_answer")
        if isinstance(answer, str):
            metadata["candidate_answer"] = _bounded(answer, "candidate_answer", metadata)
        if f"{side}_metadata" in record:
            result[f"{side}_metadata"] = metadata
    return result


def _bounded(text: str | bytes, name: str, metadata: Record) -> str | bytes:
    size = len(utf8(text))
    if size <= OUTPUT_BYTES:
        return text
    original = metadata.get(f"{name}_bytes")
    total = original if isinstance(original, int) else size
    metadata[f"{name}_truncated"] = True
    metadata[f"{name}_bytes"] = total
    return cut(text, OUTPUT_BYTES, total)


def _without_public_values(record: Record) -> Record:
    summary = record.get("resource_summary")
    items = summary if isinstance(summary, list) else []
    return {**record, "resource_summary": [_omitted(object_in(item)) for item in items]}


def _omitted(item: Mapping[str, object]) -> Record:
    if "value" not in item:
        return dict(item)
    size = len(json.dumps(item["value"]))
    return {**item, "value": {"omitted": True, "bytes": size}}


def _without_candidate(record: Record) -> Record:
    return {**record, **dict.fromkeys(CANDIDATES)}


def _minimal(record: Record) -> Record:
    """Return a record without outputs and lists (contract 21.21)."""
    result = {name: [] if isinstance(value, list) else value for name, value in record.items()}
    for side in SIDES:
        if f"{side}_metadata" in record:
            result[f"{side}_metadata"] = _short(object_in(record[f"{side}_metadata"]))
    message = str(record.get("failure_message", ""))[:BARE_CHARACTERS]
    result |= {"failure_message": message} if message else {}
    return result | dict.fromkeys(OUTPUTS & record.keys(), "")


def _short(fields: Mapping[str, object]) -> Record:
    """Return fields with texts truncated and lists emptied."""
    result: Record = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            result[name] = _short(value)
        elif isinstance(value, list | tuple):
            result[name] = []
        else:
            result[name] = value[:BARE_CHARACTERS] if isinstance(value, str) else value
    return result


_STEPS: tuple[Callable[[Record], Record], ...] = (
    _without_outputs,
    _without_public_values,
    _without_candidate,
    _minimal,
)
