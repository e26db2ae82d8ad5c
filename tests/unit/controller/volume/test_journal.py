import errno
import os
from pathlib import Path

import pytest

from securebench.controller.volume.journal import (
    Journal,
    checksum,
    encode,
    encode_all,
    first_link,
    read_entries,
)
from securebench.errors import JournalCorruptError, LeaseOverdueError
from securebench.run.state.entries import IsolationResult, LaunchBegun
from support.build import (
    NOW,
    VERIFIER,
)
from support.journal_entries import ENTRIES, UID

FIRST = first_link(UID)


def lines_of(entries, uid=UID):
    return encode_all(entries, first_link(uid))[0].splitlines(keepends=True)


def replayed(data):
    return read_entries(data, UID).entries


LINES = lines_of(ENTRIES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def reopened(path):
    journal = Journal(path, UID)
    journal.close()
    return journal.entries


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_entry_comes_back_equal(entry):
    line = encode(entry, FIRST)
    found = read_entries(line, UID)
    assert found.entries == (entry,)
    assert found.size_bytes == len(line)
    assert found.link == line[9:17]


def test_a_finding_of_an_earlier_version_reached_no_node():
    found = IsolationResult(verified=True, user_namespaces=True, message="closed: dns")
    body = encode(found, FIRST).split(b" ", 2)[2].strip()
    older = body.replace(b',"node_reachable":false', b"")
    assert older != body
    assert replayed(resealed(older, FIRST)) == (found,)


def test_a_journal_keeps_what_was_appended(path):
    journal = Journal(path, UID)
    assert journal.entries == ()
    journal.append(ENTRIES[:3])
    journal.append([])
    journal.append(ENTRIES[3:])
    assert journal.size_bytes == path.stat().st_size == sum(map(len, LINES))
    journal.close()
    assert reopened(path) == ENTRIES


def test_appending_goes_on_after_a_restart(path):
    for entry in ENTRIES:
        journal = Journal(path, UID)
        journal.append([entry])
        journal.close()
    assert reopened(path) == ENTRIES


def test_an_append_returns_after_the_disk_has_it(path, monkeypatch):
    journal = Journal(path, UID)
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


def test_nothing_is_written_behind_a_cut_line_that_stays(path, monkeypatch):
    """The disk takes half a line, fails, and will not cut it off; then it is well again."""
    journal, disk = journal_on(HalfWritten, path, monkeypatch)
    journal.append(ENTRIES[:2])
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        journal.append(ENTRIES[2:3])
    disk.fails = False
    with pytest.raises(OSError, match="cut line"):
        journal.append(ENTRIES[3:4])
    journal.close()
    assert reopened(path) == ENTRIES[:2]


class OpenFile:
    """An open file of a disk that fails now and then."""

    def __init__(self, real):
        self.real = real
        self.fails = False

    def __getattr__(self, name):
        return getattr(self.real, name)


class HalfWritten(OpenFile):
    """It takes half of a write and cannot be cut."""

    def write(self, data):
        if not self.fails:
            return self.real.write(data)
        self.real.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size):
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.real.truncate(size)


def journal_on(disk, path, monkeypatch):
    """Return a journal on a disk of some kind, and its open file."""
    files = []

    def opened(self, *given, **named):
        files.append(disk(real(self, *given, **named)))
        return files[-1]

    real = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        journal = Journal(path, UID)
    (file,) = files
    return journal, file


def test_a_removed_line_makes_room_for_the_next(path):
    path.write_bytes(LINES[0] + LINES[1][:-5])
    journal = Journal(path, UID)
    journal.append(ENTRIES[2:4])
    journal.close()
    assert reopened(path) == (ENTRIES[0], *ENTRIES[2:4])


MIDDLE = {"with one line behind": LINES[1:3], "with two lines behind": LINES[1:4]}


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
                read_entries(data, UID)
            except JournalCorruptError as error:
                assert error.line == 2  # noqa: PT017 - 2,000 raises are slow as a context
            else:
                missed.append((position, bit))
    assert missed == []


@pytest.mark.parametrize("position", [0, 5, 9, 20, -1])
def test_a_flipped_bit_in_the_last_line_loses_that_line_only(position):
    damaged = bytearray(LINES[1])
    damaged[position] ^= 0x20
    assert replayed(LINES[0] + bytes(damaged)) == ENTRIES[:1]


def test_garbage_that_only_looks_like_entries_is_removed(path):
    half = b'00000000 00000000 {"type":"Opened"}'
    path.write_bytes(LINES[0] + half + b" " + half + b"\n")
    assert reopened(path) == ENTRIES[:1]


def resealed(body, link):
    return b"%b %b %b\n" % (link, checksum(link, body), body)


@pytest.mark.parametrize("behind", [[], LINES[2:3]], ids=["last", "in the middle"])
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"Opened", b"OpenedS"), (b'"epoch":1', b'"epoch":"one"')],
    ids=["unknown entry", "other fields"],
)
def test_a_whole_line_that_is_no_entry_is_corruption(old, new, behind):
    body = LINES[1][18:-1]
    line = resealed(body.replace(old, new), LINES[1][:8])
    with pytest.raises(JournalCorruptError, match="line 2 of the journal holds no entry"):
        replayed(b"".join([LINES[0], line, *behind]))


