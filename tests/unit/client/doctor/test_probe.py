"""`securebench doctor --probe`: its run, what it says of it, and that nothing stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from securebench.benchmark.files.load import check_pack
from securebench.cli.main import app
from securebench.client import doctor as module
from securebench.client.doctor import Installation, probe
from securebench.cluster.port import ObjectKind, Raw
from securebench.errors import PermanentClusterError
from securebench.run.api.models import BenchmarkRunSpec

PROVEN = {"type": "IsolationVerified", "status": "True", "reason": "Verified", "message": "closed"}
OPEN = {**PROVEN, "status": "False", "reason": "IsolationNotVerified", "message": "kubelet is open"}
PASSED = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": ""}
REFUSED = {**PASSED, "status": "False", "reason": "IsolationNotVerified", "message": "see above"}
WAITING = {**PASSED, "status": "Unknown", "reason": "Unschedulable", "message": "no node has room"}


def answering(ward: Any, status: Raw) -> list[Any]:
    """Let an operator give a run this status once its pack is there; return what was made."""
    made = []
    create = ward.create

    async def created(kind: ObjectKind, manifest: Raw) -> Raw:
        item = await create(kind, manifest)
        made.append(item)
        if kind is ObjectKind.CONFIG_MAP:
            ward.edit(ObjectKind.BENCHMARK_RUN, item["metadata"]["name"], {"status": status})
        return item  # type: ignore[no-any-return]

    ward.create = created
    return made


def probed() -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--probe", "-o", "json"], catch_exceptions=False)
    findings = json.loads(done.stdout)["findings"]
    return done.exit_code, {each["check"]: each for each in findings if "probe" in each["check"]}


def left(ward: Any) -> list[str]:
    ward.collect_garbage()
    kinds = (ObjectKind.BENCHMARK_RUN, ObjectKind.CONFIG_MAP)
    return [name for kind in kinds for name in ward.objects(kind)]


def test_a_run_that_passes_proves_network_and_storage(ward: Any) -> None:
    answering(ward, {"conditions": [PROVEN, PASSED], "score": {"passed": 1}})
    code, found = probed()
    assert code == 0
    assert {name: each["state"] for name, each in found.items()} == {
        "probe-network": "OK",
        "probe-storage": "OK",
    }
    assert found["probe-network"]["found"].endswith(": closed")
    assert left(ward) == []


def test_the_run_is_one_that_the_operator_accepts(ward: Any, tmp_path: Path) -> None:
    made = answering(ward, {"conditions": [PROVEN, PASSED], "score": {"passed": 1}})
    probed()
    run, pack = made
    spec = BenchmarkRunSpec.parse(run["spec"])
    assert spec.retention.ttl_seconds_after_finished == 600
    assert pack["metadata"]["name"] == run["spec"]["pack"]["configMap"]["name"]
    for name, text in pack["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    checked = check_pack(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")
    assert checked.errors == ()
    (item,) = checked.tasks
    assert item.task.environment["image"] == "registry.example/operator:1"


def test_an_open_network_is_found(ward: Any) -> None:
    answering(ward, {"conditions": [OPEN, REFUSED]})
    code, found = probed()
    assert code == 1
    assert found["probe-network"]["state"] == "FAIL"
    assert "kubelet is open" in found["probe-network"]["found"]
    assert "NetworkPolicy" in found["probe-network"]["hint"]
    assert found["probe-storage"]["state"] == "FAIL"
    assert "ended with IsolationNotVerified: see above" in found["probe-storage"]["found"]
    assert left(ward) == []


def test_a_run_that_waits_says_for_what(ward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.05)
    answering(ward, {"conditions": [WAITING]})
    code, found = probed()
    assert code == 1
    for each in found.values():
        assert "Unschedulable: no node has room" in each["found"]
        assert each["hint"].startswith("Unschedulable in docs/troubleshooting.md")
    assert left(ward) == []


def test_an_account_without_rights_is_told(ward: Any) -> None:
    ward.fail_next(
        "create", PermanentClusterError("forbidden", status=403), kind=ObjectKind.CONFIG_MAP
    )
    code, found = probed()
    assert (code, found["probe"]["state"]) == (0, "WARN")
    assert left(ward) == []


async def test_an_interrupt_leaves_nothing(ward: Any) -> None:
    answering(ward, {"conditions": [WAITING]})
    create, is_made = ward.create, asyncio.Event()

    async def created(kind: ObjectKind, manifest: Raw) -> Raw:
        item: Raw = await create(kind, manifest)
        if kind is ObjectKind.CONFIG_MAP:
            is_made.set()
        return item

    ward.create = created
    ward.put(ObjectKind.POD, ward.pod)
    installation = Installation(
        ward, "securebench-0", "securebench-0", "viewers-0", ward.execute_in
    )
    task = asyncio.create_task(probe(installation))
    await is_made.wait()
    assert len(left(ward)) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(ward) == []
