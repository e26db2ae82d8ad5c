"""Links of pages to what the site does not have (files outside docs/, folders) become paths."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
"""A link to a relative path that climbs up."""


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return a page whose links to what is no page are text with the path."""
    folder = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if path.startswith("docs/") and path.endswith(".md"):
            return match[0]
        words = match[1].strip("`")
        return f"`{path}`" if words in path else f"{match[1]} (`{path}`)"

    return _LINK.sub(inside, markdown)
