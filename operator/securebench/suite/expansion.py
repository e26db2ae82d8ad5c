"""From the matrix of a suite to its cells, in the order of packs, harnesses and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from securebench.errors import ConfigErrors, SpecError
from securebench.suite.api.models import (
    MAX_CELLS,
    BenchmarkSuiteSpec,
    Exclude,
    Matrix,
    SuiteHarness,
    SuiteModel,
    SuitePack,
)

_MATRIX = "spec.matrix"


class CellId(NamedTuple):
    """Names a cell within its suite.

    Args:
        pack: Name of the pack in the matrix.
        harness: Name of the harness.
        model: Name of the model; empty where the harness keeps its own.
    """

    pack: str
    harness: str
    model: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run of a suite is about.

    Attributes:
        id: Its name.
        pack: The pack.
        harness: The harness.
        model: Replaces the model of its configuration; None keeps it.
    """

    id: CellId
    pack: SuitePack
    harness: SuiteHarness
    model: SuiteModel | None


def cells(spec: BenchmarkSuiteSpec) -> tuple[Cell, ...]:
    """Return the cells of a suite: the matrix without what is excluded, then what is included.

    Raises:
        ConfigErrors: A name is unknown, a cell is there twice, none is left or there are too many;
            one line for each.
    """
    matrix = spec.matrix
    problems = [*_unknown_names(matrix)]
    found = _ids(matrix)
    problems += [
        f"{_MATRIX}: cell {cell} is there twice: leave it out of include"
        for cell, count in Counter(found).items()
        if count > 1
    ]
    if not found:
        problems.append(f"{_MATRIX}: exclude leaves no cell")
    if len(found) > MAX_CELLS:
        problems.append(
            f"{_MATRIX} has {len(found)} cells, a suite at most {MAX_CELLS}: exclude some, or make"
            " two suites"
        )
    if problems:
        raise ConfigErrors([SpecError(problem) for problem in problems])
    packs = {item.name: item for item in matrix.packs}
    harnesses = {item.name: item for item in matrix.harnesses}
    models = {item.name: item for item in matrix.models}
    return tuple(
        Cell(cell, packs[cell.pack], harnesses[cell.harness], models.get(cell.model))
        for cell in found
    )


def _ids(matrix: Matrix) -> list[CellId]:
    models = [model.name for model in matrix.models] or [""]
    axes = ([each.name for each in matrix.packs], [each.name for each in matrix.harnesses], models)
    whole = [CellId(*names) for names in product(*axes)]
    left = [cell for cell in whole if not any(_matches(each, cell) for each in matrix.exclude)]
    return left + [CellId(each.pack, each.harness, each.model or "") for each in matrix.include]


def _matches(exclude: Exclude, cell: CellId) -> bool:
    wanted = CellId(exclude.pack or "", exclude.harness or "", exclude.model or "")
    return all(not name or name == of for name, of in zip(wanted, cell, strict=True))


def _unknown_names(matrix: Matrix) -> Iterator[str]:
    known = {
        "pack": _names(matrix.packs),
        "harness": _names(matrix.harnesses),
        "model": _names(matrix.models),
    }
    for field in ("include", "exclude"):
        for index, item in enumerate(getattr(matrix, field)):
            for axis, names in known.items():
                name = getattr(item, axis)
                if name is not None and name not in names:
                    yield f"{_MATRIX}.{field}[{index}].{axis}: the matrix has no {axis} {name!r}"


def _names(items: Sequence[SuitePack | SuiteHarness | SuiteModel]) -> set[str]:
    return {item.name for item in items}
