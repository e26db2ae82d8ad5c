"""What the tests of a case say together."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

CATALOGUE: Mapping[str, Mapping[str, object]] = yaml.safe_load(
    (Path(__file__).parents[1] / "catalogue.yaml").read_text(encoding="utf-8")
)
RUNS = ("attack", "twin", "honest")
_TEST = re.compile(r"test_a_(\d{3})_(attack|twin|honest)(?:_|\[|$)")
_DESCRIBED = re.compile(r"test_(attack|twin|honest)\[A-(\d{3})[ \]]")
"""A run that ``threats.kit.judged`` makes."""


class Outcome(StrEnum):
    """What is known about a case."""

    HELD = "held"
    HOLE = "hole"
    DEFENCE_BREAKS = "defence breaks honest work"
    UNPROVEN = "unproven"
    NOT_APPLICABLE = "not applicable"
    NOT_BUILT = "not built"
    MISSING = "missing"
    IN_PART = "run in part"


EXPLAINED = frozenset({Outcome.HELD, Outcome.NOT_APPLICABLE, Outcome.NOT_BUILT, Outcome.IN_PART})
"""Unproven counts as explained only with a reason."""


def not_applicable(observation: str) -> NoReturn:
    """End a test: the node lacks what the case is about, as the observation shows."""
    pytest.skip(f"{Outcome.NOT_APPLICABLE}: {observation}")


def unproven(reason: str) -> NoReturn:
    """End the twin of a case: no twin can be made, for this reason."""
    pytest.skip(f"{Outcome.UNPROVEN}: {reason}")


def not_built(reason: str) -> NoReturn:
    """End a test: the part that the case is about does not exist yet."""
    pytest.skip(f"{Outcome.NOT_BUILT}: {reason}")


def wants_all() -> bool:
    """Return whether the session was told to leave nothing out (``make threats``)."""
    return os.environ.get("THREATS_WHOLE") == "1"


def not_prepared(reason: str) -> NoReturn:
    """End a test whose images were not built; where nothing may be left out, as a failure."""
    if wants_all():
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(slots=True)
class Case:
    """The results of the tests of one id.

    Attributes:
        results: By run: ``passed``, ``failed`` or the reason of a skip, one per test.
    """

    results: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def outcome(self) -> tuple[Outcome, str]:
        """Return what is known, and a reason where one was given."""
        if "failed" in self.results["attack"]:
            return Outcome.HOLE, ""
        if "failed" in self.results["honest"]:
            return Outcome.DEFENCE_BREAKS, ""
        if "failed" in self.results["twin"]:
            return Outcome.UNPROVEN, ""
        for run in RUNS:
            for result in self.results[run]:
                word, _, reason = result.partition(": ")
                if word in (Outcome.NOT_APPLICABLE, Outcome.NOT_BUILT, Outcome.UNPROVEN):
                    return Outcome(word), reason
        odd = [result for run in RUNS for result in self.results[run] if result != "passed"]
        if odd:
            return Outcome.MISSING, odd[0]
        missing = [run for run in RUNS if not self.results[run]]
        if missing:
            return Outcome.IN_PART, f"not run: {', '.join(missing)}"
        return Outcome.HELD, ""


class Outcomes:
    """The results of all tests of a session."""

    def __init__(self) -> None:
        """Start without results."""
        self._cases: dict[str, Case] = defaultdict(Case)

    def add(self, test: str, result: str) -> None:
        """Note the result of a test that is named after a case."""
        if found := _TEST.match(test):
            self._cases[f"A-{found[1]}"].results[found[2]].append(result)
        elif found := _DESCRIBED.match(test):
            self._cases[f"A-{found[2]}"].results[found[1]].append(result)

    def table(self, *, is_whole: bool) -> dict[str, dict[str, str]]:
        """Return outcome and reason by id, in the order of the catalogue.

        Args:
            is_whole: Whether cases without any result are listed too.
        """
        return {
            case: self._row(case, is_whole=is_whole)
            for case in CATALOGUE
            if is_whole or case in self._cases
        }

    def _row(self, case: str, *, is_whole: bool) -> dict[str, str]:
        outcome, reason = self._cases[case].outcome()
        if outcome is Outcome.IN_PART and is_whole:
            outcome = Outcome.MISSING
        return {"group": str(CATALOGUE[case]["group"]), "outcome": outcome.value, "reason": reason}


def is_explained(row: Mapping[str, str]) -> bool:
    """Return whether a row leaves no gap."""
    outcome = Outcome(row["outcome"])
    return outcome in EXPLAINED or (outcome is Outcome.UNPROVEN and bool(row["reason"]))
