"""The JSON of a journal's entries: ``{"type": ..., "entry": ...}``, one in each line."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter

from securebench.run.state.entries import (
    CandidateKept,
    Continued,
    Entry,
    Finished,
    IsolationResult,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)

TYPES: dict[str, type[Entry]] = {
    "Continued": Continued,
    "RunBound": RunBound,
    "Opened": Opened,
    "LaunchBegun": LaunchBegun,
    "LaunchLost": LaunchLost,
    "Produced": Produced,
    "Verified": Verified,
    "Finished": Finished,
    "Kept": Kept,
    "CandidateKept": CandidateKept,
    "Isolated": IsolationResult,
    "RunEnded": RunEnded,
}
"""The entries by their names in the journal, which stay whatever the classes are called."""

_NAMES = {kind: name for name, kind in TYPES.items()}


@cache
def _adapter(name: str) -> TypeAdapter[Entry]:
    """Return what converts entries of one type; made at its first use, as that takes a while."""
    return TypeAdapter(TYPES[name])


def encode_entry(entry: Entry) -> bytes:
    """Return an entry as JSON."""
    name = _NAMES[type(entry)]
    body = _adapter(name).dump_json(entry)
    return b'{"type":"%b","entry":%b}' % (name.encode(), body)


def decode_entry(body: bytes) -> Entry:
    """Return the entry that JSON holds.

    Raises:
        ValueError: It holds none.
    """
    name, _, rest = body.removeprefix(b'{"type":"').partition(b'","entry":')
    if name.decode() not in TYPES:
        raise ValueError(f"unknown entry {name.decode()!r}")
    return _adapter(name.decode()).validate_json(rest.removesuffix(b"}"))
