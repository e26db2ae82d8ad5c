from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.client.progress import Event
from securebench.client.run_start import Binding, resumable_run
from securebench.client.submit import prepare
from securebench.client.tester_config import load_tester_config
from securebench.client.volume import RunEntry
from securebench.cluster.port import metadata
from securebench.controller.volume.folders import run_folder
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.errors import ConfigError, ConfigErrors
from support.fake_operator import OperatorRun, record, write_pack
from unit.client.bench import Bench


async def two_scored(run: OperatorRun) -> None:
    run.bind()
    run.write(
        record("a"),
        record("b", passed=None, outcome="infrastructure"),
        record("c", passed=False, outcome="agent"),
    )
    await run.end("Incomplete")


async def test_a_resume_continues_the_last_run(bench: Bench) -> None:
    await bench.run(two_scored)
    (earlier,) = (
        {key: metadata(run)[key] for key in ("name", "uid")} for run in bench.namespace.runs()
    )

    async def resumed(run: OperatorRun) -> None:
        assert run.spec["resumeFrom"] == {"run": earlier["name"], "uid": earlier["uid"]}
        run.bind()
        run.write(record("a"), record("c", passed=False, outcome="agent"))
        await run.status("Running")
        run.write(record("a"), record("b"), record("c", passed=False, outcome="agent"))
        await run.end()

    end = await bench.run(resumed, resume=True)

    assert end.exit_code == 0
    resume = bench.reporter.fields_of(Event.RESUME)
    assert (resume["completed"], resume["remaining"]) == (2, 1)
    assert bench.reporter.done() == ["b"]
    assert bench.reporter.starts() == [(3, 3)]
    assert bench.lines() == ["a", "b", "c"]


async def test_a_resume_keeps_records_beyond_the_limit(bench: Bench) -> None:
    await bench.run(two_scored)

    async def resumed(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a"), record("b"), record("c", passed=False, outcome="agent"))
        await run.end()

    await bench.run(resumed, resume=True, limit=2)
    resume = bench.reporter.fields_of(Event.RESUME)
    assert (resume["completed"], resume["remaining"]) == (2, 1)


async def test_a_resume_without_old_results_is_a_normal_start(bench: Bench) -> None:
    assert (await bench.run(resume=True)).exit_code == 0
    spec = bench.namespace.runs()[0]["spec"]
    assert isinstance(spec, Mapping)
    assert "resumeFrom" not in spec


async def test_a_resume_with_local_records_alone_is_refused(bench: Bench) -> None:
    bench.output.mkdir()
    (bench.output / "candidates.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="has no run 'My run'"):
        await bench.start(resume=True).execute()
    assert bench.namespace.runs() == []
    assert (bench.output / "candidates.jsonl").read_text() == "{}\n"


async def test_a_resume_of_something_else_names_old_and_new_values(bench: Bench) -> None:
    await bench.run(two_scored)
    before = (bench.output / "candidates.jsonl").read_bytes()
    old = prepare(load_tester_config(bench.yaml))
    bench.edit("answer.py", "other.py")
    write_pack(bench.folder, tasks=("a", "b", "c", "d"))
    new = prepare(load_tester_config(bench.yaml))
    calls = len(bench.namespace.calls)

    with pytest.raises(ConfigErrors) as caught:
        await bench.start(resume=True).execute()

    pack, harness = (str(error) for error in caught.value.errors)
    assert old.pack.digest in pack
    assert new.pack.digest in pack
    assert old.harness_digest in harness
    assert new.harness_digest in harness
    assert len(bench.namespace.runs()) == 1
    assert bench.namespace.operations()[calls:] == ["find-run"]
    assert (bench.output / "candidates.jsonl").read_bytes() == before


async def test_a_resume_of_a_run_that_goes_on_with_another_limit_is_refused(
    bench: Bench,
) -> None:
    following = asyncio.create_task(bench.start(limit=1).execute())
    run = await bench.namespace.next_run()
    run.bind()
    await run.status("Running")
    following.cancel()
    with pytest.raises(ConfigError, match="has not ended"):
        await bench.start(resume=True).execute()


def test_results_that_were_removed_are_not_resumed(tmp_path: Path) -> None:
    entry = RunEntry("nightly-x", "uid", "p", "h", "1", "Incomplete", "2026-01-02T00:00:00Z")
    with pytest.raises(ConfigError, match="removed from the volume at 2026-01-02") as refused:
        resumable_run([entry], Binding("nightly", "p", "h", "1"), tmp_path / "candidates.jsonl")
    assert "start without --resume" in str(refused.value)


def requested(bench: Bench, *users: str) -> None:
    """Put ended runs of several users on the volume, with what the tester would start."""
    prepared = prepare(load_tester_config(bench.yaml))
    index, binding = RunIndex(bench.namespace.root), prepared.pack.digest
    for number, user in enumerate(users):
        entry = IndexEntry(
            run=f"run-{number}",
            uid=f"{number:08x}-0000-4000-8000-000000000000",
            run_id="My run",
            pack="capitals",
            pack_digest=binding,
            harness_digest=prepared.harness_digest,
            verifier_version=VERIFIER_VERSION,
            started_at="2026-01-01T00:00:00Z",
            requester=user,
        )
        index.add(replace(entry, outcome="Incomplete"))
        folder = bench.namespace.root / run_folder(entry.uid)
        folder.mkdir(parents=True)
        (folder / "candidates.jsonl").write_bytes(b"")


@pytest.mark.parametrize(
    ("users", "want"),
    [
        (["ada", "ben"], "run-0"),
        (["ben", "ada"], "run-1"),
        (["ada", ""], "run-1"),
        (["", ""], "run-1"),
        (["ben"], None),
    ],
)
async def test_a_resume_continues_the_last_run_of_the_user(
    bench: Bench, users: list[str], want: str | None
) -> None:
    requested(bench, *users)
    await bench.run(resume=True)
    (run,) = bench.namespace.runs()
    spec = run["spec"]
    assert isinstance(spec, Mapping)
    assert spec.get("resumeFrom", {}).get("run") == want
    is_told = "all runs with this run id are by other users, the last one is run-0 by ben"
    assert (is_told in bench.reporter.notes()) is (want is None)
