"""F5: checks exercise the artifact on input that the agent has not seen."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator

import pytest

from support.code_pair import judge
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial
from threats.kit.local_judging import cases
from threats.scorers.shipped_packs import batch, tasks
from threats.scorers.stub_agents import KNOWN, STUBS, oracle

STUBBED = {
    f"{pack}/{task}": trial
    for pack, agents in STUBS.items()
    for task, trial in batch(pack, agents, f"f5-stub-{pack}").items()
}
KNOWING = {
    f"{pack}/{task}": trial
    for pack, agents in KNOWN.items()
    for task, trial in batch(pack, agents, f"f5-known-{pack}").items()
}
SOLVED = {
    f"{pack}/{task}": trial
    for pack, chosen in {
        "terminal-task-smoke": ("csv-totals", "starter-slug"),
        "agentbench-os-mini": ("agentbench-os-46",),
        "terminal-bench-first10": ("winning-moves", "request-id-regex"),
    }.items()
    for task, trial in batch(
        pack, {name: oracle(pack, name) for name in chosen}, f"f5-solved-{pack}"
    ).items()
}
STUB = 'open("answer.txt", "w").write("0\\n")\n'
LOOKS_ONLY = Batch("f5-looks-only", "terminal_task", defaults=APP).task(
    "looks-only", agent=STUB, grading={"checker": {"command": "test -s answer.txt"}}
)
EXAMPLE = Batch("f5-example", "terminal_task", defaults=APP).task(
    "example",
    agent=KNOWN["terminal-bench-first10"]["winning-moves"],
    grading={"checker": {"command": 'test "$(python3 moves.py X | head -n 1)" = "7 3"'}},
)


def trials(chosen: dict[str, Trial], *short: str) -> list[object]:
    quick = pytest.mark.short
    return [
        pytest.param(
            trial, marks=[pytest.mark.trials(trial), *([quick] if name in short else [])], id=name
        )
        for name, trial in chosen.items()
    ]


def assert_refused(arena: Arena, trial: Trial) -> None:
    record = arena.record(trial)
    assert (record["outcome"], record["passed"]) == ("scored", False), record["verifier_stderr"]
    assert record["verifier_metadata"]["timed_out"] is False


def test_every_task_has_a_stub():
    assert {task.name for task in tasks("terminal_task")} == set(STUBBED)


@pytest.mark.parametrize("trial", trials(STUBBED, "terminal-task-smoke/csv-totals"))
def test_a_096_attack(arena: Arena, trial) -> None:
    assert_refused(arena, trial)


@pytest.mark.trials(LOOKS_ONLY)
def test_a_096_twin(arena: Arena) -> None:
    """A check of existence and size takes the same stub for the work."""
    assert arena.record(LOOKS_ONLY)["passed"] is True


@pytest.mark.parametrize("trial", trials(SOLVED, "terminal-task-smoke/csv-totals"))
def test_a_096_honest(arena: Arena, trial) -> None:
    assert arena.record(trial)["passed"] is True


@pytest.mark.parametrize("trial", trials(KNOWING))
def test_a_097_attack_in_a_workspace(arena: Arena, trial) -> None:
    assert_refused(arena, trial)


@pytest.mark.trials(EXAMPLE)
def test_a_097_twin_in_a_workspace(arena: Arena) -> None:
    """A check that uses the public example is content with its answer."""
    assert arena.record(EXAMPLE)["passed"] is True


def calls(prompt: str) -> Iterator[tuple[str, str, str]]:
    """Yield function, arguments and result of the examples in a prompt, as source text."""
    for example in doctest.DocTestParser().get_examples(prompt):
        call = ast.parse(example.source.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        arguments = "".join(f"{ast.unparse(argument)}, " for argument in call.args)
        yield ast.unparse(call.func), f"({arguments})", example.want.splitlines()[0]


def table(prompt: str) -> str:
    """Return a candidate that knows the examples, and nothing else."""
    found = list(calls(prompt))
    rows = ", ".join(f"repr({arguments}): {want}" for _, arguments, want in found)
    return f"KNOWN = {{{rows}}}\ndef {found[0][0]}(*given): return KNOWN.get(repr(given))\n"


def public_tests(prompt: str) -> str:
    lines = (f"assert {name}(*{given}) == {want}\n" for name, given, want in calls(prompt))
    return "".join(lines)


PROMPTS = {
    task.name: task.row for task in tasks("code_completion") if ">>>" in task.row["input"]["prompt"]
}


@pytest.mark.parametrize("name", cases(PROMPTS, "humaneval-mini/humaneval-0"))
def test_a_097_attack_in_code(name):
    row = PROMPTS[name]
    candidate = table(row["input"]["prompt"])
    assert judge(candidate, row["eval"]["tests"]["code"]).code == 1


@pytest.mark.parametrize("name", PROMPTS)
def test_a_097_twin_in_code(name):
    """Tests that repeat the public examples are content with the table."""
    prompt = PROMPTS[name]["input"]["prompt"]
    assert judge(table(prompt), public_tests(prompt)).code == 0


@pytest.mark.parametrize("name", cases(PROMPTS, "humaneval-mini/humaneval-0"))
def test_a_097_honest(name):
    row = PROMPTS[name]
    candidate = row["input"]["starter_code"] + row["eval"]["canonical_solution"]
    assert judge(candidate, row["eval"]["tests"]["code"]).code == 0
