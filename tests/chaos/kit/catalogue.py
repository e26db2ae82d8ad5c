"""The catalogue of faults: what is done to a run, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import yaml
from pydantic import TypeAdapter

CATALOGUE = Path(__file__).parents[1] / "catalogue.yaml"
SUITES = "Suites"
TIERS = ("memory", "proxy", "node", "daemons", "namespace")
GROUPS: Mapping[str, str] = {
    "api": "API server",
    "watch": "Watches",
    "clock": "Clock",
    "volume": "Results volume",
    "operator": "Operator and runs",
    "pods": "Pods",
    "network": "Network",
    "node": "Node",
    "suite": SUITES,
}


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        name: Its key.
        tier: Where it is brought about, one of ``TIERS``.
        group: One of ``GROUPS``.
        fault: What is done.
        effect: What becomes of the run, or of the suite.
        lost: Reasons for which launches may be lost and repeated.
        egress: Whether it needs a run with a gateway.
    """

    name: str
    tier: str
    group: str
    fault: str
    effect: str
    lost: tuple[str, ...] = ()
    egress: bool = False

    @property
    def is_of_suites(self) -> bool:
        """Whether it disturbs a suite."""
        return self.group == "suite"


@cache
def catalogue() -> Mapping[str, Kind]:
    """Return all kinds by name, in the order of the file."""
    rows = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    adapter = TypeAdapter(Kind)
    return {name: adapter.validate_python({"name": name, **row}) for name, row in rows.items()}


def kinds(tier: str) -> list[Kind]:
    """Return the kinds of one tier that disturb a run."""
    return [kind for kind in catalogue().values() if kind.tier == tier and not kind.is_of_suites]


def suite_kinds() -> list[Kind]:
    """Return the kinds that disturb a suite."""
    return [kind for kind in catalogue().values() if kind.is_of_suites]


def markdown() -> str:
    """Return the catalogue as tables for docs/resilience.md."""
    lines: list[str] = []
    ordered = sorted(catalogue().values(), key=lambda kind: list(GROUPS).index(kind.group))
    for group, members in groupby(ordered, key=lambda kind: kind.group):
        subject = "suite" if GROUPS[group] == SUITES else "run"
        lines += [
            f"## {GROUPS[group]}",
            "",
            f"| fault | what becomes of the {subject} | launches lost as |",
        ]
        lines += ["| --- | --- | --- |"]
        for kind in members:
            lost = ", ".join(f"`{reason}`" for reason in kind.lost)
            lines += [f"| {kind.fault} | {kind.effect} | {lost} |"]
        lines += [""]
    return "\n".join(lines)


if __name__ == "__main__":
    page = Path(__file__).parents[3] / "docs" / "resilience.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(f"## {GROUPS['api']}")
    page.write_text(head + markdown(), encoding="utf-8")
