"""The loop notices what it is there for."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fuzz import archives, loop, texts
from fuzz.loop import Campaign, Target, replay
from fuzz.minimise import redundant
from fuzz.mutations import MAX_INPUT_BYTES, mutated
from securebench.errors import StorageError


def staircase(data: bytes, _root: Path) -> None:
    """Crash at the end of four steps that only lines tell apart."""
    if data[:1] == b"F":  # noqa: SIM102 - a line per step
        if data[1:2] == b"U":  # noqa: SIM102 - a line per step
            if data[2:3] == b"Z":  # noqa: SIM102 - a line per step
                if data[3:4] == b"Z":
                    raise KeyError("planted")


def spin(_data: bytes, _root: Path) -> None:
    while True:
        pass


def block(_data: bytes, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "fifo").read_bytes()


def gorge(_data: bytes, _root: Path) -> None:
    bytearray(2 * loop.MEMORY_BYTES)


def test_a_crash_behind_several_steps_is_found() -> None:
    target = Target(
        "none", staircase, seeds=(b"AAAA",), tokens=(b"F", b"U", b"Z"), traced=(__file__,)
    )
    with pytest.raises(AssertionError, match="planted"):
        Campaign(target, "1").run(30)


@pytest.mark.parametrize(
    ("check", "want"), [(spin, "HangError"), (block, "HangError"), (gorge, "MemoryError")]
)
def test_an_input_without_bounds_is_found(check, want, monkeypatch) -> None:
    monkeypatch.setattr(loop, "CPU_SECONDS", 0.2)
    monkeypatch.setattr(loop, "WALL_SECONDS", 0.4 if check is block else 60)
    with pytest.raises(AssertionError, match=want):
        replay(Target("none", check), b"")


def careless(source: io.BytesIO, folder: Path, _limits: object) -> None:
    """Unpack as one should not: whatever the names say, below two folders of the test."""
    folder.mkdir()
    with tarfile.open(fileobj=source) as archive:
        for item in archive:
            content = archive.extractfile(item)
            (folder / item.name).write_bytes(content.read() if content else b"")
    raise StorageError("what was written stays")


def test_a_file_that_leaves_the_folder_is_found(monkeypatch) -> None:
    monkeypatch.setattr(archives, "unpack_bundle", careless)
    outside = archives.archive((archives.member("../up"), b"x"))
    with pytest.raises(AssertionError, match="bundle: AssertionError"):
        replay(archives.BUNDLE, outside)


def test_an_invented_entry_is_found(monkeypatch) -> None:
    read, other = texts.read_entries, texts.ENTRIES[1:]
    monkeypatch.setattr(texts, "read_entries", lambda *g: read(*g)._replace(entries=other))
    with pytest.raises(AssertionError, match="journal: AssertionError"):
        replay(texts.JOURNAL, texts.JOURNAL_BYTES)


def test_a_path_that_only_git_sees_is_found(monkeypatch) -> None:
    judge = texts.judge_patch
    monkeypatch.setattr(texts, "judge_patch", lambda *given: replace(judge(*given), applied=("y",)))
    with pytest.raises(AssertionError, match="patch: AssertionError"):
        replay(texts.PATCH, texts.PATCH_SEEDS[0])


def test_inputs_without_which_the_others_reach_as_much_are_redundant() -> None:
    target = Target("none", staircase, seeds=(b"A",), traced=(__file__,))
    inputs = {"seed": b"A", "first": b"F", "second": b"FU", "longer": b"FUA", "third": b"FUZ"}

    assert redundant(target, inputs) == ["first", "seed", "second", "longer"]
    assert redundant(target, {"a": b"FUAA", "b": b"FUA", "c": b"B"}) == ["c", "a"]


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs() -> list[bytes]:
        campaign = Campaign(texts.ENV, "7", pool=list(texts.ENV.seeds))
        return [campaign.next_input() for _ in range(50)]

    assert inputs() == inputs()


def test_inputs_stay_short_however_often_they_double() -> None:
    base = b"x" * MAX_INPUT_BYTES

    sizes = [len(mutated(Random(seed), base, base, (b"word",))) for seed in range(500)]  # noqa: S311 - no secret

    assert max(sizes) == MAX_INPUT_BYTES
