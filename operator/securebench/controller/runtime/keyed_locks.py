"""One lock per name, for work that several runs would otherwise do at the same time."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class KeyedLocks:
    """Locks that are freed once nobody holds or awaits them."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        return self._locks.setdefault(name, asyncio.Lock())
