"""``securebench pack import``: a pack of questions from a table.

A table is a CSV file with a header, or a JSONL file with an object in each line, as data sets on
HuggingFace have them. Columns are named by flags, or found by the names that such data sets use.
Without a folder for the pack a preview is printed and nothing is written.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import yaml

from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import Severity, lint_graders
from securebench.benchmark.reading.plain import PlainProblem, decoded, parse_json
from securebench.benchmark.reading.rows import split_lines
from securebench.client.output import print_line, print_note, print_table
from securebench.errors import ConfigErrors, InvalidInputError, PackError
from securebench.json_values import object_in
from securebench.names import kubernetes_name
from securebench.text import did_you_mean_or_known, listed, snippet

FAMILIES: Final = ("multiple_choice", "short_answer")
SHOWN_ROWS: Final = 3
"""Rows of a preview."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "question_id", "qid", "idx", "index"),
    "question": ("question", "prompt", "problem", "query", "input"),
    "choices": ("choices", "options"),
    "answer": ("answer", "answerKey", "answer_key", "label", "target", "gold"),
}
_MANIFEST, _TASKS = "manifest.yaml", "tasks.jsonl"


class Columns(NamedTuple):
    """Where a table has what; empty where it was not said or found.

    Attributes:
        choices: One column with lists, or one column for each choice.
    """

    id: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    answer: str = ""


@dataclass(frozen=True, slots=True)
class TableImport:
    """One call of the command.

    Attributes:
        table: CSV or JSONL file.
        pack: Folder to write, or None for a preview.
        family: One of ``FAMILIES``.
        columns: As the flags name them.
        first: Number of the first choice where answers are numbers, 0 or 1.
        image: Image of the tasks.
    """

    table: Path
    pack: Path | None
    family: str
    columns: Columns
    first: int
    image: str


class TableLine(NamedTuple):
    """One record of a table and its line, from 1."""

    number: int
    values: Mapping[str, object]


def run_import(wanted: TableImport) -> int:
    """Print a preview, or write the pack; return the exit code.

    Raises:
        ConfigErrors: The table cannot be read, or rows of it are no tasks; nothing was written.
        InvalidInputError: The folder is taken, or a column is not there.
    """
    lines = read_table(wanted.table)
    columns = found_columns(wanted, lines)
    rows = [_row(wanted, columns, number, line.values) for number, line in enumerate(lines, 1)]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(folder, wanted, rows)
        _require_tasks(folder, wanted.table, lines)
    if wanted.pack is None:
        _preview(wanted, columns, rows)
        return 0
    if os.path.lexists(wanted.pack) and (not wanted.pack.is_dir() or any(wanted.pack.iterdir())):
        raise InvalidInputError(f"{wanted.pack} is not empty; name a new or an empty folder")
    wanted.pack.mkdir(parents=True, exist_ok=True)
    _write(wanted.pack, wanted, rows)
    print_line(f"pack={wanted.pack} family={wanted.family} tasks={len(rows)}")
    return 0


def read_table(path: Path) -> list[TableLine]:
    """Return the records of a table.

    Raises:
        ConfigErrors: One error for each line that is no record, or one for the whole file.
    """
    try:
        content = path.read_bytes()
        text = decoded(content)
    except OSError as error:
        raise _broken(path, f"cannot be read: {error.strerror}") from None
    except PlainProblem as problem:
        raise _broken(path, problem.reason) from None
    is_table = path.suffix.lower() in {".csv", ".tsv"}
    lines = list(_csv_lines(path, text) if is_table else _json_lines(path, content))
    if not lines:
        raise _broken(path, "the table has no row")
    return lines


def _broken(path: Path, reason: str, line: int | None = None) -> ConfigErrors:
    return ConfigErrors([PackError(reason, path=str(path), line=line)])


def _csv_lines(path: Path, text: str) -> Iterator[TableLine]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for values in reader:
            if None in values or None in values.values():
                reason = "has more or fewer cells than the header"
                raise _broken(path, reason, reader.line_num)
            yield TableLine(reader.line_num, dict(values))
    except csv.Error as error:
        raise _broken(path, f"invalid CSV: {error}", reader.line_num) from None


def _json_lines(path: Path, content: bytes) -> Iterator[TableLine]:
    errors = []
    for line in split_lines(content.splitlines(keepends=True)):
        try:
            value = parse_json(line.content)
        except PlainProblem as problem:
            value, reason = None, problem.reason
        else:
            reason = "is no object; a table has one object per line"
        if isinstance(value, Mapping):
            yield TableLine(line.number, value)
        else:
            errors.append(PackError(reason, path=str(path), line=line.number))
    if errors:
        raise ConfigErrors(errors)


