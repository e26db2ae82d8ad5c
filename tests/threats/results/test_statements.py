"""F4: whoever has the operator's public key sees what a score rests on."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from securebench.attestation.envelope import open_envelope, pem_signer, sealed
from securebench.attestation.starts import RunStart, appended, read_starts
from securebench.attestation.statement import encode
from securebench.attestation.verification import Trust, verify_run
from securebench.client.results import FolderFiles
from securebench.protocol.volume import STARTS, STATEMENT
from support.operator_world import World, opened
from support.sealed_runs import (
    OPERATOR,
    SIGNING,
    KeyPair,
    check,
    handed_on,
    key_pair,
    place_key,
    run_to_end,
    seal_runs,
    told,
)

pytestmark = pytest.mark.short

ATTACKER = key_pair(66)
Volume = tuple[Path, Mapping[str, str]]


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    """Two tries with one run id, sealed by an honest operator."""
    root = tmp_path_factory.mktemp("volume")
    return root, seal_runs(root, "first", "second")


@pytest.fixture
def first(volume: Volume, tmp_path: Path) -> Path:
    return handed_on(volume[0], volume[1]["first"], tmp_path / "first")


@pytest.fixture
def second(volume: Volume, tmp_path: Path) -> Path:
    return handed_on(volume[0], volume[1]["second"], tmp_path / "second")


def payload(folder: Path) -> dict[str, object]:
    envelope = json.loads((folder / STATEMENT).read_bytes())
    found: dict[str, object] = json.loads(base64.b64decode(envelope["payload"]))
    return found


def signed_by(folder: Path, pair: KeyPair) -> bool:
    """Whether the signature holds, whatever the statement says."""
    return bool(open_envelope((folder / STATEMENT).read_bytes(), (pair.key,)).signed_by)


def forged(folder: Path, by: KeyPair | None) -> None:
    """Raise a score in the predicate and write the envelope anew."""
    statement = json.loads(json.dumps(payload(folder)).replace("2 of 2 passed", "9 of 9 passed"))
    (folder / "journal.jsonl").unlink()
    signer = pem_signer(by.private) if by is not None else None
    (folder / STATEMENT).write_bytes(sealed(encode(statement), signer))


@pytest.mark.parametrize("by", [None, ATTACKER])
def test_a_336_attack(first: Path, by: KeyPair | None) -> None:
    forged(first, by)

    (found,) = told(check(first, OPERATOR.key))

    assert found.startswith("statement.dsse.json: ")


@pytest.mark.parametrize("by", [None, ATTACKER])
def test_a_336_twin(first: Path, by: KeyPair | None) -> None:
    forged(first, by)

    assert told(verify_run(FolderFiles(first), Trust(is_signature_needed=False))) == []


def test_a_336_honest(first: Path) -> None:
    assert told(check(first, OPERATOR.key)) == []


def test_a_337_attack(first: Path, second: Path, volume: Volume) -> None:
    shutil.copyfile(first / STATEMENT, second / STATEMENT)

    found = told(check(second, OPERATOR.key))

    assert f"is about another run than run.json, {volume[1]['second']}" in found[0]
    assert any(line.startswith("candidates.jsonl: has SHA-256") for line in found)


def test_a_337_twin(first: Path, second: Path) -> None:
    shutil.copyfile(first / STATEMENT, second / STATEMENT)

    assert signed_by(second, OPERATOR)


def test_a_337_honest(second: Path) -> None:
    assert told(check(second, OPERATOR.key)) == []


def test_a_338_attack(first: Path, volume: Volume) -> None:
    found = told(check(first, OPERATOR.key, uid=volume[1]["second"]))

    assert len(found) == 1
    assert volume[1]["first"] in found[0]
    assert volume[1]["second"] in found[0]


def test_a_338_twin(first: Path) -> None:
    assert told(check(first, OPERATOR.key)) == []


def test_a_338_honest(first: Path, volume: Volume) -> None:
    assert told(check(first, OPERATOR.key, uid=volume[1]["first"])) == []


def written_anew(path: Path) -> None:
    """Leave the first try out of the list; the chain holds again."""
    last = RunStart(**dict(read_starts(path.read_bytes()).lines[-1].start))
    path.write_bytes(appended(read_starts(b""), [last]))


def test_a_339_attack_on_what_was_handed_on(second: Path) -> None:
    written_anew(second / STARTS)

    found = told(check(second, OPERATOR.key))

    assert "starts.jsonl: has 1 lines, the statement saw 2: its end was cut off" in found


def test_a_339_attack_before_the_next_run(volume: Volume, tmp_path: Path) -> None:
    root = tmp_path / "volume"
    shutil.copytree(volume[0], root)
    written_anew(root / "runs" / STARTS)

    with opened(World, root, signing=SIGNING, signing_root=root / "signing") as world:
        world.runs = 2
        uid = run_to_end(world, "third")
    report = check(handed_on(root, uid, tmp_path / "third"), OPERATOR.key)

    assert any("line 1 with run first is missing" in line for line in told(report))
    assert any("first" in note for note in report.notes)


def test_a_339_twin(second: Path) -> None:
    written_anew(second / STARTS)

    assert read_starts((second / STARTS).read_bytes()).faults == []


def test_a_339_honest(second: Path) -> None:
    report = check(second, OPERATOR.key)

    assert told(report) == []
    assert any("2 runs with run id 'smoke' on this pack: first" in note for note in report.notes)


def replaced_key(root: Path) -> str:
    """Let somebody replace the Secret between a run's start and its end."""
    place_key(root / "signing")
    with opened(World, root, signing=SIGNING, signing_root=root / "signing") as world:
        uid = world.apply(isolation={"require": "Declared"})
        place_key(root / "signing", ATTACKER)
        world.work(uid)
    return uid


def test_a_344_attack(tmp_path: Path) -> None:
    folder = handed_on(tmp_path, replaced_key(tmp_path), tmp_path / "run")

    (by_attacker,) = told(check(folder, ATTACKER.key))
    (by_operator,) = told(check(folder, OPERATOR.key))

    assert f"the run began with key {OPERATOR.key.keyid[:12]}" in by_attacker
    assert f"it names key {ATTACKER.key.keyid[:12]}" in by_operator


def test_a_344_twin(tmp_path: Path) -> None:
    folder = handed_on(tmp_path, replaced_key(tmp_path), tmp_path / "run")

    assert signed_by(folder, ATTACKER)


def test_a_344_honest(second: Path) -> None:
    assert told(check(second, ATTACKER.key, OPERATOR.key)) == []
