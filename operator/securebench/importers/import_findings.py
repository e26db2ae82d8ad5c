"""What an import finds: refusals and remarks, each with the file that it is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from securebench.core.errors import PackError


@dataclass(frozen=True, slots=True)
class ImportFindings:
    """Collects while a task folder is read, so that everything is reported together."""

    errors: list[PackError] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def refuse(self, path: Path, reason: str, line: int | None = None) -> None:
        """Note why a task cannot be imported."""
        self.errors.append(PackError(reason, path=str(path), line=line))

    def remark(self, path: Path, text: str) -> None:
        """Note something that the user should know."""
        self.remarks.append(f"{path}: {text}")
