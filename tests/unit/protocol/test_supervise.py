"""What the operator tells supervise: its Go structs read the same fields, of the same types."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from securebench.protocol.candidate import CandidateBounds
from securebench.protocol.messages import OPTIONAL, encode_spec, spec_key
from securebench.protocol.supervise import (
    CollectSpec,
    CopySpec,
    EgressSpec,
    ProbeSpec,
    RunSpec,
    SealSpec,
    SuperviseSpec,
)

SOURCES = Path(__file__).parents[3] / "images" / "supervise"
SPECS = SOURCES / "internal" / "specs"
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r'^\t[A-Z]\w*\s+(\S+)\s+`json:"(\w+)"`', re.MULTILINE)
USAGE = re.compile(r"usage: supervise (\S+) --spec JSON")
IMPORTED = {"Mapping": Mapping, "CandidateBounds": CandidateBounds}
SCALARS = {"string": str, "bool": bool, "float64": float} | dict.fromkeys(
    ("int", "int64", "uint32", "uint64"), int
)
WRITTEN_BY_ENCODER = {"version"}


@dataclass(frozen=True)
class Told:
    """A field as Python has it.

    Attributes:
        kind: Its type, without None.
        may_be_null: Whether JSON can have null in its place.
    """

    kind: object
    may_be_null: bool


def structs() -> dict[str, dict[str, str]]:
    paths = [path for path in SPECS.glob("*.go") if not path.stem.endswith("_test")]
    found = [each for path in paths for each in STRUCT.findall(path.read_text())]
    return {name: {key: kind for kind, key in FIELD.findall(body)} for name, body in found}


GO = structs()


def told(kind: type) -> dict[str, Told]:
    hints = get_type_hints(kind, localns=IMPORTED)
    result = {}
    for each in fields(kind):
        hint = hints[each.name]
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        (main,) = set(parts) - {NoneType}
        may_be_null = NoneType in parts and OPTIONAL not in each.metadata
        result[spec_key(each)] = Told(main, may_be_null)
    return result


def differences(struct: str, kinds: tuple[type, ...], place: str) -> list[str]:
    ours = {name: one for kind in kinds for name, one in told(kind).items()}
    found = [f"{place}.{name} on one side only" for name in sorted(ours.keys() ^ GO[struct].keys())]
    for name in ours.keys() & GO[struct].keys():
        found += compared(GO[struct][name], ours[name], f"{place}.{name}")
    return found


def compared(go: str, ours: Told, place: str) -> list[str]:
    if ours.may_be_null and not go.startswith("*"):
        return [f"{place} may not be null in Go"]
    return of_kind(go.removeprefix("*"), ours.kind, place)


def of_kind(go: str, kind: object, place: str) -> list[str]:
    arguments = get_args(kind)
    if go.startswith("[]") and get_origin(kind) is tuple and arguments[1:] == (...,):
        return of_kind(go.removeprefix("[]"), arguments[0], f"{place}[]")
    if go.startswith("map[string]") and get_origin(kind) is Mapping and arguments[0] is str:
        return of_kind(go.removeprefix("map[string]"), arguments[1], f"{place}[]")
    if go in GO and is_dataclass(kind):
        return differences(go, (kind,), place)
    scalar = type(arguments[0]) if get_origin(kind) is Literal else kind
    return [] if SCALARS.get(go) is scalar else [f"{place} is {go} in Go, {kind} here"]


@pytest.mark.parametrize(
    ("struct", "kinds"),
    [
        ("Copy", (CopySpec,)),
        ("Run", (RunSpec,)),
        ("courier", (SealSpec, CollectSpec)),
        ("Egress", (EgressSpec,)),
        ("Probe", (ProbeSpec,)),
    ],
)
def test_fields_are_those_of_the_struct(struct: str, kinds: tuple[type, ...]) -> None:
    found = differences(struct, kinds, struct)

    assert found == [f"{struct}.{name} on one side only" for name in WRITTEN_BY_ENCODER]


def test_every_verb_has_a_specification() -> None:
    (verbs,) = USAGE.findall((SOURCES / "main.go").read_text())

    assert {kind.verb for kind in get_args(SuperviseSpec)} == set(verbs.split("|"))


def test_specifications_survive_the_kubelet() -> None:
    text = encode_spec(CopySpec("/$$ $(TOKEN)", "/${HOME} ä\n"))

    assert "$" not in text
    assert text.isascii()
    assert json.loads(text) == {"version": 1, "from": "/$$ $(TOKEN)", "to": "/${HOME} ä\n"}
