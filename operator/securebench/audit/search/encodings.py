"""Disguises of bytes: what a text says once it is decoded. Pure.

Nothing is encoded in order to be searched: the haystack is decoded, at every alignment, so that one
search of the plain value finds it in each form.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from securebench.core.sizes import MIB

DEPTH = 2
"""Disguises that may lie over one another, for instance base64 of gzip."""

MAX_STREAM_BYTES = 4 * MIB
"""How much is searched of all compressed streams of a text; to decode 1 MiB takes 1 to 5 s."""

MAX_STREAMS = 256
"""Compressed streams of one text; places that only look like one count too."""

_JOINT = b"\0"
"""Between pieces of one view, so that no value spans two of them."""

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{12,}")
_HEX = re.compile(rb"[0-9a-f]{16,}")
_HEX_SIGNS = re.compile(rb"\s|0[xX]|\\x|[:,]")
_URL = re.compile(rb"[\w.~+%-]+")
_COMPRESSED = re.compile(
    rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]|BZh[1-9]1AY&SY|\xfd7zXZ\x00|PK\x03\x04"
)
_ZIP_HEADER = 30
_ZIP_DEFLATED = 8


class SearchForm(StrEnum):
    """A way to write bytes."""

    REVERSED = "reversed"
    BASE64 = "base64"
    HEX = "hexadecimal"
    URL = "URL-encoded"
    COMPRESSED = "compressed"


class View(NamedTuple):
    """Bytes as they are after some forms were taken off, the outermost first."""

    forms: tuple[SearchForm, ...]
    content: bytes


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def views(content: bytes) -> Iterator[View]:
    """Yield the content as it is and as it is without its disguises."""
    level = [View((), content)]
    yield level[0]
    for _ in range(DEPTH):
        level = [view for above in level for view in _below(above)]
        yield from level


def _below(view: View) -> Iterator[View]:
    for form, take_off in _FORMS:
        if form is SearchForm.REVERSED and form in view.forms:
            continue
        for content in take_off(view.content):
            if content:
                yield View((*view.forms, form), content)


def _reversed(content: bytes) -> Iterator[bytes]:
    try:
        yield content.decode("utf-8")[::-1].encode("utf-8")
    except UnicodeDecodeError:
        yield content[::-1]


def _base64(content: bytes) -> Iterator[bytes]:
    """Decode every run at each of its four places; blanks inside do not count."""
    dense = b"".join(content.split()).replace(b"-", b"+").replace(b"_", b"/")
    runs = _BASE64.findall(dense)
    for start in range(4):
        yield _JOINT.join(map(base64.b64decode, _quads(runs, start)))


def _quads(runs: Iterable[bytes], start: int) -> Iterator[bytes]:
    for run in runs:
        piece = run[start:]
        rest = len(piece) % 4
        yield piece[:-1] if rest == 1 else piece + b"=" * (-rest % 4)


def _hex(content: bytes) -> Iterator[bytes]:
    runs = _HEX.findall(_HEX_SIGNS.sub(b"", content.lower()))
    for start in range(2):
        pieces = (run[start:] for run in runs)
        yield _JOINT.join(binascii.unhexlify(piece[: len(piece) // 2 * 2]) for piece in pieces)


def _url(content: bytes) -> Iterator[bytes]:
    runs = [run for run in _URL.findall(content) if b"%" in run]
    yield _JOINT.join(map(unquote_to_bytes, runs))
    if any(b"+" in run for run in runs):
        yield _JOINT.join(unquote_to_bytes(run.replace(b"+", b" ")) for run in runs)


def _compressed(content: bytes) -> Iterator[bytes]:
    streams: list[bytes] = []
    left = MAX_STREAM_BYTES
    for match in islice(_COMPRESSED.finditer(content), MAX_STREAMS):
        if left > 0:
            streams.append(_stream(content, match, left))
            left -= len(streams[-1])
    yield _JOINT.join(filter(None, streams))


def _stream(content: bytes, match: re.Match[bytes], limit: int) -> bytes:
    start, magic = match.start(), match.group()
    decompressor: _Decompressor
    if magic.startswith(b"BZh"):
        decompressor = bz2.BZ2Decompressor()
    elif magic.startswith(b"\xfd"):
        decompressor = lzma.LZMADecompressor()
    elif magic.startswith(b"PK"):
        decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
        start = _zip_data(content, start)
    else:
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        return decompressor.decompress(content[start:], limit)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return b""


def _zip_data(content: bytes, start: int) -> int:
    """Return where the data of a zip entry begins; the end where nothing is deflated."""
    header = content[start : start + _ZIP_HEADER]
    if len(header) < _ZIP_HEADER or int.from_bytes(header[8:10], "little") != _ZIP_DEFLATED:
        return len(content)
    sizes = header[26:30]
    lengths = int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
    return start + _ZIP_HEADER + lengths


_FORMS: tuple[tuple[SearchForm, Callable[[bytes], Iterator[bytes]]], ...] = (
    (SearchForm.REVERSED, _reversed),
    (SearchForm.BASE64, _base64),
    (SearchForm.HEX, _hex),
    (SearchForm.URL, _url),
    (SearchForm.COMPRESSED, _compressed),
)
