"""What one check found."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Health(StrEnum):
    """How serious a finding is; only FAIL makes the exit code 1."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Diagnosis(NamedTuple):
    """One line of the doctor.

    Attributes:
        check: Its name, one word.
        found: One sentence without its end.
        hint: What to do; empty where nothing is to be done.
    """

    check: str
    state: Health
    found: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.found}; {self.hint}" if self.hint else self.found
