"""What a patch is: sections of one text, with the paths that each of them names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NoncanonicalPatchError(ValueError):
    """The text is no canonical patch; says why and where.

    Args:
        problem: What is wrong.
        line: Number of the line, from 1.
    """

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"line {line}: {problem}")
        self.problem = problem
        self.line = line


class PatchTooLargeError(NoncanonicalPatchError):
    """The patch has more sections or longer paths than are read."""


class Mode(Enum):
    """The modes that git gives to entries of a tree."""

    FILE = "100644"
    PROGRAM = "100755"
    LINK = "120000"
    SUBMODULE = "160000"


class Content(Enum):
    """How a section says what is in the file."""

    NONE = "none"
    HUNKS = "hunks"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Section:
    """What a patch does to one file.

    Attributes:
        start: The byte at which it begins.
        end: Where it ends, exclusive.
        old_path: Decoded, without its prefix.
        new_path: Decoded, without its prefix; equal to ``old_path`` unless the file moves.
        modes: Every mode that the section names.
        content: How it says what is in the file.
        is_copy: Whether ``old_path`` stays as it is.
        is_deletion: Whether nothing is left at ``new_path``.
        is_addition: Whether it makes ``new_path``, also by moving or copying a file.
        target: Text of the symlink that is left, None where there is none or it is not known.
    """

    start: int
    end: int
    old_path: str
    new_path: str
    modes: frozenset[Mode]
    content: Content
    is_copy: bool = False
    is_deletion: bool = False
    is_addition: bool = False
    target: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that the section declares, the old one first."""
        if self.old_path == self.new_path:
            return (self.old_path,)
        return (self.old_path, self.new_path)

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """Return the paths whose entry is another one afterwards."""
        return (self.new_path,) if self.is_copy else self.paths

    @property
    def is_link(self) -> bool:
        """Tell whether a symlink is left."""
        return Mode.LINK in self.modes and not self.is_deletion


def unique_paths(sections: Iterable[Section]) -> tuple[str, ...]:
    """Return the declared paths in the order of their first appearance."""
    return tuple(dict.fromkeys(path for section in sections for path in section.paths))


def changed_paths(sections: Iterable[Section]) -> tuple[str, ...]:
    """Return what the sections change, in the order of first appearance."""
    return tuple(dict.fromkeys(path for section in sections for path in section.changed_paths))
