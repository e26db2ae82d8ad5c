"""The kit itself: a search that finds nothing and a table without gaps must mean something."""

from __future__ import annotations

import base64
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from threats.kit.canaries import PREFIX, SEARCH, canary, forms, hits
from threats.kit.judged import threats_of
from threats.kit.outcomes import (
    CATALOGUE,
    EXPLAINED,
    Outcome,
    Outcomes,
    is_explained,
    not_prepared,
)

pytestmark = pytest.mark.short

PLANTED = {
    "plain": lambda text: text,
    "base64": base64.b64encode,
    "base64 after one byte": lambda text: base64.b64encode(b"x" + text),
    "base64 after two bytes": lambda text: base64.b64encode(b"xy" + text + b"more"),
    "hex": lambda text: text.hex().encode(),
    "upper hex": lambda text: text.hex().upper().encode(),
    "url": lambda text: text.replace(b"-", b"%2D"),
    "reversed": lambda text: text[::-1],
    "gzip": gzip.compress,
    "gzip of base64": lambda text: gzip.compress(base64.b64encode(text)),
}


@pytest.mark.parametrize("form", PLANTED)
def test_a_planted_canary_is_found(form: str) -> None:
    secret = canary()
    data = b"before " + PLANTED[form](secret.encode()) + b" behind"

    assert hits(data, secret)
    assert not hits(data, canary())


def test_forms_are_distinct() -> None:
    found = dict(forms(canary()))

    assert len(set(found.values())) == len(found)


def test_the_probe_finds_what_lies_in_its_surroundings_but_not_itself(tmp_path) -> None:
    program = SEARCH.replace('os.walk("/"', f"os.walk({str(tmp_path)!r}") + "\nprint(found)"
    run = [sys.executable, "-c", program]
    clean = {name: value for name, value in os.environ.items() if PREFIX not in value}
    assert subprocess.check_output(run, env=clean) == b"[]\n"

    (tmp_path / "file").write_bytes(base64.b64encode(b"xx" + canary().encode() + b"yyyy"))

    told = subprocess.check_output(run, env={**clean, "SECRET": canary()}).decode()
    assert str(tmp_path / "file") in told
    assert "environ" in told


CASES = {
    Outcome.HELD: {"attack": "passed", "twin": "passed", "honest": "passed"},
    Outcome.HOLE: {"attack": "failed", "twin": "passed", "honest": "passed"},
    Outcome.DEFENCE_BREAKS: {"attack": "passed", "twin": "passed", "honest": "failed"},
    Outcome.UNPROVEN: {"attack": "passed", "twin": "failed", "honest": "passed"},
    Outcome.IN_PART: {"attack": "passed", "honest": "passed"},
    Outcome.NOT_APPLICABLE: {"attack": "not applicable: no gVisor", "twin": "passed"},
}


@pytest.mark.parametrize("test", ["test_a_040_{}[some-case]", "test_{}[A-040 some case]"])
@pytest.mark.parametrize("expected", CASES)
def test_outcome(expected: Outcome, test: str) -> None:
    outcomes = Outcomes()
    for run, result in CASES[expected].items():
        outcomes.add(test.format(run), result)

    table = outcomes.table(is_whole=False)

    assert list(table) == ["A-040"]
    assert table["A-040"]["outcome"] == expected
    assert is_explained(table["A-040"]) == (expected in EXPLAINED)


def test_a_case_whose_tests_did_not_run_is_missing() -> None:
    outcomes = Outcomes()
    for run in ("attack", "twin", "honest"):
        outcomes.add(f"test_a_040_{run}", "no cluster: KUBECONFIG is not set")

    (row,) = outcomes.table(is_whole=False).values()

    assert row["outcome"] == "missing"
    assert row["reason"] == "no cluster: KUBECONFIG is not set"


def test_a_whole_table_names_what_has_no_test() -> None:
    table = Outcomes().table(is_whole=True)

    assert len(table) >= 110
    assert table["A-001"] == {
        "group": "F1",
        "outcome": "missing",
        "reason": "not run: attack, twin, honest",
    }
    assert {row["outcome"] for row in table.values()} == {"missing"}


@pytest.mark.parametrize(
    ("whole", "want"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_what_is_not_prepared_fails_the_whole_suite_alone(
    monkeypatch: pytest.MonkeyPatch, whole: str, want: type[BaseException]
) -> None:
    monkeypatch.setenv("THREATS_WHOLE", whole)
    with pytest.raises(want, match="make overlays"):
        not_prepared("run make overlays")


def test_every_case_of_the_catalogue_has_an_attack() -> None:
    """A case without a test is a gap that only the whole suite would show."""
    files = Path(__file__).parent.rglob("test_*.py")
    texts = "".join(path.read_text(encoding="utf-8") for path in files)
    attacked = {f"A-{number}" for number in re.findall(r"def test_a_(\d{3})_attack", texts)}
    described = {
        threat
        for folder in Path(__file__).parent.glob("*/cases")
        for threat, *_ in threats_of(folder)
    }
    assert CATALOGUE.keys() - attacked - described == set()
    assert described <= CATALOGUE.keys()
