import os
import stat

import pytest

from securebench.files import fsync_folder, make_folder


@pytest.fixture
def strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
def test_folders_are_open_to_other_users_whatever_the_umask_is(tmp_path):
    make_folder(tmp_path / "a" / "b")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")]
    assert modes == [0o755, 0o755]


def test_folders_that_are_there_stay_as_they_are(tmp_path):
    (tmp_path / "a").mkdir(mode=0o700)
    make_folder(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "b")


def test_only_folders_are_synced(tmp_path):
    fsync_folder(tmp_path)
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        fsync_folder(tmp_path / "a")
