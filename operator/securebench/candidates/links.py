"""Which symbolic links of a workspace may cross into a verifier. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from securebench.candidates.extraction import Problem
from securebench.candidates.untrusted import RefusedError
from securebench.protocol import FRAMEWORK_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FOLLOWED = 40
"""Links on the way to a target; the kernel gives up at the same number."""

MAX_STEPS = 5_000_000
"""Path components that are looked at for a whole workspace, some seconds of work."""


def escaping(links: Mapping[str, str]) -> frozenset[str]:
    """Return the links that are absolute, lead out of the tree or into our folder, or never end.

    Where a link leads is worked out over the other links, as the kernel would: a chain of links
    that each look harmless may lead out.

    Args:
        links: Target by path; paths are relative to the tree's root.

    Raises:
        RefusedError: The links are too tangled to be judged.
    """
    judge = _Judge(links)
    return frozenset(path for path in links if not judge.stays(path))


class _Judge:
    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._steps = 0

    def stays(self, path: str) -> bool:
        """Tell whether a link resolves inside the tree and outside our folder."""
        place: list[str] = []
        ahead = deque(path.split("/"))
        followed = 0
        while ahead:
            self._count()
            component = ahead.popleft()
            if component == "..":
                if not place:
                    return False
                place.pop()
            elif component not in {"", "."}:
                place.append(component)
                target = self._links.get("/".join(place))
                if target is not None:
                    followed += 1
                    if not target or target.startswith("/") or followed > MAX_FOLLOWED:
                        return False
                    place.pop()
                    ahead.extendleft(reversed(target.split("/")))
            if place and place[0] == FRAMEWORK_FOLDER:
                return False
        return True

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise RefusedError(Problem.TOO_LARGE, "the workspace has too many tangled links")
