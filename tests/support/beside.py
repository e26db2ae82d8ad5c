"""Tests that mostly wait, in a namespace of their own: they go on beside the others.

``@pytest.mark.beside`` stands on functions that need no fixture. The first of them start with the
session, in threads; their turn comes last, and what is left of them then is waited for. A
``conftest`` imports this module as a plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

AT_ONCE = 2
"""Of two cores: the other tests go on, too."""

_POOL: pytest.StashKey[ThreadPoolExecutor] = pytest.StashKey()
_STORY: pytest.StashKey[Future[None]] = pytest.StashKey()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them behind all others, however those are mixed."""
    items.sort(key=_goes_on_beside)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Start what was chosen, in the order of the tests."""
    if session.testsfailed or session.config.option.collectonly or _POOL in session.stash:
        return
    pool = session.stash[_POOL] = ThreadPoolExecutor(AT_ONCE)
    for item in session.items:
        if isinstance(item, pytest.Function) and _goes_on_beside(item):
            item.stash[_STORY] = pool.submit(item.obj, **arguments(item))


def arguments(item: pytest.Function) -> Mapping[str, Any]:
    """Return the parameters of a test, which are all that it is given."""
    given: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    fixtures = set(inspect.signature(item.obj).parameters) - set(given)
    assert not fixtures, f"{item.nodeid} goes on beside others without fixtures: {fixtures}"
    return given


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Wait for a test that goes on already; others are called as ever."""
    if _STORY not in pyfuncitem.stash:
        return None
    pyfuncitem.stash[_STORY].result()
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let what has begun come to its end, which removes its namespace."""
    if _POOL in session.stash:
        session.stash[_POOL].shutdown(cancel_futures=True)


def _goes_on_beside(item: pytest.Item) -> bool:
    return item.get_closest_marker("beside") is not None
