"""The checks, in their order. Each concerns one thing and leaves nothing changed."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast

from securebench.client.doctor.diagnosis import Diagnosis, Health
from securebench.client.doctor.installation import Installation
from securebench.client.volume.connection import operator_pod
from securebench.client.volume.link import OperatorLink
from securebench.client.watch.follow import run_state
from securebench.cluster.port import Forbidden, ObjectKind, Raw, metadata
from securebench.core.errors import PermanentClusterError, SecureBenchError
from securebench.core.json_values import object_at, object_in, text_at
from securebench.core.names import GROUP
from securebench.core.version import VERSION
from securebench.run.api.base import KIND as RUN
from securebench.run.api.base import VERSION as API
from securebench.run.api.conditions import ConditionStatus, ConditionType, Reason
from securebench.run.api.crd import benchmark_run_crd
from securebench.run.observe.stage import IMAGE_WAITS
from securebench.run.observe.waiting import PULLING, is_about_unpulled
from securebench.suite.api.crd import benchmark_suite_crd
from securebench.suite.api.models import KIND as SUITE

MIN_KUBERNETES: Final = (1, 33)
"""As ``kubeVersion`` of the chart."""

_SCHEMAS: Final = f"/openapi/v3/apis/{GROUP}/{API}"
_OWN_KINDS: Final = {RUN: benchmark_run_crd, SUITE: benchmark_suite_crd}
_APPLY: Final = "kubectl apply --server-side --force-conflicts -f charts/securebench/crds"
_ISOLATION: Final = (Reason.VERIFIED, Reason.DECLARED, Reason.ISOLATION_NOT_VERIFIED)
_SHOWN: Final = 5
"""Missing fields that are named."""


async def kubernetes(installation: Installation) -> Diagnosis:
    """Check the version of the API server; an answer shows that it can be reached."""
    answer = await installation.cluster.ask("GET", "/version")
    numbers = [re.sub(r"\D", "", text_at(answer, key)) for key in ("major", "minor")]
    found = f"{installation.cluster.server} answers, Kubernetes {text_at(answer, 'gitVersion')}"
    if all(numbers) and tuple(map(int, numbers)) < MIN_KUBERNETES:
        least = ".".join(map(str, MIN_KUBERNETES))
        return Diagnosis("cluster", Health.FAIL, found, f"SecureBench needs {least} or later")
    return Diagnosis("cluster", Health.OK, f"{found}, namespace {installation.cluster.namespace}")


async def resources(installation: Installation) -> Diagnosis:
    """Compare the fields of runs and suites that the cluster knows with those of this version."""
    served = await _served_schemas(installation)
    absent = [kind for kind in _OWN_KINDS if kind not in served]
    found = [f"the cluster has no {' and no '.join(absent)}"] if absent else []
    for kind, schema in served.items():
        missing = sorted(set(_fields(_own_schema(kind))) - set(_fields(schema)))
        if missing:
            names = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
            found.append(f"{kind} is of an older version, without {names}")
    if found:
        return Diagnosis("crds", Health.FAIL, "; ".join(found), _APPLY)
    kinds = " and ".join(_OWN_KINDS)
    return Diagnosis("crds", Health.OK, f"{kinds} {API} have all fields of version {VERSION}")


async def _served_schemas(installation: Installation) -> Mapping[str, Mapping[str, object]]:
    """Return the schema of each of our kinds that the cluster has."""
    try:
        document = await installation.cluster.ask("GET", _SCHEMAS)
    except PermanentClusterError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {}
    schemas = object_at(object_at(document, "components"), "schemas")
    return {
        kind: object_in(schema)
        for kind in _OWN_KINDS
        for name, schema in schemas.items()
        if name.endswith(f".{kind}")
    }


async def operator(installation: Installation) -> Diagnosis:
    """Check that the operator is ready, and which version it has."""
    name = await operator_pod(
        installation.cluster, installation.cluster.namespace, installation.pod
    )
    pod = await installation.cluster.get(ObjectKind.POD, name) or {}
    conditions = cast("list[Raw]", object_at(pod, "status").get("conditions") or [])
    ready = next((each for each in conditions if each.get("type") == "Ready"), {})
    if ready.get("status") != ConditionStatus.TRUE:
        why = text_at(ready, "message") or "its probes fail"
        said = _last_words(pod)
        why = f"{why}; it ended with: {said}" if said else why
        hint = f"kubectl -n {installation.cluster.namespace} describe pod {name}, and its logs"
        return Diagnosis("operator", Health.FAIL, f"{name} is not ready: {why}", hint)
    result = await installation.execute_in(name)(("securebench", "--version"), None)
    version = result.stdout.decode(errors="replace").strip().removeprefix("securebench ")
    if version != VERSION:
        found = f"{name} is ready, of version {version}; this command line is of {VERSION}"
        return Diagnosis("operator", Health.WARN, found, "upgrade the older one")
    return Diagnosis("operator", Health.OK, f"{name} is ready, version {version}")


async def storage(installation: Installation) -> Diagnosis:
    """Write a file to the results volume, through the operator, and remove it."""
    name = await operator_pod(
        installation.cluster, installation.cluster.namespace, installation.pod
    )
    link, folder = OperatorLink(installation.execute_in(name)), f"doctor-{uuid.uuid4().hex[:12]}"
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"written by securebench doctor\n")
        file.flush()
        await link.put_pack(folder, {"doctor.txt": Path(file.name)})
    await link.remove_pack(folder)
    return Diagnosis("storage", Health.OK, "the results volume takes and gives back a file")


async def network(installation: Installation) -> Diagnosis:
    """Say what the latest run found out about the isolation of its Pods; nothing is started."""
    runs = (await installation.cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
    newest = sorted(runs, key=lambda run: str(metadata(run).get("creationTimestamp")), reverse=True)
    for run in newest:
        if (found := isolation(run)) is not None:
            return found
    hint = "securebench doctor --probe proves it, as does any run before its first task"
    return Diagnosis("network", Health.WARN, "no run has proven isolation here yet", hint)


async def images(installation: Installation) -> Diagnosis:
    """Look for runs and Pods that wait for an image that cannot be pulled."""
    hint = "push it, correct its name, or give the chart imagePullSecrets"
    runs = (await installation.cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
    active = [state for state in map(run_state, runs) if state.end is None]
    for state in active:
        if is_about_unpulled(state.message):
            return Diagnosis("images", Health.FAIL, f"run {state.name}: {state.message}", hint)
    pulling = next((state for state in active if PULLING in state.message), None)
    try:
        pods = (await installation.cluster.list(ObjectKind.POD, "")).items
    except Forbidden:
        return Diagnosis("images", Health.OK, "no run waits for an image")
    waiting = dict(pair for pod in pods for pair in _unpulled(pod))
    if not waiting and pulling is not None:
        found = f"run {pulling.name}: {pulling.message}"
        return Diagnosis("images", Health.OK, found)
    if not waiting:
        return Diagnosis("images", Health.OK, "no run and no Pod waits for an image")
    image, (pod_name, why) = next(iter(waiting.items()))
    others = f", and {len(waiting) - 1} other images" if len(waiting) > 1 else ""
    found = f"{pod_name} cannot pull {image}: {why}{others}"
    return Diagnosis("images", Health.FAIL, found, hint)


def _last_words(pod: Raw) -> str:
    """Return the last line that a container of the Pod printed before it ended in an error."""
    for container in cast("list[Raw]", object_at(pod, "status").get("containerStatuses") or []):
        for state in ("state", "lastState"):
            ended = object_at(object_at(container, state), "terminated")
            lines = text_at(ended, "message").strip().splitlines()
            if lines:
                return lines[-1].removeprefix("securebench: error: ")
    return ""


def isolation(run: Raw) -> Diagnosis | None:
    """Return what a run found out about the isolation of its Pods; None before it has."""
    condition = _condition(run, ConditionType.ISOLATION_VERIFIED)
    if condition.get("reason") not in _ISOLATION:
        return None
    message = text_at(condition, "message") or text_at(condition, "reason")
    said = f"run {metadata(run).get('name')}: {message}"
    if condition.get("status") == ConditionStatus.FALSE:
        hint = "use a network plugin that enforces NetworkPolicy (docs/installation.md)"
        return Diagnosis("network", Health.FAIL, said, hint)
    if condition.get("reason") == Reason.DECLARED:
        hint = "a run with isolation.require: Verified proves it"
        return Diagnosis("network", Health.WARN, said, hint)
    return Diagnosis("network", Health.OK, said)


def _condition(run: Raw, kind: ConditionType) -> Raw:
    conditions = cast("list[Raw]", object_at(run, "status").get("conditions") or [])
    return next((each for each in conditions if each.get("type") == kind), {})


def _unpulled(pod: Raw) -> Iterator[tuple[str, tuple[str, str]]]:
    status = object_at(pod, "status")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in cast("list[Raw]", status.get(kind) or []):
            waiting = object_at(object_at(container, "state"), "waiting")
            reason = text_at(waiting, "reason")
            if reason in IMAGE_WAITS:
                why = text_at(waiting, "message") or reason
                yield text_at(container, "image"), (str(metadata(pod).get("name")), why)


def _own_schema(kind: str) -> Mapping[str, object]:
    versions = cast("list[Raw]", object_at(_OWN_KINDS[kind](), "spec")["versions"])
    return object_at(object_at(versions[0], "schema"), "openAPIV3Schema")


def _fields(schema: Mapping[str, object], place: str = "") -> Iterator[str]:
    """Yield the places of all fields below ``spec`` and ``status``."""
    for name, below in object_at(schema, "properties").items():
        if place or name in {"spec", "status"}:
            here = f"{place}.{name}" if place else name
            yield here
            yield from _fields(object_in(below), here)
    if "items" in schema:
        yield from _fields(object_at(schema, "items"), f"{place}[]")


def trouble(check: str, error: SecureBenchError) -> Diagnosis:
    """Return what an error during a check means."""
    if isinstance(error, PermanentClusterError) and error.status == HTTPStatus.FORBIDDEN:
        return Diagnosis(check, Health.WARN, f"your account may not look: {error}", "see rights")
    return Diagnosis(check, Health.FAIL, str(error))
