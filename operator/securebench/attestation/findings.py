"""What a check of a run's files found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

MAX_FINDINGS = 20
"""Findings of one kind that are listed one by one."""


class Mismatch(NamedTuple):
    """Something that does not hold.

    Attributes:
        file: The file that it is about.
        place: Where in it, or which object: a line, a task, a run; empty for the whole file.
        problem: What is wrong, as the end of a sentence.
    """

    file: str
    place: str
    problem: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.file}{f', {self.place}' if self.place else ''}: {self.problem}"


class CheckedRun(NamedTuple):
    """The result of a check.

    Attributes:
        findings: What does not hold; empty where everything does.
        notes: What a reader should know besides, in sentences.
        predicate: Predicate of the statement; empty where that could not be read.
        signed_by: Ids of the given keys that signed it.
    """

    findings: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    predicate: Mapping[str, object]
    signed_by: tuple[str, ...] = ()


class RunFiles(Protocol):
    """The files of a run, wherever they lie."""

    def lines(self, name: str) -> Iterable[bytes] | None:
        """Return the lines of a file with their newlines, or None where there is no such file.

        Raises:
            InvalidInputError: Also while they are read: it is no such file.
        """
        ...


def bounded(findings: Iterable[Mismatch]) -> Iterator[Mismatch]:
    """Yield the first findings of one kind, and how many more there are."""
    source = iter(findings)
    last = None
    for last in islice(source, MAX_FINDINGS):
        yield last
    more = sum(1 for _ in source)
    if more and last is not None:
        yield Mismatch(last.file, "", f"{more} more findings of this kind")
