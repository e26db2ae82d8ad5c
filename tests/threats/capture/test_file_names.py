"""F6: names that lead out, and names that are more than names to a careless reader."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from securebench.benchmark.patch.candidate_policy import CandidatePolicy, PathDecision
from securebench.benchmark.patch.judgement import PatchProblem, judge_patch
from threats.capture import trap_agents as live
from threats.capture.bundles import (
    archived,
    contents,
    entries,
    member,
    naive_unpack,
    sealed_tree,
    unpack,
)
from threats.capture.patch_texts import naive_apply, new_file
from threats.kit.arena import Arena
from threats.kit.program import STAGING_FAILED

PAYLOAD = "planted\n"
LEADING_OUT = (
    "../outside/x",
    "../../box/outside/x",
    "a/../../outside/x",
    "./../outside/x",
    "a/b/../../../outside/x",
    "a/./../../outside/x",
    "a//..//../outside/x",
    "./a/../../outside/x",
    ".././outside/x",
    "..//outside/x",
)
"""Seen from the folder ``box/root``, every one means ``box/outside/x``."""
UNCLEAN = ("./x", "a/./x", "a//x", "a/../x", "a/..", "..", ".", "/", "//x")
"""They need not lead out, and yet they are no names of our own making."""
ONLY_NAMES = ("C:\\x", "C:/x", "..\\outside\\x", "\\x", "\\\\host\\share\\x", "a\\..\\..\\x")
"""Here they are names like others; they must stay below the root."""
ANY = CandidatePolicy.of({"allow_sensitive_paths": ["*"]})


@pytest.fixture
def box(tmp_path: Path) -> Path:
    box = tmp_path / "box"
    (box / "outside").mkdir(parents=True)
    (box / "outside/x").write_text("guarded\n")
    (box / "root").mkdir()
    return box


def absolute(box: Path) -> str:
    return str(box / "outside/x")


def refused(box: Path, name: str) -> bool:
    """Unpack an entry of this name; tell whether it was refused with nothing done outside."""
    before = contents(box / "outside")
    ended = unpack(archived(member(name, PAYLOAD.encode())), box / "root")
    assert contents(box / "outside") == before
    return ended.code == STAGING_FAILED and not contents(box / "root")


@pytest.mark.parametrize("name", [*LEADING_OUT, *UNCLEAN])
def test_a_103_attack_in_an_archive(box: Path, name: str) -> None:
    assert refused(box, name)


def test_a_103_attack_in_an_archive_by_an_absolute_name(box: Path) -> None:
    assert refused(box, absolute(box))
    assert refused(box, "/" + absolute(box))


@pytest.mark.parametrize("name", ONLY_NAMES)
def test_a_103_attack_in_an_archive_by_a_foreign_name(box: Path, name: str) -> None:
    assert not refused(box, name)

    assert contents(box / "root")[name] == PAYLOAD.encode()


@pytest.mark.parametrize("name", [*LEADING_OUT, "absolute"])
def test_a_103_twin_in_an_archive(box: Path, name: str) -> None:
    (box / "root/a/b").mkdir(parents=True)
    name = absolute(box) if name == "absolute" else name

    naive_unpack(archived(member(name, PAYLOAD.encode())), box / "root")

    assert (box / "outside/x").read_text() == PAYLOAD


@pytest.mark.parametrize("name", [*LEADING_OUT, *UNCLEAN, "/etc/x"])
def test_a_103_attack_in_a_patch(name: str) -> None:
    judged = judge_patch(new_file(name, PAYLOAD), ANY)

    assert judged.problem is PatchProblem.POLICY
    assert judged.denied == {name: PathDecision.HARD_DENIED}


@pytest.mark.parametrize("name", ["\\x", "a\\..\\..\\x"])
def test_a_103_attack_in_a_patch_by_a_foreign_name(name: str) -> None:
    """Git would quote it."""
    assert judge_patch(new_file(name, PAYLOAD), ANY).problem is PatchProblem.NONCANONICAL


@pytest.mark.parametrize("name", [*LEADING_OUT, "absolute"])
def test_a_103_twin_in_a_patch(box: Path, name: str) -> None:
    (box / "root/a/b").mkdir(parents=True)
    name = absolute(box) if name == "absolute" else name

    naive_apply(new_file(name, PAYLOAD), box / "root")

    assert PAYLOAD in (box / "outside/x").read_text()


def test_a_103_honest(box: Path) -> None:
    names = ["a", "..a", "a..", "...", "a/b/c", "a b", ".hidden", "ü", "a/..b"]
    files = [member(name, PAYLOAD.encode()) for name in names if name != "a"]

    assert unpack(archived(*files), box / "root").code == 0
    assert {"..a", "a..", "...", "a/b/c", "a b", "ü"} <= set(contents(box / "root"))
    assert judge_patch(new_file("a/b..c", PAYLOAD), ANY).problem is None


TRAPS = (*live.NAMES, "--checkpoint=1", "--checkpoint-action=exec=sh -c 'touch marker'")


@pytest.fixture
def named(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    for name in TRAPS:
        (root / name).write_text(name)
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_text("no text")
    return root


def test_a_110_attack_in_the_collector(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(named.parent)

    crossed = sealed_tree(named)

    assert sorted(entries(crossed.content)) == sorted(TRAPS)
    assert crossed.sealed.dropped_entries == 1
    assert not list(named.parent.rglob("marker"))


def test_a_110_attack_in_the_decoder(named: Path) -> None:
    target = named.parent / "target"

    assert unpack(sealed_tree(named).content, target).code == 0

    assert contents(target) == {name: name.encode() for name in TRAPS}
    assert not list(named.parent.rglob("marker"))


def test_a_110_twin_by_a_shell(named: Path) -> None:
    (named / "-rf").unlink()
    (named / "--help").unlink()

    subprocess.run(["sh", "-c", "tar -cf ../made.tar *"], cwd=named, check=False)

    assert (named / "marker").exists()


def test_a_110_twin_by_lines(named: Path) -> None:
    listed = subprocess.run(["ls", "-1", "--", named], check=True, capture_output=True).stdout

    assert b"PASS" in listed.splitlines()


@pytest.mark.trials(live.NAMED)
def test_a_110_attack(arena: Arena) -> None:
    found = entries(live.bundle(arena, live.NAMED))

    assert set(found) == {*live.NAMES, "answer.txt", "task.json"}
    assert live.dropped(arena, live.NAMED) == 1
    assert set(live.shown(arena, live.NAMED)) >= set(found)
    assert "marker" not in live.shown(arena, live.NAMED)
