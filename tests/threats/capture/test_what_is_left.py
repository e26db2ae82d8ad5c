"""F6: what an agent leaves must reach the check, and links, names and modes must buy it nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from securebench.protocol.candidate import CandidateBounds
from support.courier import Output, Sealed, SealingPlaces, seal
from support.supervise_build import Edit
from threats.capture import trap_agents as live
from threats.capture.bundles import WORKSPACE, sealed_tree, unpack
from threats.kit.arena import Arena
from threats.kit.canaries import canary
from threats.kit.program import STAGING_FAILED, Ended, run_supervise

HIDDEN = "securebench/evaluation_inputs/answer.txt"
JUDGES_NOTHING = Edit("staging/links.go", 'if why[index] == "" {', "if true {")
KEEPS_SET_ID = (
    Edit("untrusted/modes.go", "KeptModes = 0o1777", "KeptModes = 0o7777"),
    Edit("untrusted/walk.go", "if mode&setID != 0 {", "if false {"),
)
KUBELET_BYTES = 2048
"""What a container's message has room for where a Pod has six containers."""
STAGING_SECONDS = 60


@pytest.fixture
def secret() -> str:
    return canary()


def staged(root: Path, folder: Path, secret: str, *edits: Edit) -> Ended:
    """Seal a workspace and unpack it around the hidden answer."""
    target = folder / "target"
    (target / HIDDEN).parent.mkdir(parents=True)
    (target / HIDDEN).write_text(secret)
    (folder / "output").mkdir()
    return unpack(
        sealed_tree(root).content,
        target,
        *edits,
        protected=[str((target / HIDDEN).parent)],
        streams={"folder": str(folder / "output"), "head_bytes": 10, "tail_bytes": 10},
    )


ALIASES = {
    "directly": ((), HIDDEN),
    "absolute": ((), f"{{target}}/{HIDDEN}"),
    "by a link to the workspace": ((("here", "."),), f"here/here/{HIDDEN}"),
    "by a link to the folder": ((("half", "securebench"),), "half/evaluation_inputs/answer.txt"),
    "by steps up": ((), f"../target/sub/../{HIDDEN}"),
    "by its own folder's parent": ((("sub/up", ".."),), f"sub/up/{HIDDEN}"),
    "by the root of a process": ((), f"/proc/self/root{{target}}/{HIDDEN}"),
    "by the root of a thread": ((), f"/proc/thread-self/root{{target}}/{HIDDEN}"),
}


