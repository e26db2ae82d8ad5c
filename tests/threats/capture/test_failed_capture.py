"""F6: a candidate whose capture or staging fails must not buy its agent another launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import attempt_step
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import LaunchBegun, LaunchLost
from securebench.run.state.history import run_history
from support.build import NOW
from support.manifest_samples import run_plan, text_task
from support.supervise_build import Edit
from threats.capture import trap_agents as live
from threats.capture.bundles import entries, sealed_tree, unpack
from threats.honest import assert_passed
from threats.kit.arena import Arena
from threats.kit.canaries import canary
from threats.kit.program import STAGING_FAILED

HIDDEN = "securebench/evaluation_inputs/answer.txt"
REFUSES_LINKS = Edit(
    "staging/candidate.go",
    "return target.putLink(name, header.Linkname, state)",
    'return fmt.Errorf("link %q leads out", name)',
)
"""A decoder that refuses a candidate for one of its entries."""
KEEPS_LINKS = Edit("staging/links.go", 'if why[index] == "" {', "if true {")
TARGETS = (
    *("", ".", "..", "/", "l", "missing", "a/../b", "../../x", "./..//b/./c/", "x/../y/../z"),
    *("/etc/passwd", "/proc/1/environ", "/dev/stdin", "securebench/x", "d/securebench/x"),
    *("n" * 4095, "ä", "..\\x", ".../x"),
)


@pytest.fixture
def disputed(tmp_path: Path) -> Path:
    """A workspace with a link that leads out by its text and stays inside on the disk."""
    root = tmp_path / "workspace"
    (root / "a/b/c").mkdir(parents=True)
    (root / "x").symlink_to("a/b/c")
    (root / "l").symlink_to("x/../../..")
    (root / "answer.txt").write_text("42\n")
    return root


def test_a_370_attack_in_the_decoder(disputed: Path, tmp_path: Path) -> None:
    crossed = sealed_tree(disputed)

    assert (crossed.sealed.problem, crossed.sealed.dropped_entries) == (None, 0)
    assert unpack(crossed.content, tmp_path / "target").code == 0
    assert (tmp_path / "target/answer.txt").read_text() == "42\n"
    assert (tmp_path / "target/l").samefile(tmp_path / "target")


def test_a_370_attack_with_every_link(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    for number, target in enumerate(TARGETS):
        (root / str(number)).mkdir(parents=True)
        if target:
            (root / str(number) / "l").symlink_to(target)
    crossed = sealed_tree(root)

    assert crossed.sealed.dropped_entries == 0
    assert unpack(crossed.content, tmp_path / "target").code == 0


def test_a_370_twin_in_the_decoder(disputed: Path, tmp_path: Path) -> None:
    crossed = sealed_tree(disputed)

    assert unpack(crossed.content, tmp_path / "target", REFUSES_LINKS).code == STAGING_FAILED


@pytest.mark.short
@pytest.mark.trials(live.DISPUTED_WRONG)
def test_a_370_attack(arena: Arena) -> None:
    record = arena.record(live.DISPUTED_WRONG)

    assert (record["outcome"], record["passed"], record["launches"]) == ("scored", False, 1)


@pytest.mark.trials(live.DISPUTED_RIGHT)
def test_a_370_honest(arena: Arena) -> None:
    assert_passed(arena, live.DISPUTED_RIGHT)
    assert live.dropped(arena, live.DISPUTED_RIGHT) == 0


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """A workspace in which public files, copied over it, turn where a link leads."""
    root = tmp_path / "workspace"
    (root / "a/b").mkdir(parents=True)
    (root / "x").symlink_to("a/b")
    (root / "y").symlink_to(".")
    (root / "answer.txt").symlink_to(f"x/../{HIDDEN}")
    return root


def staged(bundle: bytes, folder: Path, secret: str, *edits: Edit) -> Path:
    """Unpack a bundle, copy a public file of the pack over it, and return its answer."""
    target = folder / "target"
    (target / HIDDEN).parent.mkdir(parents=True)
    (target / HIDDEN).write_text(secret)
    (folder / "public/x").mkdir(parents=True)
    (folder / "public/x/data.csv").write_text("1\n")
    copies = [{"source": str(folder / "public"), "to": str(target)}]
    protected = [str((target / HIDDEN).parent)]
    ended = unpack(bundle, target, *edits, copies=copies, protected=protected)
    assert ended.code == 0
    return target / "answer.txt"


def test_a_371_attack(turned: Path, tmp_path: Path) -> None:
    """Without the public file the link leads into the agent's own folder."""
    assert (turned / "answer.txt").resolve().is_relative_to(turned / "a")
    crossed = sealed_tree(turned)

    assert crossed.sealed.dropped_entries == 0
    assert not staged(crossed.content, tmp_path, canary()).is_symlink()


