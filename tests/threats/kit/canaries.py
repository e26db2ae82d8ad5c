"""Strings that must stay hidden, and the search for them in every common form."""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

_WORDS = ("canary", "7f3d")
PREFIX = "-".join(_WORDS)
"""Begins every canary, so that a probe that knows no canary finds all of them."""
GZIP_MAGIC = b"\x1f\x8b\x08"


def canary() -> str:
    """Return a new canary."""
    return f"{PREFIX}-{uuid.uuid4().hex}"


def forms(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each form in which a text may lie in data."""
    plain = text.encode()
    yield "plain", plain
    yield "reversed", plain[::-1]
    yield "hex", plain.hex().encode()
    yield "HEX", plain.hex().upper().encode()
    yield "url", quote(text, safe="").replace("-", "%2D").encode()
    for shift in range(3):
        yield f"base64/{shift}", _base64_core(plain, shift)


def hits(data: bytes, text: str) -> list[str]:
    """Return the names of the forms in which a text lies in data, gzip streams opened."""
    found = [name for name, form in forms(text) if form in data]
    for content in _unzipped(data):
        found += [f"gzip:{name}" for name in hits(content, text)]
    return found


def _base64_core(plain: bytes, shift: int) -> bytes:
    """Return what stays the same whatever stands around the text at this alignment."""
    encoded = base64.b64encode(b"\0" * shift + plain)
    begin = {0: 0, 1: 2, 2: 3}[shift]
    end = len(encoded) - 4 if (shift + len(plain)) % 3 else len(encoded)
    return encoded[begin:end]


def _unzipped(data: bytes) -> Iterator[bytes]:
    begin = data.find(GZIP_MAGIC)
    while begin >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data[begin:])
        begin = data.find(GZIP_MAGIC, begin + 1)


SEARCH = f"""\
import base64, json, os, re, sys
prefix = "-".join({_WORDS!r}).encode()
needles = [prefix, prefix[::-1], prefix.hex().encode(), prefix.hex().upper().encode()]
needles += [base64.b64encode(b"\\0" * n + prefix)[(0, 2, 3)[n]:-4] for n in range(3)]
def search(place, data):
    return [place for needle in needles if needle in data]
found = search("environ", repr(dict(os.environ)).encode())
for top, folders, files in os.walk("/", onerror=lambda _: None):
    if top in ("/proc", "/sys"):
        folders[:] = [name for name in folders if name.isdigit()]
    if top.startswith("/proc/"):
        folders[:] = []
        files = [name for name in files if name in ("environ", "cmdline", "mountinfo", "cgroup")]
    for name in files:
        path = os.path.join(top, name)
        found += search(path, os.fsencode(path))
        try:
            if os.path.isfile(path) and os.path.getsize(path) < 1 << 26:
                with open(path, "rb") as file:
                    found += search(path, file.read(1 << 26))
        except OSError:
            pass
"""
"""A program for a Pod: leaves in ``found`` the places where a canary can be read, gzip left out.

It spells the prefix in parts, so that it does not find itself.
"""
