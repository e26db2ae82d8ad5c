"""Finding the operator's Pod, and running commands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.client import volume
from securebench.client.volume import PodExec, operator_pod
from securebench.cluster.podexec import PodExecResult
from securebench.cluster.port import ObjectKind
from securebench.errors import (
    ClusterError,
    PermanentClusterError,
    TooLargeError,
)
from support.fake_cluster import FakeCluster


async def test_the_operators_pod_is_found_by_label() -> None:
    cluster = FakeCluster()
    await cluster.create(ObjectKind.POD, _pod("other-0", "gateway"))
    await cluster.create(ObjectKind.POD, _pod("bench-securebench-0", "operator"))
    with pytest.raises(ClusterError, match="bench-securebench-0 in namespace ns is Pending"):
        await operator_pod(cluster, "ns", None)
    cluster.set_pod_status("bench-securebench-0", {"phase": "Running"})
    assert await operator_pod(cluster, "ns", None) == "bench-securebench-0"


async def test_the_operators_pod_is_found_by_name_without_the_right_to_list() -> None:
    cluster = FakeCluster()
    await cluster.create(ObjectKind.POD, _pod("securebench-0", "operator"))
    cluster.set_pod_status("securebench-0", {"phase": "Running"})
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    assert await operator_pod(cluster, "ns", None) == "securebench-0"
    assert await operator_pod(cluster, "ns", "securebench-0") == "securebench-0"
    with pytest.raises(ClusterError, match="no SecureBench operator runs in namespace ns"):
        await operator_pod(cluster, "ns", "other-0")


async def _operators(cluster: FakeCluster, holder: str) -> None:
    for name in ("bench-0", "bench-1"):
        await cluster.create(ObjectKind.POD, _pod(name, "operator"))
        cluster.set_pod_status(name, {"phase": "Running"})
    spec = {"holderIdentity": holder}
    await cluster.create(
        ObjectKind.LEASE, {"metadata": {"name": "securebench-operator"}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("holder", "want"),
    [("bench-1_uid", "bench-1"), ("bench-0_uid", "bench-0"), ("", "bench-0"), ("x_y", "bench-0")],
)
async def test_of_two_operators_the_one_that_leads_is_found(holder: str, want: str) -> None:
    cluster = FakeCluster()
    await _operators(cluster, holder)
    assert await operator_pod(cluster, "ns", None) == want


@pytest.mark.parametrize("status", [403, 422])
async def test_the_leader_is_found_without_the_right_to_list(status: int) -> None:
    cluster = FakeCluster()
    await _operators(cluster, "bench-1_uid")
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    assert await operator_pod(cluster, "ns", None) == "bench-1"
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    cluster.fail_next("get", PermanentClusterError("no", status=status), kind=ObjectKind.LEASE)
    words = "no SecureBench operator" if status == 403 else "no"
    with pytest.raises(ClusterError, match=words):
        await operator_pod(cluster, "ns", None)


async def test_no_operator() -> None:
    with pytest.raises(ClusterError, match="no SecureBench operator runs in namespace ns"):
        await operator_pod(FakeCluster(), "ns", None)


def _pod(name: str, component: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/name": "securebench", "app.kubernetes.io/component": component}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


async def test_exec_streams_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[object] = []

    async def run_exec(
        _cluster: object, pod: str, container: str, argv: object, stdin: object, stdout: object
    ) -> PodExecResult:
        pieces = [piece async for piece in stdin]  # type: ignore[attr-defined]
        seen.extend([pod, container, argv, b"".join(pieces)])
        await stdout(b"an")  # type: ignore[operator]
        await stdout(b"swer")  # type: ignore[operator]
        return PodExecResult(3, b"err")

    monkeypatch.setattr(volume, "run_exec", run_exec)
    (tmp_path / "in").write_bytes(b"x" * 600_000)
    execute = PodExec(FakeCluster(), "securebench-0")  # type: ignore[arg-type]
    with (tmp_path / "in").open("rb") as stdin:
        result = await execute(["a", "b"], stdin)
    assert tuple(result) == (3, b"answer", b"err")
    assert seen == ["securebench-0", "operator", ["a", "b"], b"x" * 600_000]

    monkeypatch.setattr(volume, "MAX_ANSWER_BYTES", 2)
    with (tmp_path / "in").open("rb") as stdin, pytest.raises(TooLargeError):
        await execute(["a"], stdin)
