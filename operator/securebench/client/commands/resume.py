"""``securebench resume``: resume a suspended run, or continue one that has ended.

A run that has ended is continued by a new BenchmarkRun with the same spec, which keeps every record
with a verdict and runs the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from securebench.client.inspection.find import require_one_run
from securebench.client.output import print_line
from securebench.client.submit.submit import (
    is_owned_by,
    random_suffix,
    run_manifest,
    run_name,
    shared_owners_patch,
)
from securebench.client.volume.connection import ClusterTarget, open_cluster
from securebench.client.watch.follow import run_state
from securebench.client.watch.run_view import run_id_of
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import InvalidInputError
from securebench.json_values import object_at, text_at
from securebench.names import HARNESS_DIGEST_ANNOTATION

_NOT_TAKEN_OVER = frozenset({"cancel", "suspend"})


def resume(run: str, target: ClusterTarget) -> int:
    """Resume a suspended run, or continue one that has ended."""
    print_line(asyncio.run(_resume(run, target)))
    return 0


async def _resume(name: str, target: ClusterTarget) -> str:
    async with open_cluster(target) as cluster:
        run = await require_one_run(cluster, name)
        state = run_state(run)
        if state.end is not None:
            return await _continue(cluster, run)
        if not object_at(run, "spec").get("suspend"):
            raise InvalidInputError(
                f"BenchmarkRun {state.name} is neither suspended nor ended;"
                f" follow it with securebench watch {state.name}"
            )
        change = {"spec": {"suspend": False}}
        await cluster.patch(ObjectKind.BENCHMARK_RUN, state.name, change)
        return f"run={state.name} suspend=false"


async def _continue(cluster: Cluster, earlier: Raw) -> str:
    """Create the run that continues an earlier one, and let it own its Secrets too."""
    old, run_id = run_state(earlier).name, run_id_of(earlier)
    regraded = text_at(object_at(object_at(earlier, "spec"), "regrade"), "run")
    if regraded:
        raise InvalidInputError(
            f"run {old} only graded run {regraded} again; resume that one, or grade it again"
        )
    kept = object_at(earlier, "spec").items()
    spec = {key: value for key, value in kept if key not in _NOT_TAKEN_OVER}
    uid = text_at(object_at(earlier, "metadata"), "uid")
    spec |= {"runId": run_id, "resumeFrom": {"run": old, "uid": uid}}
    name = run_name(run_id, random_suffix())
    await create_like(cluster, name, spec, earlier, ("harness", "provider"))
    return f"run={name} resumes={old}"


async def create_like(
    cluster: Cluster, name: str, spec: Raw, earlier: Raw, sections: Sequence[str]
) -> None:
    """Create a run with the Secrets of an earlier one, which it then owns too.

    Args:
        cluster: The namespace.
        name: Name of the new run.
        spec: Spec of the new run.
        earlier: The BenchmarkRun before it.
        sections: Sections of the spec whose ``secretRef`` it needs.

    Raises:
        InvalidInputError: A Secret is gone.
        ClusterError: The API server refused something.
    """
    old = run_state(earlier).name
    used = [await _require_secret(cluster, each, old) for each in _secret_names(spec, sections)]
    digest = text_at(object_at(object_at(earlier, "status"), "resolved"), "harnessDigest")
    notes = object_at(object_at(earlier, "metadata"), "annotations")
    manifest = run_manifest(name, spec, digest or text_at(notes, HARNESS_DIGEST_ANNOTATION))
    run = await cluster.create(ObjectKind.BENCHMARK_RUN, manifest)
    for secret in used:
        if is_owned_by(secret, earlier):
            place = text_at(object_at(secret, "metadata"), "name")
            await cluster.patch(ObjectKind.SECRET, place, shared_owners_patch(secret, run))


def _secret_names(spec: Mapping[str, object], sections: Sequence[str]) -> Iterator[str]:
    for section in sections:
        name = text_at(object_at(object_at(spec, section), "secretRef"), "name")
        if name:
            yield name


async def _require_secret(cluster: Cluster, name: str, run: str) -> Raw:
    secret = await cluster.get(ObjectKind.SECRET, name)
    if secret is None:
        raise InvalidInputError(
            f"the Secret {name} that run {run} used is gone; set the variables again and start it"
            " with securebench run --resume and its tester YAML"
        )
    return secret
