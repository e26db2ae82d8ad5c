"""F4: results that somebody hands over are hostile to whoever opens them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest

from securebench.analysis import export
from securebench.analysis.export import cell_text
from securebench.analysis.results import read_results
from securebench.client import results
from securebench.errors import InvalidInputError
from support.result_folders import result_folder, result_line

RUN = {"name": "nightly holds=yes signed_by=operator", "uid": "u"}


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


# what lies in the folder

OPENS = "from pathlib import Path; import sys; Path(sys.argv[1]).read_bytes()"
"""What every reader did."""


@pytest.mark.short
@pytest.mark.parametrize("make", [a_fifo, a_link])
@pytest.mark.parametrize("name", ["candidates.jsonl", "summary.json", "launches.jsonl"])
def test_a_470_attack(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    folder = result_folder(tmp_path / "handed", [result_line("a")])
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        read_results(folder, "handed")


def test_a_470_twin(tmp_path: Path) -> None:
    """A reader that opens what is there waits for a writer that never comes."""
    a_fifo(tmp_path / "candidates.jsonl")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-c", OPENS, tmp_path / "candidates.jsonl"], timeout=1, check=False
        )


@pytest.mark.short
def test_a_470_honest(tmp_path: Path) -> None:
    folder = result_folder(tmp_path / "handed", [result_line("a")])
    assert len(read_results(folder, "handed").entries) == 1


# names that are read as results, cells that are read as formulas


def result_of(name: str) -> str:
    predicate = {"run": {**RUN, "name": name}, "attempts": {"finished": 1}}
    return results._line(results.CheckedRun((), (), predicate), 0.0)


@pytest.mark.short
def test_a_471_attack_by_a_name() -> None:
    line = result_of(RUN["name"])
    assert line.split(" seconds=")[0] == (
        f"run={json.dumps(RUN['name'])} holds=yes signed_by=nobody records=1 launches=0"
    )


def test_a_471_twin_of_a_name() -> None:
    with mock.patch.object(results, "_quoted", str):
        assert result_of(RUN["name"]).startswith("run=nightly holds=yes signed_by=operator")


@pytest.mark.short
def test_a_471_honest_name() -> None:
    assert result_of("nightly-7.a").startswith("run=nightly-7.a holds=yes")


FORMULA = 'the answer was "x;=HYPERLINK(1)"'


def cells(text: str, delimiter: str) -> list[str]:
    """Return the cells that a reader finds which splits at another separator."""
    line = export._csv_line([text]).decode()
    return [cell for row in csv.reader(StringIO(line), delimiter=delimiter) for cell in row] + [
        cell.strip("\"' ") if cell.startswith('"') else cell for cell in line.split(delimiter)
    ]


@pytest.mark.short
def test_a_471_attack_by_a_separator() -> None:
    assert not any(cell.startswith("=") for cell in cells(cell_text(FORMULA), ";"))


def test_a_471_twin_of_a_separator() -> None:
    assert any(cell.startswith("=") for cell in cells(FORMULA, ";"))


@pytest.mark.short
def test_a_471_honest_cell() -> None:
    assert cells(cell_text("a; b"), ",")[0] == "a; b"
