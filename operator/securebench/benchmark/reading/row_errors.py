"""Errors of rows; equal ones of many rows become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.core.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN_LINES = 5
"""Lines that a message about many rows names."""


def row_error(context: str, problem: str, *, path: str | None, line: int | None) -> PackError:
    """Return the error of one row.

    Args:
        context: Begins the message and names the row.
        problem: The rest; the same defect has the same text in every row.
        path: Task file as the user named it.
        line: Of the row.
    """
    return PackError(f"{context}{problem}", path=path, line=line, problem=problem)


def once_per_cause(errors: Iterable[PackError]) -> list[PackError]:
    """Return each defect once, where it occurs first, with the lines of the other rows.

    Args:
        errors: In file order; those that ``row_error`` did not make stay as they are.
    """
    groups: dict[object, list[PackError]] = {}
    for error in errors:
        problem = error.facts.get("problem")
        groups.setdefault(id(error) if problem is None else problem, []).append(error)
    return [_of_many(group) for group in groups.values()]


def _of_many(errors: Sequence[PackError]) -> PackError:
    first, *others = errors
    if not others:
        return first
    lines = [str(error.line) for error in others[:_SHOWN_LINES]]
    more = ", …" if len(others) > _SHOWN_LINES else ""
    rows = f"{len(others)} more row{'s' if len(others) > 1 else ''}"
    reason = f"{first.reason} (the same in {rows}: line {', '.join(lines)}{more})"
    return PackError(reason, path=first.path, line=first.line, **first.facts)
