"""Reads every case with both programs and compares; ``make harbor-differential`` calls it.

usage: python -m harbor_folders --python PYTHON [--random N] [--record]

A folder is read alike or refused by SecureBench with a reason; nothing else passes. Job folders
that SecureBench exports are read by harbor as they were written, and it makes the same statistics
of their trials. With ``--record`` a sample of the cases, and what harbor read, replaces the data of
the unit tests.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harbor_folders import jobs, ours
from harbor_folders.cases import Files, all_cases, write
from harbor_folders.compare import difference

UNIT_TESTS = Path(__file__).parents[1] / "unit"
RECORDED = UNIT_TESTS / "benchmark/harbor/recorded.jsonl"
RECORDED_JOBS = UNIT_TESTS / "analysis/recorded_jobs.jsonl"
READ_SAMPLE, REFUSED_SAMPLE = 4, 12
"""Of how many cases that harbor reads, or refuses, one is recorded."""

Reading = Mapping[str, Any]


def reference(python: str, folder: Path, program: str = "reference.py") -> list[Reading]:
    """Return the lines that harbor's classes give."""
    script = Path(__file__).with_name(program)
    command = [python, str(script), str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(arguments: Sequence[str]) -> int:
    """Compare all cases and return the exit code."""
    parser = argparse.ArgumentParser(prog="harbor_folders")
    parser.add_argument("--python", required=True)
    parser.add_argument("--random", type=int, default=400)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments)
    cases = all_cases(options.random)
    with TemporaryDirectory() as scratch:
        root = Path(scratch)
        for number, files in enumerate(cases):
            write(root / f"{number:04}", files)
        first, *theirs = reference(options.python, root)
        mine = [ours.reading(child) for child in sorted(root.iterdir())]
    failed = 0
    for number, (one, other) in enumerate(zip(theirs, mine, strict=True)):
        if problem := difference(one, other):
            failed += 1
            print(f"case {number}: {problem}\n{cases[number].get('task.toml')}")
    _report(theirs, mine)
    with TemporaryDirectory() as scratch:
        exported = [folder for _, folder in jobs.exported(Path(scratch))]
        known, *read = reference(options.python, exported[0].parent, "reference_jobs.py")
    differences = [f"job {job['name']}: {each}" for job in read for each in job["differences"]]
    print(*differences, sep="\n", end="\n" if differences else "")
    if options.record:
        _record(first["keys"], cases, theirs)
        _write_lines(RECORDED_JOBS, [known, *read])
    print(f"harbor folders={len(cases)} differences={failed}")
    trials = sum(len(job.get("trials", ())) for job in read)
    print(f"harbor jobs={len(read)} trials={trials} differences={len(differences)}")
    return 1 if failed or differences or len(read) < len(exported) else 0


def _report(theirs: Sequence[Reading], mine: Sequence[Reading]) -> None:
    both = list(zip(theirs, mine, strict=True))
    count = Counter(("read" in one, "read" in other) for one, other in both)
    print(f"read by both {count[True, True]}, refused by both {count[False, False]},", end=" ")
    print(f"refused by SecureBench alone {count[True, False]}:")
    reasons = Counter(
        re.sub(r"\[\d+\]", "[]", reason)
        for one, other in both
        if "read" in one
        for reason in other.get("refused", ())
    )
    for reason, number in sorted(reasons.items()):
        print(f"  {number:4} {reason}")


def _record(keys: Sequence[str], cases: Sequence[Files], theirs: Sequence[Reading]) -> None:
    lines: list[object] = [{"keys": keys}]
    for sample, outcome in ((READ_SAMPLE, "read"), (REFUSED_SAMPLE, "refused")):
        chosen = [number for number, each in enumerate(theirs) if outcome in each]
        found = (
            {"files": cases[number], **_outcome(theirs[number])} for number in chosen[::sample]
        )
        lines += found
    _write_lines(RECORDED, lines)


def _write_lines(path: Path, lines: Iterable[object]) -> None:
    text = "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def _outcome(reading: Reading) -> Reading:
    """Return a reading without harbor's words for a refusal."""
    return {"read": reading["read"]} if "read" in reading else {"refused": True}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
