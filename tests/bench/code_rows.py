"""Measures what verdicts of code_completion rest on, for the rows of a data set.

Reads JSON lines with ``id``, ``solution`` and ``tests``, and where the tests define
``check(candidate)`` ``entry_point``. Runs every solution with its tests as the verifier does, a
worker and a runner as two processes of this machine; what fails there runs in one interpreter
(``tests.isolation: shared``). Prints how many rest on what, what failed, and whether its output and
lint name the way out; with ``--stubs`` also the rows that a stub of the audit passes. The data sets
are not part of this repository.
"""

from __future__ import annotations

import argparse
import collections
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from securebench.benchmark.families.code_completion import stubs
from securebench.benchmark.families.reached_code import candidate_names, needs_one_process
from securebench.grading.code.own_process import uses_of_own_process
from support.code_pair import judge, judge_shared

BASIS, SHARED = "the verdict rests on ", "tests.isolation: shared"
IN_PROCESS, NOTHING = "in-process", "does not pass"


class Verdict(NamedTuple):
    """What became of a row's solution.

    Attributes:
        row: Its id.
        label: What the verdict rests on, or that there is no pass.
        needs: What the output of the failure said last, empty where ``separate`` passed.
        is_named: Whether that output names the way out.
        is_found: Whether lint finds a line before.
        stubs: Stubs that pass.
    """

    row: str
    label: str
    needs: str = ""
    is_named: bool = False
    is_found: bool = False
    stubs: tuple[str, ...] = ()


def tests_of(row: Mapping[str, str]) -> str:
    """Return the tests with the call of their ``check``."""
    entry = row.get("entry_point")
    return row["tests"] + (f"\n\ncheck({entry})\n" if entry else "")


def verdict(row: Mapping[str, str], *, with_stubs: bool) -> Verdict:
    """Run a row's solution, and stubs for it."""
    tests = tests_of(row)
    found = tuple(passing_stubs(tests)) if with_stubs else ()
    judged = judge(row["solution"], tests)
    if judged.code == 0:
        label = judged.stderr.rpartition(BASIS)[2].strip()
        return Verdict(row["id"], label, stubs=found)
    lines = [line for line in judged.stderr.splitlines() if BASIS not in line]
    label = IN_PROCESS if judge_shared(row["solution"], tests).code == 0 else NOTHING
    is_found = any(True for _ in (*uses_of_own_process(tests), *needs_one_process(tests)))
    return Verdict(row["id"], label, lines[-1], SHARED in judged.stderr, is_found, found)


def passing_stubs(tests: str) -> Iterator[str]:
    """Yield the stubs of the audit with which the tests pass."""
    names = {name for name in candidate_names(tests) if name.isidentifier() and name[:2] != "__"}
    classes = {name for name in names if name[0].isupper()}
    for said, module in stubs(names - classes, classes).items():
        if judge(module, tests).code == 0:
            yield said


def main() -> None:
    """Run the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--stubs", action="store_true")
    asked = parser.parse_args()
    for path in asked.files:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda row: verdict(row, with_stubs=asked.stubs), rows))
        counts = collections.Counter(each.label for each in done)
        print(f"{path.name}: {len(done)} rows", dict(counts))
        for each in done:
            if each.needs or each.stubs:
                print(json.dumps(each._asdict()))


if __name__ == "__main__":
    main()
