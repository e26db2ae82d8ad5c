"""The table of a session: fault, what happened, whether the records stayed what they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chaos.kit.catalogue import Kind, catalogue
from chaos.kit.verdict import Verdict


@dataclass
class Row:
    """All injections of one kind.

    Attributes:
        injections: How often it was injected.
        runs: Into how many runs.
        lost: Launches lost, by reason.
        equal: Runs whose records are those of the undisturbed run.
        problems: What must not be.
        not_run: Why it was not injected, or empty.
    """

    injections: int = 0
    runs: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    problems: list[str] = field(default_factory=list)
    not_run: str = ""

    def happened(self, kind: Kind) -> str:
        """Return what happened in a few words."""
        if self.not_run:
            return f"not run: {self.not_run}"
        if self.problems:
            return self.problems[0]
        losses = ", ".join(f"{count} {reason}" for reason, count in sorted(self.lost.items()))
        return kind.effect + (f" ({losses})" if losses else "")


class Rows:
    """The rows of a session, by kind."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(self, name: str, verdict: Verdict, injections: int = 1) -> None:
        """Take in one run."""
        row = self._rows.setdefault(name, Row())
        row.injections += injections
        row.runs += 1
        row.lost.update(verdict.lost)
        row.equal += verdict.is_equal
        row.problems += verdict.problems

    def leave_out(self, name: str, why: str) -> None:
        """Note that a kind was not injected."""
        self._rows.setdefault(name, Row(not_run=why))

    def ordered(self) -> Mapping[str, Row]:
        """Return the rows in the order of the catalogue."""
        known = (*catalogue(), *self._rows)
        return {name: self._rows[name] for name in dict.fromkeys(known) if name in self._rows}

    def show(self, console: Console) -> None:
        """Print the table and its sums."""
        table = Table("fault", "tier", "injected", "what happened", "records equal")
        for name, row in self.ordered().items():
            kind = _kind(name)
            equal = "" if row.not_run else f"{row.equal}/{row.runs}"
            style = "red" if row.problems else None
            cells = (kind.fault, kind.tier, str(row.injections), row.happened(kind), equal)
            table.add_row(*cells, style=style)
        console.print(table)
        console.print(self.sums())

    def sums(self) -> str:
        """Return one line about everything."""
        rows = [row for row in self._rows.values() if not row.not_run]
        problems = sum(len(row.problems) for row in rows)
        return (
            f"chaos: {len(rows)} kinds, {sum(row.injections for row in rows)} injections in "
            f"{sum(row.runs for row in rows)} runs, records equal in "
            f"{sum(row.equal for row in rows)}, {sum(row.lost.total() for row in rows)} launches "
            f"lost and repeated, {problems} problems"
        )

    def write(self, path: Path) -> None:
        """Write the table as JSON."""
        body = {
            name: {
                "fault": _kind(name).fault,
                "tier": _kind(name).tier,
                "injections": row.injections,
                "runs": row.runs,
                "equal": row.equal,
                "lost": dict(sorted(row.lost.items())),
                "problems": row.problems,
                "not_run": row.not_run,
            }
            for name, row in self.ordered().items()
        }
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def _kind(name: str) -> Kind:
    return catalogue().get(name) or Kind(name, "memory", "api", name, "The run bears it")


ROWS = Rows()
"""Of this process."""
