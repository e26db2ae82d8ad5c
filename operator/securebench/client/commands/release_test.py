"""``securebench release-test``: the command of the ``helm test`` Pod."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from securebench.client.output import print_error, print_line, print_notices
from securebench.client.watch.follow import Follower, RunState
from securebench.cluster.client import connect
from securebench.cluster.port import Cluster, ObjectKind
from securebench.errors import ClusterError
from securebench.json_values import object_at


def release_test(namespace: str, name: str, timeout_seconds: float) -> int:
    """Wait for a BenchmarkRun with one task and report whether the task passed.

    Args:
        namespace: Namespace of the release.
        name: Name of the BenchmarkRun.
        timeout_seconds: For the whole run, including image pulls.

    Returns:
        Exit code 0 or 1.

    Raises:
        ClusterError: The API server rejects the requests.
    """
    return asyncio.run(_test(namespace, name, timeout_seconds))


async def _test(namespace: str, name: str, timeout_seconds: float) -> int:
    async with connect(namespace) as cluster:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await follow_to_end(cluster, name)
        except TimeoutError:
            print_error(
                f"BenchmarkRun {namespace}/{name} has not ended after {timeout_seconds:.0f} s; "
                "does the operator run, and can the nodes pull both images?"
            )
            return 1


async def follow_to_end(cluster: Cluster, name: str) -> int:
    """Follow the run to its end, print its state changes and return the exit code.

    Raises:
        ClusterError: There is no such run, or the API server rejects the requests.
    """
    run = await cluster.get(ObjectKind.BENCHMARK_RUN, name)
    if run is None:
        raise ClusterError(f"the BenchmarkRun {name} does not exist; was it deleted?")
    uid = str(object_at(run, "metadata").get("uid"))
    end = await _ended(cluster, name, uid)
    score = object_at(
        object_at(await cluster.get(ObjectKind.BENCHMARK_RUN, name) or {}, "status"), "score"
    )
    if score.get("passed") == 1:
        print_line(f"BenchmarkRun {name}: its task was run, verified and passed")
        return 0
    print_error(f"BenchmarkRun {name} ended with {end.reason}: {end.message or 'no task passed'}")
    return 1


async def _ended(cluster: Cluster, name: str, uid: str) -> RunState:
    printed = ""
    follower = Follower(cluster, asyncio.sleep, lambda line: print_notices([line]))
    async with aclosing(follower.states(name, uid)) as states:
        async for state in states:
            line = f"{state.reason or 'Pending'}: {state.message}"
            if line != printed:
                print_line(line)
            printed = line
            if state.end is not None:
                return state
    raise ClusterError(f"the watch of BenchmarkRun {name} ended")
