"""Strict reading of YAML and JSON into plain values: what one decoder accepts, all accept."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from json import JSONDecodeError, loads
from math import isfinite
from typing import NamedTuple

import yaml

MAX_NODES = 100_000
"""Values of a document after aliases are expanded; a short text could else mean billions."""

MAX_DEPTH = 64
"""Nested lists and mappings of a document; everything that walks values is recursive."""

MAX_NUMBER_CHARACTERS = 1000
"""Longest number in YAML: hexadecimal ones have no limit of Python's, their decimal form has."""

KeyPath = tuple[str, ...]

_OTHER_ENCODINGS: Mapping[bytes, str] = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""By the bytes that a file begins with; UTF-32 first, because its mark begins with the other's."""

_YAML_CAUSES: Mapping[str, str] = {
    "found character '\\t'": "a tab in the indentation; indent with spaces",
    "mapping values are not allowed": (
        "a key cannot stand here; indent the line like those beside it, put a blank behind every"
        " ':' and quotes around text that holds ': '"
    ),
    "expected <block end>": "the line is indented otherwise than those that it belongs to",
    "expected '<document start>'": "the line is indented otherwise than those before it",
    "could not find expected ':'": "the line has no ':'; indent the line like the block above it",
    "found unexpected end of stream": "the quote that is opened here is never closed",
    "found undefined alias": "a value that begins with '*' needs quotes",
    "while scanning an alias": "a value that begins with '*' needs quotes",
}
"""What people most likely did, by the beginning of PyYAML's words."""


class PlainProblem(Exception):  # noqa: N818 - callers turn it into the error of their input
    """The text is no document of plain values.

    Args:
        reason: What is wrong; never a piece of the text.
        line: Line number from 1, or None.
    """

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class YamlDocument(NamedTuple):
    """A parsed document: its value and the line, from 1, of every key below mappings."""

    value: object
    lines: Mapping[KeyPath, int]


def line_of(key: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a key, or of the nearest section around a missing one."""
    around = (key[:end] for end in range(len(key), 0, -1))
    return next((lines[part] for part in around if part in lines), 1)


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader whose dates stay text: every value has a JSON form."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(text: str) -> YamlDocument:
    """Return the only document of a text.

    Raises:
        PlainProblem: Not YAML, several documents, a key that is no string or occurs twice,
            a value without a JSON form, or too many or too deeply nested values.
    """
    lines: dict[KeyPath, int] = {}
    try:
        node, value = _read_yaml(text, lines)
    except yaml.MarkedYAMLError as error:
        raise _yaml_problem(error) from None
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError):
        # PyYAML's constructors trust the tag of a value: ``!!int ''`` is an IndexError.
        raise PlainProblem("invalid YAML: unreadable character or value", None) from None
    except RecursionError:
        raise PlainProblem("invalid YAML: values are nested too deeply", None) from None
    if node is None:
        return YamlDocument(None, {})
    if is_too_deep(value):
        raise PlainProblem(f"invalid YAML: more than {MAX_DEPTH} nested values", 1)
    _check_plain(value, node)
    return YamlDocument(value, lines)


def decoded(data: bytes) -> str:
    """Return the text of a file; a mark of UTF-8 at its beginning is left out.

    Raises:
        PlainProblem: It is not UTF-8.
    """
    check_encoding(data)
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PlainProblem("not UTF-8 text; save the file as UTF-8", line) from None


def check_encoding(head: bytes) -> None:
    """Refuse the encodings that editors mark.

    Args:
        head: The beginning of a file, at least 4 bytes where it has so many.

    Raises:
        PlainProblem: It is UTF-16 or UTF-32.
    """
    for mark, name in _OTHER_ENCODINGS.items():
        if head.startswith(mark):
            raise PlainProblem(f"the file is {name}; save it as UTF-8", 1)
    if head[:2].count(0) == 1:
        raise PlainProblem("the file is UTF-16 without a mark; save it as UTF-8", 1)


def _yaml_problem(error: yaml.MarkedYAMLError) -> PlainProblem:
    words = error.problem or "unreadable"
    mark = error.problem_mark
    for beginning, cause in _YAML_CAUSES.items():
        if words.startswith(beginning) or error.context == beginning:
            words = cause
    if error.context in {"while scanning a quoted scalar", "while scanning a simple key"}:
        mark = error.context_mark
    return PlainProblem(f"invalid YAML: {words}", None if mark is None else mark.line + 1)


def _read_yaml(text: str, lines: dict[KeyPath, int]) -> tuple[yaml.Node | None, object]:
    loader = _PlainLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        _count(node, {}, set())
        _collect(node, (), lines)
        return node, loader.construct_document(node)
    finally:
        loader.dispose()


def parse_json(content: bytes) -> object:
    """Return the value of a JSON text.

    Raises:
        PlainProblem: Not UTF-8, not JSON, a key twice in one object, a number that is not
            finite, or too deeply nested values. It has no line.
    """
    try:
        value = loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except JSONDecodeError as error:
        is_comma = error.msg == "Extra data" and error.doc[error.pos :].strip() == ","
        remedy = "; remove the comma behind the object" if is_comma else ""
        reason = f"invalid JSON: {error.msg} (column {error.colno}){remedy}"
        raise PlainProblem(reason, None) from None
    except UnicodeDecodeError:
        raise PlainProblem("invalid JSON: not UTF-8 text", None) from None
    except ValueError as error:
        raise PlainProblem(f"invalid JSON: {error}", None) from None
    except RecursionError:
        raise PlainProblem("invalid JSON: values are nested too deeply", None) from None
    if is_too_deep(value):
        raise PlainProblem(f"invalid JSON: more than {MAX_DEPTH} nested values", None)
    return value


def is_too_deep(value: object) -> bool:
    """Return whether lists and mappings are nested beyond the limit."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child for item in level for child in _items(item) if isinstance(child, Mapping | list)
        ]
    return bool(level)


