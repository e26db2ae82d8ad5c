"""Cases of the code bridge as data: a candidate, the tests that judge it, and what they find.

A file has ``programs`` and ``groups``. A group has what its cases share, and ``cases`` by name. A
case is a mapping, or a text for the field that ``row`` of its group names (``tests`` by default).

candidate, tests: a line ``<name>`` stands for the program of that name; CASE stands for ``case``
    (by default the name), EACH for one item of ``each`` after the other.
declared: names that the task declares.
passes: whether the candidate passes (by default no).
says, lacks: texts that stderr has, or lacks. CASE and EACH stand in them too, and OR between two
    of which one is enough.
repeat: so many calls are made again; without that the candidate passes or not, as ``once`` says.
shared: whether it passes in the interpreter of the tests, where that is judged too.
first: the program that runs first in both processes; EACH stands in its name too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from support.code_pair import judge, judge_shared, runs_first

PLACE = re.compile(r"(\n *|)\b(CASE|EACH)\b")
PROGRAM = re.compile(r"^<([\w -]+)>\n", re.MULTILINE)


class Case(NamedTuple):
    """A candidate and how it is judged."""

    candidate: str
    tests: str
    declared: str = ""
    passes: bool = False
    says: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    repeat: int = 0
    once: bool | None = None
    shared: bool | None = None
    first: str = ""
    case: str = ""
    each: tuple[str, ...] = ("",)
    programs: Mapping[str, str] = MappingProxyType({})

    def text(self, text: str, each: str) -> str:
        """Return a text with what stands for its places; further lines of that are indented."""
        values = {"CASE": self.case, "EACH": each}
        filled = PLACE.sub(
            lambda found: found[1] + values[found[2]].replace("\n", found[1] or "\n"), text
        )
        return PROGRAM.sub(lambda found: self.programs[found[1]], filled)


def read_cases(folder: Path) -> dict[str, Case]:
    """Return the cases of all files of a folder by file, group and name."""
    found: dict[str, Case] = {}
    for path in sorted(folder.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        programs = document.get("programs", {})
        for group, fields in document["groups"].items():
            for name, row in cases_of(fields).items():
                found[f"{path.stem}: {group}: {name}"] = case_of(row, programs)
    return found


def cases_of(group: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the cases of a group as mappings with what the group shares."""
    shared = {name: value for name, value in group.items() if name not in ("row", "cases")}
    field = group.get("row", "tests")
    return {
        name: {"case": name} | shared | (row if isinstance(row, dict) else {field: row})
        for name, row in group["cases"].items()
    }


def case_of(row: Mapping[str, Any], programs: Mapping[str, str]) -> Case:
    """Return the case that the fields of a row describe."""
    texts = {name: row[name].rstrip("\n") + "\n" for name in ("candidate", "tests")}
    lists = {name: as_tuple(row[name]) for name in ("says", "lacks", "each") if name in row}
    return Case(**{**row, **texts, **lists}, programs=programs)


def as_tuple(value: str | list[str]) -> tuple[str, ...]:
    """Return one text or several as a tuple."""
    return tuple(text.strip("\n") for text in ([value] if isinstance(value, str) else value))


def assert_judged(case: Case) -> None:
    """Judge a case, and each of its items."""
    for each in case.each:
        name = case.text(case.first, each)
        with runs_first(case.programs[name] if name else ""):
            assert_item_judged(case, each)


def assert_item_judged(case: Case, each: str) -> None:
    """Judge a case with one of its items."""
    candidate, tests = case.text(case.candidate, each), case.text(case.tests, each)
    if case.once is not None:
        judged = judge(candidate, tests, declared=case.declared)
        assert (judged.code == 0) == case.once, (each, judged.stderr)
    judged = judge(candidate, tests, declared=case.declared, repeat=case.repeat)
    assert (judged.code == 0) == case.passes, (each, judged.stderr)
    for want in case.says:
        texts = case.text(want, each).split(" OR ")
        assert any(text in judged.stderr for text in texts), (each, want, judged.stderr)
    for lack in case.lacks:
        assert case.text(lack, each) not in judged.stderr, (each, judged.stderr)
    if case.shared is not None:
        judged = judge_shared(candidate, tests, declared=case.declared)
        assert (judged.code == 0) == case.shared, (each, judged.stderr)
