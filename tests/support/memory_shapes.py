"""Hostile shapes of what a candidate may hand over, each as long as it is told to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice

FACE = "\U0001f600"
"""Four bytes of UTF-8; one of them makes Python keep four bytes for every character of a text."""
HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
NEW = b"--- /dev/null\n+++ b/x\n"
HEADED = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n"


def repeated(piece: bytes, size: int) -> bytes:
    """Return a text of whole pieces, at most so long."""
    return piece * (size // len(piece))


def sections(size: int, path: Callable[[int], str], body: str = "new file mode 100644\n") -> bytes:
    """Return a patch of so many sections as fit."""
    return b"".join(_sections(size, path, body))


def _sections(size: int, path: Callable[[int], str], body: str) -> Iterator[bytes]:
    for number in count():
        name = path(number)
        section = f"diff --git a/{name} b/{name}\n{body.replace('NAME', name)}".encode()
        size -= len(section)
        if size < 0:
            return
        yield section


def named(size: int) -> bytes:
    """Return a patch whose one header has a name of that length."""
    return b'diff --git "a/' + b"a" * size + b'" "b/x"\nold mode 100644\nnew mode 100755\n'


def all_listed(size: int) -> bytes:
    """Return the most that is read: as many sections and paths as may be, a hunk for the rest."""
    many = b"".join(islice(_sections(size, "d/{:096x}".format, "new file mode 100644\n"), 9_999))
    added = repeated(b"+" + b"x" * 78 + b"\n", size - len(many) - 100)
    head = b"diff --git a/x b/x\nnew file mode 100644\n" + NEW
    return many + head + b"@@ -0,0 +1,%d @@\n" % added.count(b"\n") + added


def escaped(size: int) -> bytes:
    """Return sections whose paths are octal escapes of control bytes."""
    name = "\\001" * 20
    return (
        sections(size, lambda number: f"{name}{number}")
        .replace(b" a/", b' "a/')
        .replace(b" b/", b'" "b/')
        .replace(b"\nnew", b'"\nnew')
    )


def wide(size: int) -> bytes:
    """Return plain text as the new content of a file, with one astral character at its end."""
    added = repeated(b"+" + b"x" * 62 + b"\n", size - 200)
    number = added.count(b"\n") + 1
    head = b"diff --git a/x b/x\nnew file mode 100644\n" + NEW + b"@@ -0,0 +1,%d @@\n" % number
    return head + added + f"+{FACE}\n".encode()


def link(size: int) -> bytes:
    """Return a link whose text is as long as that."""
    head = b"diff --git a/x b/x\nnew file mode 120000\n" + NEW
    return head + b"@@ -0,0 +1 @@\n+" + b"x/" * (size // 2) + b"\n\\ No newline at end of file\n"


PATCHES: Mapping[str, Callable[[int], bytes]] = {
    "a long name in quotes": named,
    "a long name left open": lambda size: b'diff --git "a/' + b"a" * size,
    "a long name of escapes": lambda size: named(0).replace(b"a/", b"a/" + b"\\141" * (size // 4)),
    "a long name without quotes": lambda size: (
        b"diff --git a/" + b"x" * (size // 2) + b" b/" + b"x" * (size // 2)
    ),
    "a long name in a rename": lambda size: (
        b'diff --git a/x b/y\nrename from "' + b"x" * size + b'"\nrename to y\n'
    ),
    "a long name in a body": lambda size: b'diff --git a/x b/x\n--- "a/' + b"x" * size + b'"\n',
    "many sections": lambda size: sections(size, lambda number: f"d/{number:x}"),
    "as many sections as are read": all_listed,
    "sections with long paths": lambda size: sections(
        size, lambda number: f"{number}/" + "/".join(["n" * 250] * 14)
    ),
    "deep paths": lambda size: sections(size, lambda number: f"{number:04x}" + "/aa" * 1300),
    "wide paths": lambda size: sections(size, lambda number: f"d/{number:x}" + FACE * 60),
    "control bytes in paths": escaped,
    "denied paths": lambda size: sections(size, lambda number: f"tests/{number:x}"),
    "many hunks": lambda size: HEADED + repeated(HUNK, size - 50),
    "empty lines in a hunk": lambda size: (
        HEADED + b"@@ -1,9999999 +1,9999999 @@\n" + b"\n" * (size // 4)
    ),
    "a long heading of a hunk": lambda size: HEADED + b"@@ -1 +1 @@ " + b"@" * size + b"\n-a\n+b\n",
    "one long line": lambda size: HEADED + b"@@ -1 +1 @@\n-a\n+" + b"x" * size + b"\n",
    "one wide character": wide,
    "wide characters": lambda size: (
        HEADED + b"@@ -1 +1 @@\n-a\n+" + FACE.encode() * (size // 4) + b"\n"
    ),
    "control bytes": lambda size: HEADED + b"@@ -1 +1 @@\n-a\n+" + b"\1" * size + b"\n",
    "a link with a long text": link,
    "links": lambda size: sections(
        size,
        lambda number: f"src/{number:x}",
        "new file mode 120000\n--- /dev/null\n+++ b/NAME\n@@ -0,0 +1 @@\n+" + "x" * 4000 + "\n",
    ),
    "binary lines": lambda size: (
        b"diff --git a/x b/x\nGIT binary patch\nliteral 9\n"
        + repeated(b"LcmZQzWMT#Y01f~L\n", size - 60)
        + b"\n"
    ),
    "a long percentage": lambda size: b"diff --git a/x b/x\nsimilarity index " + b"1" * size,
    "a long mode": lambda size: b"diff --git a/x b/x\nold mode " + b"1" * size,
    "a long index": lambda size: b"diff --git a/x b/x\nindex " + b"a" * size,
    "blanks": lambda size: b" " * size,
    "blanks of Unicode": lambda size: "\u3000".encode() * (size // 3),
    "blank lines at the end": lambda size: HEADED + HUNK + b"\n" * (size - 50),
}
"""Patches by name."""

STREAMS: Mapping[str, Callable[[int], bytes]] = {
    "plain": lambda size: b"x" * size,
    "one wide character": lambda size: b"x" * (size - 4) + FACE.encode(),
    "no UTF-8": lambda size: b"\xff" * size,
    "control bytes": lambda size: b"\1" * size,
    "a known value again and again": lambda size: repeated(b"swordfish-value ", size),
}
"""Streams of a harness or a check by name; the value is one that has to be hidden."""


def changed(size: int) -> bytes:
    """Return a list of changed paths with as many short names as fit."""
    names = (f'"{number:x}":null,' for number in range(size // 12))
    return b"{" + "".join(names).encode().removesuffix(b",") + b"}"
