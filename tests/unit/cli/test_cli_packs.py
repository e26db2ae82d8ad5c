from __future__ import annotations

import re
from pathlib import Path

from securebench.files import tree_digest
from support.cli_shell import Shell
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
