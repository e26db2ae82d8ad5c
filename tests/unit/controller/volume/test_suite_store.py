"""What a suite remembers, and that a thread that outlives its loop brings nothing back."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest import mock

import pytest

from securebench.controller import suite_store
from securebench.controller.suite_store import SuiteStore, suite_folders
from securebench.errors import StorageError
from securebench.suite.planning import Trigger
from securebench.suite.rounds import SuiteState

STATE = SuiteState(handled=1.0, trigger=Trigger("again"))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store = SuiteStore(tmp_path, "uid")
    assert store.read() is None
    store.write(STATE)
    assert (store.read(), suite_folders(tmp_path)) == (STATE, ["uid"])


def test_a_suite_that_was_removed_is_not_written(tmp_path: Path) -> None:
    store = SuiteStore(tmp_path, "uid")
    store.write(STATE)
    store.remove()
    with pytest.raises(StorageError, match="was deleted"):
        store.write(STATE)
    assert suite_folders(tmp_path) == []


def test_a_write_under_way_ends_before_the_folder_goes(tmp_path: Path) -> None:
    store, real = SuiteStore(tmp_path, "uid"), suite_store.make_folder
    is_writing, may_go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> None:
        is_writing.set()
        assert may_go_on.wait(5)
        real(path)

    with mock.patch.object(suite_store, "make_folder", slow):
        writing = threading.Thread(target=store.write, args=(STATE,))
        writing.start()
        assert is_writing.wait(5)
        removing = threading.Thread(target=store.remove)
        removing.start()
        may_go_on.set()
        for thread in (writing, removing):
            thread.join(5)
    assert suite_folders(tmp_path) == []


def test_another_file_is_no_state(tmp_path: Path) -> None:
    store = SuiteStore(tmp_path, "uid")
    store.write(STATE)
    (tmp_path / "suites/uid/state.json").write_text("[]")
    with pytest.raises(StorageError, match=r"uid/state\.json holds no state of a suite"):
        store.read()