def test_a_371_twin(turned: Path, tmp_path: Path) -> None:
    secret = canary()

    answer = staged(sealed_tree(turned).content, tmp_path, secret, KEEPS_LINKS)

    assert answer.read_text() == secret


def test_a_371_honest(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    (root / "lib/deep").mkdir(parents=True)
    (root / "lib/libx.so.1").write_text("library")
    (root / "lib/libx.so").symlink_to("libx.so.1")
    (root / "lib/deep/up").symlink_to("../../lib/libx.so")
    (root / "lib64").symlink_to("lib")

    crossed = sealed_tree(root)

    assert crossed.sealed.dropped_entries == 0
    assert unpack(crossed.content, tmp_path / "target").code == 0
    assert (tmp_path / "target/lib/deep/up").read_text() == "library"
    assert (tmp_path / "target/lib64/libx.so").read_text() == "library"


@pytest.mark.short
@pytest.mark.trials(live.LONG_NAMES)
def test_a_372_attack(arena: Arena) -> None:
    record = arena.record(live.LONG_NAMES)

    seen = (record["outcome"], record["failure_reason"], record["launches"])
    assert seen == ("agent", "candidate_too_large", 1)
    assert record["passed"] is False


def test_a_372_twin(tmp_path: Path) -> None:
    """Without the bound the names cross, and whoever lists them has all of them in memory."""
    long = "/".join(["n" * 240] * 15)
    (tmp_path / long).mkdir(parents=True)
    for number in range(100):
        (tmp_path / long / f"{number}").touch()
    bound = "maxNamesBytes = 32 << 20"
    lower = Edit("untrusted/walk.go", bound, f"maxNamesBytes = {100 * len(long) // 2}")
    assert sealed_tree(tmp_path, lower).sealed.problem is not None

    listed = entries(
        sealed_tree(tmp_path, Edit("untrusted/walk.go", bound, "maxNamesBytes = 1 << 40")).content
    )
    assert sum(map(len, listed)) > 100 * len(long)


@pytest.mark.trials(live.MANY_FILES)
def test_a_372_honest(arena: Arena) -> None:
    assert_passed(arena, live.MANY_FILES)


@pytest.mark.short
@pytest.mark.parametrize("number", range(2))
@pytest.mark.trials(*(trial for wrong, beside, _ in live.SPOILED for trial in (wrong, beside)))
def test_a_373_attack(arena: Arena, number: int) -> None:
    wrong, _, phase = live.SPOILED[number]

    record = arena.record(wrong)

    seen = (record["outcome"], record["failure_reason"], record["failure_phase"])
    assert seen == ("agent", "candidate_invalid", phase), record["failure_message"]
    assert (record["passed"], record["launches"]) == (False, 2)


def without_suspicion(lost: Lost) -> Lost:
    return replace(lost, is_suspect=False)


def test_a_373_twin() -> None:
    """Where every loss is the cluster's, the attempt leaves the pass rate."""
    lost = Lost(LaunchKey(0, 1, Role.HARNESS, 1), "extraction_failed", "x", NOW, is_suspect=True)
    ends = {}
    for kind in (without_suspicion, lambda known: known):
        plan = run_plan(text_task())
        entries = []
        for number in range(1, plan.policy.infrastructure_retries + 2):
            launch = lost.launch._replace(launch=number)
            entries += [LaunchBegun(launch, NOW), LaunchLost(kind(replace(lost, launch=launch)))]
        history = run_history(plan, entries).attempts[AttemptKey(0, 1)]
        step = attempt_step(plan, history, None, NOW)
        assert isinstance(step, Finish)
        ends[kind] = step.outcome
    assert list(ends.values()) == [Outcome.INFRASTRUCTURE, Outcome.AGENT]


@pytest.mark.parametrize("number", range(2))
@pytest.mark.trials(*(beside for _, beside, _ in live.SPOILED))
def test_a_373_honest(arena: Arena, number: int) -> None:
    _, beside, _ = live.SPOILED[number]

    assert_passed(arena, beside)
    assert arena.record(beside)["launches"] == 1
