"""Render CustomResourceDefinitions from the models: structural, bounded, with CEL rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from pydantic.json_schema import models_json_schema

from securebench.names import GROUP
from securebench.run.api.base import KIND, PLURAL, VERSION, ApiModel
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.api.rules import ROOT_RULES, RULES, CelRule
from securebench.run.api.status import BenchmarkRunStatus

Schema = dict[str, object]

_DROPPED = frozenset({"title", "default", "propertyNames", "additionalProperties"})
_SCALARS = (str, int, bool)
_VALIDATIONS = "x-kubernetes-validations"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


class Column(NamedTuple):
    """One printer column; priority 1 is shown only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    description: str
    priority: int = 0


_SUCCEEDED = '.status.conditions[?(@.type=="Succeeded")]'

COLUMNS: Sequence[Column] = (
    Column("Succeeded", "string", f"{_SUCCEEDED}.status", "Unknown while the run is active"),
    Column("Reason", "string", f"{_SUCCEEDED}.reason", "Why"),
    Column("Done", "integer", ".status.tasks.done", "Finished attempts"),
    Column("Total", "integer", ".status.tasks.total", "All attempts"),
    Column("Passed", "integer", ".status.score.passed", "Passed attempts"),
    Column(
        "Infra",
        "integer",
        ".status.tasks.infrastructure",
        "Attempts without a verdict because of the cluster",
    ),
    Column("Age", "date", ".metadata.creationTimestamp", "Time since creation"),
    Column(
        "PassRate",
        "string",
        ".status.score.passRate.value",
        "Share of verified attempts that passed",
        1,
    ),
    Column("Parallelism", "integer", ".spec.parallelism", "Concurrent attempts", 1),
    Column("Pack", "string", ".status.resolved.pack", "Id of the pack", 1),
    Column("Harness", "string", ".spec.harness.type", "What produces the candidates", 1),
    Column("Results", "string", ".status.results.path", "File on the namespace's volume", 1),
)


class ResourceDefinition(NamedTuple):
    """What a CRD of ours says.

    Args:
        kind: In CamelCase.
        plural: In lower case.
        short_name: For kubectl.
        description: Description of the object.
        spec: Model of its spec.
        status: Model of its status.
        rules: CEL rules by model.
        root_rules: CEL rules on the whole object.
        columns: What ``kubectl get`` prints.
    """

    kind: str
    plural: str
    short_name: str
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    rules: Mapping[type[ApiModel], Sequence[CelRule]]
    root_rules: Sequence[CelRule]
    columns: Sequence[Column]


_RUN = ResourceDefinition(
    kind=KIND,
    plural=PLURAL,
    short_name="brun",
    description="One benchmark run: the tasks of a pack, run by a harness and graded.",
    spec=BenchmarkRunSpec,
    status=BenchmarkRunStatus,
    rules=RULES,
    root_rules=ROOT_RULES,
    columns=COLUMNS,
)


def benchmark_run_crd() -> dict[str, object]:
    """Return the CRD of BenchmarkRun."""
    return custom_resource(_RUN)


def custom_resource(definition: ResourceDefinition) -> dict[str, object]:
    """Return a CRD.

    Invariants: no ``$ref``, no ``anyOf``, no ``additionalProperties: false``; every string, list
    and map has a bound, so that the rules stay within the server's cost budget.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["benchmarks"],
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "shortNames": [definition.short_name],
                "singular": definition.kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [_version(definition)],
        },
    }


def structural_schema(
    model: type[ApiModel],
    *,
    defaults: bool = True,
    rules: Mapping[type[ApiModel], Sequence[CelRule]] = RULES,
) -> Schema:
    """Return the structural schema of a model, including the CEL rules of nested models.

    Args:
        model: Its fields hold only JSON types, other models, tuples and maps.
        defaults: Whether the API server fills in scalar defaults.
        rules: CEL rules by model.
    """
    (key_map, generated) = models_json_schema([(model, "validation")], by_alias=True)
    definitions = cast("Mapping[str, Schema]", generated["$defs"])
    return _Flattener(definitions, rules, defaults=defaults).flatten(
        cast("Schema", key_map[model, "validation"])
    )


def _version(definition: ResourceDefinition) -> dict[str, object]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in definition.columns],
        "schema": {"openAPIV3Schema": _root_schema(definition)},
    }


def _root_schema(definition: ResourceDefinition) -> Schema:
    return {
        "type": "object",
        "description": definition.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(definition.spec, rules=definition.rules),
            "status": structural_schema(definition.status, defaults=False),
        },
        _VALIDATIONS: _rules_json(definition.root_rules),
    }


def _column(column: Column) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    return {**entry, "priority": column.priority} if column.priority else entry


def _rules_json(rules: Sequence[CelRule]) -> list[dict[str, str]]:
    return [rule.to_json() for rule in rules]


class _Flattener:
    """Turns pydantic's JSON schema into a structural schema."""

    def __init__(
        self,
        definitions: Mapping[str, Schema],
        rules: Mapping[type[ApiModel], Sequence[CelRule]],
        *,
        defaults: bool,
    ) -> None:
        self._definitions = definitions
        self._defaults = defaults
        self._rules = {model.__name__: found for model, found in rules.items()}

    def flatten(self, node: Schema) -> Schema:
        """Return ``node`` without references, alternatives and non-scalar defaults."""
        merged = self._resolved(node)
        result = {key: value for key, value in merged.items() if key not in _DROPPED}
        if self._defaults and isinstance(merged.get("default"), _SCALARS):
            result["default"] = merged["default"]
        if "description" in result:
            result["description"] = " ".join(str(result["description"]).split())
        if "properties" in result:
            properties = cast("Mapping[str, Schema]", result["properties"])
            result["properties"] = {name: self.flatten(part) for name, part in properties.items()}
        if "items" in result:
            result["items"] = self.flatten(cast("Schema", result["items"]))
        additional = merged.get("additionalProperties")
        if isinstance(additional, dict) and not result.get(_PRESERVE):
            result["additionalProperties"] = self.flatten(additional)
        return result

    def _resolved(self, node: Schema) -> Schema:
        siblings = {key: value for key, value in node.items() if key not in {"$ref", "anyOf"}}
        if "anyOf" in node:
            alternatives = cast("Sequence[Schema]", node["anyOf"])
            (only,) = [part for part in alternatives if part.get("type") != "null"]
            return {**self._resolved(only), **siblings}
        if "$ref" in node:
            name = str(node["$ref"]).rsplit("/", 1)[-1]
            target = self._resolved(self._definitions[name])
            rules = self._rules.get(name, ())
            added = {_VALIDATIONS: _rules_json(rules)} if rules else {}
            return {**target, **siblings, **added}
        return siblings
