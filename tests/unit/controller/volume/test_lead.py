import errno
import os

import pytest

from securebench.controller.volume.lead import claim_epoch, highest_epoch, revoke_earlier
from securebench.errors import StorageError
from support.leads import take_volume

HOLDER = "securebench-0_uid"


def test_a_leader_has_a_folder_of_its_own(tmp_path):
    assert highest_epoch(tmp_path) == 0
    lead = take_volume(tmp_path, 7, HOLDER)
    assert lead.folder == tmp_path / "leaders/7"
    assert highest_epoch(tmp_path) == 7


def test_the_next_one_removes_what_earlier_ones_were_writing(tmp_path):
    first = take_volume(tmp_path, 7, HOLDER)
    (first.folder / "half-written").write_bytes(b"x")
    (tmp_path / "leaders/.broken-off").mkdir()
    (tmp_path / "leaders/.broken-off/x").touch()
    second = take_volume(tmp_path, 9, HOLDER)
    assert list((tmp_path / "leaders").iterdir()) == [second.folder]
    with pytest.raises(FileNotFoundError):
        first.place_new(tmp_path / "late")
    second.place_new(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leaders", "new"]


def test_what_the_volume_refused_is_tried_again(tmp_path, monkeypatch):
    first = take_volume(tmp_path, 1, HOLDER)
    second = claim_epoch(tmp_path, 2, HOLDER)

    def broken(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("securebench.controller.volume.lead.fsync_folder", broken)
        with pytest.raises(OSError, match="Input/output"):
            revoke_earlier(second)
    revoke_earlier(second)
    assert list((tmp_path / "leaders").iterdir()) == [second.folder]
    with pytest.raises(FileNotFoundError):
        first.place_new(tmp_path / "late")


@pytest.mark.parametrize("late", [7, 8])
def test_who_comes_late_takes_nothing(tmp_path, late):
    first = take_volume(tmp_path, 8, HOLDER)
    with pytest.raises(StorageError, match="a leader of epoch 8 writes to the volume"):
        take_volume(tmp_path, late, "another")
    first.place_new(tmp_path / "new")
    assert first.own == {tmp_path / "new"}


def test_a_file_that_a_process_of_this_node_keeps_open_on_nfs_holds_up_nobody(tmp_path):
    """A client of NFS renames it where others would remove it."""
    first = take_volume(tmp_path, 1, HOLDER)
    (first.folder / ".nfs0000").touch()
    second = take_volume(tmp_path, 2, HOLDER)
    assert highest_epoch(tmp_path) == 2
    with pytest.raises(FileNotFoundError):
        first.place_new(tmp_path / "late")
    second.place_new(tmp_path / "new")


def test_a_folder_is_emptied_until_its_leader_puts_nothing_more_there(tmp_path, monkeypatch):
    first = take_volume(tmp_path, 1, HOLDER)
    remove, late = os.rmdir, [b"a", b"b"]

    def refill(path, *rest, **named):
        if late:
            (path / late.pop().decode()).touch()
        return remove(path, *rest, **named)

    monkeypatch.setattr(os, "rmdir", refill)
    take_volume(tmp_path, 2, HOLDER)
    assert late == []
    assert [path.name for path in first.folder.parent.iterdir()] == ["2"]


def test_on_a_full_volume_the_folders_of_before_make_room(tmp_path, monkeypatch):
    first = take_volume(tmp_path, 1, HOLDER)
    (first.folder / "half-written").write_bytes(b"x")
    make = os.mkdir

    def full(path, *rest, **named):
        if any(each.name in {"1", "half-written"} for each in tmp_path.glob("leaders/**/*")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make(path, *rest, **named)

    monkeypatch.setattr(os, "mkdir", full)
    second = take_volume(tmp_path, 2, HOLDER)
    assert list((tmp_path / "leaders").iterdir()) == [second.folder]
