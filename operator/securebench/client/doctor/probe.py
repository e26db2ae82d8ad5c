"""``securebench doctor --probe``: a run of one task, whose canary and Pods try network and volume.

The operator starts the Pods, so a tester's rights suffice, and what is proven is what every run of
the namespace meets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, cast

from securebench.agents.registry import harness_config, harness_digest
from securebench.client.doctor.checks import isolation
from securebench.client.doctor.diagnosis import Diagnosis, Health
from securebench.client.doctor.installation import Installation
from securebench.client.submit.submit import owner_patch, random_suffix, run_manifest, run_name
from securebench.client.volume.connection import OPERATOR_CONTAINER, operator_pod
from securebench.client.watch.follow import Follower, RunState, run_state
from securebench.client.watch.shielded import shielded
from securebench.cluster.port import ObjectKind, Raw
from securebench.core.errors import ClusterError
from securebench.core.json_values import object_at, text_at
from securebench.run.api.conditions import Reason
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE

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
