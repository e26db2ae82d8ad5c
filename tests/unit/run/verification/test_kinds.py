"""Nothing but the kinds themselves knows how a kind of verification works."""

import ast
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import securebench
from securebench.benchmark.families.registry import FAMILIES
from securebench.errors import ConfigError
from securebench.run.plan.kinds import KINDS, kind_named
from securebench.run.plan.model import TaskPlan
from securebench.run.verification.base import Verification

ROOT = Path(securebench.__file__).parent
PACKAGE = "securebench.run.verification"
OWN = ROOT / "run" / "verification"
INTERFACE = f"{PACKAGE}.base"
OTHERS = [path for path in sorted(ROOT.rglob("*.py")) if not path.is_relative_to(OWN)]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_one_module_of_the_package(name):
    kind = kind_named(name)
    assert issubclass(kind, Verification)
    assert kind.name == name
    assert kind.__module__ == f"{PACKAGE}.{name}"


def test_the_kinds_are_those_that_families_name():
    assert set(KINDS) == {family.verification for family in FAMILIES.values()}


def test_an_unknown_kind_is_an_error_that_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"no installed package has the verification 'proof'.*command"
    ):
        kind_named("proof")


def test_a_plan_knows_the_interface_alone():
    known = {field.name for field in fields(TaskPlan)}
    assert "verification" in known
    assert not known & {"verifier", "check", "code"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_no_other_module_imports_a_kind():
    kinds = {path.stem for path in OWN.glob("*.py")} - {"__init__", "base"}
    forbidden = {f"{PACKAGE}.{kind}" for kind in kinds}
    found = {path.name: forbidden.intersection(imported(path)) for path in OTHERS}
    assert {name: names for name, names in found.items() if names} == {}


def test_no_other_module_asks_what_only_one_kind_has():
    own = {field.name for name in KINDS for field in fields(kind_named(name))}
    asked = {name for name in own if not hasattr(Verification, name)}
    assert asked == {"check", "code", "patch", "request", "changes_root"}
    found = [
        (path.name, ast.unparse(node))
        for path in OTHERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in asked
        and ast.unparse(node.value).rpartition(".")[2] == "verification"
    ]
    assert found == []


def test_the_interface_imports_no_kind():
    path = OWN / "base.py"
    assert not [name for name in imported(path) if name.startswith(PACKAGE)]
    assert import_module(INTERFACE).Verification is Verification
