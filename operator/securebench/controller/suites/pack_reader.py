"""What the packs of a suite are at the moment; unchanged folders of the volume are not copied."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from securebench.benchmark.files.bundle import BundleLimits
from securebench.controller.admission.pack_image import fetch_pack
from securebench.controller.admission.pack_source import answers_content, freeze
from securebench.controller.runtime.context import Context
from securebench.core.digests import content_digest
from securebench.core.errors import InvalidInputError
from securebench.run.api.models import Pack
from securebench.run.layout import PACKS
from securebench.suite.api.models import SuitePack
from securebench.suite.planning import PackContent

_Seen = tuple[Pack, object]


class PackReader:
    """Reads the packs of one suite, and remembers what it has read.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root = context.settings.data_root
        bounds = context.settings.bounds
        self._limits = BundleLimits(bounds.pack_files, bounds.pack_bytes)
        self._known: dict[str, tuple[_Seen, PackContent]] = {}

    async def read(self, packs: Iterable[SuitePack]) -> Mapping[str, PackContent | str]:
        """Return the content of each pack by its name in the matrix, or why there is none.

        Raises:
            ClusterError: The API server did not answer.
            RegistryUnavailableError: A registry did not answer.
            OSError: The volume did not do what was asked.
        """
        return {each.name: await self._read(each) for each in packs}

    async def _read(self, item: SuitePack) -> PackContent | str:
        try:
            if self._is_known_image(item):
                return self._known[item.name][1]
            files = await fetch_pack(self._context, item.pack)
            return await asyncio.to_thread(self._content, item, files)
        except InvalidInputError as error:
            return f"pack {item.name!r}: {error}"

    def _is_known_image(self, item: SuitePack) -> bool:
        """Return whether an image was read before: its digest says that it is the same."""
        known = self._known.get(item.name)
        return item.pack.image is not None and known is not None and known[0][0] == item.pack

    def _content(self, item: SuitePack, files: Mapping[str, bytes] | None) -> PackContent:
        seen = item.pack, files if files is not None else _signature(self._root, item.pack)
        known = self._known.get(item.name)
        if known is not None and known[0] == seen:
            return known[1]
        digest = freeze(self._root, item.pack, files, self._limits).digest
        answers = answers_content(self._root, item.pack, files)
        found = PackContent(digest, content_digest(answers) if answers is not None else "")
        self._known[item.name] = seen, found
        return found


def _signature(root: Path, pack: Pack) -> object:
    """Return what changes with a folder of the volume: its files with size and time of change."""
    if pack.image is not None:
        return pack.image
    folder = root / PACKS / (pack.volume.path if pack.volume is not None else "")
    found = []
    for path, _, names in os.walk(folder):
        for name in names:
            state = os.lstat(Path(path, name))
            found.append((path, name, state.st_size, state.st_mtime_ns, state.st_ino))
    return sorted(found)
