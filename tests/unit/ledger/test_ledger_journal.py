import errno
import os
import zlib

import pytest

from build import (
    HARNESS,
    KEY,
    NOW,
    VERIFIER,
    lost_launch,
    production,
    sealed,
    verification,
)
from securebench.engine.entries import (
    Finished,
    Isolated,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)
from securebench.engine.model import CommandReport, Finish, Outcome, PodFacts, StreamInfo
from securebench.errors import JournalCorruptError, StorageError
from securebench.ledger.journal import Journal, encode, read_entries

PRODUCTION = production(
    command=CommandReport(exit_code=3, timed_out=True, duration_seconds=1.25, error="é\n\x00"),
    facts=PodFacts(
        image_id="image", node="node", user_namespace=True, started_at=NOW, finished_at=NOW + 0.125
    ),
    stdout=StreamInfo(7, truncated=True),
    problem="oom_killed",
)
ENTRIES = (
    RunBound("uid", "sha256:plan"),
    Opened(1, NOW + 0.1),
    Isolated(verified=False, user_namespaces=True, message="reached: dns", declared=True),
    LaunchBegun(HARNESS, NOW),
    LaunchLost(lost_launch()),
    Produced(KEY, PRODUCTION),
    Produced(KEY, production(candidate=None)),
    Produced(KEY, production(candidate=sealed(file=None, problem="candidate_missing"))),
    Verified(KEY, verification(metadata={"a": [1, None, 2.5, {"b": True}]}, problem="x")),
    Finished(
        Finish(KEY, Outcome.AGENT, "r", "p", "m", passed=False, metadata={"k": ["v"]}),
        "a" * 64,
        NOW,
    ),
    Kept(Finish(KEY, Outcome.NOT_VERIFIED), "b" * 64, "earlier"),
    RunEnded("Completed", "1 of 1 passed", NOW),
)
LINES = tuple(encode(entry) for entry in ENTRIES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def reopened(path):
    journal = Journal(path)
    journal.close()
    return journal.entries


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_entry_comes_back_equal(entry):
    found, good = read_entries(encode(entry))
    assert found == (entry,)
    assert good == len(encode(entry))


def test_a_journal_keeps_what_was_appended(path):
    journal = Journal(path)
    assert journal.entries == ()
    journal.append(ENTRIES[:3])
    journal.append([])
    journal.append(ENTRIES[3:])
    assert journal.size_bytes == path.stat().st_size == sum(map(len, LINES))
    journal.close()
    assert reopened(path) == ENTRIES


def test_appending_goes_on_after_a_restart(path):
    for entry in ENTRIES:
        journal = Journal(path)
        journal.append([entry])
        journal.close()
    assert reopened(path) == ENTRIES


def test_an_append_returns_after_the_disk_has_it(path, monkeypatch):
    journal = Journal(path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    journal.append(ENTRIES)
    journal.append([])
    assert synced == [sum(map(len, LINES))]
    journal.close()


# What a crash leaves


@pytest.mark.parametrize("kept", range(len(LINES[-1])))
def test_a_cut_last_line_is_removed(path, kept):
    whole = b"".join(LINES[:3])
    path.write_bytes(whole + LINES[-1][:kept])
    assert reopened(path) == ENTRIES[:3]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("garbage", [b"\0" * 40 + b"\n", b"no line\n", b"\n", b"\xff\n"])
def test_a_last_line_that_does_not_hold_is_removed(path, garbage):
    path.write_bytes(LINES[0] + garbage)
    assert reopened(path) == ENTRIES[:1]
    assert path.read_bytes() == LINES[0]


def test_a_removed_line_makes_room_for_the_next(path):
    path.write_bytes(LINES[0] + LINES[1][:-5])
    journal = Journal(path)
    journal.append(ENTRIES[2:4])
    journal.close()
    assert reopened(path) == (ENTRIES[0], *ENTRIES[2:4])


MIDDLE = {"with one line behind": LINES[3:5], "with two lines behind": LINES[3:6]}


@pytest.mark.parametrize("name", MIDDLE)
def test_a_flipped_bit_in_a_middle_line_is_corruption(name):
    first, rest = MIDDLE[name][0], b"".join(MIDDLE[name][1:])
    missed = []
    for position in range(len(first)):
        for bit in range(8):
            damaged = bytearray(first)
            damaged[position] ^= 1 << bit
            data = LINES[0] + bytes(damaged) + rest
            try:
                read_entries(data)
            except JournalCorruptError as error:
                assert error.line == 2  # noqa: PT017 - 2,000 raises are slow as a context
            else:
                missed.append((position, bit))
    assert missed == []


@pytest.mark.parametrize("position", [0, 5, 9, 20, -1])
def test_a_flipped_bit_in_the_last_line_loses_that_line_only(position):
    damaged = bytearray(LINES[1])
    damaged[position] ^= 0x20
    assert read_entries(LINES[0] + bytes(damaged))[0] == ENTRIES[:1]


def test_garbage_that_only_looks_like_entries_is_removed(path):
    path.write_bytes(LINES[0] + b'00000000 {"type":"Opened"} 00000000 {"type":"Opened"}\n')
    assert reopened(path) == ENTRIES[:1]


def test_an_unknown_entry_is_corruption():
    line = LINES[0].replace(b"RunBound", b"RunBounds")
    with pytest.raises(JournalCorruptError, match="line 1 of the journal does not hold"):
        read_entries(resealed(line) + LINES[1])


def test_an_entry_with_other_fields_is_corruption():
    line = resealed(LINES[1].replace(b'"epoch":1', b'"epoch":"one"'))
    with pytest.raises(JournalCorruptError):
        read_entries(line + LINES[1])


def resealed(line):
    body = line[9:-1]
    return b"%08x %b\n" % (zlib.crc32(body), body)


def test_a_corrupt_journal_stays_as_it_is(path):
    data = LINES[0] + b"damage\n" + LINES[1]
    path.write_bytes(data)
    with pytest.raises(JournalCorruptError) as caught:
        Journal(path)
    assert caught.value.line == 2
    assert path.read_bytes() == data
    path.write_bytes(LINES[0])
    assert reopened(path) == ENTRIES[:1]


# One writer


def test_two_operators_cannot_have_it(path):
    journal = Journal(path)
    with pytest.raises(StorageError, match=r"another operator holds journal\.jsonl"):
        Journal(path)
    journal.close()
    assert reopened(path) == ()


# A disk that does not take it


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_file_unchanged(path):
    journal = Journal(path)
    journal.append(ENTRIES[:2])
    real = journal._file

    class Full:
        written = 0

        def write(self, view):
            if Full.written:
                no_space()
            Full.written = real.write(view[:30])
            return Full.written

        def __getattr__(self, name):
            return getattr(real, name)

    journal._file = Full()
    with pytest.raises(OSError, match="No space left"):
        journal.append(ENTRIES[2:])
    assert Full.written == 30
    assert path.read_bytes() == b"".join(LINES[:2])
    journal._file = real
    journal.append(ENTRIES[2:])
    journal.close()
    assert reopened(path) == ENTRIES


def test_a_failed_fsync_leaves_the_file_unchanged(path, monkeypatch):
    journal = Journal(path)
    journal.append(ENTRIES[:2])
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            journal.append(ENTRIES[2:])
    assert path.read_bytes() == b"".join(LINES[:2])
    journal.close()
    assert reopened(path) == ENTRIES[:2]


def test_short_writes_are_continued(path):
    journal = Journal(path)
    real = journal._file

    class Slow:
        def write(self, view):
            return real.write(view[:7])

        def __getattr__(self, name):
            return getattr(real, name)

    journal._file = Slow()
    journal.append(ENTRIES)
    journal.close()
    assert reopened(path) == ENTRIES


def test_a_verifier_launch_has_its_role():
    found, _ = read_entries(encode(LaunchBegun(VERIFIER, NOW)))
    assert isinstance(found[0], LaunchBegun)
    assert found[0].launch.role is VERIFIER.role
