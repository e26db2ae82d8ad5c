"""Fuzzing of what untrusted bytes reach first; see ``loop`` for the environment variables."""

from __future__ import annotations

import os
import sys

import pytest

from fuzz.loop import Campaign, corpus_of, replay
from fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
SEED = os.environ.get("FUZZ_SEED", "1")


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_handled(name: str) -> None:
    inputs = corpus_of(TARGETS[name])
    assert inputs
    for data in inputs:
        replay(TARGETS[name], data)


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_misleads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    stats = Campaign(TARGETS[name], SEED).run(SECONDS)
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {stats.inputs} inputs, {stats.edges} edges ")
    assert stats.inputs > 10
