"""`pack show` of a local pack: what the agent will see, and what only the verifier sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.client.starter import init
from support.cli_shell import Outcome, Shell

SECRET = "secret-of-the-row"


@pytest.fixture
def terminal(tmp_path: Path) -> Path:
    init(tmp_path / "t", "terminal_task", "command")
    return tmp_path / "t/tester.yaml"


def shown(shell: Shell, config: Path, *flags: str) -> dict[str, object]:
    result = shell("pack", "show", "--config", str(config), "-o", "json", *flags)
    assert result.code == 0, result.stdout
    return json.loads(result.stdout)


def paths(side: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {file["path"]: file["read_only"] for file in side["files"]}


def test_both_sides_of_a_workspace(shell: Shell, terminal: Path) -> None:
    summary = shown(shell, terminal, "--task", "count-errors")
    assert summary["families"] == {"terminal_task": 2}
    (task,) = summary["tasks"]  # type: ignore[misc]
    assert paths(task["agent"]) == {
        "/workspace/securebench/public/instructions.json": False,
        "/workspace/server.log": True,
        "/workspace/task.json": False,
    }
    assert paths(task["evaluation_inputs"]) == {
        "securebench/evaluation_inputs/checker.json": True,
        "securebench/evaluation_inputs/check-count.sh": True,
    }
    assert task["hidden"] == {"values": {}, "files": []}
    (log,) = (file for file in task["agent"]["files"] if file["path"].endswith("server.log"))
    assert log["size_bytes"] == (terminal.parent / "assets/server.log").stat().st_size
    assert (task["agent_seconds"], task["check_seconds"], task["network"]) == (60, 60, [])
    assert task["candidate"] == {"kind": "workspace", "from": "workspace", "path": None}


def test_a_folder_counts_its_files(shell: Shell, terminal: Path) -> None:
    folder = terminal.parent
    (folder / "assets/logs/old").mkdir(parents=True)
    (folder / "assets/logs/a").write_text("12345")
    (folder / "assets/logs/old/b").write_text("12")
    row = json.loads((folder / "tasks.jsonl").read_text().splitlines()[0])
    row["assets"] = [{"path": "logs", "read_only": False}]
    (folder / "tasks.jsonl").write_text(json.dumps(row))
    (task,) = shown(shell, terminal, "--all")["tasks"]  # type: ignore[misc]
    (logs,) = (file for file in task["agent"]["files"] if file["path"] == "/workspace/logs")
    assert (logs["files"], logs["size_bytes"], logs["read_only"]) == (2, 7, False)


def test_the_agents_side_has_nothing_of_eval(shell: Shell) -> None:
    tasks = shell.folder / "pack/tasks.jsonl"
    tasks.write_text(tasks.read_text().replace('"x"', f'"{SECRET}"'))
    for task in shown(shell, shell.yaml, "--all")["tasks"]:  # type: ignore[attr-defined]
        assert SECRET in json.dumps(task["hidden"])
        assert SECRET not in json.dumps(task["agent"])
        assert not any("evaluator" in str(path) for path in paths(task["agent"]))


def test_what_the_tester_chose_is_shown(shell: Shell) -> None:
    text = shell.yaml.read_text()
    head = text[: text.index("harness:")]
    shell.yaml.write_text(f"{head}harness: {{type: codex, config: {{model: gpt-5}}}}\n")
    (task,) = shown(shell, shell.yaml, "--task", "#1")["tasks"]  # type: ignore[misc]
    assert task["id"] == "b"
    assert task["network"] == ["api.openai.com"]
    assert task["candidate"] == {"kind": "text", "from": "file", "path": "candidate.txt"}


def text_of(shell: Shell, *flags: str) -> Outcome:
    return shell("pack", "show", "--config", str(shell.yaml), *flags)


def test_the_text_stands_side_by_side(shell: Shell) -> None:
    (line,) = (line for line in text_of(shell, "--task", "a").stdout.splitlines() if "a?" in line)
    left, right = line.strip("│ ").split("│")
    assert left.strip() == "question: a?"
    assert right.strip() == 'accepted_answers [hidden]: ["x"]'


def test_a_long_path_is_not_cut(terminal: Path) -> None:
    words = ["pack", "show", "--config", str(terminal), "--task", "count-errors"]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "80"}).stdout
    right = "".join(line.split("│")[2].strip() for line in said.splitlines() if "│" in line)
    assert "securebench/evaluation_inputs/check-count.sh" in right
    assert "hands in: workspace " in said


def test_hostile_text_stays_text(shell: Shell) -> None:
    tasks = shell.folder / "pack/tasks.jsonl"
    row = {"id": "e\x1b[31m", "input": {"question": "[red]\x1b]0;x\x07\u202e"}}
    tasks.write_text(json.dumps({**row, "eval": {"accepted_answers": ["x"]}}))
    said = text_of(shell, "--all").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert "[red]" in said


def test_a_long_value_is_cut_and_says_so(shell: Shell) -> None:
    tasks = shell.folder / "pack/tasks.jsonl"
    row = {"id": "a", "input": {"question": "q" * 5000}, "eval": {"accepted_answers": ["x"]}}
    tasks.write_text(json.dumps(row))
    assert "(5000 characters)" in text_of(shell, "--all").stdout
    assert "q" * 5000 in json.dumps(shown(shell, shell.yaml, "--all"))


def test_without_a_tester_yaml(shell: Shell) -> None:
    pack = shell.folder / "pack"
    files = ("--manifest", str(pack / "manifest.yaml"), "--tasks", str(pack / "tasks.jsonl"))
    said = shell("pack", "show", *files, "--task", "a").stdout
    assert "harness: not chosen, starts in /workspace" in said


@pytest.mark.parametrize(
    ("flags", "code", "want"),
    [
        (("--task", "#7"), 1, "the pack has no task '#7'"),
        (("--task", "aa"), 1, "the pack has no task 'aa'"),
        (("--task", "d", "uploaded"), 2, ""),
    ],
)
def test_mistakes(shell: Shell, flags: tuple[str, ...], code: int, want: str) -> None:
    result = text_of(shell, *flags)
    assert result.code == code
    assert want in result.stdout


def test_json_of_an_uploaded_pack(shell: Shell) -> None:
    shell("pack", "push", "--config", str(shell.yaml), "--name", "mine")
    found = json.loads(shell("pack", "show", "mine", "-o", "json").stdout)
    local = shown(shell, shell.yaml)
    assert found == {
        "pack": "mine",
        "digest": local["content"],
        "files": local["files"],
        "size_bytes": local["size_bytes"],
    }


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["show", "mine", "--config", "c.yaml"], "on the results volume or a local one"),
        (["show", "mine", "--tasks", "t.jsonl"], "on the results volume or a local one"),
        (["show", "--config", "c.yaml", "--manifest", "m.yaml"], "name one pack"),
        (["push", "--config", "c.yaml", "--manifest", "m.yaml"], "name one pack"),
        (["build", "out", "--config", "c.yaml", "--tasks", "t.jsonl"], "name one pack"),
    ],
)
def test_two_packs_are_wrong_usage(shell: Shell, words: list[str], want: str) -> None:
    result = shell("pack", *words)
    assert (result.code, result.stdout) == (2, "")
    assert want in " ".join(result.stderr.split())
