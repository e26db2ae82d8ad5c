"""F9: values that a tester exposes are in the agent's memory, and in nothing that is kept of it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from securebench.controller.capture import SecretMatcher, hide_values
from securebench.controller.volume.store import RunStore
from securebench.run.plan.model import LaunchKey
from support.build import HARNESS, VERIFIER
from support.manifest_samples import RUN_UID
from support.places import launch_place
from support.release import Raw
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import RUN_AGENT, Batch
from threats.kit.canaries import canary, hits

SECRET = canary()
PRINTED: Mapping[str, Callable[[str], str]] = {
    "plain": lambda secret: f"key={secret}\n",
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 of a line": lambda secret: base64.b64encode(f"key={secret}\n".encode()).decode(),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "reversed": lambda secret: secret[::-1],
}
FOLDERS = {HARNESS: "producer", VERIFIER: "verification"}


def left(folder: Path, launch: LaunchKey, text: str, values: SecretMatcher) -> bytes:
    """Return what is kept of a launch that printed a text on both streams."""
    store = RunStore(folder, RUN_UID)
    store.create({})
    store.make_launch_folders(launch)
    place = launch_place(store, launch) / FOLDERS[launch]
    for name in ("stdout", "stderr"):
        (place / name).write_text(text, encoding="utf-8")
    hide_values(store, launch, values)
    return b"".join((place / name).read_bytes() for name in ("stdout", "stderr"))


@pytest.mark.short
@pytest.mark.parametrize("form", PRINTED)
@pytest.mark.parametrize("launch", FOLDERS, ids=["harness", "verifier"])
def test_a_182_attack(tmp_path: Path, launch: LaunchKey, form: str) -> None:
    text = f"begin {PRINTED[form](SECRET)} end"
    kept = left(tmp_path, launch, text, SecretMatcher([SECRET.encode()]))

    assert hits(kept, SECRET) == []
    assert kept.startswith(b"begin ")
    assert len(kept) == 2 * len(text)


@pytest.mark.parametrize("form", PRINTED)
def test_a_182_twin(tmp_path: Path, form: str) -> None:
    kept = left(tmp_path, HARNESS, PRINTED[form](SECRET), SecretMatcher())

    assert hits(kept, SECRET) != []


def test_a_182_attack_leaves_what_is_split(tmp_path: Path) -> None:
    """Documented with the threat suite: only what stands together is found."""
    split = f"{SECRET[:20]}\n{SECRET[20:]}\n"
    kept = left(tmp_path, HARNESS, split, SecretMatcher([SECRET.encode()]))

    assert kept == split.encode() * 2


@pytest.mark.short
def test_a_182_honest_text(tmp_path: Path) -> None:
    text = "canary-7f3d is how keys begin here\n"

    assert left(tmp_path, HARNESS, text, SecretMatcher([SECRET.encode()])) == text.encode() * 2


PRINT = """\
import base64, os, sys
key = os.environ["KEY"].encode()
for stream in (sys.stdout.buffer, sys.stderr.buffer):
    stream.write(b"key=" + key + b"\\n" + base64.b64encode(key) + b"\\n" + key.hex().encode())
    stream.write(b"\\n%d bytes\\n" % len(key))
"""
EXPOSED: Raw = {
    "harness": {
        "type": "command",
        "config": {"command": ["python3", "-c", RUN_AGENT]},
        "env": ["KEY"],
        "secretRef": {"name": "f9-printed"},
    }
}
PRINTING = Batch("f9-printing", "terminal_task", defaults=APP, spec=EXPOSED)
PRINTS = PRINTING.task("prints", agent=PRINT, grading={"checker": {"command": "true"}})


@pytest.fixture(scope="session")
def printed(arena: Arena) -> Arena:
    value = base64.b64encode(SECRET.encode()).decode()
    metadata = {"name": "f9-printed", "labels": {"securebench.dev/usable-by-runs": "true"}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"KEY": value}}
    arena.place(PRINTING).release.create(body)
    arena.start([PRINTS])
    return arena


@pytest.mark.short
def test_a_182_attack_on_a_run(printed: Arena) -> None:
    record = printed.record(PRINTS)
    said = record["producer_stdout"] + record["producer_stderr"]
    kept = printed.file(PRINTS, "candidates.jsonl") + printed.file(PRINTS, "journal.jsonl")
    for stream in ("stdout", "stderr"):
        kept += printed.file(PRINTS, "{task}/attempts/1/launches/1/producer/" + stream)

    assert said.count(f"{len(SECRET)} bytes") == 2
    assert "key=***" in said
    assert hits(kept, SECRET) == []
    assert record["labels"]["credentials"] == "exposed"
