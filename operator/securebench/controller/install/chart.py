"""The generated parts of the Helm chart: the settings' schema and the table of values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import yaml

BEGIN = "<!-- values: generated from values.yaml by `make generate` -->"
END = "<!-- end of values -->"

CHART_MADE = frozenset(
    {
        "namespace",
        "podName",
        "podUid",
        "nodeName",
        "nodeAddress",
        "podImage",
        "gatewayImage",
        "runsAccount",
        "imagePullPolicy",
        "imagePullSecrets",
        "dataRoot",
        "signingRoot",
        "volumeClaim",
        "accessMode",
        "healthPort",
        "healthMaxAgeSeconds",
        "metricsPort",
    }
)
"""Settings that the chart derives from other values; ``settings`` must not repeat them."""

_LINE = re.compile(r"^(?P<indent> *)(?:# ?(?P<comment>.*)|(?P<key>[A-Za-z]\w*):.*)$")
_INDENT = 2


class Value(NamedTuple):
    """One value of the chart.

    Args:
        path: Dotted path.
        default: As JSON.
        description: The comment above it; empty when there is none.
    """

    path: str
    default: str
    description: str


def with_settings(values_schema: Mapping[str, object], settings: Mapping[str, object]) -> str:
    """Return the text of values.schema.json with the schema of ``settings`` put in.

    Args:
        values_schema: The schema as it is; everything but ``settings`` and ``$defs`` is kept.
        settings: JSON schema of the operator's settings by API names.
    """
    properties = cast("Mapping[str, object]", settings["properties"])
    part = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: item for name, item in properties.items() if name not in CHART_MADE},
    }
    old = cast("Mapping[str, object]", values_schema["properties"])
    result = {
        **values_schema,
        "properties": {**old, "settings": part},
        "$defs": settings["$defs"],
    }
    return json.dumps(result, indent=2) + "\n"


def values(text: str) -> Sequence[Value]:
    """Return every value of a values.yaml in file order.

    Args:
        text: The file: block style, two blanks a level, the description of a value in the comment
            lines directly above it. A value with a comment is one value even when it is an object.
    """
    tree = cast("Mapping[str, object]", yaml.safe_load(text))
    comments = dict(_comments(text))
    result: list[Value] = []
    for path, comment in comments.items():
        value = _at(tree, path)
        inside = any(path.startswith(f"{item.path}.") for item in result)
        parts = [comments[name] for name in comments if name.startswith(f"{path}.")]
        if not inside and not any(parts) and (comment or not isinstance(value, dict)):
            result.append(Value(path, json.dumps(value), comment))
    return result


def with_values(readme: str, listed: Sequence[Value]) -> str:
    """Return the README with the table between its two markers written anew.

    Raises:
        ValueError: A marker is missing.
    """
    head, _, rest = readme.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise ValueError(f"the README needs the lines {BEGIN!r} and {END!r}")
    rows = [f"| `{item.path}` | `{item.default}` | {item.description} |" for item in listed]
    table = "\n".join(["| value | default | description |", "| --- | --- | --- |", *rows])
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """Yield every key's path with the comment directly above it, in file order."""
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and match["key"] is None:
            comment.append(match["comment"])
            continue
        if match is not None:
            path = [*path[: len(match["indent"]) // _INDENT], match["key"]]
            yield ".".join(path), " ".join(comment)
        comment = []


def _at(tree: Mapping[str, object], path: str) -> object:
    node: object = tree
    for part in path.split("."):
        node = cast("Mapping[str, object]", node)[part]
    return node
