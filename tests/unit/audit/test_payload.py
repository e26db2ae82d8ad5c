"""payload: what leaks is found where it lies; what belongs to a question is left alone."""

import base64
import json

import pytest

from securebench.audit import rules
from securebench.audit.subject import FindingOutcome, load_subject

CANARY = "0123456789abcdef0123456789abcdef"
SCRIPT = '#!/bin/sh\n# checks the sum\ntest "$(cat out)" = 4711\n'


@pytest.fixture
def pack(tmp_path):
    class Pack:
        folder = tmp_path

        def put(self, name, content):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

        def check(self, *rows, answers=()):
            image = {"image": "python:3"}
            self.put("manifest.yaml", "id: p\nversion: 1\n")
            lines = [json.dumps({"id": "t", "environment": image, **row}) for row in rows]
            self.put("tasks.jsonl", "\n".join(lines))
            if answers:
                self.put("oracle/answers.jsonl", "\n".join(map(json.dumps, answers)))
            subject = load_subject(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")
            assert subject.checked.errors == ()
            assert subject.answer_errors == ()
            return rules.check_payload(subject)

    return Pack()


def code(prompt, tests="assert add(1, 2) == 3\nassert add(0, 0) == 0", **more):
    row_eval = {"tests": {"source": "inline", "code": tests}, **more}
    return {"family": "code_completion", "input": {"prompt": prompt}, "eval": row_eval}


def terminal(instructions, assets=(), **row_eval):
    checker = {"source": "script", "path": "check.sh"}
    return {
        "family": "terminal_task",
        "input": {"instructions": instructions},
        "assets": list(assets),
        "eval": {"checker": checker, **row_eval},
    }


def squad(context, answers, question="Who won?"):
    return {
        "family": "short_answer",
        "input": {"question": question, "context": context},
        "eval": {"accepted_answers": answers},
    }


def choice(choices, answer, question="Which?"):
    row_input = {"question": question, "choices": choices}
    return {"family": "multiple_choice", "input": row_input, "eval": {"answer": answer}}


def encoded(text):
    return base64.b64encode(text.encode()).decode()


LEAKS = {
    "tests in the prompt": (
        code("Write add. It is tested so: assert add(1, 2) == 3\nassert add(0, 0) == 0"),
        "eval.tests.code is in the public part of the row (plain)",
    ),
    "reference solution in base64": (
        code(
            f"Decode me: {encoded('def add(a, b): return a + b')}",
            reference_solution="def add(a, b): return a + b\n",
        ),
        "eval.reference_solution is in the public part of the row (base64)",
    ),
    "canary of the tests, plain": (
        code(f"Write add. {CANARY}", tests=f"# canary {CANARY}\nassert add(1, 2) == 3"),
        "the canary of eval.tests.code is in the public part of the row (plain)",
    ),
    "canary in a setting": (
        {**terminal(f"Do it. {CANARY}"), "eval": {"checker": {"command": f"test {CANARY}"}}},
        "the canary of eval.checker.command is in the public part of the row (plain)",
    ),
    "canary of a question": (
        squad(f"It was Ada. {CANARY}", ["Ada", f"Lovelace {CANARY}"]),
        "the canary of eval.accepted_answers is in the public part of the row (plain)",
    ),
    "an answer in base64": (
        squad(f"Hint: {encoded('Ada Lovelace')}", ["Ada Lovelace"]),
        "eval.accepted_answers is in the public part of the row (base64)",
    ),
    "the right choice, reversed": (
        choice(["Canberra City", "Sydney"], "Canberra City", "Which? ytiC arrebnaC"),
        "eval.answer is in the public part of the row (reversed)",
    ),
    "state that is expected": (
        terminal(
            "The sum is nine thousand and one.", expected_state={"x": ["nine thousand and one"]}
        ),
        "eval.expected_state.x is in the public part of the row (plain)",
    ),
}
HONEST = {
    "a passage holds its answer": squad("The winner was Ada Lovelace.", ["Ada Lovelace"]),
    "choices hold the answer": choice(["Canberra City", "Sydney"], "Canberra City"),
    "letters and numbers": choice(["1", "2"], 1),
    "settings are quoted": {
        **terminal("It is checked with sh /opt/check.sh --all --strict"),
        "eval": {"checker": {"command": "sh /opt/check.sh --all --strict"}},
    },
    "short values": terminal("Write 42 or done.", expected_state={"x": "42", "y": "done"}),
    "a part of a test": code("Example: assert add(1, 2) == 3"),
    "a longer hexadecimal number": code(f"Write add. {CANARY}", tests=f"# {CANARY}ff\nassert add"),
}


@pytest.mark.parametrize("case", LEAKS)
def test_leaks_are_found(case, pack):
    row, want = LEAKS[case]
    pack.put("hidden/check.sh", SCRIPT)

    found = pack.check(row)

    assert [(each.outcome, each.object, each.message) for each in found] == [
        (FindingOutcome.FAILED, "task 't'", want)
    ]


@pytest.mark.parametrize("case", HONEST)
def test_honest_rows_pass(case, pack):
    pack.put("hidden/check.sh", SCRIPT)

    assert [each.outcome for each in pack.check(HONEST[case])] == [FindingOutcome.PASSED]


def test_a_public_file_that_is_the_check_is_found(pack):
    pack.put("hidden/check.sh", SCRIPT)
    pack.put("assets/box/a/b.sh", f"x\n{SCRIPT}\ny")
    pack.put("assets/box/c.sh", "nothing")

    found = pack.check(terminal("Do it.", [{"path": "box", "mount": "in"}]))

    assert [each.message for each in found] == [
        "file 'check.sh' is in the public file 'in/a/b.sh' (plain)"
    ]


def test_the_reference_answer_is_searched(pack):
    pack.put("hidden/check.sh", SCRIPT)
    command = "python3 -c 'print(4000 + 711)' > out"

    found = pack.check(terminal(f"Run {command}"), answers=[{"id": "t", "command": command}])

    assert [each.message for each in found] == [
        "the reference answer is in the public part of the row (plain)"
    ]


def test_names_are_searched(pack):
    pack.put("hidden/check.sh", f"# {CANARY}\n{SCRIPT}")
    pack.put("assets/a.txt", "nothing")

    found = pack.check(terminal("Do it.", [{"path": "a.txt", "mount": f"{CANARY}/a.txt"}]))

    assert [each.message for each in found] == [
        "the canary of file 'check.sh' is in the public part of the row (plain)",
        "the canary of file 'check.sh' is in the names of files, image and folder (plain)",
    ]


def test_large_files_are_searched_for_plain_values_and_named(pack, monkeypatch):
    monkeypatch.setattr(rules, "MAX_DECODED_BYTES", 100)
    pack.put("hidden/check.sh", SCRIPT)
    pack.put("assets/a.txt", "x" * 100 + SCRIPT)

    found = pack.check(terminal("Do it.", [{"path": "a.txt"}]))

    assert [each.outcome for each in found] == [FindingOutcome.NOT_CHECKED, FindingOutcome.FAILED]
    assert "too large" in found[0].message


INPUT = "id;name\n1;Ada Lovelace\n2;Grace Hopper\n"


@pytest.mark.parametrize(
    ("instructions", "mount", "is_leak"),
    [
        ("Sort people.csv by name.", "people.csv", False),
        ("Sort people.csv by name.", "data/people.csv", False),
        ("Sort the people by name.", "people.csv", True),
        ("Sort people.csv by name.", "sorted.csv", True),
        ("Sort people.csv into sorted.csv.", "sorted.csv", True),
    ],
)
def test_the_copy_of_an_input_that_the_row_names_is_no_secret(pack, instructions, mount, is_leak):
    pack.put("hidden/check.sh", SCRIPT)
    pack.put("hidden/tests/people.csv", INPUT)
    pack.put("assets/people.csv", INPUT)
    row = terminal(instructions, [{"path": "people.csv", "mount": mount}])
    row["eval"]["test_files"] = {"path": "tests"}

    (found,) = pack.check(row)

    assert found.outcome is (FindingOutcome.FAILED if is_leak else FindingOutcome.PASSED)


def test_the_check_itself_is_no_input(pack):
    pack.put("hidden/check.sh", SCRIPT)
    pack.put("assets/check.sh", SCRIPT)

    (found,) = pack.check(terminal("check.sh must pass.", [{"path": "check.sh"}]))

    assert found.outcome is FindingOutcome.FAILED
