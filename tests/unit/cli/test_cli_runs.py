from __future__ import annotations

import signal
from pathlib import Path

import pytest

from securebench.cluster.port import ObjectKind
from support.cli_fixtures import only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun, complete, record


async def going_on(run: OperatorRun) -> None:
    run.bind()
    run.write(record("a"))
    await run.status("Running")
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def active(shell: Shell) -> str:
    """Start a run, leave it and return its name."""
    shell.script = going_on
    assert shell.run().code == 130
    shell.script = complete
    return only_run(shell)


def pack_of(shell: Shell) -> str:
    (folder,) = (path for path in packs(shell) if not path.name.startswith("."))
    return folder.name


def packs(shell: Shell) -> list[Path]:
    return sorted((shell.namespace.root / "packs").iterdir())


def test_runs_are_listed(shell: Shell, finished: str) -> None:
    listed = shell("list")
    header, line = listed.stdout.splitlines()
    assert listed.code == 0
    assert header.split() == ["NAME", "RUN", "ID", "STATE", "DONE", "PASSED", "CREATED"]
    assert line.split()[:5] == [finished, "My", "run", "Completed", "3/3"]


def test_no_runs_are_a_header(shell: Shell) -> None:
    assert shell("list").stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "want"), [((), "Graceful"), (("--now",), "Immediate")], ids=["wait", "now"]
)
def test_a_run_is_cancelled(shell: Shell, active: str, words: tuple[str, ...], want: str) -> None:
    cancelled = shell("cancel", active, *words)
    assert cancelled[:2] == (0, f"securebench: run={active} cancel={want}\n")
    assert (
        shell.namespace.cluster.objects(ObjectKind.BENCHMARK_RUN)[active]["spec"]["cancel"] == want
    )  # type: ignore[index]


def test_a_cancellation_only_grows(shell: Shell, active: str) -> None:
    for words in (("--now",), ()):
        assert shell("cancel", active, *words).code == 0
    run = shell.namespace.cluster.objects(ObjectKind.BENCHMARK_RUN)[active]
    assert run["spec"]["cancel"] == "Immediate"  # type: ignore[index]


def test_what_cannot_be_cancelled(shell: Shell, finished: str) -> None:
    ended = shell("cancel", finished)
    assert (ended.code, ended.last) == (
        1,
        f"securebench: error: BenchmarkRun {finished} has already ended: Completed",
    )
    unknown = shell("cancel", "none")
    assert (unknown.code, unknown.last) == (
        1,
        (
            "securebench: error: there is no BenchmarkRun 'none' in this namespace, and none has"
            " this run id; securebench ps lists them"
        ),
    )


@pytest.mark.parametrize("name", ["My run", None], ids=["run id", "old name"])
def test_results_of_a_run_whose_object_is_gone(
    shell: Shell, finished: str, name: str | None
) -> None:
    shell.namespace.cluster.remove(ObjectKind.BENCHMARK_RUN, finished)
    fetched = shell("results", name or finished, "--output-dir", "again")
    assert fetched.code == 0
    assert "total=3 verification=complete" in fetched.last
    again = (shell.folder / "again" / "candidates.jsonl").read_bytes()
    assert again == (shell.folder / "out" / "candidates.jsonl").read_bytes()


def test_results_whose_folder_is_gone_too(shell: Shell, finished: str) -> None:
    shell.namespace.cluster.remove(ObjectKind.BENCHMARK_RUN, finished)
    (run,) = (shell.namespace.root / "runs").glob("*/")
    for path in run.iterdir():
        path.unlink()
    fetched = shell("results", finished)
    missing = (1, f"securebench: error: run {finished} has no record; it is Completed")
    assert (fetched.code, fetched.last) == missing
    kept = shell("results", finished, "--output-dir", "out")
    assert (kept.code, kept.last) == missing, "records of an earlier run were in the folder"


def test_packs_are_listed_with_their_readers(shell: Shell, active: str) -> None:
    listed = shell("pack", "list")
    header, line = listed.stdout.splitlines()
    assert listed.code == 0
    assert header.split() == ["NAME", "FILES", "BYTES", "ACTIVE", "RUNS"]
    size = sum(path.stat().st_size for path in (shell.folder / "pack").iterdir())
    assert line.split() == [pack_of(shell), "2", str(size), active]


def test_a_pack_that_a_run_reads_stays(shell: Shell, active: str) -> None:
    refused = shell("pack", "rm", pack_of(shell))
    assert (refused.code, refused.last) == (
        1,
        (
            f"securebench: error: the pack {pack_of(shell)!r} is in use by {active}; wait, or end"
            " the run with securebench cancel"
        ),
    )
    assert "remove-pack" not in shell.namespace.operations()


def test_a_pack_that_no_run_reads_goes(shell: Shell, finished: str) -> None:
    assert finished
    name = pack_of(shell)
    assert shell("pack", "rm", name)[:2] == (0, f"securebench: pack {name} removed\n")
    assert [path.name for path in packs(shell)] == [".incoming"]
    assert list((shell.namespace.root / "packs" / ".incoming").iterdir()) == []
    again = shell("pack", "rm", name)
    assert (again.code, again.last) == (
        1,
        f"securebench: error: there is no pack {name!r} on the results volume",
    )
    assert shell("results", finished).code == 0


@pytest.mark.parametrize("name", ["..", ".content", "a/b", ""])
def test_names_that_are_no_packs(shell: Shell, name: str) -> None:
    refused = shell("pack", "rm", "--", name)
    assert (refused.code, refused.last) == (
        1,
        f"securebench: error: the operator's Pod answered: {name!r} is no pack name",
    )
