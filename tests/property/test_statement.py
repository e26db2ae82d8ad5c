"""Whichever byte of a sealed run's files is changed, the check names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.client.results import HANDED_ON
from securebench.protocol.volume import CANDIDATES, JOURNAL
from support.sealed_runs import OPERATOR, check, handed_on, seal_runs, told

FILES = (*HANDED_ON, JOURNAL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second of two runs, so that the list of starts has a line before its own."""
    root = tmp_path_factory.mktemp("volume")
    uids = seal_runs(root, "first", "second", "third")
    found = handed_on(root, uids["second"], root / "second")
    assert told(check(found, OPERATOR.key)) == []
    return found


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_byte_that_was_changed_is_found_and_named(folder: Path, name: str, data) -> None:
    path = folder / name
    original = path.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1), label="at")
    flip = data.draw(st.integers(1, 255), label="flip")
    path.write_bytes(original[:at] + bytes([original[at] ^ flip]) + original[at + 1 :])
    try:
        findings = check(folder, OPERATOR.key).findings
    finally:
        path.write_bytes(original)

    assert name in {finding.file for finding in findings}
    line = original.count(b"\n", 0, at) + 1
    if name in {CANDIDATES, JOURNAL} and original[at] != ord("\n"):
        assert any(finding.place.startswith(f"line {line}") for finding in findings)
