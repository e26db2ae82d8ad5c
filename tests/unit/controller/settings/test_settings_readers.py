"""Every setting has a reader: types are followed through the sources, names alone prove nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from securebench.controller import settings, volume_settings
from securebench.controller.settings import Settings

DEFINED = [Path(each.__file__) for each in (settings, volume_settings)]
SOURCES = DEFINED[0].parents[1]
PARTS = {
    name: item
    for module in (volume_settings, settings)
    for name, item in vars(module).items()
    if isinstance(item, type) and issubclass(item, BaseModel) and item.__module__ == module.__name__
}
HOLDERS = frozenset({"settings", "_settings"})
"""Attributes of other objects that hold the settings."""

Part = type[BaseModel]
Read = tuple[str, str]


def part_of(annotation: object) -> Part | None:
    """Return the part that a field holds, itself or as elements."""
    for found in (annotation, *get_args(annotation)):
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


def leaves(part: Part) -> Iterator[Read]:
    for name, field in part.model_fields.items():
        inner = part_of(field.annotation)
        if inner is None:
            yield part.__name__, name
        else:
            yield from leaves(inner)


class Reader(ast.NodeVisitor):
    """Collects the fields that a module reads of objects known to be settings or parts of them."""

    def __init__(self) -> None:
        self.reads: set[Read] = set()
        self._known: dict[str, Part] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._known = self._known, dict(self._known)
        for argument in (*node.args.args, *node.args.kwonlyargs):
            named = argument.annotation
            if isinstance(named, ast.Name):
                self._bind(ast.Name(argument.arg), PARTS.get(named.id))
        self.generic_visit(node)
        self._known = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for name, value in zip(target.elts, node.value.elts, strict=True):
                    self._bind(name, self._part(value))
            else:
                self._bind(target, self._part(node.value))

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, self._part(node.iter))
        self.generic_visit(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp) -> None:
        for generator in node.generators:
            self._bind(generator.target, self._part(generator.iter))
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp  # noqa: N815

    def visit_Attribute(self, node: ast.Attribute) -> None:
        part = self._part(node.value)
        if part is not None and node.attr in part.model_fields:
            self.reads.add((part.__name__, node.attr))
        self.generic_visit(node)

    def _bind(self, target: ast.expr, part: Part | None) -> None:
        if isinstance(target, ast.Name):
            self._known.pop(target.id, None)
            if part is not None:
                self._known[target.id] = part

    def _part(self, node: ast.expr) -> Part | None:
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Call(func=ast.Name(id="load_settings")):
                return Settings
            case ast.Attribute(value=value, attr=name):
                owner = self._part(value)
                if owner is None:
                    return Settings if name in HOLDERS else None
                field = owner.model_fields.get(name)
                return None if field is None else part_of(field.annotation)
        return None


def reads(source: str) -> set[Read]:
    reader = Reader()
    reader.visit(ast.parse(source))
    return reader.reads


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("def f(s: Settings): return s.launch.seal_seconds", {("Launch", "seal_seconds")}),
        ("def f(s): return s.launch.seal_seconds", set()),
        ("def f(c: Canary): return c.seal_seconds", set()),
        ("x = load_settings(e); b = x.bounds; b.text_bytes", {("Bounds", "text_bytes")}),
        ("a, b = self._settings, 1\na.data_root", {("Settings", "data_root")}),
        ("any(r.key for r in c.settings.pod_template.tolerations)", {("TolerationRule", "key")}),
        ("[r.key for r in c.settings.pod_template.tolerations]", {("TolerationRule", "key")}),
        ("x = load_settings(e)\nx = other()\nx.data_root", set()),
    ],
)
def test_a_read_is_one_of_an_object_known_to_be_settings(source: str, want: set[Read]) -> None:
    found = reads(source)
    assert found & set(leaves(Settings)) == want


def test_every_setting_is_read_outside_the_modules_that_define_it() -> None:
    files = [path for path in SOURCES.rglob("*.py") if path not in DEFINED]
    found = set().union(*(reads(path.read_text(encoding="utf-8")) for path in files))
    assert set(leaves(Settings)) - found == set()