@pytest.fixture(params=ALIASES)
def aliased(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workspace whose answer is the hidden one."""
    links, target = ALIASES[request.param]
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    for name, leads in (*links, ("answer.txt", target.format(target=tmp_path / "target"))):
        (root / name).symlink_to(leads)
    return root


def test_a_412_attack(aliased: Path, tmp_path: Path, secret: str) -> None:
    ended = staged(aliased, tmp_path, secret)

    assert ended.code == 0
    assert not (tmp_path / "target/answer.txt").is_symlink()
    assert "answer.txt" in {each["path"] for each in ended.report["dropped"]}


def test_a_412_twin(aliased: Path, tmp_path: Path, secret: str) -> None:
    staged(aliased, tmp_path, secret, JUDGES_NOTHING)

    assert (tmp_path / "target/answer.txt").read_text() == secret


@pytest.mark.parametrize("target", ["/proc/self/cwd/answer", "/dev/stdin", "/nowhere/answer", "/"])
def test_a_412_attack_by_what_changes_later(tmp_path: Path, secret: str, target: str) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "answer.txt").symlink_to(target)

    assert staged(root, tmp_path, secret).report["dropped_entries"] == 1
    assert not (tmp_path / "target/answer.txt").is_symlink()


@pytest.mark.short
@pytest.mark.trials(*live.INTO_HIDDEN)
def test_a_412_attack_on_the_cluster(arena: Arena) -> None:
    for trial in live.INTO_HIDDEN:
        record = arena.record(trial)
        assert (record["outcome"], record["passed"]) == ("scored", False), trial
        assert "answer.txt (a link to" in record["failure_message"]


def test_a_412_honest_links(tmp_path: Path, secret: str) -> None:
    root = tmp_path / "workspace"
    (root / "releases/2").mkdir(parents=True)
    links = {
        "python": "/bin/sh",
        "current": f"{tmp_path}/target/releases/2",
        "history": "/dev/null",
        "later": "releases/3",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)

    assert "dropped" not in staged(root, tmp_path, secret).report
    made = {name: str((tmp_path / "target" / name).readlink()) for name in links}
    assert made == links


def test_a_413_attack(tmp_path: Path) -> None:
    """As many as a workspace may have, with names that write to a terminal."""
    for number in range(2000):
        os.mkfifo(tmp_path / f"\x1b[2J\u202e\n{number}{'x' * 150}")

    sealed = sealed_tree(tmp_path).sealed

    assert (sealed.problem, sealed.dropped_entries) == (None, 2000)
    assert 0 < len(json.dumps(sealed.dropped)) < KUBELET_BYTES // 2
    assert all(text.isprintable() for loss in sealed.dropped for text in loss)


def test_a_413_twin(tmp_path: Path) -> None:
    """Without the bounds the message outgrows what the kubelet keeps."""
    for number in range(100):
        os.mkfifo(tmp_path / f"\x1b[2J{number}")

    unbounded = (
        Edit("outcome/losses.go", "maxLosses = 20", "maxLosses = 1000"),
        Edit("outcome/losses.go", "lossesBytes = 1000", "lossesBytes = 1 << 20"),
    )
    with pytest.raises(json.JSONDecodeError):
        sealed_tree(tmp_path, *unbounded)


def test_a_413_honest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("x")

    assert sealed_tree(tmp_path).sealed.dropped == (("pipe", "a FIFO"),)


def worked(folder: Path, command: str, *edits: Edit) -> Ended:
    """Run an agent's command as the harness does."""
    for name in ("workspace", "output"):
        (folder / name).mkdir()
    phase = {"name": "main", "command": ["sh", "-c", command], "workdir": str(folder / "workspace")}
    streams = {"folder": str(folder / "output"), "head_bytes": 10, "tail_bytes": 10}
    opened = [str(folder / "workspace"), str(folder / "output")]
    return run_supervise({"phases": [phase], "streams": streams, "open_modes": opened}, *edits)


def sealed_after(folder: Path, *edits: Edit) -> Sealed:
    (folder / "candidate").mkdir()
    places = SealingPlaces(folder / "workspace", folder / "candidate", folder / "output")
    none = Output(b"", b"", 0)
    return seal(places, WORKSPACE, CandidateBounds(), (), none, *edits)


def modes_of(folder: Path, *edits: Edit) -> dict[str, str]:
    """Return the modes that the check sees."""
    bundle = (folder / "candidate/workspace.tar").read_bytes()
    assert unpack(bundle, folder / "target", *edits).code == 0
    return {
        str(path.relative_to(folder / "target")): oct(path.lstat().st_mode & 0o7777)
        for path in (folder / "target").rglob("*")
    }


FORGES = (
    "echo x > file; chmod 600 file; mkdir dir; chmod 1500 dir; rm -rf ../output/modes; "
    "printf '7777 file\\0' > ../output/modes"
)


def test_a_414_attack(tmp_path: Path) -> None:
    assert worked(tmp_path, FORGES).code == 0

    assert sealed_after(tmp_path).problem is None
    assert modes_of(tmp_path) == {"file": "0o600", "dir": "0o1500"}


def test_a_414_attack_after_supervise(tmp_path: Path) -> None:
    """Also a list that is not supervise's gives no set-id bit; a broken one is read to its end."""
    assert worked(tmp_path, "echo x > file; echo x > other").code == 0
    listed = b"7777 file\0nonsense\x00\xff other\x0099999 other\x00-1 other\x00" + b"0600 cut"
    (tmp_path / "output/modes").write_bytes(listed)

    sealed = sealed_after(tmp_path)

    assert sealed.dropped == (("file", "without its set-id bits"),)
    assert modes_of(tmp_path) == {"file": "0o1777", "other": "0o644"}


def test_a_414_attack_that_blocks(tmp_path: Path) -> None:
    """What stands in the way goes; what cannot go is the agent's own failure."""
    blocks = "mkdir -p ../output/modes/x; mkfifo ../output/modes/x/y; echo x > file; chmod 0 file"
    assert worked(tmp_path, blocks).code == 0
    assert sealed_after(tmp_path).problem is None
    assert modes_of(tmp_path) == {"file": "0o0"}

    deep = "cd ../output; i=0; while [ $i -lt 600 ]; do mkdir modes; cd -P modes; i=$((i+1)); done"
    (tmp_path / "again").mkdir()
    ended = worked(tmp_path / "again", deep)
    assert ended.code == STAGING_FAILED


def test_a_414_twin(tmp_path: Path) -> None:
    assert worked(tmp_path, "echo x > file; chmod 6755 file").code == 0
    assert sealed_after(tmp_path, *KEEPS_SET_ID).problem is None

    assert modes_of(tmp_path, *KEEPS_SET_ID) == {"file": "0o6755"}


def test_a_414_honest(tmp_path: Path) -> None:
    does = "umask 077; echo k > key; mkdir .ssh; echo p > .ssh/id; chmod 500 .ssh; chmod 750 ."
    does += "; ln key a"
    assert worked(tmp_path, does).code == 0

    assert sealed_after(tmp_path).dropped_entries == 0
    seen = {"key": "0o600", "a": "0o600", ".ssh": "0o500", ".ssh/id": "0o600"}
    assert modes_of(tmp_path) == seen
    assert oct((tmp_path / "target").stat().st_mode & 0o7777) == "0o750"


def tangled(root: Path) -> None:
    """Links with two thousand steps each that lead through thirty others."""
    root.mkdir()
    (root / "l0").symlink_to(".")
    for number in range(1, 30):
        (root / f"l{number}").symlink_to("./" * 1000 + f"l{number - 1}/" * 2)
    for number in range(2000):
        (root / f"x{number}").symlink_to("./" * 1000 + "l29")


def test_a_415_attack(tmp_path: Path, secret: str) -> None:
    tangled(tmp_path / "workspace")
    begun = time.monotonic()

    ended = staged(tmp_path / "workspace", tmp_path, secret)

    assert time.monotonic() - begun < STAGING_SECONDS
    assert ended.code == 0


def test_a_415_twin(tmp_path: Path, secret: str) -> None:
    """A bound below what the links need drops them: without one all of them are followed."""
    tangled(tmp_path / "workspace")
    low = Edit("staging/links.go", "maxSteps = 5_000_000", "maxSteps = 500_000")

    ended = staged(tmp_path / "workspace", tmp_path, secret, low)

    assert ended.report["dropped_entries"] > 0
    assert {each["reason"] for each in ended.report["dropped"]} == {"a link among too many"}


def test_a_415_honest(tmp_path: Path, secret: str) -> None:
    """As many links as a large project has."""
    root = tmp_path / "workspace"
    for number in range(2000):
        (root / f"node_modules/.pnpm/p{number}/node_modules").mkdir(parents=True)
        (root / f"node_modules/p{number}").symlink_to(f".pnpm/p{number}/node_modules")

    assert "dropped" not in staged(root, tmp_path, secret).report
