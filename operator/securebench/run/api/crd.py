"""Render CustomResourceDefinitions from the models: structural, bounded, with CEL rules.

Rules that span several fields are here; a rule of a single field is with its type. A transition
rule on an optional field is not evaluated when the field is added or removed. Immutability is
therefore a rule on the parent, which also compares presence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from pydantic.json_schema import models_json_schema

from securebench.names import GROUP
from securebench.run.api.field_types import (
    ENV_HAS_VALUES,
    EQUAL_HAS_KEY,
    EXISTS_HAS_NO_VALUE,
    KIND,
    ONE_EARLIER_RUN,
    ONE_SOURCE,
    PLURAL,
    VERSION,
    ApiModel,
)
from securebench.run.api.models import (
    DEFAULT_MEMORY_LIMIT,
    BenchmarkRunSpec,
    Harness,
    Pack,
    Resources,
    Toleration,
    provider_fits,
    without_provider,
)
from securebench.run.api.status import BenchmarkRunStatus

Schema = dict[str, object]


_DROPPED = frozenset({"title", "default", "propertyNames", "additionalProperties"})


_SCALARS = (str, int, bool)


_VALIDATIONS = "x-kubernetes-validations"


_PRESERVE = "x-kubernetes-preserve-unknown-fields"


MUTABLE = frozenset(
    {"suspend", "cancel", "parallelism", "activeDeadlineSeconds", "retention"},
)
"""Fields of the spec that may change while a run exists."""


@dataclass(frozen=True, slots=True)
class CelRule:
    """One entry of x-kubernetes-validations.

    Args:
        rule: CEL expression over ``self`` and, for transitions, ``oldSelf``.
        message: Error message when it is false.
        field_path: Field that the error refers to, relative to ``self``; empty for ``self``.
        reason: Machine-readable reason; empty for the API server's default.
    """

    rule: str
    message: str
    field_path: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the entry as the CRD spells it."""
        entry = {"rule": self.rule, "message": self.message}
        if self.field_path:
            entry["fieldPath"] = self.field_path
        if self.reason:
            entry["reason"] = self.reason
        return entry


def _immutable_rules(model: type[ApiModel], mutable: frozenset[str]) -> tuple[CelRule, ...]:
    """Return one rule per immutable field of a model.

    Args:
        model: The rules belong to this object.
        mutable: API names of the fields that may change.
    """
    rules = []
    for field in model.model_fields.values():
        name = field.alias or ""
        if name in mutable:
            continue
        same = f"self.{name} == oldSelf.{name}"
        if not field.is_required():
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        rules.append(
            CelRule(
                same,
                f"{name} is fixed once the run exists: create a new BenchmarkRun instead",
                f".{name}",
                "FieldValueForbidden",
            )
        )
    return tuple(rules)


def _request_rule(name: str, limit: str) -> CelRule:
    request = f"self.requests.{name}"
    return CelRule(
        f"!has(self.requests) || !has({request}) || {limit}",
        f"requests.{name} must not exceed limits.{name}",
        ".requests",
    )


_CANCEL_ORDER = CelRule(
    "!has(oldSelf.cancel) || oldSelf.cancel == '' || has(self.cancel) && "
    "(self.cancel == oldSelf.cancel || self.cancel == 'Immediate')",
    "cancel cannot be taken back: it may only change from '' to Graceful to Immediate",
    ".cancel",
    "FieldValueForbidden",
)


_CPU_WITHIN_LIMIT = (
    "!has(self.limits) || !has(self.limits.cpu) || "
    "!quantity(string(self.requests.cpu)).isGreaterThan(quantity(string(self.limits.cpu)))"
)


_MEMORY_WITHIN_LIMIT = (
    "!quantity(string(self.requests.memory)).isGreaterThan(quantity("
    "has(self.limits) && has(self.limits.memory) ? string(self.limits.memory) : "
    f"'{DEFAULT_MEMORY_LIMIT}'))"
)


RULES: Mapping[type[ApiModel], Sequence[CelRule]] = {
    BenchmarkRunSpec: (
        *_immutable_rules(BenchmarkRunSpec, MUTABLE),
        _CANCEL_ORDER,
        CelRule(
            f"!has(self.provider) || !(self.harness.type in {list(without_provider())})",
            provider_fits(),
            ".provider",
        ),
        CelRule(
            "!has(self.regrade) || !has(self.resumeFrom)",
            ONE_EARLIER_RUN,
            ".regrade",
        ),
    ),
    Pack: (
        CelRule(
            "(has(self.volume) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + "
            "(has(self.secret) ? 1 : 0) + (has(self.image) ? 1 : 0) == 1",
            ONE_SOURCE,
        ),
    ),
    Harness: (
        CelRule(
            "!has(self.env) || size(self.env) == 0 || has(self.secretRef)",
            ENV_HAS_VALUES,
        ),
    ),
    Resources: (
        _request_rule("cpu", _CPU_WITHIN_LIMIT),
        _request_rule("memory", _MEMORY_WITHIN_LIMIT),
    ),
    Toleration: (
        CelRule(
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || "
            "self.value == ''",
            EXISTS_HAS_NO_VALUE,
        ),
        CelRule(
            "has(self.operator) && self.operator == 'Exists' || has(self.key)",
            EQUAL_HAS_KEY,
        ),
    ),
}
"""Rules by model."""


ROOT_RULES: Sequence[CelRule] = (
    CelRule(
        "!has(self.spec.resumeFrom) || self.spec.resumeFrom.run != self.metadata.name",
        "resumeFrom.run must name another, earlier BenchmarkRun",
        ".spec.resumeFrom",
    ),
    CelRule(
        "!has(self.spec.regrade) || self.spec.regrade.run != self.metadata.name",
        "regrade.run must name another, earlier BenchmarkRun",
        ".spec.regrade",
    ),
)
"""Rules on the whole object."""


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
    Column(
        "MeanReward",
        "string",
        ".status.score.meanReward.value",
        "Mean score, where verifiers leave rewards",
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


def _structural_schema(
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
            "spec": _structural_schema(definition.spec, rules=definition.rules),
            "status": _structural_schema(definition.status, defaults=False),
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
