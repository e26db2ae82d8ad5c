"""The operator as a process: it works while it leads, and ends with its Lease."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from securebench.controller.process import LOST_EXIT_CODE
from securebench.names import OPERATOR_LEASE

SCRIPT = """
import asyncio, json, os, signal, sys, time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from securebench.cluster.port import ObjectKind
from securebench.controller.leadership import LeaseRecord, lease_manifest
from securebench.controller import health, loop_tasks, process
from securebench.controller import volume_calls
from securebench.controller.volume import lead
from support.build import settings_of
from support.fake_cluster import FakeCluster

case, root = sys.argv[1], Path(sys.argv[2])
times = {"lease_seconds": 2, "renew_seconds": 1.0, "retry_seconds": 0.1}
settings = settings_of(root, leadership=times, health_port=0, metrics_port=0)
cluster = FakeCluster()

@asynccontextmanager
async def connected(_):
    if case == "standby":
        await cluster.create(ObjectKind.LEASE, lease_manifest(LeaseRecord("another_1", 1, 3600)))
        asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)
    yield cluster

def say(what):
    print(json.dumps(what), flush=True)

async def work(_, lead):
    say(["works", lead.epoch, sorted(path.name for path in root.glob("leaders/*"))])
    if case == "lost":
        spec = lease_manifest(LeaseRecord("another_1", 2, 3600))["spec"]
        cluster.edit(ObjectKind.LEASE, "%s", {"spec": spec})
        await asyncio.sleep(3600)

if case == "flaky":
    sync, failures = lead.fsync_folder, [OSError(5, "Input/output error")]

    def flaky(path):
        if failures:
            raise failures.pop()
        sync(path)

    lead.fsync_folder, loop_tasks.AGAIN_SECONDS = flaky, 0.1

if case == "silent":
    highest_epoch = process.highest_epoch

    def silent(root):
        time.sleep(1.5)  # longer than a Lease is good for unless it is renewed
        return highest_epoch(root)

    process.highest_epoch = silent
    health.TURN_SECONDS = volume_calls.ANSWER_SECONDS = 0.1

process.connect = connected
with suppress(asyncio.CancelledError):
    asyncio.run(process.run_when_leader(settings, work))
say(cluster.objects(ObjectKind.LEASE)["%s"]["spec"]["holderIdentity"])
"""

WORKS = ["works", 1, ["1"]]


@pytest.mark.parametrize(
    ("case", "code", "want"),
    [
        ("lost", LOST_EXIT_CODE, [WORKS]),
        ("done", 0, [WORKS, ""]),
        ("flaky", 0, [WORKS, ""]),
        ("silent", 0, [WORKS, ""]),
        ("standby", 0, ["another_1"]),
    ],
)
def test_the_process_works_while_it_leads_and_no_longer(tmp_path, case, code, want):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("%s", OPERATOR_LEASE), case, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == want, done.stderr
    assert done.returncode == code
    assert ("another_1 has the Lease, epoch 2" in done.stderr) is (case == "lost")
    assert ("Input/output error; tried again" in done.stderr) is (case == "flaky")
    assert ("results volume has not answered" in done.stderr) is (case == "silent")
