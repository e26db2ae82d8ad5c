"""A record as one line that fits its bound.

Source: contract 15.2, 15.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from securebench.candidates.bounds import bounded_text
from securebench.errors import TooLargeError

if TYPE_CHECKING:
    from securebench.plan.model import Limits

OUTPUT_BYTES = 64 * 1024
"""What is kept of each output of a record that is too large (contract 15.7)."""

PUBLIC = "public"
CANDIDATES = ("candidate_text", "candidate_patch", "candidate_workspace")

Record = dict[str, object]


def record_line(record: Mapping[str, object], limits: Limits) -> str:
    """Return a record as one line of JSON, without the newline.

    Keys are sorted, separators are ``, `` and ``: ``, all is ASCII. A line beyond its bound loses
    outputs first, then public values, then the candidate, and says ``record_truncated``.

    Args:
        record: Of ``candidate_record``; it stays as it is.
        limits: With the bound of a line.

    Raises:
        TooLargeError: Nothing more can be left out.
    """
    line = _encode(record)
    shortened: Record = dict(record)
    for shorten in _STEPS:
        if len(line) < limits.record_bytes:
            return line
        shortened = {**shorten(shortened), "record_truncated": True}
        line = _encode(shortened)
    if len(line) >= limits.record_bytes:
        raise TooLargeError(
            f"a record has {len(line)} bytes even without outputs, public values and candidate",
            bound=limits.record_bytes,
        )
    return line


def cut(text: str, keep_bytes: int, total_bytes: int) -> str:
    """Return the two ends of a text with a line between them that says what is missing.

    Args:
        text: What is there.
        keep_bytes: Bytes of UTF-8 that are kept, half of them of each end; characters stay whole.
        total_bytes: Size of the text before anything was cut.
    """
    data = text.encode("utf-8", "surrogatepass")
    half = keep_bytes // 2
    total = max(total_bytes, len(data))
    return bounded_text(data[:half], data[len(data) - half :], total, keep_bytes).text


def _encode(record: Mapping[str, object]) -> str:
    return json.dumps(record, sort_keys=True, allow_nan=False)


def _without_outputs(record: Record) -> Record:
    result = dict(record)
    for side in ("producer", "verifier"):
        metadata = dict(_mapping(record.get(f"{side}_metadata")))
        for stream in ("stdout", "stderr"):
            text = record.get(f"{side}_{stream}")
            if isinstance(text, str):
                result[f"{side}_{stream}"] = _bounded(text, stream, metadata)
        answer = metadata.get("candidate_answer")
        if isinstance(answer, str):
            metadata["candidate_answer"] = _bounded(answer, "candidate_answer", metadata)
        if f"{side}_metadata" in record:
            result[f"{side}_metadata"] = metadata
    return result


def _bounded(text: str, name: str, metadata: Record) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= OUTPUT_BYTES:
        return text
    known = metadata.get(f"{name}_bytes")
    total = known if isinstance(known, int) else size
    metadata[f"{name}_truncated"] = True
    metadata[f"{name}_bytes"] = total
    return cut(text, OUTPUT_BYTES, total)


def _without_public_values(record: Record) -> Record:
    summary = record.get("resource_summary")
    items = summary if isinstance(summary, list) else []
    return {**record, "resource_summary": [_omitted(_mapping(item)) for item in items]}


def _omitted(item: Mapping[str, object]) -> Record:
    if "value" not in item:
        return dict(item)
    size = len(json.dumps(item["value"]))
    return {**item, "value": {"omitted": True, "bytes": size}}


def _without_candidate(record: Record) -> Record:
    return {**record, **dict.fromkeys(CANDIDATES)}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


_STEPS: tuple[Callable[[Record], Record], ...] = (
    _without_outputs,
    _without_public_values,
    _without_candidate,
)
