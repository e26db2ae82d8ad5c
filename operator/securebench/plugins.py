"""What other installed packages add: entry points, with one line for each that cannot be used."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from collections.abc import Iterable


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, by name."""
    return tuple(sorted(entry_points(group=group), key=lambda each: each.name))


def loaded(name: str, known: Iterable[EntryPoint]) -> object:
    """Load the entry point with a name.

    Args:
        name: Its name.
        known: All of one group. Of two with one name neither is used.

    Raises:
        ConfigError: There is none or more than one, or its package cannot be imported.
    """
    points = list(known)
    found = {each.value: each for each in points if each.name == name}
    if not found:
        hint = did_you_mean_or_known(name, sorted({each.name for each in points}))
        raise ConfigError(f"no installed package has {name!r}{hint}")
    if len(found) > 1:
        raise ConfigError(f"{name!r} is in several installed packages: {', '.join(sorted(found))}")
    (point,) = found.values()
    return _load(point)


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"entry point {point.name!r} of group {point.group} cannot be loaded from"
            f" {point.value}: {error}"
        ) from error
