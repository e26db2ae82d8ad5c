"""The command ``securebench doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from securebench.client.doctor import checks
from securebench.client.doctor.diagnosis import Diagnosis, Health
from securebench.client.doctor.installation import Installation
from securebench.client.doctor.probe import probe
from securebench.client.doctor.rights import rights
from securebench.client.output import print_json, print_table
from securebench.client.volume.connection import (
    DEFAULT_OPERATOR_POD,
    ClusterTarget,
    PodExec,
    open_cluster,
    operator_pod,
    viewers_pod,
)
from securebench.cluster.client import ApiCluster
from securebench.core.errors import ClusterError, SecureBenchError, TransientClusterError

Check = Callable[[Installation], Awaitable[Diagnosis]]


class _Named(NamedTuple):
    name: str
    check: Check


CHECKS: Final = (
    _Named("cluster", checks.kubernetes),
    _Named("crds", checks.resources),
    _Named("rights", rights),
    _Named("operator", checks.operator),
    _Named("storage", checks.storage),
    _Named("network", checks.network),
    _Named("images", checks.images),
)
"""In the order of the output; the first shows that the cluster can be reached."""


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Where to look, and how to print it.

    Attributes:
        with_probe: Also start a run whose Pods try network and volume.
    """

    target: ClusterTarget
    as_json: bool = False
    with_probe: bool = False


def doctor(options: DoctorOptions) -> int:
    """Print a line for each check; the exit code is 1 when one failed."""
    findings = asyncio.run(_found(options))
    if options.as_json:
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
            finding = checks.trouble(name, error)
        yield finding


async def _found(options: DoctorOptions) -> list[Diagnosis]:
    try:
        async with open_cluster(options.target) as cluster:
            installation = await _installation(cluster, options.target)
            findings = [finding async for finding in examine(installation)]
            return [*findings, *(await _probed(installation))] if options.with_probe else findings
    except SecureBenchError as error:
        return [Diagnosis(CHECKS[0].name, Health.FAIL, str(error))]


async def _probed(installation: Installation) -> Sequence[Diagnosis]:
    try:
        return await probe(installation)
    except SecureBenchError as error:
        return [checks.trouble("probe", error)]


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
