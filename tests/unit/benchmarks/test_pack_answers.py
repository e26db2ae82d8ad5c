"""The packs that `make packs` runs, their reference answers, and what its table says."""

import json
from dataclasses import replace

import pytest

from packs.packs import BENCHMARKS, RUNNABLE, Pair, failures, row
from securebench.audit.command import Trial
from securebench.client.submit import prepare
from securebench.client.tester_config import HarnessSection, load_tester_config

NOT_RUNNABLE = {"swe-bench-verified-codex-smoke"}
"""Their images are public and cannot be pulled everywhere."""

PACKS = {path.parent.name for path in BENCHMARKS.glob("*/manifest.yaml")}


def test_every_pack_is_run_or_known_not_to_be():
    assert len(set(RUNNABLE)) == len(RUNNABLE)
    assert set(RUNNABLE) | NOT_RUNNABLE == PACKS


@pytest.mark.parametrize("name", sorted(PACKS))
def test_an_oracle_has_an_answer_for_every_task(name):
    config = load_tester_config(BENCHMARKS / name / "tester.yaml")
    prepared = prepare(replace(config, harness=HarnessSection("oracle")))
    rows = (BENCHMARKS / name / "tasks.jsonl").read_bytes().splitlines()
    assert prepared.task_ids == tuple(json.loads(line)["id"] for line in rows)
    assert prepared.pack.answers_digest.startswith("sha256:")


# The table


def trial(kind, passed):
    records = tuple(
        {"task_id": f"t{number}", "passed": each, "outcome": "scored" if each in (0, 1) else None}
        for number, each in enumerate(passed)
    )
    families = {record["task_id"]: "short_answer" for record in records}
    right = sum(each is True for each in passed)
    scored = sum(each is not None for each in passed)
    return Trial("p", families, kind, right, scored, len(passed), 6.0, records)


PAIRS = {
    "right": ((True, True), (False, False), "", ["p", "short_answer", "2", "1.0", "0.0"], True),
    "oracle fails": ((True, False), (False, False), "", ["p", "short_answer", "2", "0.5"], False),
    "nop passes": ((True,), (True,), "", ["p", "short_answer", "1", "1.0", "1.0"], False),
    "no verdict": ((None,), (False,), "", ["p", "short_answer", "1", "0.0", "0.0"], False),
    "no tasks": ((), (), "", ["p", "?", "0", "none", "none"], False),
    "one is missing": ((True,), None, "boom", ["p", "short_answer", "1", "1.0", "?"], False),
    "both are missing": (None, None, "boom", ["p", "?", "?", "?", "?"], False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_row_of_the_table(name):
    oracle, nop, problem, want, is_right = PAIRS[name]
    given = {"oracle": oracle, "nop": nop}
    trials = {kind: trial(kind, each) for kind, each in given.items() if each is not None}
    found = Pair("p", trials, problem)
    cells = row(found)
    assert cells[: len(want)] == want
    assert found.is_right is is_right
    assert ("ok" in cells[-1]) is is_right
    assert bool(failures(found)) is (not is_right and name != "no tasks")


def test_what_is_wrong_is_named():
    trials = {"oracle": trial("oracle", (True, False)), "nop": trial("nop", (None, True))}
    assert failures(Pair("p", trials, "")) == [
        "p: oracle: t1: scored",
        "p: nop: t0: None",
        "p: nop: t1: scored",
    ]
