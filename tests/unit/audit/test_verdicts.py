"""What records of runs say, and patches without effect."""

import pytest

from securebench.audit.command import audit, every_rule, run_rules
from securebench.audit.rules import (
    check_answers,
    check_flaky,
    check_nop,
    check_trial,
)
from securebench.audit.subject import (
    FindingOutcome,
    TrialCandidate,
    candidates,
    load_subject,
    write_trial_pack,
)
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import judge_patch
from securebench.errors import ClusterError
from unit.audit.audit_packs import GOLD, code, deferred, repo, write_pack


@pytest.fixture
def subject(tmp_path):
    return write_pack(tmp_path / "pack", code(), repo(allow_paths=["src"]), deferred())


def record(task, *, passed, phase="checks", **more):
    return {"task_id": task, "passed": passed, "verifier_metadata": {"phase": phase}, **more}


(BASE_FAILS,) = FAMILIES["repo_patch"].audit.trials


def code_row(tests, *, starter="", **more):
    row = code()
    row["eval"]["tests"]["code"] = tests
    row["input"] |= {"starter_code": starter, **more}
    return row


def check_oracle(subject, records):
    return [each for each in check_answers(subject, records) if each.rule == "oracle"]


def check_gold_passes(subject, records):
    return [each for each in check_answers(subject, records) if each.rule == "gold-passes"]


def check_base_fails(subject, records):
    return check_trial(BASE_FAILS, subject, candidates(subject, BASE_FAILS), records)