def plain_problem(value: object) -> str:
    """Return why a value, which is not too deep, has no JSON form; empty if it has one."""
    if isinstance(value, Mapping | list):
        return next(filter(None, map(plain_problem, _items(value))), "")
    if isinstance(value, float) and not isfinite(value):
        return "a number must be finite"
    if isinstance(value, int) and value.bit_length() > 4 * MAX_NUMBER_CHARACTERS:
        return f"a number of more than {MAX_NUMBER_CHARACTERS} characters"
    if not isinstance(value, str | int | float | bool | None):
        return "only strings, numbers, booleans, lists and mappings are known"
    return ""


def _items(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object holds the same key twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number must be finite")
    return number


def _count(node: yaml.Node, known: dict[int, int], open_nodes: set[int]) -> int:
    """Return the number of values below a node, aliases expanded."""
    _check_number(node)
    key = id(node)
    if key in open_nodes:
        raise PlainProblem("invalid YAML: a value contains itself", node.start_mark.line + 1)
    if key not in known:
        open_nodes.add(key)
        known[key] = 1 + sum(_count(child, known, open_nodes) for child in _children(node))
        open_nodes.discard(key)
    if known[key] > MAX_NODES:
        raise PlainProblem(f"invalid YAML: more than {MAX_NODES} values", node.start_mark.line + 1)
    return known[key]


def _check_number(node: yaml.Node) -> None:
    is_number = node.tag in {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
    if is_number and len(node.value) > MAX_NUMBER_CHARACTERS:
        reason = f"invalid YAML: a number of more than {MAX_NUMBER_CHARACTERS} characters"
        raise PlainProblem(reason, node.start_mark.line + 1)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return []


def _collect(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect(item, (*path, str(index)), lines)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise PlainProblem("invalid YAML: a key must be a string; quote it", line)
        if key.value in seen:
            raise PlainProblem(f"invalid YAML: duplicate key {key.value!r}", line)
        seen.add(key.value)
        lines.setdefault((*path, key.value), line)
        _collect(value, (*path, key.value), lines)


def _check_plain(value: object, node: yaml.Node) -> None:
    if reason := plain_problem(value):
        raise PlainProblem(f"invalid YAML: {reason}", node.start_mark.line + 1)
