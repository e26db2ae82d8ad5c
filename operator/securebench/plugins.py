"""What has a name: ours, and what other installed packages add by entry points.

An entry point is loaded when its name is first asked for, so that one package may define a family
and the kind of verification that it names.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from securebench.errors import ConfigError

T = TypeVar("T")


class PluginRegistry(MutableMapping[str, T], Generic[T]):
    """Objects or classes by name, ours first.

    Asking for the name of a package that cannot be used raises ConfigError; nothing else does:
    ``items`` and ``values`` leave it out.

    Args:
        group: Group of entry points in which other packages name theirs.
        ours: By name; a text is the place of one that is loaded when it is asked for.
    """

    def __init__(self, group: str, ours: Mapping[str, T | str]) -> None:
        self._group = group
        self._ours = ours
        self._known = {name: each for name, each in ours.items() if not isinstance(each, str)}

    def __getitem__(self, name: str) -> T:
        """Return what has the name.

        Raises:
            KeyError: Nothing has it.
            ConfigError: Two packages have it, or its package cannot be used.
        """
        if name not in self._known:
            self._known[name] = self._loaded(name)
        return self._known[name]

    def __setitem__(self, name: str, value: T) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._ours, *self._points, *self._known)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._ours or name in self._points

    def items(self) -> ItemsView[str, T]:
        """Return what can be used, by name."""
        return dict(self._usable()).items()

    def values(self) -> ValuesView[T]:
        """Return what can be used."""
        return dict(self._usable()).values()

    def _usable(self) -> Iterator[tuple[str, T]]:
        for name in self:
            try:
                found = self[name]
            except ConfigError:
                continue
            yield name, found

    @cached_property
    def _points(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        found: dict[str, tuple[EntryPoint, ...]] = {}
        for point in sorted(entry_points(group=self._group), key=lambda each: each.name):
            found[point.name] = (*found.get(point.name, ()), point)
        return found

    def _loaded(self, name: str) -> T:
        ours = self._ours.get(name)
        if isinstance(ours, str):
            points: tuple[EntryPoint, ...] = (EntryPoint(name, ours, self._group),)
        else:
            points = self._points.get(name, ())
        if not points:
            raise KeyError(name)
        if len(points) > 1:
            places = ", ".join(sorted(each.value for each in points))
            raise ConfigError(f"{name!r} is in several installed packages: {places}")
        (point,) = points
        found: T = self._imported(point)
        if getattr(found, "name", None) != name:
            raise ConfigError(
                f"{point.value}, which {self._group} calls {name!r}, has another name"
            )
        return found

    def _imported(self, point: EntryPoint) -> T:
        try:
            found: T = point.load()
        except (Exception, SystemExit) as error:  # the package may do anything
            message = f"{point.name!r} of group {self._group} cannot be loaded from {point.value}"
            raise ConfigError(f"{message}: {type(error).__name__}: {error}") from error
        return found
