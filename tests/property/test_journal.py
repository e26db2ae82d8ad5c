"""Whatever is appended comes back; a cut file gives back a prefix; damage is never silent."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.controller.volume.journal import Journal, encode_all, first_link, read_entries
from securebench.core.errors import JournalCorruptError
from securebench.run.state.attempts import Finish, VerifierResult
from securebench.run.state.history import (
    Closed,
    Finished,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    ReadBegun,
    RunEnded,
    Verified,
)

UID = "uid"

# Text as a strict decoder lets it in: any Unicode but lone surrogates.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TIMES | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=3)
st.register_type_strategy(str, TEXT)
st.register_type_strategy(float, TIMES)
FINISHES = st.builds(Finish, metadata=METADATA)
ENTRIES = st.one_of(
    st.builds(LaunchBegun),
    st.builds(Closed),
    st.builds(LaunchLost),
    st.builds(ReadBegun),
    st.builds(Opened),
    st.builds(Produced),
    st.builds(Verified, verification=st.builds(VerifierResult, metadata=METADATA)),
    st.builds(Finished, finish=FINISHES),
    st.builds(Kept, finish=FINISHES),
    st.builds(RunEnded),
)


def lines_of(entries):
    return encode_all(entries, first_link(UID))[0].splitlines(keepends=True)


@given(st.lists(st.lists(ENTRIES, max_size=3), max_size=4))
def test_what_is_appended_comes_back(batches):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        for batch in batches:
            journal = Journal(path, UID)
            journal.append(batch)
            journal.close()
        journal = Journal(path, UID)
        journal.close()
    assert journal.entries == tuple(entry for batch in batches for entry in batch)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_a_cut_file_gives_back_the_whole_lines(entries, data):
    lines = lines_of(entries)
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    found, good, _ = read_entries(whole[:cut], UID)
    assert found == tuple(entries[: len(found)])
    assert good == sum(map(len, lines[: len(found)])) <= cut
    assert len(found) == len(entries) or cut < good + len(lines[len(found)])


@given(st.lists(ENTRIES, min_size=2, max_size=4), st.data())
def test_a_changed_byte_before_the_last_line_is_corruption(entries, data):
    lines = lines_of(entries)
    damaged = bytearray(b"".join(lines))
    position = data.draw(st.integers(0, len(damaged) - len(lines[-1]) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalCorruptError):
        read_entries(bytes(damaged), UID)


@given(st.lists(ENTRIES, min_size=2, max_size=5), st.data())
def test_whole_lines_in_another_order_are_corruption(entries, data):
    lines = lines_of(entries)
    order = st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=len(lines) + 1)
    chosen = data.draw(order.filter(lambda found: found != list(range(len(found)))))
    with pytest.raises(JournalCorruptError) as caught:
        read_entries(b"".join(lines[index] for index in chosen), UID)
    wrong = next(at for at, index in enumerate(chosen) if at != index)
    assert caught.value.line == wrong + 1
