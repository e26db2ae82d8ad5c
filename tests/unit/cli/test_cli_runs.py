"""Commands about runs."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest
import yaml

from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.json_values import object_at, text_at
from support.cli_fixtures import only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun, complete, record
from support.hostile_texts import HOSTILE_TEXTS


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


def test_a_misspelt_run_is_recognised(shell: Shell, finished: str) -> None:
    said = shell("why", f"{finished[:-1]}").last
    assert said.endswith(f", did you mean {finished!r}?")


def test_a_suite_is_no_run(shell: Shell) -> None:
    suite = {"kind": "BenchmarkSuite", "metadata": {"name": "nightly"}}
    asyncio.run(shell.namespace.cluster.create(ObjectKind.BENCHMARK_SUITE, suite))
    assert shell("why", "nightly").last == (
        "securebench: error: 'nightly' is a BenchmarkSuite and no BenchmarkRun; securebench ps"
        " lists its runs"
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
        (
            f"securebench: error: the operator's Pod answered: {name!r} is no pack name; it has"
            " small letters, digits and inner hyphens"
        ),
    )


NO_RUN = "securebench: error: there is no BenchmarkRun 'none' in this namespace"


async def unattended(run: OperatorRun) -> None:
    run.bind()
    await run.status("Running")


@pytest.fixture
def submitted(shell: Shell) -> str:
    """Submit a run that does not end and return its name."""
    shell.script = unattended
    assert shell.submit().code == 0
    return only_run(shell)


def run_named(shell: Shell, name: str) -> Raw:
    return shell.namespace.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]


async def put_status(shell: Shell, name: str, status: Raw) -> None:
    kind = ObjectKind.BENCHMARK_RUN
    await shell.namespace.cluster.patch_status(kind, name, {"status": status})


def test_submit_starts_a_run_and_leaves_it(shell: Shell) -> None:
    given = shell.submit()
    name = only_run(shell)
    assert given[:2] == (0, f"securebench: run={name} run_id=My run\n")
    assert given.stderr == (
        f"securebench: BenchmarkRun {name} is created; follow it with: securebench watch {name}\n"
    )
    assert not (shell.folder / "out").exists()
    assert "put-pack" in shell.namespace.operations()


def test_submitting_the_same_again_names_the_active_run(shell: Shell, submitted: str) -> None:
    again = shell.submit("-o", "json")
    want = {"name": submitted, "run_id": "My run", "is_joined": True}
    assert (again.code, json.loads(again.stdout)) == (0, want)
    assert "is active already" in again.stderr
    assert len(shell.namespace.runs()) == 1


def test_ps_as_data(shell: Shell, finished: str) -> None:
    as_json, as_yaml = shell("ps", "-o", "json"), shell("ps", "-o", "yaml")
    fields = json.loads(as_json.stdout)
    assert (fields["name"], fields["run_id"], fields["state"]) == (finished, "My run", "Completed")
    assert (fields["done"], fields["total"], fields["score"]) == (3, 3, None)
    assert list(yaml.safe_load_all(as_yaml.stdout)) == [fields]


async def test_ps_wide_has_score_and_tokens(shell: Shell, submitted: str) -> None:
    rate = {"value": "0.5000", "low": "0.1000", "high": "0.9000"}
    status = {
        "score": {"passed": 1, "verified": 2, "passRate": rate},
        "tasks": {"total": 4, "done": 2, "active": 2},
        "usage": {"inputTokens": 70, "outputTokens": 7},
    }
    await put_status(shell, submitted, status)
    header, line = (await shell.aside("ps", "-o", "wide")).stdout.splitlines()
    assert header.split()[7:] == ["ACTIVE", "SCORE", "PACK", "HARNESS", "TOKENS", "MESSAGE"]
    assert re.split(r"  +", line)[3:] == [
        *("2/4", "1", re.split(r"  +", line)[5]),
        *("2", "50.0 % (10.0 to 90.0)", "command", "77"),
    ]


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
@pytest.mark.parametrize("form", ["wide", "json", "yaml"])
async def test_ps_shows_hostile_texts_as_text(
    shell: Shell, submitted: str, form: str, text: str
) -> None:
    condition = {"type": "Succeeded", "status": "Unknown", "reason": "Running", "message": text}
    await put_status(shell, submitted, {"conditions": [condition]})
    shown = (await shell.aside("ps", "-o", form)).stdout
    assert submitted in shown
    assert all(each.isprintable() for line in shown.splitlines() for each in line)


def test_a_run_id_of_one_run_is_enough(shell: Shell, submitted: str) -> None:
    assert shell("cancel", "My run").stdout == f"securebench: run={submitted} cancel=Graceful\n"


def test_a_run_id_of_two_runs(shell: Shell, finished: str) -> None:
    shell.script = unattended
    assert shell.submit().code == 0
    second = next(
        str(metadata(run)["name"])
        for run in shell.namespace.runs()
        if metadata(run)["name"] != finished
    )
    refused = shell("cancel", "My run")
    assert refused.code == 1
    assert "2 runs have the run id 'My run': " in refused.last
    assert refused.last.endswith("; use a name")
    assert {finished, second} <= set(re.findall(r"my-run-[0-9a-f-]+", refused.last))
    shown = shell("results", "My run")
    assert "'My run' means the BenchmarkRun my-run-" in shown.stderr
    assert "the newest with this run id; others: my-run-" in shown.stderr


def test_suspend_and_resume(shell: Shell, submitted: str) -> None:
    refused = shell("resume", submitted)
    assert (refused.code, "is neither suspended nor ended" in refused.last) == (1, True)
    for command, wanted in (("suspend", True), ("resume", False)):
        changed = shell(command, submitted)
        assert changed[:2] == (
            0,
            f"securebench: run={submitted} suspend={str(wanted).lower()}\n",
        )
        assert object_at(run_named(shell, submitted), "spec")["suspend"] is wanted


def test_resuming_an_ended_run_continues_it_in_a_new_one(shell: Shell, finished: str) -> None:
    continued = shell("resume", finished)
    assert continued.code == 0
    name = continued.stdout.split("run=")[1].split()[0]
    assert continued.stdout == f"securebench: run={name} resumes={finished}\n"
    old, new = run_named(shell, finished), run_named(shell, name)
    spec = dict(object_at(new, "spec"))
    assert spec.pop("resumeFrom") == {"run": finished, "uid": metadata(old)["uid"]}
    assert spec == object_at(old, "spec")
    assert metadata(new)["annotations"] == metadata(old)["annotations"]


@pytest.mark.parametrize("is_owned", [True, False], ids=["of the run", "of a user"])
async def test_a_continued_run_shares_the_secret(
    shell: Shell, submitted: str, *, is_owned: bool
) -> None:
    cluster, old = shell.namespace.cluster, run_named(shell, submitted)
    owner = {"name": submitted, "uid": text_at(object_at(old, "metadata"), "uid")}
    meta = {"name": "keys", **({"ownerReferences": [owner]} if is_owned else {})}
    await cluster.create(ObjectKind.SECRET, {"metadata": meta, "data": {}})
    harness = {"type": "command", "config": {}, "env": ["A"], "secretRef": {"name": "keys"}}
    await cluster.patch(ObjectKind.BENCHMARK_RUN, submitted, {"spec": {"harness": harness}})
    condition = {"type": "Succeeded", "status": "False", "reason": "Incomplete"}
    await put_status(shell, submitted, {"conditions": [condition]})
    name = (await shell.aside("resume", submitted)).stdout.split("run=")[1].split()[0]
    secret = cluster.objects(ObjectKind.SECRET)["keys"]
    owners = object_at(secret, "metadata").get("ownerReferences", [])
    assert isinstance(owners, list)
    assert [each["name"] for each in owners] == ([submitted, name] if is_owned else [])
    cluster.remove(ObjectKind.SECRET, "keys")
    gone = await shell.aside("resume", submitted)
    assert "the Secret keys that run" in gone.last
    assert gone.code == 1


def test_a_regrade_is_a_run_of_the_same_harness_with_the_pack_of_now(
    shell: Shell, finished: str
) -> None:
    made = shell("regrade", finished, "--name", "again")
    assert (made.code, made.stdout) == (0, f"securebench: run=again regrades={finished}\n")
    assert f"securebench results --diff {finished} again" in made.stderr
    old, new = (object_at(run_named(shell, each), "spec") for each in (finished, "again"))
    uid = metadata(run_named(shell, finished))["uid"]
    assert new["regrade"] == {"run": finished, "uid": uid}
    assert "digest" in object_at(old, "pack")
    assert "digest" not in object_at(new, "pack")
    assert "runId" not in new
    assert new["harness"] == old["harness"]
    assert (
        "there is a BenchmarkRun again already"
        in shell("regrade", finished, "--name", "again").last
    )


def test_a_regrade_is_not_resumed(shell: Shell, finished: str) -> None:
    assert shell("regrade", finished, "--name", "again").code == 0
    condition = {"type": "Succeeded", "status": "False", "reason": "Incomplete"}
    asyncio.run(put_status(shell, "again", {"conditions": [condition]}))
    refused = shell("resume", "again")
    assert f"run again only graded run {finished} again; resume that one" in refused.last
    assert (refused.code, len(shell.namespace.runs())) == (1, 2)


def test_a_regrade_with_a_corrected_pack(shell: Shell, finished: str) -> None:
    made = shell("regrade", finished, "--pack", "corrected")
    name = made.stdout.split("run=")[1].split()[0]
    assert name.startswith(f"{finished[:20]}")
    pack = object_at(object_at(run_named(shell, name), "spec"), "pack")
    assert pack["volume"] == {"path": "corrected"}


def test_a_regrade_of_a_run_that_goes_on_is_refused(shell: Shell, submitted: str) -> None:
    refused = shell("regrade", submitted)
    assert f"BenchmarkRun {submitted} has not ended" in refused.last
    assert (refused.code, len(shell.namespace.runs())) == (1, 1)


def test_a_regrade_can_be_waited_for(
    shell: Shell, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = []
    module = "securebench.client.run.watch"
    monkeypatch.setattr(module, lambda name, *_: followed.append(name) or 3)
    assert shell("regrade", finished, "--name", "again", "--wait").code == 3
    assert followed == ["again"]


def test_rm(shell: Shell, finished: str) -> None:
    removed = shell("rm", finished, "none")
    first, second = removed.stdout.splitlines()
    assert first == f"securebench: run={finished} removed=true"
    assert second.startswith(NO_RUN)
    assert (removed.code, shell.namespace.runs()) == (1, [])
    assert shell("results", finished, "--output-dir", "again").code == 0


def test_rm_keeps_an_active_run_unless_forced(shell: Shell, submitted: str) -> None:
    refused = shell("rm", submitted)
    assert f"BenchmarkRun {submitted} has not ended (Running)" in refused.last
    assert (refused.code, len(shell.namespace.runs())) == (1, 1)
    assert shell("rm", "--force", submitted).code == 0
    assert shell.namespace.runs() == []


@pytest.mark.parametrize("command", ["cancel", "suspend", "resume", "rm"])
def test_a_run_that_is_not_there(shell: Shell, command: str) -> None:
    refused = shell(command, "none")
    assert (refused.code, refused.last.startswith(NO_RUN)) == (1, True)


@pytest.mark.parametrize(("limit", "code"), [("0.6", 0), ("0.7", 3)])
def test_fail_below(shell: Shell, limit: str, code: int) -> None:
    ran = shell.run("--fail-below", limit)
    fetched = shell("results", only_run(shell), "--fail-below", limit)
    assert (ran.code, fetched.code) == (code, code)
    for shown in (ran, fetched):
        error = "error: the score 0.6667 (2 of 3 passed) is below --fail-below 0.7\n"
        assert (error in shown.stdout) == (code == 3)
        assert shown.last.startswith("securebench: run_id=My run total=3 ")


def test_no_score_is_below_every_limit(shell: Shell) -> None:
    async def unverified(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a", passed=None, outcome=None))
        await run.end()

    shell.script = unverified
    assert shell.run().code == 0
    shell.script = complete
    fetched = shell("results", "My run", "--fail-below", "0")
    assert (fetched.code, "there is no score" in fetched.stdout) == (3, True)


def test_results_as_data_and_as_a_table(shell: Shell, finished: str) -> None:
    summary = json.loads(shell("results", finished, "-o", "json").stdout)
    assert (summary["run_id"], summary["passed"]) == ("My run", 2)
    header, *lines, last = shell("results", finished, "-o", "wide").stdout.splitlines()
    assert header.split() == ["TASK", "ATTEMPT", "STATUS", "SCORE", "OUTCOME", "REASON"]
    assert lines[1].split() == ["b", "1", "failed", "0.0", "scored", "wrong_answer"]
    assert (len(lines), last.startswith("securebench: run_id=")) == (3, True)