DEFERRED = ("not_checked", "task 'tool'", "the family 'tool_call' has no verifier")
CASES = {
    "oracle passes": (check_oracle, [record("add", passed=True)], [DEFERRED]),
    "oracle fails": (
        check_oracle,
        [record("add", passed=False, failure_reason="tests_failed")],
        [
            ("failed", "task 'add'", "it fails with the pack's reference answer (tests_failed)"),
            DEFERRED,
        ],
    ),
    "no record": (
        check_oracle,
        [],
        [("not_checked", "task 'add'", "the run has no verdict for it: no record"), DEFERRED],
    ),
    "no verdict": (
        check_oracle,
        [record("add", passed=None, failure_reason="evicted")],
        [("not_checked", "task 'add'", "the run has no verdict for it: evicted"), DEFERRED],
    ),
    "gold passes": (check_gold_passes, [record("fix", passed=True)], []),
    "gold fails": (
        check_gold_passes,
        [{"task_id": "fix", "passed": False, "verifier_metadata": {"failure_reason": "x"}}],
        [("failed", "task 'fix'", "its tests fail with the gold patch (x)")],
    ),
    "nop fails": (
        check_nop,
        [record("add", passed=False), record("fix", passed=False)],
        [DEFERRED],
    ),
    "nop passes": (
        check_nop,
        [record("add", passed=True), record("fix", passed=False)],
        [("failed", "task 'add'", "it passes although nothing is handed in"), DEFERRED],
    ),
    "base fails": (check_base_fails, [record("fix", passed=False)], []),
    "base passes": (
        check_base_fails,
        [record("fix", passed=True)],
        [("failed", "task 'fix'", "its tests pass on the base, without any fix")],
    ),
    "tests did not run": (
        check_base_fails,
        [record("fix", passed=False, phase="test_patch", failure_reason="test_patch_failed")],
        [("failed", "task 'fix'", "its tests did not run on the base (test_patch_failed)")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_records_are_judged(case, subject):
    check, records, want = CASES[case]

    found = check(subject, records)

    if want:
        assert [(each.outcome.value, each.object, each.message) for each in found] == want
    else:
        assert [each.outcome for each in found] == [FindingOutcome.PASSED]


@pytest.mark.parametrize(
    ("verdicts", "want"),
    [
        ([True, True, True], []),
        ([False, False, False], []),
        ([True, False, True], ["with the oracle it passes in 2 and fails in 1 runs"]),
        ([True, None, True], ["not every run with the oracle has a verdict"]),
    ],
)
def test_runs_are_compared(verdicts, want, subject):
    runs = [[record("add", passed=passed), record("fix", passed=True)] for passed in verdicts]

    found = check_flaky(
        subject,
        {"oracle": runs, "nop": [[record("add", passed=False), record("fix", passed=False)]] * 3},
    )

    assert [each.message for each in found if each.outcome is not FindingOutcome.PASSED] == want


def test_one_run_is_nothing_to_compare(subject):
    (found,) = check_flaky(subject, {"oracle": [[]], "nop": [[]]})

    assert found.outcome is FindingOutcome.NOT_CHECKED


MODE = """diff --git a/src/a.py b/src/a.py
old mode 100644
new mode 100755
"""
PROGRAM = GOLD.replace("b03e1c6 100644", "b03e1c6 100755")
NEW = """diff --git a/src/b.py b/src/b.py
new file mode 100644
--- /dev/null
+++ b/src/b.py
@@ -0,0 +1 @@
+x
"""
PATCHES = {
    "the changed file": (repo(allow_paths=["src"]), MODE),
    "a program": (
        repo(gold=PROGRAM, allow_paths=["src"]),
        MODE.replace("old mode 100644", "old mode 1")
        .replace("100755", "100644")
        .replace("mode 1\n", "mode 100755\n"),
    ),
    "behind a new file": (repo(gold=NEW + GOLD, allow_paths=["src"]), MODE),
    "only new files": (repo(gold=NEW, allow_paths=["src"]), None),
    "not allowed": (repo(allow_paths=["docs"]), None),
    "no gold patch": (repo(gold=None), None),
    "no patch": (repo(gold="nothing"), None),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_patch_without_effect(case, tmp_path):
    row, want = PATCHES[case]
    subject = write_pack(tmp_path, row)

    made = candidates(subject, BASE_FAILS)["fix"]

    assert [each.text for each in made] == ([] if want is None else [want])
    if want is not None:
        assert judge_patch(want, CandidatePolicy.of({})).problem is None


def test_the_pack_of_the_bases_holds_their_rows_and_answers(tmp_path):
    rows = (code(), repo("fix", allow_paths=["src"]), repo("new", gold=NEW))
    subject = write_pack(tmp_path / "pack", *rows)
    (tmp_path / "base").mkdir()

    made = candidates(subject, BASE_FAILS)
    assert made == {"fix": (TrialCandidate("fix", "fix", "", MODE),), "new": ()}
    write_trial_pack(subject, tmp_path / "base", made["fix"])

    written = load_subject(tmp_path / "base/manifest.yaml", tmp_path / "base/tasks.jsonl")
    assert [task.id for task in written.tasks] == ["fix"]
    assert written.checked.errors == written.answer_errors == ()
    assert written.answers["fix"].text == MODE


def test_a_base_without_a_patch_is_not_checked(tmp_path):
    subject = write_pack(tmp_path, repo("new", gold=NEW))

    (found,) = check_base_fails(subject, [])

    assert (found.outcome, found.object) == (FindingOutcome.NOT_CHECKED, "task 'new'")


(STUBS,) = FAMILIES["code_completion"].audit.trials
SEEN = {
    "used by the tests": (code(), {"add"}),
    "a class": (
        code_row("stack = Stack()\nassert stack.pop() == 3", starter="class Stack:\n"),
        {"Stack"},
    ),
    "in a check": (code_row("def check(f):\n    assert f(4) == 8\ncheck(double)"), {"double"}),
    "by an entry point": (
        code_row("def check(f):\n    assert f(4) == 8", entry_point="double"),
        {"double"},
    ),
    "by its module": (
        code_row("from securebench_candidate import double\nassert double(4) == 8"),
        {"double"},
    ),
    "by the starter": (
        code_row("assert vars(f)['double'](4)", starter="def double(n): ...\n"),
        {"double", "f"},
    ),
}


@pytest.mark.parametrize("case", SEEN)
def test_stubs_define_what_the_tests_call(case, tmp_path):
    row, names = SEEN[case]
    ((task, made),) = candidates(write_pack(tmp_path, row), STUBS).items()

    assert len({each.row_id for each in made}) == len(made) >= 9
    assert {each.task_id for each in made} == {task}
    for each in made:
        if each.said.startswith("a stub"):
            found = {}
            exec(each.text, found)  # noqa: S102  # ours
            assert names <= found.keys(), each.said


def test_a_stub_that_passes_is_a_finding(tmp_path):
    subject = write_pack(tmp_path / "pack", code("add"), code("sub"))
    made = candidates(subject, STUBS)
    everything = [each for of_task in made.values() for each in of_task]
    (tmp_path / "stubs").mkdir()
    write_trial_pack(subject, tmp_path / "stubs", everything)
    written = load_subject(tmp_path / "stubs/manifest.yaml", tmp_path / "stubs/tasks.jsonl")
    assert [task.id for task in written.tasks] == [each.row_id for each in everything]
    assert written.checked.errors == written.answer_errors == ()
    assert {written.answers[each.row_id].text for each in everything} == {
        each.text for each in everything
    }

    records = [record(each.row_id, passed=each.row_id == "add--1") for each in everything]
    (found,) = check_trial(STUBS, subject, made, records)

    said = "a stub that returns None passes the tests"
    assert (found.outcome.value, found.object, found.message) == ("failed", "task 'add'", said)
    assert check_trial(STUBS, subject, made, records[1:])[0].outcome is FindingOutcome.NOT_CHECKED


class Cluster:
    """Remembers what was run; every oracle passes and every nop and base fails."""

    def __init__(self):
        self.runs = []

    def run_pack(self, folder, kind, limit):
        names = sorted(path.name for path in folder.iterdir())
        self.runs.append((folder.name, kind, limit, names))
        passed = kind == "oracle" and not folder.name.endswith(("-base-fails", "-stubs"))
        stubs = [f"add--{number}" for number in range(1, 10)]
        return [record(task, passed=passed) for task in ("add", "fix", *stubs)]


def test_the_pack_is_run_as_often_as_asked(subject):
    cluster = Cluster()

    found = audit(subject, run_pack=cluster.run_pack, runs=2).findings

    assert [run[:3] for run in cluster.runs] == [
        *[("pack", "oracle", None)] * 2,
        *[("pack", "nop", None)] * 2,
        ("pack-stubs", "oracle", None),
        ("pack-base-fails", "oracle", None),
    ]
    assert cluster.runs[-1][3] == ["manifest.yaml", "oracle", "tasks.jsonl"]
    assert not [each for each in found if each.outcome is FindingOutcome.FAILED]
    assert {each.rule for each in found} == set(every_rule())


def test_a_pack_under_other_names_is_run_from_a_copy(tmp_path):
    folder = tmp_path / "pack"
    write_pack(folder, code())
    (folder / "tasks.jsonl").rename(folder / "few.jsonl")
    cluster = Cluster()

    audit(
        load_subject(folder / "manifest.yaml", folder / "few.jsonl", limit=1),
        run_pack=cluster.run_pack,
    )

    assert cluster.runs[0] == ("pack", "oracle", None, ["manifest.yaml", "tasks.jsonl"])


def test_a_cluster_that_refuses_leaves_the_run_rules_unchecked(subject):
    def run_pack(*_):
        raise ClusterError("the API server\nrefused")

    audited = audit(subject, run_pack=run_pack)
    found = [each for each in audited.findings if each.rule in run_rules()]

    assert {each.outcome for each in found} == {FindingOutcome.NOT_CHECKED}
    assert {each.message for each in found} == {audited.run_error}
    assert audited.run_error == "the pack could not be run: the API server refused"
