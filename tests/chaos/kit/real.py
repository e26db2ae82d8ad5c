"""Runs of the real operator against a real API server; a kubelet of the tests moves the Pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kubernetes.aio.client import ApiClient, Configuration

from chaos.kit.proxy import Proxy, Rule
from chaos.kit.scene import PARALLELISM, RETRIES, SCRIPTS, records
from chaos.kit.verdict import Record
from securebench.clock import SystemClock, TokenBucket
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.capacity import CreationRate, SharedCapacity
from securebench.controller.context import Context
from securebench.controller.lifecycle import Supervisor
from securebench.controller.reading import Reading
from securebench.controller.volume.journal import read_journal
from securebench.names import RUN_UID_LABEL
from securebench.run.observe.pods import pod_view
from securebench.run.state.entries import Entry
from support.build import in_this_process, lead_of, question, run_body, settings_of, write_pack
from support.kubelet import Kubelet

PATIENCE_SECONDS = 150.0
STEP_SECONDS = 0.4
RELIST_SECONDS = 15.0


@dataclass(frozen=True)
class Played:
    """What one run left.

    Attributes:
        entries: Its journal.
        records: Its candidates.jsonl.
        broken: Requests that the proxy broke.
        reason: How it ended; empty if it did not.
    """

    entries: Sequence[Entry]
    records: Sequence[Record]
    broken: int
    reason: str


async def play(
    name: str, rules: tuple[Rule, ...], admin: ApiCluster, upstream: Configuration, root: Path
) -> Played:
    """Play one run through a proxy of its own.

    Args:
        name: Of the BenchmarkRun.
        rules: Of the proxy.
        admin: Reaches the API server without it.
        upstream: How that is.
        root: Where the volume is.
    """
    rows = [question(f"{number}-{script}") for number, script in enumerate(SCRIPTS)]
    write_pack(root / "packs/smoke", rows)
    spec = {
        "parallelism": PARALLELISM,
        "infrastructureRetries": RETRIES,
        "retention": {"pods": "None"},
    }
    made = await admin.create(ObjectKind.BENCHMARK_RUN, run_body(name, **spec))
    uid = str(metadata(made)["uid"])
    proxy = Proxy(upstream, rules)
    async with AsyncExitStack() as stack:
        configuration = Configuration(host=await stack.enter_async_context(proxy.serving()))
        api = await stack.enter_async_context(ApiClient(configuration))
        supervisor = Supervisor(_context(ApiCluster(api, admin.namespace), root))
        stack.push_async_callback(supervisor.close)
        supervisor.observe(None, made)
        reason = await _work(admin, Kubelet(root, uid, list(SCRIPTS), ""), name, uid)
        for _ in range(50):
            if not supervisor.active:
                break
            await asyncio.sleep(STEP_SECONDS)
    entries = read_journal(root / "runs" / uid, uid).entries
    return Played(entries, records(root, uid), proxy.broken, reason)


def _context(cluster: ApiCluster, root: Path) -> Context:
    clock = SystemClock()
    settings = settings_of(root, namespace=cluster.namespace, relist_seconds=RELIST_SECONDS)
    return Context(
        cluster=cluster,
        settings=settings,
        clock=clock,
        rate=CreationRate(TokenBucket(1000.0, 1000, clock.now)),
        capacity=SharedCapacity(settings.creation, clock),
        node_name="",
        targets=(),
        tools="sha256:" + "7" * 64,
        lead=lead_of(root),
        reading=Reading(in_this_process),
    )


async def _work(admin: ApiCluster, kubelet: Kubelet, name: str, uid: str) -> str:
    """Move Pods on until the run has ended; return how it did."""
    started: set[str] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for raw in (await admin.list(ObjectKind.POD, f"{RUN_UID_LABEL}={uid}")).items:
            view = pod_view(raw)
            if view is None or view.is_terminal or view.deleting_since is not None:
                continue
            status = kubelet.ended(view) if view.name in started else kubelet.started(view)
            started.add(view.name)
            await admin.patch_status(ObjectKind.POD, view.name, {"status": status})
        reason = _reason(await admin.get(ObjectKind.BENCHMARK_RUN, name))
        if reason:
            return reason
        await asyncio.sleep(STEP_SECONDS)
    return ""


def _reason(run: Raw | None) -> str:
    status = cast("dict[str, Any]", (run or {}).get("status", {}))
    for condition in status.get("conditions", ()):
        if condition["type"] == "Succeeded" and condition["status"] != "Unknown":
            return str(condition["reason"])
    return ""
