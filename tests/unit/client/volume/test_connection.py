from __future__ import annotations

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from securebench.client import volume
from securebench.client.volume import ClusterTarget, PodExec, open_connection
from securebench.cluster.port import ObjectKind
from securebench.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    SecureBenchError,
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
