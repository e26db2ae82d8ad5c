"""Commands about packs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.client.starter import init
from securebench.files import tree_digest
from support.cli_shell import Outcome, Shell
from support.fake_operator import write_pack


def test_lint_of_a_good_pack(shell: Shell) -> None:
    result = shell("pack", "lint", "--config", str(shell.yaml))
    assert result.code == 0
    assert "warning: " in result.stdout
    assert "environment.image has no digest" in result.stdout
    assert result.last == "securebench: pack lint errors=0 warnings=1"
    assert shell("pack", "lint", "--config", str(shell.yaml), "--strict").code == 1


def test_lint_of_a_bad_pack(shell: Shell) -> None:
    pack = shell.folder / "pack"
    (pack / "tasks.jsonl").write_text('{"id": "a"}\nx\n')
    files = ("--manifest", str(pack / "manifest.yaml"), "--tasks", str(pack / "tasks.jsonl"))
    result = shell("pack", "lint", *files)
    assert result.code == 1
    assert f"securebench: error: {pack}/tasks.jsonl:2: invalid JSON" in result.stdout


def test_lint_warns_about_names_that_look_like_secrets(shell: Shell) -> None:
    shell.yaml.write_text(
        shell.yaml.read_text().replace("type: command", "type: command\n  env: [MY_TOKEN]")
    )
    result = shell("pack", "lint", "--config", str(shell.yaml))
    assert "harness.env 'MY_TOKEN' looks like a secret" in result.stdout


def test_lint_needs_a_pack(shell: Shell) -> None:
    result = shell("pack", "lint")
    assert (result.code, result.last) == (
        1,
        "securebench: error: name the pack with --config, or with --manifest and --tasks",
    )


def test_push_and_show(shell: Shell) -> None:
    first = shell("pack", "push", "--config", str(shell.yaml))
    assert first.code == 0
    match = re.fullmatch(
        r"securebench: pack capitals path=(capitals-[0-9a-f]{12}) digest=sha256:[0-9a-f]{64}"
        r" uploaded=true",
        first.last,
    )
    assert match is not None
    assert shell("pack", "push", "--config", str(shell.yaml)).last.endswith("uploaded=false")
    shown = shell("pack", "show", match[1])
    assert shown.code == 0
    assert shown.last.startswith(f"securebench: pack {match[1]} content=sha256:")
    content = shown.last.split()[3]
    named = shell("pack", "push", "--config", str(shell.yaml), "--name", "mine")
    assert "path=mine " in named.last
    assert (shell.namespace.root / "packs" / "mine" / "manifest.yaml").exists()
    assert content in shell("pack", "show", "--config", str(shell.yaml)).stdout


def test_show_of_a_local_pack_and_of_none(shell: Shell) -> None:
    shown = shell("pack", "show", "--config", str(shell.yaml))
    assert shown.code == 0
    assert shown.stdout.splitlines()[1:] == [
        (
            f"securebench: content={tree_digest(shell.folder / 'pack')} files=2"
            f" size_bytes={_size(shell.folder / 'pack')} tasks=3"
        ),
        "securebench: short_answer=3",
    ]
    none = shell("pack", "show", "nothing")
    assert (none.code, none.last) == (
        1,
        "securebench: error: there is no pack 'nothing' on the results volume",
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_push_refuses_a_bad_pack_and_name(shell: Shell) -> None:
    bad_name = shell("pack", "push", "--config", str(shell.yaml), "--name", "../x")
    assert bad_name.code == 1
    assert "is no pack name" in bad_name.last
    write_pack(shell.folder, tasks=("a", "a"))
    bad_pack = shell("pack", "push", "--config", str(shell.yaml))
    assert bad_pack.code == 1
    assert "duplicate task id 'a'" in bad_pack.last


def lint(shell: Shell, *flags: str) -> list[dict[str, object]]:
    result = shell("pack", "lint", "--config", str(shell.yaml), "-o", "json", *flags)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_of_a_good_pack(shell: Shell) -> None:
    (found,) = lint(shell)
    assert found == {
        "errors": 0,
        "warnings": 1,
        "findings": [
            {
                "severity": "warning",
                "path": str(shell.folder / "pack/manifest.yaml"),
                "line": 5,
                "rule": "image-digest",
                "message": "environment.image has no digest; its tag may move",
                "hint": "write name@sha256:<64 hex digits>",
            }
        ],
    }


def test_json_of_a_tester_yaml_that_does_not_hold(shell: Shell) -> None:
    shell.yaml.write_text(shell.yaml.read_text().replace("run:", "runs:"))
    result = shell("pack", "lint", "--config", str(shell.yaml), "-o", "json")
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["path"], finding["line"], finding["hint"]) == (str(shell.yaml), 2, None)
    assert finding["message"] == "root contains unsupported field(s): runs, did you mean 'run'?"
    assert result.code == 1


def test_json_of_a_harness_that_does_not_hold(shell: Shell) -> None:
    shell.yaml.write_text(shell.yaml.read_text().replace("command: ", "comand: "))
    (found,) = lint(shell)
    places = [(item["path"], item["line"]) for item in found["findings"]]  # type: ignore[attr-defined]
    assert places[0] == (str(shell.yaml), 6)


def test_a_warning_says_what_to_do(shell: Shell) -> None:
    (shell.folder / "pack/manifest.yaml").write_text(
        (shell.folder / "pack/manifest.yaml").read_text() + "owner: me\n"
    )
    result = shell("pack", "lint", "--config", str(shell.yaml))
    want = "unknown manifest key 'owner'; remove it; notes of your own belong in a row's metadata\n"
    assert want in result.stdout


def test_reference_answers_that_an_audit_would_refuse_are_warnings(shell: Shell) -> None:
    answers = shell.folder / "pack/oracle/answers.jsonl"
    answers.parent.mkdir()
    answers.write_text('{"id": "a", "candidate": "x"}\n{"id": "bb", "candidate": "x"}\n')
    result = shell("pack", "lint", "--config", str(shell.yaml))
    assert result.code == 0
    assert [line for line in result.stdout.splitlines() if "answers.jsonl" in line] == [
        f"securebench: warning: {answers}:2: the pack has no task 'bb'",
        f"securebench: warning: {answers}: there is no answer for task 'b'",
        f"securebench: warning: {answers}: there is no answer for task 'c'",
    ]


def test_what_rows_that_do_not_hold_are_is_not_guessed(shell: Shell, tmp_path: Path) -> None:
    text = shell.yaml.read_text()
    changed = text.replace("{command: ", "{extraction: git_diff, command: ")
    assert changed != text
    shell.yaml.write_text(changed)
    tasks = shell.folder / "pack/tasks.jsonl"
    audit = ("audit", "--config", str(shell.yaml), "--static", "--output-dir", str(tmp_path / "o"))
    (found,) = lint(shell)
    assert (found["errors"], "the pack has none" in str(found)) == (0, True)
    assert "the pack has none" in shell(*audit).stdout
    tasks.write_text(tasks.read_text() + "x\n")
    (found,) = lint(shell)
    assert (found["errors"], "the pack has none" in str(found)) == (1, False)
    assert "the pack has none" not in shell(*audit).stdout


def test_a_folder_stands_for_its_tester_yaml(shell: Shell) -> None:
    shell.yaml.rename(shell.folder / "tester.yaml")
    want = shell("pack", "lint", "--config", str(shell.folder / "tester.yaml"))
    assert "errors=0" in want.last
    assert shell("pack", "lint", "--config", str(shell.folder)) == want
    assert shell("pack", "lint", str(shell.folder)) == want
    missing = shell("pack", "lint", str(shell.folder / "pack"))
    assert f"{shell.folder / 'pack/tester.yaml'}: cannot be read: No such file" in missing.stdout


def test_what_an_upload_refuses_is_an_error_of_every_command(shell: Shell, tmp_path: Path) -> None:
    fifo, link = shell.folder / "pack/assets/pipe", shell.folder / "pack/assets/link"
    fifo.parent.mkdir(exist_ok=True)
    os.mkfifo(fifo)
    link.symlink_to("/etc/passwd")
    only = "packs hold files and folders only"
    want = [
        f"securebench: error: {link}: is a symlink: replace it by the file; {only}",
        f"securebench: error: {fifo}: is a FIFO; {only}",
    ]
    config = ("--config", str(shell.yaml))
    for command in (("pack", "lint"), ("pack", "push"), ("pack", "show"), ("run",)):
        result = shell(*command, *config)
        assert [line for line in result.stdout.splitlines() if "packs hold" in line] == want
        assert result.code == 1
    result = shell("audit", "--static", "--output-dir", str(tmp_path / "o"), *config)
    assert (result.stdout.count("packs hold"), result.code) == (2, 1)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("t.jsonl"), os.mkfifo])
def test_a_task_file_that_is_no_file_is_an_error_of_every_command(
    shell: Shell, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    tasks = shell.folder / "pack/tasks.jsonl"
    tasks.rename(tasks.with_name("t.jsonl"))
    make(tasks)
    config = ("--config", str(shell.yaml))
    for command in (("pack", "lint"), ("pack", "push"), ("pack", "show"), ("run",)):
        result = shell(*command, *config)
        assert f"securebench: error: {tasks}: is a " in result.stdout
        assert result.code == 1
    result = shell("audit", "--static", "--output-dir", str(tmp_path / "o"), *config)
    assert (result.stdout.count("packs hold"), result.code) == (1, 1)


@pytest.mark.parametrize(
    "further", [["--config", "o.yaml"], ["--manifest", "m.yaml"], ["--tasks", "t.jsonl"]]
)
def test_two_ways_to_name_the_pack_are_wrong_usage(shell: Shell, further: list[str]) -> None:
    result = shell("pack", "lint", str(shell.folder), *further)
    assert (result.code, result.stdout) == (2, "")
    assert "name one pack" in result.stderr


@pytest.fixture
def watched(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return what a watch says: the errors of each check, while steps go on between the looks."""

    def watch(*steps: Callable[[], object]) -> list[int]:
        waiting = iter(steps)

        def step(_seconds: float) -> None:
            try:
                next(waiting)()
            except StopIteration:
                raise KeyboardInterrupt from None

        monkeypatch.setattr(time, "sleep", step)
        return [int(str(found["errors"])) for found in lint(shell, "--watch")]

    return watch


