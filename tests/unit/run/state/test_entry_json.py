import json

import pytest

from securebench.run.state.entry_json import decode_entry, encode_entry
from support.journal_entries import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_back(entry):
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("Unknown", {}),
        ("LaunchBegun", {}),
        ("LaunchBegun", {"launch": [0, 1], "at": 0}),
        ("LaunchLost", {"lost": {"launch": "x"}}),
        ("Produced", {"key": [0]}),
        ("Finished", {"finish": {"key": [0, "1"]}}),
    ],
)
def test_what_is_no_entry(kind, entry):
    body = json.dumps({"type": kind, "entry": entry}, separators=(",", ":"))
    with pytest.raises(ValueError, match=kind):
        decode_entry(body.encode())
