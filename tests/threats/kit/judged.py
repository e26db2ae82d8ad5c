"""Threat cases of the code bridge as data: attack, twin and honest runs from one description.

A file has ``programs`` and ``threats``, the latter by the id of the catalogue. A threat is a group
of ``support.judged_cases`` whose cases are attacks that fail, with these fields beside. The twin of
an attack is the same with one control off, and passes.

weaken: the program that runs first in both processes of the twin.
naive: in the twin one interpreter runs candidate and tests, and its exit code decides.
    (A twin with neither makes no call again.)
twins: the attacks that have a twin, by default all; twin_says: what stderr then has.
short: the attacks that belong to the short form.
honest: a candidate that passes the tests of each attack, or cases that pass, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.judged_cases import Case, as_tuple, assert_judged, case_of, cases_of
from threats.kit.local_judging import naive

OWN = ("weaken", "naive", "twins", "twin_says", "short", "honest")
INHERITED = ("tests", "repeat", "declared")
"""What an honest case has of its threat."""

Run = Callable[[], None]


def threats_of(folder: Path) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, str]]]:
    """Yield id, fields and programs of each threat in the files of a folder."""
    for path in sorted(folder.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for threat, fields in document["threats"].items():
            yield threat, fields, document.get("programs", {})


def runs(folder: Path, kind: str) -> list[Any]:
    """Return the runs of a kind (``attack``, ``twin``, ``honest``) as parameters of a test."""
    makers = {"attack": attacks, "twin": twins, "honest": honest}
    return [
        pytest.param(run, id=f"{threat} {name}", marks=pytest.mark.short if is_short else ())
        for threat, fields, programs in threats_of(folder)
        for name, run, is_short in makers[kind](fields, programs)
    ]


def attacks(
    fields: Mapping[str, Any], programs: Mapping[str, str]
) -> Iterator[tuple[str, Run, bool]]:
    for name, row in cases_of(fields).items():
        yield name, judged(case(row, programs)), name in fields.get("short", ())


def twins(
    fields: Mapping[str, Any], programs: Mapping[str, str]
) -> Iterator[tuple[str, Run, bool]]:
    for name, row in cases_of(fields).items():
        if name not in row.get("twins", (name,)):
            continue
        says = as_tuple(row.get("twin_says", ()))
        attack = case(row, programs)._replace(passes=True, says=says, lacks=())
        if "weaken" in row:
            yield name, judged(attack._replace(first=row["weaken"])), False
        elif row.get("naive"):
            yield name, judged_naively(attack), False
        else:
            yield name, judged(attack._replace(repeat=0)), False


def honest(
    fields: Mapping[str, Any], programs: Mapping[str, str]
) -> Iterator[tuple[str, Run, bool]]:
    own = fields["honest"]
    if isinstance(own, str):
        told = ("says", "lacks")
        rows = {
            name: {key: row[key] for key in row if key not in told} | {"candidate": own}
            for name, row in cases_of(fields).items()
        }
    else:
        shared = {key: fields[key] for key in INHERITED if key in fields}
        rows = cases_of(shared | {"row": "candidate", "cases": own})
    for name, row in rows.items():
        yield name, judged(case(row | {"passes": True}, programs)), False


def case(row: Mapping[str, Any], programs: Mapping[str, str]) -> Case:
    """Return the case of a row without what is said about its runs."""
    return case_of({key: row[key] for key in row if key not in OWN}, programs)


def judged(own: Case) -> Run:
    """Return a run that judges a case."""
    return lambda: assert_judged(own)


def judged_naively(own: Case) -> Run:
    """Return a run of candidate and tests in one interpreter."""

    def run() -> None:
        for each in own.each:
            assert naive(own.text(own.candidate, each), own.text(own.tests, each)).code == 0

    return run
