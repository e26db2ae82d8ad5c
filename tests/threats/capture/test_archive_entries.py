"""F6: what is no regular file, odd modes, and sizes that are claimed."""

from __future__ import annotations

import io
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
from functools import cache
from pathlib import Path

import pytest

from securebench.protocol.candidate import CandidateBounds, Problem
from support.courier import seal_spec, started
from support.supervise_build import Edit
from support.waiting import until
from threats.capture import trap_agents as live
from threats.capture.bundles import (
    WORKSPACE,
    archived,
    entries,
    member,
    naive_unpack,
    sealed_file,
    sealed_tree,
    unpack,
)
from threats.honest import TERMINAL, assert_passed
from threats.kit.arena import Arena
from threats.kit.program import STAGING_FAILED

COLLECTION_SECONDS = 5
"""Far above what the collection of a handful of entries takes."""
ENDLESS_BYTES = 1 << 24
WRITING_SECONDS = 60
TEBIBYTE = 1 << 40
MEMORY_BYTES = 200 << 20
KIBIBYTES = 64 << 10
WITHOUT_HOLES = Edit("untrusted/walk.go", "status.Blocks < status.Size/blockBytes", "false")
SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
ODD = ("fifo", "socket", "device")


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with one entry of each odd kind that can be made here, and an answer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answer.txt").write_text("4\n")
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    if os.geteuid() == 0:
        os.mknod("device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    return tmp_path


def test_a_105_attack_in_the_collector(odd: Path) -> None:
    made = [name for name in ODD if (odd / name).exists()]
    begun = time.monotonic()

    crossed = sealed_tree(odd)

    assert time.monotonic() - begun < COLLECTION_SECONDS
    assert crossed.sealed.dropped_entries == len(made)
    assert list(entries(crossed.content)) == ["answer.txt"]


@pytest.mark.parametrize("name", ODD)
def test_a_105_attack_on_the_declared_path(odd: Path, name: str) -> None:
    begun = time.monotonic()

    crossed = sealed_file(odd, name)

    assert time.monotonic() - begun < COLLECTION_SECONDS
    wanted = Problem.INVALID if (odd / name).exists() else Problem.MISSING
    assert crossed.sealed.problem is wanted


def test_a_105_twin_blocks(odd: Path) -> None:
    reading = f"open({str(odd / 'fifo')!r}, 'rb').read()"

    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", reading], timeout=1, check=False)


def test_a_105_twin_reads_without_end() -> None:
    with Path("/dev/zero").open("rb") as endless:
        assert len(endless.read(ENDLESS_BYTES)) == ENDLESS_BYTES


@pytest.mark.short
@pytest.mark.trials(live.ODD_ENTRIES, live.FIFO_AS_ANSWER)
def test_a_105_attack(arena: Arena) -> None:
    assert set(entries(live.bundle(arena, live.ODD_ENTRIES))) == {"answer.txt", "task.json"}
    assert live.dropped(arena, live.ODD_ENTRIES) == len(ODD)
    assert not set(ODD) & set(live.shown(arena, live.ODD_ENTRIES))
    record = arena.record(live.FIFO_AS_ANSWER)
    assert (record["outcome"], record["failure_reason"]) == ("agent", "candidate_invalid")


@pytest.mark.short
@pytest.mark.trials(live.FILE_AS_ANSWER, TERMINAL)
def test_a_105_honest(arena: Arena) -> None:
    assert_passed(arena, live.FILE_AS_ANSWER)
    assert_passed(arena, TERMINAL)


SET_ID = archived(
    member("shell", b"#!", mode=0o7755),
    member("plain", b"x", mode=0o4644, uid=1),
    member("folder/", type=tarfile.DIRTYPE, mode=0o2770),
)


def modes(root: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in root.iterdir()}


def test_a_106_attack_in_the_decoder(tmp_path: Path) -> None:
    assert unpack(SET_ID, tmp_path / "target").code == 0

    assert modes(tmp_path / "target") == {"shell": 0o1755, "plain": 0o644, "folder": 0o770}


def test_a_106_twin_in_the_decoder(tmp_path: Path) -> None:
    naive_unpack(SET_ID, tmp_path / "target")

    assert any(mode & SET_ID_BITS for mode in modes(tmp_path / "target").values())


@pytest.fixture
def privileged(tmp_path: Path) -> Path:
    """A workspace with a set-id program that has an attribute too."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "shell").write_bytes(b"#!")
    (root / "shell").chmod(0o6755)
    os.setxattr(root / "shell", "user.kept", b"attribute")
    return root


def test_a_106_attack_in_the_collector(privileged: Path) -> None:
    crossed = sealed_tree(privileged)

    (shell,) = entries(crossed.content).values()
    assert (shell.mode, shell.uid, shell.gid) == (0o755, 0, 0)
    assert set(shell.pax_headers) <= {"mtime"}
    assert crossed.sealed.dropped == (("shell", "without its set-id bits"),)


def test_a_106_twin_in_the_collector(privileged: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(privileged / "shell", "shell")

    assert entries(plain.getvalue())["shell"].mode & SET_ID_BITS
    words = ["tar", "--xattrs", "-C", str(privileged), "-cf", "-", "shell"]
    kept = subprocess.run(words, check=True, capture_output=True).stdout
    assert "SCHILY.xattr.user.kept" in entries(kept)["shell"].pax_headers


@pytest.mark.trials(live.WITH_SET_ID)
def test_a_106_attack(arena: Arena) -> None:
    found = entries(live.bundle(arena, live.WITH_SET_ID))
    assert set(found) == {"answer.txt", "second", "shell", "task.json"}
    assert not any(entry.mode & SET_ID_BITS for entry in found.values())
    seen = live.shown(arena, live.WITH_SET_ID)
    assert (seen["shell"], seen["second"]) == (["-rwxr-xr-x", 2], ["-rwxr-xr-x", 2])
    lost = arena.record(live.WITH_SET_ID)["producer_metadata"]["candidate_dropped_paths"]
    assert {each["path"] for each in lost} == {"second", "shell"}
    # The kubelet mounts no emptyDir nosuid or nodev: these make the bits and devices useless.
    (pod,) = arena.pods(live.WITH_SET_ID, "verifier")
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]


@pytest.mark.trials(TERMINAL)
def test_a_106_honest(arena: Arena, tmp_path: Path) -> None:
    assert_passed(arena, TERMINAL)
    tool = member("tool", b"#!/bin/sh\n", mode=0o755)
    assert unpack(archived(tool), tmp_path / "target").code == 0
    assert modes(tmp_path / "target") == {"tool": 0o755}


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    with (root / "huge").open("wb") as file:
        file.truncate(TEBIBYTE)
    return root


def test_a_107_attack_in_the_collector(sparse: Path) -> None:
    begun = time.monotonic()

    crossed = sealed_tree(sparse)

    assert crossed.sealed.problem is None
    assert len(crossed.content) < KIBIBYTES
    assert unpack(crossed.content, sparse.parent / "target").code == 0
    status = (sparse.parent / "target/huge").stat()
    assert (status.st_size, status.st_blocks) == (TEBIBYTE, 0)
    assert sealed_file(sparse, "huge").sealed.problem is Problem.TOO_LARGE
    assert time.monotonic() - begun < COLLECTION_SECONDS


def test_a_107_twin_without_holes(sparse: Path) -> None:
    volumes = sparse.parent
    for name in ("candidate", "producer", "output"):
        (volumes / name).mkdir()
    spec = seal_spec(WORKSPACE, CandidateBounds(workspace_bytes=2 * TEBIBYTE), ())
    draft = volumes / "candidate/.workspace.tar.new"
    with started(volumes, spec, WITHOUT_HOLES) as process:
        process.send_signal(signal.SIGTERM)
        until(
            lambda: (
                process.poll() is not None
                or (draft.exists() and draft.stat().st_size >= ENDLESS_BYTES)
            ),
            "the draft does not grow",
            WRITING_SECONDS,
            step_seconds=0.01,
        )
        assert process.poll() is None, "the courier ended"


REGIONS = 1_000_000
STEP = TEBIBYTE // REGIONS


@cache
def sparse_archive() -> bytes:
    """Return an archive that claims a file of 1 TiB with a million regions of one byte."""
    lines = [f"{REGIONS}\n", *(f"{number * STEP}\n1\n" for number in range(REGIONS))]
    regions = "".join(lines).encode()
    content = regions + b"\0" * (-len(regions) % 512) + b"x" * REGIONS
    return archived(
        member(
            "GNUSparseFile.0/huge",
            content,
            pax_headers={
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": "huge",
                "GNU.sparse.realsize": str(TEBIBYTE),
            },
        )
    )


def test_a_107_attack_in_the_decoder(tmp_path: Path) -> None:
    ended = unpack(sparse_archive(), tmp_path / "target", memory_bytes=MEMORY_BYTES)

    assert ended.code == STAGING_FAILED
    assert ended.seconds < COLLECTION_SECONDS
    assert not list((tmp_path / "target").iterdir())


OUT_OF_PLACE = {
    "beyond the end": "10,9,2",
    "backwards": "10,5,1,0,1",
    "less than there is": "10,0,1",
    "a sum that overflows": f"{2**63 - 1},{2**63 - 2},1,{2**63 - 1},1",
    "negative": "10,-1,2",
    "no number": "10,x,2",
    "a part without an end": "10,0,2,5",
    "nothing": "",
}


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_a_107_attack_by_extents(tmp_path: Path, name: str) -> None:
    extents = {"SECUREBENCH.extents": OUT_OF_PLACE[name]}

    ended = unpack(archived(member("huge", b"xy", pax_headers=extents)), tmp_path / "target")

    assert ended.code == STAGING_FAILED


def test_a_107_twin_in_the_decoder() -> None:
    with tarfile.open(fileobj=io.BytesIO(sparse_archive())) as archive:
        (entry,) = archive.getmembers()

    assert (entry.name, entry.size) == ("huge", TEBIBYTE)
    assert len(entry.sparse) == REGIONS


@pytest.mark.trials(live.HUGE)
def test_a_107_attack(arena: Arena) -> None:
    assert len(live.bundle(arena, live.HUGE)) < KIBIBYTES
    assert "huge" in live.shown(arena, live.HUGE)


@pytest.mark.trials(TERMINAL)
def test_a_107_honest(arena: Arena, tmp_path: Path) -> None:
    assert_passed(arena, TERMINAL)
    (tmp_path / "large").write_bytes(os.urandom(ENDLESS_BYTES))
    assert sealed_tree(tmp_path).sealed.problem is None