def found_columns(wanted: TableImport, lines: Sequence[TableLine]) -> Columns:
    """Return where the table has what a family needs: as named, else under a usual name.

    Raises:
        InvalidInputError: A column is missing.
    """
    names = list(lines[0].values)

    def column(what: str, given: str) -> str:
        if given and given not in names:
            hint = did_you_mean_or_known(given, names)
            raise InvalidInputError(f"{wanted.table} has no column {given!r}{hint}")
        return given or next((name for name in _NAMES[what] if name in names), "")

    def needed(what: str, given: str) -> str:
        found = column(what, given)
        if not found:
            raise InvalidInputError(
                f"no column of {wanted.table} is known as the {what}; name it with --{what}; there"
                f" are {listed(names, 20)}"
            )
        return found

    given = wanted.columns
    choices: tuple[str, ...] = ()
    if wanted.family == "multiple_choice":
        choices = tuple(needed("choices", name) for name in given.choices or ("",))
    return Columns(
        column("id", given.id),
        needed("question", given.question),
        choices,
        needed("answer", given.answer),
    )


def _row(
    wanted: TableImport, columns: Columns, number: int, values: Mapping[str, object]
) -> dict[str, object]:
    identity = values.get(columns.id, "") if columns.id else ""
    row_id = _text(identity) or f"{kubernetes_name(wanted.table.stem)}-{number}"
    question, answer = _text(values.get(columns.question)), values.get(columns.answer)
    if wanted.family == "short_answer":
        accepted = answer if isinstance(answer, list) else [answer]
        return {
            "id": row_id,
            "input": {"question": question},
            "eval": {"accepted_answers": [_text(each) for each in accepted]},
        }
    choices, labels = _choices(columns, values)
    return {
        "id": row_id,
        "input": {"question": question, "choices": choices},
        "eval": {"answer": _choice(answer, choices, labels, wanted.first)},
    }


def _choices(columns: Columns, values: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Return the choices of a row and, where the table has them, their labels."""
    first = values.get(columns.choices[0])
    if len(columns.choices) > 1:
        return [_text(values.get(name)) for name in columns.choices], list(columns.choices)
    if isinstance(first, Mapping):  # as of ARC: {"text": [...], "label": [...]}
        parts = object_in(first)
        return _texts(parts.get("text")), _texts(parts.get("label"))
    if isinstance(first, str) and first.lstrip().startswith("["):
        try:
            first = json.loads(first)
        except ValueError:
            return [first], []
    return _texts(first), []


def _choice(answer: object, choices: list[str], labels: list[str], first: int) -> object:
    """Return an answer as the family has it: a position from 0, or a letter or text as written."""
    text = _text(answer)
    if text in labels:
        return labels.index(text)
    if text not in choices and text.isdecimal():
        return int(text) - first
    return text


def _texts(value: object) -> list[str]:
    return [_text(each) for each in value] if isinstance(value, list) else []


def _text(value: object) -> str:
    return "" if value is None else value.strip() if isinstance(value, str) else str(value)


def _write(folder: Path, wanted: TableImport, rows: Iterable[Mapping[str, object]]) -> None:
    name = wanted.table.stem if wanted.pack is None else Path(os.path.realpath(wanted.pack)).name
    manifest = {
        "id": kubernetes_name(name),
        "version": 1,
        "defaults": {"family": wanted.family, "environment": {"image": wanted.image}},
    }
    (folder / _MANIFEST).write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    (folder / _TASKS).write_text("".join(lines), encoding="utf-8")


def _require_tasks(folder: Path, table: Path, lines: Sequence[TableLine]) -> None:
    """Check that each row is a task, and say of the others where the table has them.

    Raises:
        ConfigErrors: One error for each problem.
    """
    checked = check_pack(folder / _MANIFEST, folder / _TASKS)
    problems = [(error.line, error.reason) for error in checked.errors] or [
        (each.line, each.message)
        for each in lint_graders(checked)
        if each.severity is Severity.ERROR
    ]
    if problems:
        raise ConfigErrors(
            [
                PackError(reason, path=str(table), line=line and lines[line - 1].number)
                for line, reason in problems
            ]
        )


def _preview(wanted: TableImport, columns: Columns, rows: Sequence[Mapping[str, object]]) -> None:
    named = {**columns._asdict(), "choices": ", ".join(columns.choices)}
    print_table(("of a task", "column"), [(name, found or "-") for name, found in named.items()])
    for row in islice(rows, SHOWN_ROWS):
        print_line(snippet(json.dumps(row, ensure_ascii=False)))
    print_note(
        f"a preview of {len(rows)} tasks; nothing was written. To write the pack, name its folder:"
        f" securebench pack import {wanted.table} FOLDER"
    )
