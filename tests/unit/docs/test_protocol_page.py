"""docs/reference/protocol.md names every journal entry, exit code and file that the code knows."""

import re
from pathlib import Path
from typing import get_args

from securebench.controller.exec_io import RUN_FILES
from securebench.protocol.messages import Code
from securebench.run.state.entries import Entry
from securebench.run.state.entry_json import TYPES

PAGE = (Path(__file__).parents[3] / "docs/reference/protocol.md").read_text(encoding="utf-8")


def first_cells(heading):
    """Return the first cells of the table below a heading row, without backticks."""
    table = PAGE.split(heading)[1].split("\n\n")[0]
    return {cell.strip("`") for cell in re.findall(r"^\| (?!---)([^|]+?) \|", table, re.MULTILINE)}


def test_every_entry_of_a_journal_is_there():
    assert first_cells("| type | says |") == set(TYPES)
    assert set(TYPES.values()) == set(get_args(Entry))


def test_every_exit_code_of_supervise_is_there():
    cells = first_cells("| exit code | meaning |")
    assert {int(cell.split()[0]) for cell in cells} == set(Code)


def test_every_file_that_can_be_fetched_is_there():
    sentence = PAGE.split("FILE is one of ")[1].split(".\n")[0].split(". ")[0]
    assert set(re.findall(r"`([^`]+)`", sentence)) == set(RUN_FILES)
