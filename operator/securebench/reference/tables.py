"""Tables of fields in Markdown, made from schemas."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from securebench.core.json_schema import Schema
from securebench.core.json_values import object_at, object_in, text_at

NOTHING: Final = "-"


class FieldRow(NamedTuple):
    """One key of a table, by its dotted path."""

    name: str
    schema: Schema
    is_required: bool
    other: str = ""
    """Of two forms the first key of the one that does not have this key."""


def field_rows(schema: Schema, place: str = "", other: str = "") -> Iterator[FieldRow]:
    """Yield the keys of an object and of objects in it, in the order of the schema.

    Args:
        schema: Schema of an object; of two forms the keys of both.
        place: Path of the object; empty for the root.
        other: Of two forms the first key of the other one; empty for the only form.
    """
    required = cast("Collection[str]", schema.get("required", ()))
    for name, below in object_at(schema, "properties").items():
        here = f"{place}.{name}" if place else name
        own = object_in(below)
        yield FieldRow(here, own, name in required, other)
        yield from field_rows(*_below(own, here))
    for form, opposite in (("then", "else"), ("else", "then")):
        if form in schema:
            needed = cast("Sequence[str]", object_at(schema, opposite).get("required", ()))
            yield from field_rows(object_at(schema, form), place, next(iter(needed), ""))


def field_table(rows: Collection[FieldRow], lanes: Mapping[str, str] | None = None) -> str:
    """Return the rows as a table.

    Args:
        rows: In order.
        lanes: Lane of each top-level key, where keys have one.
    """
    columns = ["field", *(["lane"] if lanes else []), "value", "default", "meaning", "example"]
    lines = [columns, ["---"] * len(columns)]
    for row in rows:
        lane = [] if lanes is None else [lanes.get(row.name.split(".")[0].split("[")[0], "")]
        about = text_at(row.schema, "markdownDescription")
        if row.other and not row.is_required:
            about = f"Not with `{row.other}`. {about}"
        lines.append(
            [f"`{row.name}`", *lane, _kind(row.schema), _default(row), about, _example(row)]
        )
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _below(schema: Schema, place: str) -> tuple[Schema, str]:
    """Return what has the keys below a key: itself, or the items of its list."""
    if "items" in schema:
        return object_at(schema, "items"), f"{place}[]"
    return schema, place


def _kind(schema: Schema) -> str:
    known = schema.get("enum")
    if "const" in schema:
        return f"`{schema['const']}`"
    if isinstance(known, list):
        return " or ".join(f"`{each}`" for each in known if each is not None)
    if "description" in schema:
        return str(schema["description"])
    kind = schema.get("type", "object" if "then" in schema else "any")
    return str(kind[0] if isinstance(kind, list) else kind)


def _default(row: FieldRow) -> str:
    if row.is_required:
        return f"**required** without `{row.other}`" if row.other else "**required**"
    return f"`{json.dumps(row.schema['default'])}`" if "default" in row.schema else NOTHING


def _example(row: FieldRow) -> str:
    examples = row.schema.get("examples")
    found = examples[0] if isinstance(examples, list) and examples else None
    return NOTHING if found is None else f"`{json.dumps(found, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
