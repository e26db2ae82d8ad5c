"""The command ``securebench doctor``: checks of cluster, rights, operator, storage and network.

Each check returns one diagnosis, and says what to do about it. The checks need the rights of a
tester at most. ``--probe`` also creates a run of one task, whose canary and Pods try network and
volume: the operator starts these Pods, so it proves what every run of the namespace meets.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from securebench.agents.registry import harness_config, harness_digest
from securebench.client.follow import Follower, RunState, run_state, shielded
from securebench.client.output import print_json, print_table
from securebench.client.submit import owner_patch, random_suffix, run_manifest, run_name
from securebench.client.volume import (
    DEFAULT_OPERATOR_POD,
    OPERATOR_CONTAINER,
    ClusterTarget,
    Exec,
    OperatorLink,
    PodExec,
    open_cluster,
    operator_pod,
    viewers_pod,
)
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import Cluster, Forbidden, ObjectKind, Raw, metadata
from securebench.errors import (
    ClusterError,
    PermanentClusterError,
    SecureBenchError,
    TransientClusterError,
)
from securebench.json_values import object_at, object_in, text_at
from securebench.names import GROUP, OPERATOR_LEASE
from securebench.run.api.crd import benchmark_run_crd
from securebench.run.api.field_types import KIND as RUN
from securebench.run.api.field_types import VERSION as API
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE
from securebench.run.api.status import ConditionStatus, ConditionType, Reason
from securebench.run.observe.stage import IMAGE_WAITS
from securebench.run.observe.waiting import PULLING, is_about_unpulled
from securebench.suite.api import KIND as SUITE
from securebench.suite.api import benchmark_suite_crd
from securebench.version import VERSION


class Health(StrEnum):
    """How serious a finding is; only FAIL makes the exit code 1."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Diagnosis(NamedTuple):
    """One line of the doctor.

    Attributes:
        check: Its name, one word.
        found: One sentence without its end.
        hint: What to do; empty where nothing is to be done.
    """

    check: str
    state: Health
    found: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.found}; {self.hint}" if self.hint else self.found


_RIGHTS: Final = "rights"
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
        return Diagnosis(_RIGHTS, Health.OK, "your account may do what the role tester may")
    if has is not None:
        found = f"your account has the role {has}: {_LESS[has]}"
        return Diagnosis(_RIGHTS, Health.WARN, found, f"as a tester it would also need: {lacked}")
    hint = "ask for the chart's role tester (values roles.tester)"
    return Diagnosis(_RIGHTS, Health.FAIL, f"your account may not: {lacked}", hint)


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


