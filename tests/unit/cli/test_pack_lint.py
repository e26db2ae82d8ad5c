"""`pack lint` for editors and for people who write a pack: JSON, hints, after each change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli_shell import Shell


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
