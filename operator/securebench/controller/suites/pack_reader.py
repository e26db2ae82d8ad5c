"""What the packs of a suite are at the moment; unchanged folders of the volume are not copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securebench.controller.context import Context
from securebench.controller.packs import PackSource, fetch_pack, freeze
from securebench.controller.volume_calls import bulk_on_volume
from securebench.digests import content_digest
from securebench.errors import InvalidInputError
from securebench.run.api.models import Pack
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
            source = await fetch_pack(self._context, item.pack)
            return await bulk_on_volume(self._content, item, source)
        except InvalidInputError as error:
            return f"pack {item.name!r}: {error}"

    def _is_known_image(self, item: SuitePack) -> bool:
        """Return whether an image was read before: its digest says that it is the same."""
        known = self._known.get(item.name)
        return item.pack.image is not None and known is not None and known[0][0] == item.pack

    def _content(self, item: SuitePack, source: PackSource) -> PackContent:
        seen = item.pack, source.signature()
        known = self._known.get(item.name)
        if known is not None and known[0] == seen:
            return known[1]
        digest = freeze(self._root, item.pack, source).digest
        answers = source.answers()
        found = PackContent(digest, content_digest(answers) if answers is not None else "")
        self._known[item.name] = seen, found
        return found
