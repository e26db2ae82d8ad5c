"""How a run begins: what is told, what is joined, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import json

import pytest

from securebench.client.progress import Event
from securebench.client.run_start import Binding, Flaw, joinable_run
from securebench.cluster.port import ObjectKind, Raw
from securebench.errors import TransientClusterError
from support.fake_operator import FakeCluster, record
from unit.client.bench import Bench

BINDING = Binding("r", "sha256:p", "sha256:h", "1")
POLICY = {"disallowDangerousCommands": True, "denyCommands": []}


def spec(**changes: object) -> Raw:
    return {"runId": "r", "pack": {"digest": "sha256:p"}, "verification": POLICY, **changes}


def run(**changes: object) -> Raw:
    annotations = {"securebench.dev/harness-digest": "sha256:h"}
    return {"metadata": {"name": "r-1", "annotations": annotations}, "spec": spec(**changes)}


@pytest.mark.parametrize(
    ("there", "wanted", "is_joined"),
    [
        ({}, {}, True),
        ({"attempts": 1, "parallelism": 9}, {}, True),
        ({"taskSelector": {"limit": 2, "include": ["*"]}}, {"taskSelector": {"limit": 2}}, True),
        ({"taskSelector": {"limit": 1}}, {}, False),
        ({"taskSelector": {"include": ["a"]}}, {}, False),
        ({"taskSelector": {"exclude": ["a"]}}, {}, False),
        ({"attempts": 2}, {}, False),
        ({"attempts": 2}, {"attempts": 2}, True),
        ({}, {"attempts": 2}, False),
        ({"verification": {**POLICY, "denyCommands": ["chroot"]}}, {}, False),
        ({"budget": {"tokens": 5}}, {}, False),
        ({"budget": {"tokens": 5}}, {"budget": {"tokens": 5}}, True),
        ({}, {"budget": {"tokens": 5}}, False),
        ({"cancel": "Graceful"}, {}, False),
    ],
)
def test_only_a_run_that_does_the_same_is_joined(
    there: dict[str, object], wanted: dict[str, object], *, is_joined: bool
) -> None:
    found = joinable_run([run(**there)], BINDING, spec(**wanted))
    assert (found is not None) is is_joined


async def test_a_resume_tells_what_it_leaves_out(bench: Bench) -> None:
    await bench.run()
    local = bench.output / "candidates.jsonl"
    local.write_bytes(local.read_bytes() + b"nonsense\n")
    await bench.run(resume=True)
    warnings = [str(f["message"]) for event, f in bench.reporter.events if event == Event.WARNING]
    assert warnings[-1] == f"{local}:4: damaged line is ignored: not JSON"
    summary = json.loads((bench.output / "summary.json").read_text())
    assert summary[Flaw.DAMAGED] == 1


async def test_the_summary_of_an_earlier_run_goes_when_a_run_begins(bench: Bench) -> None:
    await bench.run()
    following = asyncio.create_task(bench.start().execute())
    begun = await bench.namespace.next_run()
    begun.bind()
    begun.write(record("a"))
    await begun.status("Running")
    assert not (bench.output / "summary.json").exists()
    following.cancel()


@pytest.mark.parametrize("operation", ["find-run", "get-run", "show-pack"])
async def test_a_start_survives_a_broken_connection(bench: Bench, operation: str) -> None:
    await bench.run()
    bench.namespace.fail_once(operation)
    assert (await bench.run(resume=True)).exit_code == 0


async def test_the_summary_is_fetched_from_a_restarted_operator(bench: Bench) -> None:
    bench.namespace.fail_once("summary.json")
    assert (await bench.run()).summary is not None


class SlowCluster(FakeCluster):
    """Answers to a creation only after the caller was interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        created = await super().create(kind, manifest)
        self.asked.set()
        await self.answers.wait()
        return created


class SlowOwner(FakeCluster):
    """Creates at once, and never answers to who wants to own a Secret."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        self.asked.set()
        await asyncio.Event().wait()
        return await super().patch(kind, name, body)


async def interrupted(bench: Bench, cluster: SlowCluster | SlowOwner) -> None:
    """Start a run, interrupt it and give its creation up, as the end of a program does."""
    bench.edit("type: command", "type: command\n  env: [MY_NAME]")
    bench.namespace.cluster = cluster
    others = asyncio.all_tasks()
    starting = asyncio.create_task(bench.start().execute())
    await cluster.asked.wait()
    begun = asyncio.all_tasks() - others
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    assert starting.cancelled()


async def test_a_creation_that_is_given_up_leaves_no_secret(bench: Bench) -> None:
    cluster = SlowCluster()
    await interrupted(bench, cluster)
    assert cluster.objects(ObjectKind.SECRET) == {}


async def test_a_secret_that_stays_is_named(bench: Bench) -> None:
    cluster = SlowCluster()
    cluster.fail_next("delete", TransientClusterError("no route"), kind=ObjectKind.SECRET)
    await interrupted(bench, cluster)
    (name,) = cluster.objects(ObjectKind.SECRET)
    assert (
        f"the Secret {name} may still exist; delete it by hand (no route)" in bench.reporter.notes()
    )


async def test_a_secret_without_its_run_is_named_after_an_interruption(bench: Bench) -> None:
    cluster = SlowOwner()
    await interrupted(bench, cluster)
    (name,) = cluster.objects(ObjectKind.SECRET)
    told = bench.reporter.notes()
    assert f"the Secret {name} must be deleted by hand after the run (interrupted)" in told


async def test_the_secret_of_another_run_is_left_alone(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME]")
    cluster = bench.namespace.cluster
    await cluster.create(ObjectKind.SECRET, {"metadata": {"name": "my-run-000000"}})
    await bench.run()
    first, second = cluster.objects(ObjectKind.SECRET)
    assert first == "my-run-000000"
    assert [second] == list(cluster.objects(ObjectKind.BENCHMARK_RUN))


async def test_an_interrupted_creation_comes_to_its_end(bench: Bench) -> None:
    bench.edit("type: command", "type: command\n  env: [MY_NAME]")
    cluster = bench.namespace.cluster = SlowCluster()
    session = bench.start()
    starting = asyncio.create_task(session.execute())
    await cluster.asked.wait()
    starting.cancel()
    await asyncio.sleep(0)
    cluster.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    (secret,) = cluster.objects(ObjectKind.SECRET).values()
    assert [session.name] == list(cluster.objects(ObjectKind.BENCHMARK_RUN))
    assert secret["metadata"]["ownerReferences"][0]["name"] == session.name  # type: ignore[index]
