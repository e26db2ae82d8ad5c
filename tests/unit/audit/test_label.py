"""What an audit leaves on the results volume: a verdict of a whole pack, bound to its digest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from securebench.audit import command
from securebench.audit.command import Report, every_rule
from securebench.audit.subject import PACK, Finding, FindingOutcome
from securebench.cli.main import app
from securebench.client.volume import ClusterTarget, OperatorLink
from securebench.controller.volume.registers import pack_audit
from securebench.errors import TransientClusterError
from securebench.protocol.volume import PackAudit
from support.fake_operator import Namespace
from unit.audit.audit_packs import choice, write_pack

PASSED, FAILED, UNCHECKED = FindingOutcome.PASSED, FindingOutcome.FAILED, FindingOutcome.NOT_CHECKED


def report(**outcomes: FindingOutcome) -> Report:
    found = {name.replace("_", "-"): outcome for name, outcome in outcomes.items()}
    findings = tuple(Finding(rule, found.get(rule, PASSED), PACK, "m") for rule in every_rule())
    return Report("p", "sha256:1", 1, "t", findings)


@pytest.mark.parametrize(
    ("outcomes", "want"),
    [
        ({}, PackAudit.PASSED),
        ({"image": UNCHECKED, "lint": UNCHECKED, "flaky": UNCHECKED}, PackAudit.PASSED),
        ({"oracle": UNCHECKED}, PackAudit.NONE),
        ({"nop": UNCHECKED}, PackAudit.NONE),
        ({"gold_passes": UNCHECKED}, PackAudit.NONE),
        ({"payload": FAILED, "oracle": UNCHECKED}, PackAudit.FAILED),
        ({"oracle": FAILED}, PackAudit.FAILED),
    ],
)
def test_the_verdict_of_a_report(outcomes: dict[str, FindingOutcome], want: PackAudit) -> None:
    assert report(**outcomes).verdict is want


class Audits:
    """A cluster on which every oracle passes and nothing else does."""

    def __init__(self, folder: Path) -> None:
        self.namespace = Namespace(folder / "volume")
        self.pack = folder / "pack"
        self.oracle = True
        self.versions = ["1"]
        write_pack(self.pack, choice(["red", "blue"], "B"))
        (self.pack / "oracle").mkdir()
        (row,) = (self.pack / "tasks.jsonl").read_text().splitlines()
        answer = {"id": json.loads(row)["id"], "candidate": "B"}
        (self.pack / "oracle/answers.jsonl").write_text(json.dumps(answer))
        self.task: str = answer["id"]

    async def run_trial(self, _place: ClusterTarget, _pack: Path, kind: str, **_: object) -> Any:
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        passed = self.oracle and kind == "oracle"
        record = {
            "task_id": self.task,
            "passed": passed,
            "outcome": "scored",
            "verification_status": "passed" if passed else "failed",
            "verifier_version": version,
        }
        return SimpleNamespace(records=(record,))

    @asynccontextmanager
    async def open_connection(self, _place: ClusterTarget) -> AsyncIterator[Any]:
        yield SimpleNamespace(link=OperatorLink(self.namespace.execute))

    def left(self) -> list[Path]:
        return [path for path in (self.namespace.root / "audits").rglob("*") if path.is_file()]


@pytest.fixture
def audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audits:
    made = Audits(tmp_path)
    monkeypatch.setattr(command, "run_trial", made.run_trial)
    monkeypatch.setattr(command, "open_connection", made.open_connection)
    return made


@pytest.fixture
def call(audits: Audits, tmp_path: Path) -> Callable[..., list[str]]:
    def run(*flags: str) -> list[str]:
        words = ["audit", str(audits.pack), "--output-dir", str(tmp_path / "o"), *flags]
        return CliRunner().invoke(app, words).stdout.splitlines()

    return run


@pytest.mark.parametrize("want", ["passed", "failed"])
def test_an_audit_leaves_its_verdict(
    audits: Audits, call: Callable[..., list[str]], tmp_path: Path, want: str
) -> None:
    audits.oracle = want == "passed"
    lines = call()

    digest = json.loads((tmp_path / "o/audit-report.json").read_text())["pack"]["digest"]
    assert pack_audit(audits.namespace.root, digest, "1").value == want
    assert lines[-2] == (
        f"securebench audit: runs of this pack say labels.pack_audit={want} from now on"
    )
    assert lines[-1].startswith("securebench audit: pack=")


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--static"], "nothing was run"), (["--limit", "1"], "not all of the pack was checked")],
)
def test_an_audit_in_part_leaves_nothing(
    audits: Audits, call: Callable[..., list[str]], flags: list[str], words: str
) -> None:
    assert words in call(*flags)[-2]
    assert audits.left() == []


def test_runs_of_two_versions_leave_nothing(audits: Audits, call: Callable[..., list[str]]) -> None:
    audits.versions = ["1", "2"]
    assert "verifiers of versions 1, 2 judged" in call()[-2]
    assert audits.left() == []


def test_an_operator_that_cannot_keep_it_is_named(
    audits: Audits, call: Callable[..., list[str]]
) -> None:
    audits.namespace.failures = [TransientClusterError("the connection ended")]
    assert "could not be left on the results volume: the connection ended" in call()[-2]
