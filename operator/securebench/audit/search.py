"""Search for hidden values of a task: which values there are, and where a text holds them.

Nothing is encoded in order to be searched. Instead each text is decoded, at every alignment, so
that one search of the plain value finds it in each form, for instance base64 of gzip.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from securebench.benchmark.families.registry import audit_rules_for, verifier_for_task_type
from securebench.benchmark.files.load import asset_source
from securebench.benchmark.pack.lane_plan import CHECKER, asset_root, each_reference
from securebench.benchmark.pack.task import ASSETS, SecureBenchTask
from securebench.benchmark.resources import Lane
from securebench.errors import PackError
from securebench.sizes import MIB

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


MIN_VALUE_BYTES = 16
"""Shorter values of a check stand in other texts by chance."""

MIN_ANSWER_BYTES = 8
"""Shorter answers, a letter or a number, are the letters of every encoded text."""

SETTINGS = frozenset(
    {
        "command",
        "mount",
        "path",
        "source",
        "type",
        "workdir",
    }
)
"""Keys whose values say how a check runs, in rows of any family; an instruction may quote them."""

_CANARY = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class HiddenValue:
    """Bytes that must not be found.

    Attributes:
        name: Where the pack has it; this is what messages show.
        content: Without blanks at its ends.
        is_answer: An answer to a question; its plain form may be part of the question.
        file_name: File name of a file beside the check; empty for everything else.
    """

    name: str
    content: bytes
    is_answer: bool = False
    file_name: str = ""

    def is_input(self, task: SecureBenchTask, path: str) -> bool:
        """Tell whether a file that holds the value is an input that the agent is told to use.

        A check often brings its own copy of an input, to see whether the agent left it as it was.
        Where the row's public text names the file and the agent has it under that name, the copy
        is no secret; were it the wanted result, the task would pass with a nop.

        Args:
            task: The task of the value.
            path: Path of the file, in the agent's workspace or image.
        """
        name = PurePosixPath(path).name
        if not self.file_name or name != self.file_name:
            return False
        said = {key: value for key, value in task.agent_payload().items() if key != ASSETS}
        return any(name in text for text in strings(said))


@dataclass(frozen=True, slots=True)
class ValueHit:
    """A value that was found.

    Attributes:
        forms: Its disguises, the outermost first; empty for the plain value.
    """

    value: HiddenValue
    forms: tuple[SearchForm, ...] = ()

    @property
    def how(self) -> str:
        """Return the disguises in words."""
        return " of ".join(self.forms) or "plain"


def hidden_values(
    task: SecureBenchTask, pack_root: Path, reference: str | None = None
) -> tuple[HiddenValue, ...]:
    """Return what must not be seen of one task, each value once.

    Raises:
        PackError: A file of the task does not hold.
        OSError: A file cannot be read.
    """
    found = [
        *_row_values(task),
        *_file_values(task, pack_root),
        *_reference_values(task, reference),
    ]
    unique: dict[bytes, HiddenValue] = {}
    for value in found:
        unique.setdefault(value.content, value)
    return tuple(unique.values())


def find(values: Iterable[HiddenValue], content: bytes) -> Iterator[ValueHit]:
    """Yield the values that a text holds, in any of its forms; each value once."""
    left = list(values)
    for view in views(content):
        hits = [value for value in left if _is_in(value, view)]
        yield from (ValueHit(value, view.forms) for value in hits)
        left = [value for value in left if value not in hits]
        if not left:
            return


def find_plain(values: Iterable[HiddenValue], content: bytes) -> Iterator[ValueHit]:
    """Yield the values that a text holds as they are."""
    return (ValueHit(value) for value in values if _is_in(value, View((), content)))


def strings(value: object) -> Iterator[str]:
    """Yield every string of a JSON value, the keys of mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (str(key), *strings(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def plain_files(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file, or the files of a folder, with their paths below it; a file has none."""
    if source.is_file():
        yield "", source
        return
    for folder, _, names in os.walk(source, followlinks=False):
        for name in sorted(names):
            path = Path(folder, name)
            yield path.relative_to(source).as_posix(), path


def _is_in(value: HiddenValue, view: View) -> bool:
    if value.is_answer and all(form is SearchForm.COMPRESSED for form in view.forms):
        return False
    return value.content in view.content


def _row_values(task: SecureBenchTask) -> Iterator[HiddenValue]:
    is_answer = _asks(task)
    settings = SETTINGS | audit_rules_for(task.task_type).settings
    for resource in task.resources:
        if resource.visibility is Lane.PUBLIC:
            continue
        name = f"eval.{resource.name}"
        for place, text in _leaves(name, resource.value):
            content = text.encode("utf-8", "surrogatepass")
            yield from _canaries(place, content)
            if place.rpartition(".")[2] not in settings:
                yield from _long_enough(place, content, is_answer=is_answer)


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the strings of a value with the keys that lead to them; items of lists share one."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(name, item)


def _file_values(task: SecureBenchTask, pack_root: Path) -> Iterator[HiddenValue]:
    for reference in each_reference(task):
        if isinstance(reference, PackError):
            raise reference
        if reference.lane is Lane.PUBLIC:
            continue
        source = asset_source(pack_root, asset_root(task, reference.lane), reference)
        for below, path in plain_files(source):
            name = f"file {'/'.join(filter(None, (reference.source, below)))!r}"
            content = path.read_bytes()
            yield from _canaries(name, content)
            is_check = reference.name == CHECKER and not below
            file_name = "" if is_check else path.name
            for value in _long_enough(name, content, is_answer=False):
                yield replace(value, file_name=file_name)


def _reference_values(task: SecureBenchTask, reference: str | None) -> Iterator[HiddenValue]:
    if reference is not None:
        content = reference.encode()
        yield from _long_enough("the reference answer", content, is_answer=_asks(task))


def _asks(task: SecureBenchTask) -> bool:
    """Tell whether a task is a question, whose answers may stand in it; others run a check."""
    verifier = verifier_for_task_type(task.task_type)
    return verifier is None or not verifier.is_executing


def _canaries(name: str, content: bytes) -> Iterator[HiddenValue]:
    for canary in _CANARY.findall(content):
        yield HiddenValue(f"the canary of {name}", canary)


def _long_enough(name: str, content: bytes, *, is_answer: bool) -> Iterator[HiddenValue]:
    stripped = content.strip()
    if len(stripped) >= (MIN_ANSWER_BYTES if is_answer else MIN_VALUE_BYTES):
        yield HiddenValue(name, stripped, is_answer)
