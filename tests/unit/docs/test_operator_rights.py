"""docs/installation.md names the operator's rights as the chart grants them, and no others."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "installation.md"
RENDERED = ROOT / "tests" / "golden" / "chart" / "default.yaml"
"""What Helm makes of the chart; ``tests/golden`` compares the two."""


class Right(NamedTuple):
    """One verb on one resource; a name in the place of a subresource is that of the only object."""

    verb: str
    group: str
    resource: str


def granted() -> list[Right]:
    documents = yaml.safe_load_all(RENDERED.read_text(encoding="utf-8"))
    (role,) = (
        each
        for each in documents
        if each and each["kind"] == "Role" and each["metadata"]["name"].endswith("-operator")
    )
    return [right for rule in role["rules"] for right in rights(rule)]


def rights(rule: dict[str, Any]) -> Iterator[Right]:
    for verb in rule["verbs"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(verb, group, "/".join(filter(None, (resource, name))))


def documented() -> Iterator[Right]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("The operator itself has a Role")
    table = section.split("\n\n")[1].splitlines()
    assert table[0].startswith("| resource | API group | verbs |")
    for row in table[2:]:
        resources, group, verbs = (words(cell) for cell in row.split("|")[1:4])
        yield from (
            Right(verb, *(group or [""]), resource) for resource in resources for verb in verbs
        )


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_names_the_rights_that_the_chart_grants_once_each() -> None:
    assert sorted(documented()) == sorted(granted())


def test_the_rights_are_not_read_from_an_empty_role() -> None:
    assert Right("patch", "securebench.dev", "benchmarkruns") in granted()
    assert Right("update", "coordination.k8s.io", "leases/securebench-operator") in granted()
