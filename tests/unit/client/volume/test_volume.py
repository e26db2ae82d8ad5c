"""The way to the results volume, through the operator's Pod."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from securebench.client import volume
from securebench.client.volume import ClusterTarget, PodExec, open_connection, operator_pod
from securebench.cluster.podexec import PodExecResult
from securebench.cluster.port import ObjectKind
from securebench.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    SecureBenchError,
    TooLargeError,
    TransientClusterError,
)
from support.fake_cluster import FakeCluster


async def opened(place: ClusterTarget) -> None:
    async with open_connection(place):
        pass


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("clusters: [", "while parsing a flow node"),
        ("[]", "the kubeconfig cannot be used"),
        ("current-context: a", "the kubeconfig cannot be used"),
        ("{current-context: a, contexts: [{}], clusters: 3}", "the kubeconfig cannot be used"),
    ],
)
@pytest.mark.parametrize("namespace", [None, "ns"])
async def test_a_damaged_kubeconfig_is_a_config_error(
    text: str, want: str, namespace: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ConfigError, match=want):
        await opened(ClusterTarget(namespace=namespace))


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (
            None,
            (
                r"the cluster at https://api:6443 \(context c\) cannot be reached; check that"
                r" it is up.*no conn"
            ),
        ),
        (401, r"does not accept the credentials of the kubeconfig \(no connection\)"),
    ],
)
async def test_a_cluster_that_cannot_be_used_is_said(
    status: int | None, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    facts = {} if status is None else {"status": status}
    cluster.fail_next("list", TransientClusterError("no connection", **facts))  # type: ignore[arg-type]

    async def give(*_: object) -> Any:
        return SimpleNamespace(namespace="ns", list=cluster.list, server="https://api:6443")

    monkeypatch.setattr(volume, "_opened", give)
    with pytest.raises(TransientClusterError, match=want):
        await opened(ClusterTarget(context="c"))


@pytest.mark.parametrize(
    ("phase", "has_link"), [("Running", True), ("Pending", False), (None, False)]
)
async def test_a_run_can_be_watched_without_the_operators_pod(
    phase: str | None, monkeypatch: pytest.MonkeyPatch, *, has_link: bool
) -> None:
    cluster = FakeCluster()
    if phase is not None:
        labels = dict(part.split("=") for part in volume.OPERATOR_SELECTOR.split(","))
        await cluster.create(ObjectKind.POD, {"metadata": {"name": "sb-0", "labels": labels}})
        cluster.set_pod_status("sb-0", {"phase": phase})

    async def give(*_: object) -> Any:
        return SimpleNamespace(namespace="ns", list=cluster.list, get=cluster.get)

    monkeypatch.setattr(volume, "_opened", give)
    async with volume.open_watched(ClusterTarget()) as place:
        assert (place.link is not None) is has_link


class Silence:
    """Stands for run_exec: takes input and gives output with a pause after each piece."""

    def __init__(self, pauses: list[float]) -> None:
        self.pauses = pauses

    async def __call__(self, *arguments: Any) -> Any:
        stdin, stdout = arguments[-2:]
        async for _ in stdin:
            await asyncio.sleep(self.pauses.pop(0))
        while self.pauses:
            await stdout(b"x")
            await asyncio.sleep(self.pauses.pop(0))
        return SimpleNamespace(exit_code=0, stderr=b"")


@pytest.mark.parametrize(("pauses", "is_silent"), [([0.3] * 6, False), ([0.0, 0.0, 9.0], True)])
async def test_only_silence_ends_a_call(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    monkeypatch.setattr(volume, "_IDLE_SECONDS", 1.0)
    monkeypatch.setattr(volume, "_PIECE_BYTES", 1)
    monkeypatch.setattr(volume, "run_exec", Silence(pauses))
    execute = PodExec(FakeCluster(), "securebench-0")  # type: ignore[arg-type]
    if is_silent:
        with pytest.raises(TransientClusterError, match="securebench-0 does not respond"):
            await execute(["a"], io.BytesIO(b"12"))
    else:
        assert (await execute(["a"], io.BytesIO(b"12"))).stdout == b"xxxx"


async def test_after_a_pod_that_is_gone_the_next_leader_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    leaders: list[str | ClusterError] = [ClusterError("no operator runs")]

    async def run_exec(_cluster: object, pod: str, *_: object) -> Any:
        asked.append(pod)
        if pod == "securebench-0":
            raise PermanentClusterError("gone", status=404)
        return SimpleNamespace(exit_code=0, stderr=b"")

    async def find() -> str:
        found = leaders.pop(0)
        if isinstance(found, ClusterError):
            raise found
        return found

    monkeypatch.setattr(volume, "run_exec", run_exec)
    execute = PodExec(FakeCluster(), "securebench-0", find=find)  # type: ignore[arg-type]
    for words in ("securebench-0 is gone", "no operator runs"):
        with pytest.raises(TransientClusterError, match=words):
            await execute(["a"], None)
    leaders.insert(0, "securebench-1")
    assert (await execute(["a"], None)).exit_code == 0
    assert (await execute(["a"], None)).exit_code == 0
    assert asked == ["securebench-0", "securebench-1", "securebench-1"]


@pytest.mark.parametrize("operator", ["bench-0", "bench-1"])
def test_the_viewers_pod_is_that_of_the_release(operator: str) -> None:
    assert volume.viewers_pod(operator) == "bench-viewers-0"


@pytest.mark.parametrize(
    ("status", "kind"), [(404, TransientClusterError), (403, PermanentClusterError)]
)
async def test_a_pod_that_is_gone_comes_back(
    status: int, kind: type[SecureBenchError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise PermanentClusterError("no", status=status)

    monkeypatch.setattr(volume, "run_exec", refuse)
    with pytest.raises(kind):
        await PodExec(FakeCluster(), "securebench-0")(["a"], None)  # type: ignore[arg-type]


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