OTHER = lines_of(ENTRIES, "another")
ADVICE = (
    "; nothing was changed; put the file back from a copy or start a new run without resumeFrom"
)
OUT_OF_PLACE = {
    "missing": (
        [*LINES[:2], *LINES[3:]],
        3,
        "does not follow line 2: lines are missing, or it is of another run",
    ),
    "missing before the last": (
        [*LINES[:2], LINES[3]],
        3,
        "does not follow line 2: lines are missing, or it is of another run",
    ),
    "missing at the start": (
        LINES[1:],
        1,
        "does not begin this run: lines before it are missing, or it is of another run",
    ),
    "doubled": ([*LINES[:3], *LINES[2:]], 4, "is line 3 once more"),
    "doubled at the end": ([*LINES, LINES[-1]], len(LINES) + 1, f"is line {len(LINES)} once more"),
    "doubled later": ([*LINES[:5], LINES[2], *LINES[5:]], 6, "is line 3 once more"),
    "swapped": (
        [*LINES[:2], LINES[3], LINES[2], *LINES[4:]],
        3,
        "belongs behind line 4: lines changed places",
    ),
    "swapped at the end": (
        [*LINES[:-2], LINES[-1], LINES[-2]],
        len(LINES) - 1,
        f"belongs behind line {len(LINES)}: lines changed places",
    ),
    "one of another run": (
        [*LINES[:4], OTHER[4], *LINES[4:]],
        5,
        "does not follow line 4: lines are missing, or it is of another run",
    ),
    "one of another run instead": (
        [*LINES[:4], OTHER[4], *LINES[5:]],
        5,
        "does not follow line 4: lines are missing, or it is of another run",
    ),
    "all of another run": (
        OTHER,
        1,
        "does not begin this run: lines before it are missing, or it is of another run",
    ),
    "the only one of another run": (
        OTHER[:1],
        1,
        "does not begin this run: lines before it are missing, or it is of another run",
    ),
    "damaged": ([LINES[0], b"damage\n", LINES[1]], 2, "is damaged"),
}


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_lines_out_of_place_are_corruption(name, path):
    lines, number, fault = OUT_OF_PLACE[name]
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalCorruptError) as caught:
        Journal(path, UID)
    assert caught.value.line == number
    assert caught.value.reason == f"line {number} of the journal {fault}{ADVICE}"
    assert path.read_bytes() == b"".join(lines)


def test_a_corrupt_journal_can_be_put_right(path):
    path.write_bytes(LINES[0] + b"damage\n" + LINES[1])
    with pytest.raises(JournalCorruptError):
        Journal(path, UID)
    path.write_bytes(LINES[0])
    assert reopened(path) == ENTRIES[:1]


def test_who_may_not_write_any_more_leaves_the_file_as_it_is(path):
    may_write = [True]

    def require():
        if not may_write[0]:
            raise LeaseOverdueError("the Lease was not renewed in time")

    journal = Journal(path, UID, require=require)
    journal.append(ENTRIES[:1])
    may_write[0] = False
    with pytest.raises(LeaseOverdueError):
        journal.append(ENTRIES[1:2])
    journal.close()
    assert reopened(path) == ENTRIES[:1]


def test_who_may_not_write_any_more_removes_nothing_either(path, monkeypatch):
    """What it wrote without an acknowledgement may have been counted by the next leader."""
    may_write = [True]

    def require():
        if not may_write[0]:
            raise LeaseOverdueError("the Lease was not renewed in time")

    def slept(_):
        may_write[0] = False
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = Journal(path, UID, require=require)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", slept)
        with pytest.raises(LeaseOverdueError):
            journal.append(ENTRIES[:1])
    journal.close()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"cut")
    with pytest.raises(LeaseOverdueError):
        Journal(path, UID, require=require)
    assert path.stat().st_size == size + 3
    assert reopened(path) == ENTRIES[:1]


# A disk that does not take it


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Full(OpenFile):
    """It has room for 30 bytes."""

    written = 0

    def write(self, view):
        if not self.fails:
            return self.real.write(view)
        if self.written:
            no_space()
        self.written = self.real.write(view[:30])
        return self.written


def test_a_full_disk_leaves_the_file_unchanged(path, monkeypatch):
    journal, disk = journal_on(Full, path, monkeypatch)
    journal.append(ENTRIES[:2])
    disk.fails = True
    with pytest.raises(OSError, match="No space left"):
        journal.append(ENTRIES[2:])
    assert disk.written == 30
    assert path.read_bytes() == b"".join(LINES[:2])
    disk.fails = False
    journal.append(ENTRIES[2:])
    journal.close()
    assert reopened(path) == ENTRIES


def test_a_failed_fsync_leaves_the_file_unchanged(path, monkeypatch):
    journal = Journal(path, UID)
    journal.append(ENTRIES[:2])
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            journal.append(ENTRIES[2:])
    assert path.read_bytes() == b"".join(LINES[:2])
    journal.close()
    assert reopened(path) == ENTRIES[:2]


class Slow(OpenFile):
    """It takes seven bytes of a write."""

    def write(self, view):
        return self.real.write(view[:7])


def test_short_writes_are_continued(path, monkeypatch):
    journal, _ = journal_on(Slow, path, monkeypatch)
    journal.append(ENTRIES)
    journal.close()
    assert reopened(path) == ENTRIES


def test_a_verifier_launch_has_its_role():
    found = replayed(encode(LaunchBegun(VERIFIER, NOW), FIRST))
    assert isinstance(found[0], LaunchBegun)
    assert found[0].launch.role is VERIFIER.role