def test_watch_lints_again_after_a_change_and_only_then(
    shell: Shell, watched: Callable[..., list[int]]
) -> None:
    tasks = shell.folder / "pack/tasks.jsonl"
    good = tasks.read_text()
    steps = (
        lambda: None,
        lambda: tasks.write_text(f"{good}x\n"),
        lambda: None,
        lambda: tasks.write_text(good),
        tasks.unlink,
        lambda: tasks.write_text(good),
    )
    assert watched(*steps) == [0, 1, 0, 1, 0]


def test_watch_sees_a_save_of_the_same_length(
    shell: Shell, watched: Callable[..., list[int]]
) -> None:
    later = time.time_ns() + 10**9
    assert watched(lambda: os.utime(shell.yaml, ns=(later, later))) == [0, 0]


def test_watch_goes_on_when_the_tester_yaml_breaks(
    shell: Shell, watched: Callable[..., list[int]]
) -> None:
    good = shell.yaml.read_text()
    steps = (lambda: shell.yaml.write_text("runs: 1"), lambda: shell.yaml.write_text(good))
    broken, mended = watched(*steps)[1:]
    assert (broken > 0, mended) == (True, 0)


def test_watch_sees_assets_and_not_results(shell: Shell, watched: Callable[..., list[int]]) -> None:
    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")

    text = shell.yaml.read_text().replace("output_dir: out", "output_dir: pack/out")
    assert "pack/out" in text
    shell.yaml.write_text(text)
    steps = (
        lambda: write(shell.folder / "pack/out/candidates.jsonl"),
        lambda: write(shell.folder / "pack/assets/x.txt"),
    )
    assert watched(*steps) == [0, 0]


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
