"""The price table of a tester: section ``prices`` of the tester YAML, or a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from securebench.benchmark.reading.plain import PlainProblem, decoded, line_of, parse_yaml
from securebench.benchmark.reading.shape import Shape
from securebench.errors import ConfigError, ConfigErrors
from securebench.json_values import TEXT, Schema, object_of
from securebench.stats.cost import Price

_AMOUNT: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "description": "a whole number of micro-dollars per million tokens",
}
PRICES_SCHEMA: Final[Schema] = {
    "type": "array",
    "items": object_of(
        {"model": TEXT, "input": _AMOUNT, "cached_input": _AMOUNT, "output": _AMOUNT},
        "model",
        "input",
        "output",
    ),
    "description": "a list",
}
"""Of a price table, in a tester YAML and in a file."""

_FILE: Final = Shape(object_of({"prices": PRICES_SCHEMA}, "prices"))

Prices = Mapping[str, Price]


def load_prices(path: Path) -> Prices:
    """Read a file whose one key ``prices`` holds a price table.

    Raises:
        ConfigErrors: Lists all defects, each with file and line.
    """
    try:
        document = parse_yaml(decoded(path.read_bytes()))
    except OSError as error:
        raise _error(f"{path}: cannot be read: {error.strerror}") from None
    except PlainProblem as problem:
        place = path if problem.line is None else f"{path}:{problem.line}"
        raise _error(f"{place}: {problem.reason}") from None
    defects = [
        ConfigError(f"{path}:{line_of(each.key, document.lines)}: {each.said_of('price table')}")
        for each in _FILE.defects(document.value)
    ]
    if defects:
        raise ConfigErrors(defects)
    rows: Any = document.value
    twice = repeated_models(rows["prices"])
    if twice:
        raise _error(f"{path}: prices names models twice: {', '.join(twice)}")
    return parse_prices(rows["prices"])


def parse_prices(rows: Iterable[Mapping[str, Any]]) -> Prices:
    """Return a price table by model; cached input costs what input does unless it is given."""
    return {
        row["model"]: Price(row["input"], row.get("cached_input", row["input"]), row["output"])
        for row in rows
    }


def repeated_models(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the models that a table names more than once."""
    seen, twice = set[str](), dict[str, None]()
    for row in rows:
        if row["model"] in seen:
            twice[row["model"]] = None
        seen.add(row["model"])
    return list(twice)


def _error(reason: str) -> ConfigErrors:
    return ConfigErrors([ConfigError(reason)])
