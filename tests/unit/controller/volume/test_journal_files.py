from contextlib import ExitStack, closing

import pytest

from securebench.controller.volume.journal import (
    Journal,
    encode_all,
    first_link,
    journal_bytes,
    journal_parts,
    open_journal,
    read_journal,
)
from securebench.errors import JournalCorruptError, LeadershipLostError, StorageError
from securebench.run.state.entries import Continued
from support.build import lead_of
from support.journal_entries import ENTRIES, UID


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "runs" / UID
    made.mkdir(parents=True)
    return made


@pytest.fixture
def leader(tmp_path):
    return lambda: lead_of(tmp_path)


@pytest.fixture
def opened(folder):
    """Return how to open the folder's journal; what is open in the end is closed."""
    with ExitStack() as stack:

        def open_it(lead):
            return stack.enter_context(closing(open_journal(folder, UID, lead)))

        yield open_it


def facts(folder):
    """Return what a journal says but for who wrote it."""
    entries = read_journal(folder, UID).entries
    return tuple(entry for entry in entries if not isinstance(entry, Continued))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_leader_writes_one_file(folder, leader, opened):
    lead = leader()
    for entry in ENTRIES[:3]:
        journal = opened(lead)
        journal.append([entry])
    assert names(folder) == ["journal.jsonl"]
    assert facts(folder) == ENTRIES[:3]


def test_the_next_leader_goes_on_in_a_file_of_its_own(folder, leader, opened):
    first = opened(leader())
    first.append(ENTRIES[:2])
    lead = leader()
    second = opened(lead)
    assert second.entries == ENTRIES[:2]
    second.append(ENTRIES[2:3])
    again = opened(lead)
    again.append(ENTRIES[3:4])
    assert facts(folder) == ENTRIES[:4]
    assert names(folder) == [f"journal.{lead.epoch}.jsonl", "journal.jsonl"]
    head = read_journal(folder, UID).entries[2]
    assert head == Continued(lead.epoch, lead.holder, 0, first.size_bytes)


def test_what_an_earlier_leader_appends_later_counts_for_nothing(folder, leader, opened):
    first = opened(leader())
    first.append(ENTRIES[:2])
    second = opened(leader())
    first.append(ENTRIES[4:6])
    second.append(ENTRIES[2:3])
    first.append(ENTRIES[6:7])
    third = opened(leader())
    second.append(ENTRIES[7:])
    third.append(ENTRIES[3:4])
    assert facts(folder) == ENTRIES[:4]
    assert opened(leader()).entries[-1] == ENTRIES[3]


def test_an_earlier_leader_opens_no_journal_any_more(folder, leader, opened):
    early, late = leader(), leader()
    opened(late).append(ENTRIES[:1])
    with pytest.raises(FileNotFoundError):
        opened(early)
    assert facts(folder) == ENTRIES[:1]


def test_an_earlier_leader_that_begins_a_journal_writes_it_until_the_next_opens_it(
    folder, leader, opened
):
    early, late = leader(), leader()
    first = opened(early)
    first.append(ENTRIES[:1])
    opened(late).append(ENTRIES[1:2])
    first.append(ENTRIES[4:5])
    assert facts(folder) == ENTRIES[:2]


def test_a_leader_that_was_overtaken_while_it_opened_has_nothing(folder, leader, opened):
    """It made its file, slept, and the next leader opened the journal meanwhile."""
    opened(leader()).append(ENTRIES[:1])
    early = leader()
    place_new = type(early).place_new
    later = []

    def overtaken(lead, path):
        place_new(lead, path)
        if lead is early:
            later.append(opened(leader()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(early), "place_new", overtaken)
        with pytest.raises(StorageError, match="has the journal"):
            opened(early)
    later[0].append(ENTRIES[1:2])
    assert facts(folder) == ENTRIES[:2]


def test_a_first_line_that_comes_late_counts_for_nothing(folder, leader, opened):
    opened(leader()).append(ENTRIES[:1])
    early = leader()
    path = folder / f"journal.{early.epoch}.jsonl"
    early.place_new(path)
    size = (folder / "journal.jsonl").stat().st_size
    late = opened(leader())
    head = Continued(early.epoch, early.holder, 0, size)
    before = (folder / "journal.jsonl").read_bytes()
    with closing(Journal(path, UID, before=before, head=head)) as journal:
        journal.append(ENTRIES[4:6])
    late.append(ENTRIES[1:2])
    assert facts(folder) == ENTRIES[:2]


def test_a_leader_that_may_not_write_any_more_leaves_no_first_line(folder, leader, opened):
    opened(leader()).append(ENTRIES[:1])
    lead = leader()

    def require():
        raise LeadershipLostError("the Lease was not renewed in time")

    object.__setattr__(lead, "require", require)
    with pytest.raises(LeadershipLostError):
        opened(lead)
    assert facts(folder) == ENTRIES[:1]


def test_a_cut_line_of_the_file_before_is_left_out_and_left_there(folder, leader, opened):
    first = folder / "journal.jsonl"
    whole, _ = encode_all(ENTRIES[:2], first_link(UID))
    first.write_bytes(whole + b"0123 cut")
    journal = opened(leader())
    journal.append(ENTRIES[2:3])
    assert first.read_bytes() == whole + b"0123 cut"
    assert facts(folder) == ENTRIES[:3]


def test_a_journal_of_an_earlier_version_goes_on(folder, leader, opened):
    (folder / "journal.jsonl").write_bytes(encode_all(ENTRIES[:3], first_link(UID))[0])
    journal = opened(leader())
    assert journal.entries == ENTRIES[:3]
    journal.append(ENTRIES[3:4])
    assert facts(folder) == ENTRIES[:4]


def written(folder, leader, opened, files):
    for number in range(files):
        opened(leader()).append(ENTRIES[number : number + 1])
    return [part.path for part in journal_parts(folder)]


def test_a_file_that_others_continue_must_be_there(folder, leader, opened):
    _, middle, _ = written(folder, leader, opened, 3)
    middle.unlink()
    with pytest.raises(JournalCorruptError, match=f"{middle.name} is missing or damaged"):
        opened(leader())


def test_a_shorter_file_that_others_continue_is_corruption(folder, leader, opened):
    first, *_ = written(folder, leader, opened, 3)
    first.write_bytes(first.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(JournalCorruptError, match="line 1"):
        opened(leader())
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_first_line_hides_nothing_that_follows(folder, leader, opened):
    *_, last = written(folder, leader, opened, 2)
    data = bytearray(last.read_bytes())
    data[30] ^= 1
    last.write_bytes(bytes(data))
    with pytest.raises(JournalCorruptError, match=f"line 1 of {last.name} is damaged"):
        read_journal(folder, UID)


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_first_line_that_was_cut_was_never_acknowledged(folder, leader, opened, kept):
    *_, last = written(folder, leader, opened, 2)
    last.write_bytes(last.read_bytes()[:kept])
    assert facts(folder) == ENTRIES[:1]


def test_without_a_file_there_is_no_journal(folder):
    with pytest.raises(FileNotFoundError):
        journal_bytes(folder)
