"""Whatever is appended comes back; a cut file gives back a prefix; damage is never silent."""

import contextlib
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.controller.volume.journal import (
    Journal,
    encode,
    encode_all,
    first_link,
    open_journal,
    read_entries,
    read_journal,
)
from securebench.errors import JournalCorruptError
from securebench.run.state.attempts import Finish, VerifierResult
from securebench.run.state.entries import (
    Continued,
    Finished,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunEnded,
    Verified,
)
from support.journal_entries import append_bytes
from support.leads import take_volume

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
    st.builds(LaunchLost),
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


class Leader(NamedTuple):
    """What a leader wrote in time, what it writes afterwards, and how much of a line it left."""

    in_time: list[object]
    too_late: list[object]
    torn: float


LEADERS = st.builds(
    Leader,
    st.lists(ENTRIES, max_size=3),
    st.lists(ENTRIES, max_size=2),
    st.floats(0, 0.99),
)


def facts(folder):
    entries = read_journal(folder, UID).entries
    return [entry for entry in entries if not isinstance(entry, Continued)]


@settings(deadline=None)  # the file system's, not ours
@given(st.lists(LEADERS, min_size=1, max_size=5), st.data())
def test_what_leaders_wrote_in_time_comes_back_whatever_they_write_afterwards(leaders, data):
    """Each is killed within a line, the next goes on, and it wakes up again at some point."""
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("os.fsync"))
        folder = Path(root) / "runs"
        folder.mkdir()
        old: list[tuple[Journal, Leader]] = []
        for number, leader in enumerate(leaders, start=1):
            journal = open_journal(folder, UID, take_volume(Path(root), number, "holder"))
            stack.callback(journal.close)
            journal.append(leader.in_time)
            line = encode(RunEnded("Completed", "torn", 0.0), journal.link)
            append_bytes(journal.path, line[: int(len(line) * leader.torn)])
            want = [entry for each in leaders[:number] for entry in each.in_time]
            assert facts(folder) == want
            for other, (late, said) in enumerate(old):
                if data.draw(st.booleans(), label=f"{other + 1} wakes up beside {number}"):
                    late.append(said.too_late)
            assert facts(folder) == want
            old.append((journal, leader))
