"""What rows must be, by family: the published schemas and who checks them (contract 6, 14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.benchmark.families.fields import (
    ANYTHING,
    BOOLEAN,
    MISSPELT,
    OBJECT,
    TEXT,
    Schema,
    nullable,
    object_of,
)
from securebench.benchmark.families.registry import FAMILIES, family_problems
from securebench.benchmark.pack.environment import environment_schema
from securebench.benchmark.reading.shape import Shape

if TYPE_CHECKING:
    from securebench.benchmark.families.base import Family, TaskView

_ASSET_FIELDS: Final[Mapping[str, Schema]] = {
    "path": TEXT,
    "mount": nullable(TEXT),
    "read_only": nullable(BOOLEAN),
}
ASSET_KEYS: Final = frozenset(_ASSET_FIELDS)
ASSET_KEYS_WITHOUT_EFFECT: Final = frozenset({"type", "mode"})
"""Known names that nothing reads (contract 6)."""

ASSET: Final = Shape(
    object_of({**_ASSET_FIELDS, **dict.fromkeys(ASSET_KEYS_WITHOUT_EFFECT, ANYTHING)}, "path")
)
_ROW_FIELDS: Final[Mapping[str, Schema]] = {
    "id": TEXT,
    "family": nullable(TEXT),
    "input": nullable(OBJECT),
    "eval": nullable(OBJECT),
    "assets": {
        "type": ["array", "null"],
        "items": ASSET.schema,
        "description": "a list of objects",
    },
    "environment": nullable(OBJECT),
    "metadata": nullable(OBJECT),
}
ROW_KEYS: Final = frozenset(_ROW_FIELDS)
_ROW: Final[Schema] = {"type": "object", MISSPELT: False}
ROW: Final = Shape({**_ROW, "properties": _ROW_FIELDS, "required": ["id"]})
"""What rows of all families have in common."""


class _FamilyShapes(NamedTuple):
    input: Shape
    eval: Shape
    needs: Mapping[str, Shape]


def row_schema(family: Family) -> dict[str, object]:
    """Return the rows of a family as JSON Schema; unknown top-level keys are accepted."""
    own: Mapping[str, Schema] = {
        "family": {"enum": [family.name, None]},
        "input": family.input.schema,
        "eval": family.eval.schema,
        "environment": nullable(environment_schema()),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"SecureBench row of family {family.name}",
        **_ROW,
        "properties": {**_ROW_FIELDS, **own},
        "required": ["eval", "id", "input"],
    }


def row_problems(
    name: str, row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Iterator[str]:
    """Yield what is wrong with a row, without its context; deferred families are permissive.

    Args:
        name: Of the family.
        row_input: As written.
        row_eval: As written.
    """
    yield from family_problems(name)
    family = FAMILIES.get(name)
    if family is not None:
        shapes = _shapes_of(family)
        yield from shapes.input.problems(family.input.name, row_input)
        yield from shapes.eval.problems(family.eval.name, row_eval)
        yield from family.cross_problems(row_input, row_eval)


def verifier_configuration_problem(task: TaskView) -> str | None:
    """Return why the verifier of the task's family cannot work with it, or None."""
    family = FAMILIES.get(task.task_type)
    if family is None:
        return None
    resources = task.resources
    for name, shape in _shapes_of(family).needs.items():
        for problem in shape.problems(name, resources.value(name)):
            return f"{family.name} {problem}"
    if family.own_problem is not None:
        return family.own_problem(task)
    if family.scorer is None:
        return None
    return family.scorer.configuration_problem(
        resources.agent_payload(), resources.hidden_payload()
    )


@cache
def _shapes_of(family: Family) -> _FamilyShapes:
    needs = {name: Shape(schema) for name, schema in family.needs.items()}
    return _FamilyShapes(Shape(family.input.schema), Shape(family.eval.schema), needs)
