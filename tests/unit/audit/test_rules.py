"""allow-paths, null-answers, collisions and lint: what they find and what they leave alone."""

import json

import pytest

from securebench.audit.rules import check_lint, check_null_answers, check_task_rules
from securebench.audit.subject import FindingOutcome, Rule, load_subject
from securebench.benchmark.lint import lint_harness
from unit.audit.audit_packs import GOLD, choice, code, deferred, free, repo, short, write_pack


def of_rule(name, subject):
    return [each for each in check_task_rules(subject) if each.rule == name]


def told(findings):
    return [(each.outcome.value, each.message) for each in findings]


PRINTED = {"id": "fix", "command": f"cat <<'EOF'\n{GOLD}EOF\n"}
REFUSED = "the gold patch would be refused or cut: "
TOUCHES = f"{REFUSED}the candidate patch touches paths that the policy denies: "
SENSITIVE = GOLD.replace("src/a.py", "tests/a.py")

POLICIES = {
    "allowed": (repo(allow_paths=["src"]), (), []),
    "no list": (
        repo(),
        (),
        [
            (
                "failed",
                "the row has no allow_paths; an agent may change all that looks like source",
            )
        ],
    ),
    "not in the list": (
        repo(allow_paths=["docs"]),
        (),
        [("failed", f"{TOUCHES}'src/a.py'; src/a.py: allow_paths does not list it")],
    ),
    "sensitive": (
        repo(gold=SENSITIVE, allow_paths=["tests"]),
        (),
        [
            (
                "failed",
                f"{TOUCHES}'tests/a.py'; tests/a.py: it lies in a folder of tests",
            )
        ],
    ),
    "sensitive and listed": (
        repo(gold=SENSITIVE, allow_paths=["tests"], allow_sensitive_paths=["tests"]),
        (),
        [],
    ),
    "left out": (
        repo(gold=GOLD + SENSITIVE, allow_paths=["src"], patch_preserved_paths=["tests"]),
        (),
        [("failed", f"{REFUSED}patch_preserved_paths leaves out tests/a.py")],
    ),
    "no patch": (
        repo(gold="nothing", allow_paths=["src"]),
        (),
        [("failed", f"{REFUSED}the candidate is not a canonical patch: line 1: ")],
    ),
    "printed by the reference answer": (repo(gold=None, allow_paths=["src"]), (PRINTED,), []),
    "no gold patch": (
        repo(gold=None, allow_paths=["src"]),
        (),
        [("not_checked", "there is no gold patch to compare with allow_paths")],
    ),
    "a reference answer that works": (
        repo(gold=None, allow_paths=["src"]),
        ({"id": "fix", "command": "sed -i s/2/3/ src/a.py"},),
        [("not_checked", "there is no gold patch to compare with allow_paths")],
    ),
}


@pytest.mark.parametrize("case", POLICIES)
def test_allow_paths(case, tmp_path):
    row, answers, want = POLICIES[case]

    found = told(of_rule("allow-paths", write_pack(tmp_path, row, answers=answers)))

    if not want:
        assert found == [("passed", "1 gold patches are permitted whole")]
    else:
        assert [outcome for outcome, _ in found] == [outcome for outcome, _ in want]
        assert found[0][1].startswith(want[0][1])


NULLS = {
    "question": (short("How many? 4 or 5?", "6"), []),
    "answer in the question": (short("Mars or Venus?", "Mars"), ["an echo of the question"]),
    "two numbers in the question": (short("Is it 4 or 5?", "4"), []),
    "tolerance": (short("The year? 1999 or so.", 2000, tolerance=1), ["an echo of the question"]),
    "braces": (short("Which signs?", "{}"), ["the answer {}"]),
    "refusal": (short("Can you help?", "can't"), ["a refusal"]),
    "choices": (choice(["red", "blue"], "B"), []),
    "choice that is asked": (
        choice(["red", "blue"], "B", "Which?\nblue"),
        ["an echo of the question"],
    ),
    "rubric": (free("What is it?", accepted_answers=["a stone"]), []),
    "everything is accepted": (
        free("What is it?", accepted_answers=["stone"], min_token_f1=0),
        [],
    ),
    "rubric in the prompt": (
        free("Is it a stone?", accepted_answers=["a stone"]),
        ["an echo of the question"],
    ),
}


