import os
import threading

import pytest

from securebench.client import result_folder
from securebench.client.result_folder import handed_content, handed_lines, means_folder
from securebench.errors import InvalidInputError


def a_fifo(path):
    os.mkfifo(path)


def a_link(path):
    path.with_name("elsewhere").write_text("{}\n")
    path.symlink_to("elsewhere")


def a_device(path):
    path.symlink_to("/dev/zero")


def a_dangling_link(path):
    path.symlink_to("nowhere")


def a_folder(path):
    path.mkdir()


def an_endless_line(path):
    path.touch()
    os.truncate(path, result_folder.LINE_BYTES + 1)


HOSTILE = {
    a_fifo: "is a FIFO, not a regular file",
    a_link: "is a symbolic link, not a regular file",
    a_device: "is a symbolic link, not a regular file",
    a_dangling_link: "is a symbolic link, not a regular file",
    a_folder: "is a folder, not a regular file",
    an_endless_line: "has a line of more than 1 MiB",
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(result_folder, "LINE_BYTES", 2**20)


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("read", [handed_content, lambda path: list(handed_lines(path))])
def test_what_is_no_file_of_a_run(tmp_path, make, read):
    path = tmp_path / "candidates.jsonl"
    make(path)
    threads = threading.active_count()
    with pytest.raises(InvalidInputError, match=HOSTILE[make]):
        read(path)
    assert threading.active_count() == threads


def test_a_file_of_many_lines_is_read_whole_up_to_a_bound(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b"x\n" * 2**19)
    assert len(handed_content(path)) == 2**20
    path.write_bytes(b"x\n" * (2**19 + 1))
    assert sum(map(len, handed_lines(path))) == 2**20 + 2
    with pytest.raises(InvalidInputError, match="more than 1 MiB"):
        handed_content(path)


def test_lines_end_at_line_feeds(tmp_path):
    path = tmp_path / "candidates.jsonl"
    path.write_bytes(b"a\rb\x0b\x0c\xc2\x85\n\nc")
    assert list(handed_lines(path)) == [b"a\rb\x0b\x0c\xc2\x85\n", b"\n", b"c"]


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        handed_content(tmp_path / "absent")


MEANT = {"nightly": False, "./nightly": True, "nightly/": True, "/a/b": True, ".": True, "..": True}


@pytest.mark.parametrize("subject", MEANT)
def test_a_bare_name_means_a_run(tmp_path, monkeypatch, capsys, subject):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly/candidates.jsonl").touch()
    assert means_folder(subject) is MEANT[subject]
    noted = "the run of this name in the cluster; the folder is ./nightly"
    assert (noted in capsys.readouterr().err) is (subject == "nightly")
