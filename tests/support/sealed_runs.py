"""Runs that an operator in memory has ended and sealed, with keys made for the test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from securebench.attestation.envelope import Key, pem_key
from securebench.attestation.verification import CheckedRun, Trust, verify_run
from securebench.client.results import HANDED_ON, FolderFiles
from securebench.controller.volume.folders import RUNS, run_folder
from securebench.controller.volume.journal import journal_bytes
from securebench.protocol.volume import JOURNAL, STARTS
from support.operator_world import World, opened

SIGNING = {"secret": "securebench-signing"}


class KeyPair(NamedTuple):
    private: bytes
    public: bytes

    @property
    def key(self) -> Key:
        return pem_key(self.public)


def key_pair(seed: int = 1) -> KeyPair:
    """Return a pair in PEM, the same for a seed."""
    private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return KeyPair(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


OPERATOR = key_pair()


def place_key(folder: Path, pair: KeyPair = OPERATOR) -> None:
    """Leave a key where the operator finds the Secret."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "key.pem").write_bytes(pair.private)


def seal_runs(root: Path, *names: str, pair: KeyPair = OPERATOR) -> Mapping[str, str]:
    """Run BenchmarkRuns to their end, one after the other, and return their uids by name."""
    place_key(root / "signing", pair)
    settings = {"signing": SIGNING, "signing_root": root / "signing"}
    with opened(World, root, **settings) as world:
        return {name: run_to_end(world, name) for name in names}


def run_to_end(world: World, name: str) -> str:
    uid = world.apply(name, isolation={"require": "Declared"}, runId="smoke")
    world.work(uid)
    assert world.condition("ResultsSealed", name)["status"] == "True"
    return uid


def handed_on(root: Path, uid: str, folder: Path) -> Path:
    """Copy a run's files into a folder, as ``securebench verify --output-dir --journal`` does."""
    folder.mkdir()
    for name in HANDED_ON:
        source = root / RUNS if name == STARTS else root / run_folder(uid)
        shutil.copyfile(source / name, folder / name)
    (folder / JOURNAL).write_bytes(journal_bytes(root / run_folder(uid)))
    return folder


def check(folder: Path, *keys: Key, uid: str = "") -> CheckedRun:
    return verify_run(FolderFiles(folder), Trust(keys, uid=uid))


def told(report: CheckedRun) -> list[str]:
    return [str(finding) for finding in report.findings]