@pytest.mark.parametrize("case", NULLS)
def test_null_answers(case, tmp_path):
    row, want = NULLS[case]

    found = check_null_answers(write_pack(tmp_path, row, code(), deferred()))

    assert [each.message for each in found if each.outcome is FindingOutcome.FAILED] == [
        f"{name} passes" for name in want
    ]
    assert {each.outcome for each in found} == {
        FindingOutcome.FAILED if want else FindingOutcome.PASSED
    }


def test_a_row_that_cannot_be_judged_is_no_pass(tmp_path):
    found = check_null_answers(write_pack(tmp_path, choice(["red", "blue"], 9)))

    assert [each.outcome for each in found] == [FindingOutcome.PASSED]


ALIKE = {
    "apart": (choice(["red", "blue"], "B"), []),
    "right and wrong": (
        choice(["Oslo", "Bergen", " oslo."], "A"),
        ["the options A and C are the same for the scorer"],
    ),
    "wrong ones": (
        choice(["Oslo", "Bergen", "BERGEN"], "A"),
        ["the options B and C are the same for the scorer"],
    ),
    "right ones": (choice(["Oslo", "Bergen", "oslo"], ["A", "C"]), []),
    "text that is a letter": (
        choice(["B", "A", "C"], 0),
        [f"the {what} of the right option A does not pass" for what in ("letter", "text")],
    ),
    "zero-width": (
        choice(["Oslo", "Os\u200blo"], "A"),
        ["the options A and B are the same for the scorer"],
    ),
    "marks": (
        choice(["**pi**", "$\\pi$", "pi"], "A"),
        ["the options A and C are the same for the scorer"],
    ),
    "words of another in two lines": (choice(["pi", "2 pi", "4 pi"], "A"), []),
    "accepted and rejected": (
        free("What?", accepted_answers=["Yes", "No"], rejected_answers=["Maybe", "no."]),
        ["accepted_answers[1] and rejected_answers[1] of the rubric are the same for the scorer"],
    ),
    "accepted twice": (free("What?", accepted_answers=["Yes", "yes"]), []),
    "rejected one quoted": (
        free("What?", accepted_answers=["not the seeds"], rejected_answers=["the seeds"]),
        [],
    ),
    "alternatives": (short("Who?", "Ada", "ada"), []),
}


@pytest.mark.parametrize("case", ALIKE)
def test_collisions(case, tmp_path):
    row, want = ALIKE[case]

    found = of_rule("collisions", write_pack(tmp_path, row))

    assert [each.message for each in found if each.outcome is FindingOutcome.FAILED] == want


def test_lint_warnings_fail_and_a_tag_is_what_cannot_be_checked(tmp_path):
    subject = write_pack(tmp_path, {**choice(["red", "blue"], "B"), "typo": 1}, repo())

    found = check_lint(subject.with_lint(lint_harness(["MY_TOKEN"], path="tester.yaml")))

    tasks = tmp_path / "tasks.jsonl"
    failed = [
        (each.object, each.message) for each in found if each.outcome is FindingOutcome.FAILED
    ]
    assert failed == [
        (f"{tasks}:1", "task 'c' (multiple_choice): unknown row key 'typo'"),
        (
            "tester.yaml",
            "harness.env 'MY_TOKEN' looks like a secret; the agent's container can read it",
        ),
    ]
    rest = [each for each in found if each.outcome is not FindingOutcome.FAILED]
    assert [each.object for each in rest] == [f"{tasks}:1", f"{tasks}:2"]
    assert {each.outcome for each in rest} == {FindingOutcome.NOT_CHECKED}


def test_lint_of_a_pack_without_a_word(tmp_path):
    row = choice(["red", "blue"], "B")
    row["environment"] = {"image": f"small@sha256:{'0' * 64}"}

    (found,) = check_lint(write_pack(tmp_path, row))

    assert (found.rule, found.outcome) == (Rule.LINT, FindingOutcome.PASSED)


def test_lint_names_the_line_of_a_wrong_answer(tmp_path):
    write_pack(tmp_path, choice(["red", "blue"], "B"), answers=({"id": "c", "candidate": "B"},))
    lines = [{"id": "c", "candidate": "B"}, {"id": "d", "candidate": "B"}]
    (tmp_path / "oracle/answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    subject = load_subject(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")

    failed = [each for each in check_lint(subject) if each.outcome is FindingOutcome.FAILED]

    assert [(each.object, each.message) for each in failed] == [
        ("oracle/answers.jsonl:2", "the pack has no task 'd'")
    ]
