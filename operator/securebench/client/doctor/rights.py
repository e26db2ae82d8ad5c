"""Which rights the chart's roles give, and which of these roles an account has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from securebench.client.doctor.diagnosis import Diagnosis, Health
from securebench.client.doctor.installation import Installation
from securebench.cluster.port import Raw
from securebench.core.json_values import object_at
from securebench.core.names import GROUP, OPERATOR_LEASE

_CHECK: Final = "rights"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """One verb on one kind of object, or on the one of that name."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.resource, self.name)))


_WRITE: Final = "create get list watch update patch delete"


def roles(operator: str, viewers: str) -> Mapping[str, tuple[Right, ...]]:
    """Return the rights of each role of the chart, the strongest role first.

    Args:
        operator: Name of the operator's Pod.
        viewers: Name of the viewers' Pod.
    """
    return {
        "tester": (
            *_rights(GROUP, "benchmarkruns", _WRITE),
            *_rights(GROUP, "benchmarksuites", _WRITE),
            *_rights("", "configmaps", "create get list update patch delete"),
            *_rights("", "secrets", "create get update patch delete"),
            *_rights("", "events", "get list watch"),
            *_rights("", "pods", "get", operator),
            *_rights("", "pods/exec", "get create", operator),
            *_rights("coordination.k8s.io", "leases", "get", OPERATOR_LEASE),
        ),
        "submitter": (
            *_rights(GROUP, "benchmarkruns", "create get list watch delete"),
            *_rights(GROUP, "benchmarksuites", _WRITE),
            *_rights("", "pods", "get", viewers),
            *_rights("", "pods/exec", "get create", viewers),
        ),
        "viewer": (
            *_rights(GROUP, "benchmarkruns", "get list watch"),
            *_rights(GROUP, "benchmarksuites", "get list watch"),
            *_rights("", "events", "get list watch"),
            *_rights("", "pods", "get", viewers),
            *_rights("", "pods/exec", "get create", viewers),
        ),
    }


_LESS: Final = {
    "submitter": "it runs packs that are on the volume, and uploads none",
    "viewer": "it reads runs and published results",
}


async def rights(installation: Installation) -> Diagnosis:
    """Find the strongest role of the chart whose rights the caller has."""
    known = roles(installation.operator_name, installation.viewers_name)
    missing = {name: await _missing(installation, wanted) for name, wanted in known.items()}
    has = next((name for name, lacks in missing.items() if not lacks), None)
    lacked = ", ".join(map(str, missing["tester"]))
    if has == "tester":
        return Diagnosis(_CHECK, Health.OK, "your account may do what the role tester may")
    if has is not None:
        found = f"your account has the role {has}: {_LESS[has]}"
        return Diagnosis(_CHECK, Health.WARN, found, f"as a tester it would also need: {lacked}")
    hint = "ask for the chart's role tester (values roles.tester)"
    return Diagnosis(_CHECK, Health.FAIL, f"your account may not: {lacked}", hint)


async def _missing(installation: Installation, wanted: Sequence[Right]) -> tuple[Right, ...]:
    answers = await asyncio.gather(*(_has(installation, right) for right in wanted))
    return tuple(right for right, has in zip(wanted, answers, strict=True) if not has)


async def _has(installation: Installation, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": installation.cluster.namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
    }
    review: Raw = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await installation.cluster.ask("POST", _REVIEWS, review)
    return object_at(answer, "status").get("allowed") is True


def _rights(group: str, resource: str, verbs: str, name: str = "") -> Iterator[Right]:
    return (Right(verb, group, resource, name) for verb in verbs.split())
