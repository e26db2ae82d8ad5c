"""``securebench verify`` on a folder, and on a run of a namespace."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from securebench.client.results import HANDED_ON
from securebench.controller.volume.folders import run_folder
from securebench.protocol.volume import STATEMENT
from support.cli_shell import Shell
from support.operator_world import World, opened
from support.sealed_runs import OPERATOR, SIGNING, handed_on, place_key

RUN = "nightly"


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two operators, one after the other: its journal has two files."""
    root = tmp_path_factory.mktemp("volume")
    place_key(root / "signing")
    with opened(World, root, signing=SIGNING, signing_root=root / "signing") as world:
        uid = world.apply(RUN, runId="smoke", isolation={"require": "Declared"})
        world.restart()
        world.observe(None, RUN)
        world.work(uid)
    assert len(list((root / run_folder(uid)).glob("journal*.jsonl"))) == 2
    return root, uid


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "operator.pub.pem"
    path.write_bytes(OPERATOR.public)
    return str(path)


@pytest.fixture
def folder(volume: tuple[Path, str], tmp_path: Path) -> Path:
    return handed_on(*volume, tmp_path / "sealed")


def test_a_folder_that_holds(shell: Shell, folder: Path, key: str) -> None:
    end = shell("verify", str(folder), "--key", key)
    assert end.code == 0
    name = OPERATOR.key.keyid[:12]
    assert end.stdout.startswith(
        f"securebench: run={RUN} holds=yes signed_by={name} records=2 launches=4 seconds="
    )


def test_a_folder_that_does_not_hold(shell: Shell, folder: Path, key: str) -> None:
    path = folder / "candidates.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"passed": true', b'"passed": false', 1))
    end = shell("verify", str(folder), "--key", key)
    assert end.code == 1
    want = "error: candidates.jsonl, line 1, task 0, attempt 1: is not the record that was written"
    assert want in end.stdout
    assert f"run={RUN} holds=no" in end.stdout


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_to_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", sorted({*HANDED_ON, "journal.jsonl"}))
@pytest.mark.parametrize("make", [fifo, link_to_a_device])
def test_a_folder_with_something_else_than_a_file(
    shell: Shell, folder: Path, key: str, name: str, make: Callable[[Path], None]
) -> None:
    (folder / name).touch()
    make(folder / name)
    end = shell("verify", str(folder), "--key", key)
    assert (end.code, "not a regular file" in end.stdout) == (1, True)


SPOOFED = "nightly holds=yes signed_by=operator records=2 launches=4"


def test_a_name_that_nobody_vouches_for_is_no_result_line(
    shell: Shell, folder: Path, key: str
) -> None:
    path = folder / STATEMENT
    envelope = json.loads(path.read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["run"]["name"] = f"{SPOOFED}\x1b[8m\n"
    statement["predicate"]["attempts"]["finished"] = f"2 {SPOOFED}"
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    path.write_text(json.dumps(envelope, sort_keys=True) + "\n")
    end = shell("verify", str(folder), "--key", key)
    (line,) = [each for each in end.stdout.splitlines() if each.startswith("securebench: run=")]
    assert line.startswith(f'securebench: run="{SPOOFED}\\u001b[8m\\n" holds=no signed_by=nobody')
    assert "records=0" in line


def test_findings_as_json(shell: Shell, folder: Path, key: str) -> None:
    (folder / "run.json").unlink()
    end = shell("verify", str(folder), "--key", key, "-o", "json")
    found = json.loads(end.stdout)
    assert (end.code, found["holds"], found["signed_by"]) == (1, False, [OPERATOR.key.keyid])
    assert found["findings"] == [{"file": "run.json", "place": "", "problem": "is missing"}]
    assert found["predicate"]["run"]["name"] == RUN


def test_without_a_key_nothing_is_proven(shell: Shell, folder: Path) -> None:
    end = shell("verify", str(folder))
    assert end.code == 1
    assert "give the operator's public key with --key, or --unsigned" in end.stdout
    end = shell("verify", str(folder), "--unsigned")
    assert end.code == 0
    assert "holds=yes signed_by=nobody" in end.stdout


def test_a_file_that_is_no_key(shell: Shell, folder: Path) -> None:
    odd = folder / "run.json"
    end = shell("verify", str(folder), "--key", str(odd))
    assert (end.code, "run.json holds no public key in PEM" in end.stdout) == (1, True)
    end = shell("verify", str(folder), "--key", "absent.pem")
    assert (end.code, "absent.pem: No such file" in end.stdout) == (1, True)


def test_a_run_is_fetched_and_handed_on(
    shell: Shell, volume: tuple[Path, str], key: str, tmp_path: Path
) -> None:
    shell.namespace.root = volume[0]
    end = shell("verify", RUN, "--key", key, "--output-dir", "out")
    assert (end.code, f"run={RUN} holds=yes" in end.stdout) == (0, True), end.stdout
    assert "the checked files are in " in end.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(HANDED_ON)
    again = shell("verify", "./out", "--key", key)
    assert (again.code, "journal.jsonl is not here" in again.stderr) == (0, True)
    assert shell("verify", RUN, "--key", key, "--output-dir", "all", "--journal").code == 0
    assert (tmp_path / "all" / "journal.jsonl").exists()


def test_a_run_whose_files_are_those_of_another(
    shell: Shell, volume: tuple[Path, str], key: str, tmp_path: Path
) -> None:
    """Everything of one run lies where the results of another should."""
    root = tmp_path / "copy"
    shutil.copytree(volume[0], root)
    (root / run_folder(volume[1])).rename(root / run_folder("0a"))
    index = root / "runs" / "index.jsonl"
    index.write_text(index.read_text().replace(f'"uid": "{volume[1]}"', '"uid": "0a"'))
    shell.namespace.root = root
    end = shell("verify", RUN, "--key", key)
    assert (end.code, "is about another run than 0a" in end.stdout) == (1, True)


def test_a_run_that_has_not_ended(shell: Shell, volume: tuple[Path, str], tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(volume[0], root)
    (root / run_folder(volume[1]) / "statement.dsse.json").unlink()
    shell.namespace.root = root
    end = shell("verify", RUN, "--unsigned")
    assert (end.code, "statement.dsse.json: is missing" in end.stdout) == (1, True)
