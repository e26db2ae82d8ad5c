"""CEL rules of the CRD that span several fields; rules of a single field are with its type.

A transition rule on an optional field is not evaluated when the field is added or removed.
Immutability is therefore a rule on the parent, which also compares presence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securebench.run.api.agents import provider_fits, without_provider
from securebench.run.api.base import (
    ENV_HAS_VALUES,
    EQUAL_HAS_KEY,
    EXISTS_HAS_NO_VALUE,
    ONE_EARLIER_RUN,
    ONE_SOURCE,
    ApiModel,
)
from securebench.run.api.models import BenchmarkRunSpec, Harness, Pack
from securebench.run.api.pod_template import DEFAULT_MEMORY_LIMIT, Resources, Toleration

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


def immutable_rules(model: type[ApiModel], mutable: frozenset[str]) -> tuple[CelRule, ...]:
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
        *immutable_rules(BenchmarkRunSpec, MUTABLE),
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
