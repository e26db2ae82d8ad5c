"""The Go structs of supervise's specifications, made from the classes of ``protocol.supervise``.

A class becomes a struct of its name without ``Spec``; a verb has ``Version``, too. The tag ``json``
says whether a field may be missing, the tag ``is`` which texts it takes: a path, or one of several
words. The decoder (``images/supervise/internal/specs/decode.go``) enforces both for every struct.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from securebench.protocol.messages import is_optional
from securebench.protocol.supervise import SuperviseSpec

GO_STRUCTS: Final = "images/supervise/internal/specs/generated.go"
"""Path of the generated file in the repository."""

_HEADER: Final = """// Code generated from operator/securebench/protocol. DO NOT EDIT.

package specs
"""
_SCALARS: Final[Mapping[object, str]] = {str: "string", bool: "bool", float: "float64", int: "int"}
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


class _GoType(NamedTuple):
    """A type as Go has it, the texts that it takes, and the class of its parts."""

    name: str
    texts: str = ""
    part: type | None = None


def go_structs() -> str:
    """Return the file with the struct of each class, in the order in which a verb reaches them."""
    structs: dict[str, str] = {}
    for kind in get_args(SuperviseSpec):
        _add(kind, structs)
    return _HEADER + "".join(structs.values())


def _add(kind: type, structs: dict[str, str]) -> None:
    name = _name(kind)
    if name in structs:
        return
    structs[name] = ""
    lines, comments = [], dict(_comments(kind))
    if hasattr(kind, "verb"):
        lines = ["// Version of the protocol.", 'Version int `json:"version"`']
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        go = _go_type(hints[each.name], is_none=False)
        tag = f'json:"{each.name}{",omitempty" if is_optional(each) else ""}"'
        tag += f' is:"{go.texts}"' if go.texts else ""
        own = "".join(word.capitalize() for word in each.name.split("_"))
        lines += [f"// {own}: {comments[each.name]}", f"{own} {go.name} `{tag}`"]
        if go.part is not None:
            _add(go.part, structs)
    body = "".join(f"\t{line}\n" for line in lines)
    summary = _plain((inspect.getdoc(kind) or "").split("\n", 1)[0])
    structs[name] = f"\n// {name}: {summary}\ntype {name} struct {{\n{body}}}\n"


def _name(kind: type) -> str:
    return kind.__name__.removesuffix("Spec")


def _comments(kind: type) -> Iterator[tuple[str, str]]:
    for base in reversed(kind.__mro__):
        for name, text in _ATTRIBUTE.findall(inspect.cleandoc(base.__doc__ or "")):
            yield name, _plain(" ".join(text.split()))


def _plain(text: str) -> str:
    return text.replace("``", "")


def _go_type(hint: object, *, is_none: bool) -> _GoType:
    """Return a type of a field.

    Args:
        hint: Its annotation.
        is_none: Whether it may also be None.
    """
    parts, pointer = get_args(hint), "*" if is_none else ""
    if isinstance(hint, UnionType) or NoneType in parts:
        (main,) = set(parts) - {NoneType}
        return _go_type(main, is_none=True)
    if get_origin(hint) is Annotated:
        kind, fact = parts
        return _GoType(pointer + fact) if kind is int else _GoType(f"{pointer}string", fact)
    if get_origin(hint) is Literal:
        return _GoType(f"{pointer}string", "|".join(parts))
    if get_origin(hint) is tuple:
        item = _go_type(parts[0], is_none=False)
        return item._replace(name=f"[]{item.name}")
    if get_origin(hint) is Mapping:
        return _GoType(f"map[string]{_SCALARS[parts[1]]}")
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _GoType(f"{pointer}string", "|".join(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return _GoType(pointer + _name(hint), part=hint)
    return _GoType(pointer + _SCALARS[hint])