class QueryableCluster(Cluster, Protocol):
    """A namespace whose API server also answers questions that concern no object of ours."""

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        ...

    @property
    def server(self) -> str:
        """Address of the API server."""
        ...

    async def ask(self, method: str, path: str, body: Raw | None = None) -> Raw:
        """Send a request to any path and return the object of the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Installation:
    """A cluster and the operator in one of its namespaces.

    Attributes:
        pod: Name of the operator's Pod that the user gave, or None.
        operator_name: The same, or the name in a release that is called as the chart.
        viewers_name: Name of the Pod that serves published results.
        execute_in: Returns how commands run in the operator container of a Pod.
    """

    cluster: QueryableCluster
    pod: str | None
    operator_name: str
    viewers_name: str
    execute_in: Callable[[str], Exec]


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


NETWORK: Final = "probe-network"
STORAGE: Final = "probe-storage"

PROBE_SECONDS: Final = 300.0
"""As ``test.timeoutSeconds`` of the chart: image pulls included."""

_CONFIG: Final = {"command": ["python3", "-c", "print('Answer: 4')"]}
"""Of the harness of type ``command``."""

_TTL_SECONDS: Final = 600
"""After which the operator deletes the run of a doctor that was killed."""


async def probe(installation: Installation) -> Sequence[Diagnosis]:
    """Start the run, say what it found, and delete it, also when it is interrupted.

    Raises:
        ClusterError: The API server rejects the requests.
    """
    image = await _operator_image(installation)
    async with _probing_run(installation, image) as run:
        state = await _last_state(installation, run)
    return _on_network(state), _on_storage(state)


async def _operator_image(installation: Installation) -> str:
    name = await operator_pod(
        installation.cluster, installation.cluster.namespace, installation.pod
    )
    pod = await installation.cluster.get(ObjectKind.POD, name) or {}
    containers = cast("list[Raw]", object_at(pod, "spec").get("containers") or [])
    images = [text_at(each, "image") for each in containers if each["name"] == OPERATOR_CONTAINER]
    if not images:
        raise ClusterError(f"the Pod {name} has no container {OPERATOR_CONTAINER}")
    return images[0]


@asynccontextmanager
async def _probing_run(installation: Installation, image: str) -> AsyncIterator[Raw]:
    """Create the run, which owns its pack, and delete both at the end."""
    name = run_name("doctor", random_suffix())
    try:
        yield await shielded(_create(installation, name, image))
    finally:
        await shielded(_delete(installation, name))


async def _create(installation: Installation, name: str, image: str) -> Raw:
    run = await installation.cluster.create(ObjectKind.BENCHMARK_RUN, _run(name))
    owner = object_at(owner_patch(run), "metadata")
    pack = {**_pack(image), "metadata": {"name": name, **owner}}
    await installation.cluster.create(ObjectKind.CONFIG_MAP, pack)
    return run


async def _delete(installation: Installation, name: str) -> None:
    await installation.cluster.delete(ObjectKind.BENCHMARK_RUN, name, uid=None, grace_seconds=None)


def _run(name: str) -> Raw:
    spec = {
        "pack": {"configMap": {"name": name}},
        "harness": {"type": "command", "config": _CONFIG},
        "retention": {"ttlSecondsAfterFinished": _TTL_SECONDS},
    }
    return run_manifest(name, spec, harness_digest(harness_config("command", _CONFIG)))


def _pack(image: str) -> Raw:
    environment = {"image": image, "timeout_seconds": 60}
    manifest = {
        "id": "doctor",
        "version": 1,
        "defaults": {"family": "short_answer", "environment": environment},
    }
    row = {
        "id": "sum",
        "input": {"question": "What is 2 + 2?"},
        "eval": {"accepted_answers": [4]},
    }
    files = {MANIFEST_FILE: json.dumps(manifest), TASKS_FILE: json.dumps(row) + "\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": files}


async def _last_state(installation: Installation, run: Raw) -> RunState:
    """Return the state in which the run ended, or the latest one when the time is over."""
    latest = run_state(run)
    follower = Follower(installation.cluster, asyncio.sleep, lambda _line: None)
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(PROBE_SECONDS),
            aclosing(follower.states(latest.name, latest.uid)) as states,
        ):
            async for state in states:
                latest = state
                if state.end is not None:
                    break
    return latest


def _on_network(state: RunState) -> Diagnosis:
    found = isolation(state.run)
    if found is not None:
        return found._replace(check=NETWORK)
    return Diagnosis(NETWORK, Health.FAIL, f"not proven: {_said(state)}", _what_to_do(state))


def _on_storage(state: RunState) -> Diagnosis:
    status = object_at(state.run, "status")
    if object_at(status, "score").get("passed") == 1:
        found = "a Pod wrote its answer to the results volume, another one read and graded it"
        return Diagnosis(STORAGE, Health.OK, found)
    return Diagnosis(STORAGE, Health.FAIL, f"not shown: {_said(state)}", _what_to_do(state))


def _said(state: RunState) -> str:
    if state.end is not None:
        return state.failure()
    waiting = state.note or state.reason or "the operator has not taken it up"
    return f"BenchmarkRun {state.name} has not ended after {PROBE_SECONDS:.0f} s ({waiting})"


def _what_to_do(state: RunState) -> str:
    reason = state.reason or Reason.INTERNAL
    return f"{reason} in docs/troubleshooting.md, or the operator's log"


Check = Callable[[Installation], Awaitable[Diagnosis]]


class _Named(NamedTuple):
    name: str
    check: Check


CHECKS: Final = (
    _Named("cluster", kubernetes),
    _Named("crds", resources),
    _Named("rights", rights),
    _Named("operator", operator),
    _Named("storage", storage),
    _Named("network", network),
    _Named("images", images),
)
"""In the order of the output; the first shows that the cluster can be reached."""


def doctor(target: ClusterTarget, *, as_json: bool, with_probe: bool) -> int:
    """Print a line for each check; the exit code is 1 when one failed.

    Args:
        with_probe: Also start a run whose Pods try network and volume.
    """
    findings = asyncio.run(_found(target, with_probe=with_probe))
    if as_json:
        print_json({"findings": [finding._asdict() for finding in findings]})
    else:
        rows = [(each.state.value, each.check, str(each)) for each in findings]
        print_table(("STATE", "CHECK", "FOUND"), rows)
    return 1 if any(finding.state is Health.FAIL for finding in findings) else 0


async def examine(installation: Installation) -> AsyncIterator[Diagnosis]:
    """Yield what each check finds.

    Raises:
        TransientClusterError: The cluster cannot be reached; nothing else is checked then.
    """
    yield await CHECKS[0].check(installation)
    for name, check in CHECKS[1:]:
        try:
            finding = await check(installation)
        except SecureBenchError as error:
            finding = trouble(name, error)
        yield finding


async def _found(target: ClusterTarget, *, with_probe: bool) -> list[Diagnosis]:
    try:
        async with open_cluster(target) as cluster:
            installation = await _installation(cluster, target)
            findings = [finding async for finding in examine(installation)]
            return [*findings, *(await _probed(installation))] if with_probe else findings
    except SecureBenchError as error:
        return [Diagnosis(CHECKS[0].name, Health.FAIL, str(error))]


async def _probed(installation: Installation) -> Sequence[Diagnosis]:
    try:
        return await probe(installation)
    except SecureBenchError as error:
        return [trouble("probe", error)]


async def _installation(cluster: ApiCluster, target: ClusterTarget) -> Installation:
    try:
        name = await operator_pod(cluster, cluster.namespace, target.operator_pod)
    except TransientClusterError:
        raise
    except ClusterError:
        name = target.operator_pod or DEFAULT_OPERATOR_POD
    return Installation(
        cluster=cluster,
        pod=target.operator_pod,
        operator_name=name,
        viewers_name=viewers_pod(name),
        execute_in=lambda pod: PodExec(cluster, pod),
    )
