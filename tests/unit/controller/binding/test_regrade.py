"""A run that grades the sealed candidates of an earlier one again."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import earlier_run as module
from securebench.controller.context import FrozenPack
from securebench.controller.earlier_run import take_over
from securebench.controller.reading import Reading, ReadingEndedError
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore
from securebench.digests import content_digest
from securebench.errors import SpecError
from securebench.protocol.supervise import ProbeTarget
from securebench.run.plan.model import AttemptKey, EarlierRun, LaunchKey, Role
from securebench.run.state.attempts import SealedPatch
from securebench.run.state.entries import Produced, RunBound
from securebench.sizes import MIB
from support.build import (
    DISRUPTED,
    NOW,
    harness_done,
    in_this_process,
    lead_of,
    pod_status,
    production,
    seal_message,
    sealed,
)
from support.manifest_samples import patch_task, run_plan
from support.operator_world import opened
from support.places import launch_place
from support.progress import told_progress
from support.regrade_world import RegradeWorld
from unit.controller.loop.test_egress import CODEX, EgressWorld

TARGETS = (
    ProbeTarget("dns", "10.96.0.10", 53, "udp"),
    ProbeTarget("node", "192.0.2.1", 22, "tcp", is_node=True),
)
OPEN = {"dns": "open", "node": "open"}
CLOSED = {"dns": "closed", "node": "closed"}
NODE = {"dns": "closed", "node": "open"}
NOTHING = seal_message(
    file=None, digest="", size_bytes=0, problem="candidate_missing", message="there is no file"
)


@pytest.fixture
def world(tmp_path):
    with opened(RegradeWorld, tmp_path) as world:
        world.rows([1, 1])
        yield world


def ended_with(world, name="again"):
    found = world.condition(name=name)
    return found["reason"], found["message"]


def test_the_same_pack_gives_the_same_grades_without_a_harness(world):
    old = world.finished()
    new = world.regraded()
    assert ended_with(world) == ("Completed", "1 of 2 passed")
    assert world.grades(new) == world.grades(old) == [True, False]
    assert world.harness_pods == {old}


def test_changed_hidden_data_flips_what_it_decides(world):
    world.finished()
    world.rows([1, 0])
    assert world.grades(world.regraded()) == [True, True]


def test_records_and_summary_name_the_run_that_was_graded_again(world):
    old = world.finished(runId="n-1")
    new = world.regraded()
    link = {"run": "nightly", "run_id": "n-1", "run_uid": old}
    assert [record["regrade"] for record in world.records(new)] == [
        {**link, "graded_again": True}
    ] * 2
    assert {record["run_id"] for record in world.records(new)} == {"again"}
    assert world.summary(new)["regrade"] == {**link, "graded_again": 2, "kept": 0}
    assert "regrade" not in world.summary(old)
    assert RunIndex(world.root).entries()[-1].regrade_of == old


@pytest.mark.parametrize("name", ["n-1", "nightly"])
def test_a_run_is_found_by_its_name_and_by_its_run_id(world, name):
    world.finished(runId="n-1")
    assert world.grades(world.regraded(run=name)) == [True, False]


def test_a_name_or_run_id_of_several_runs_is_not_graded_again(world):
    """Whether the other one took the name, the run id, or the run id as its name."""
    old = world.finished(runId="n-1")
    (known,) = RunIndex(world.root).entries()
    for name, run_id, text in (
        ("x", "n-1", "n-1"),
        ("n-2", "n-2", "n-2"),
        ("nightly", "y", "nightly"),
    ):
        RunIndex(world.root).add(replace(known, run=name, run_id=run_id, uid=f"uid-{name}"))
        if text == "n-2":
            RunIndex(world.root).add(replace(known, run="z", run_id="n-2", uid="uid-z"))
        world.regraded(name=f"again-{name}", run=text)
        reason, message = ended_with(world, f"again-{name}")
        assert reason == "InvalidSpec"
        assert f"'{text}' may be any of 2 runs on this volume" in message
    new = world.finished("by-uid", regrade={"run": "nightly", "uid": old})
    assert world.grades(new) == [True, False]


def test_what_was_never_sealed_keeps_its_outcome_and_says_so(world):
    world.ends[1] = harness_done(seal=NOTHING)
    old = world.finished()
    world.rows([0, 0])
    new = world.regraded()
    assert ended_with(world)[0] == "Completed"
    first, second = world.records(new)
    assert (first["passed"], second["passed"]) == (False, False)
    assert second["failure_reason"] == "candidate_missing"
    assert [first["regrade"]["graded_again"], second["regrade"]["graded_again"]] == [True, False]
    kept = {name: value for name, value in second.items() if name not in {"regrade", "run_id"}}
    before = {name: value for name, value in world.records(old)[1].items() if name != "run_id"}
    assert kept == before
    assert world.summary(new)["regrade"]["kept"] == 1


def test_a_candidate_that_was_sealed_and_not_graded_is_graded_after_all(world):
    old = world.apply()
    world.work(old, rounds=1)
    world.edit(cancel="Immediate")
    assert {record["outcome"] for record in world.records(old)} == {"cancelled"}
    assert world.grades(world.regraded()) == [True, False]


def test_a_regrade_can_be_graded_again_when_the_first_run_is_gone(world):
    old = world.finished()
    world.regraded("second")
    shutil.rmtree(world.folder(old))
    third = world.regraded("third", run="second")
    assert world.grades(third) == [True, False]
    assert world.records(third)[0]["regrade"]["run"] == "second"


def test_a_record_that_a_resumed_run_took_over_is_graded_from_the_run_that_made_it(world):
    world.ends[1] = pod_status("Failed", conditions=[DISRUPTED])
    world.finished(runId="n", infrastructureRetries=0)
    world.ends.clear()
    resumed = world.finished("second", runId="n", resumeFrom={"run": "nightly"})
    assert world.grades(resumed) == [True, False]
    world.rows([0, 0])
    assert world.grades(world.regraded(run="second")) == [False, True]


def test_an_attempt_that_the_earlier_run_never_began_gets_no_agent(world):
    old = world.apply(parallelism=1)
    world.work(old, rounds=1)
    world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"metadata": {"uid": "gone"}})
    world.observe("DELETED", body={"metadata": {"name": "nightly", "uid": old}})
    new = world.regraded()
    assert ended_with(world)[0] == "Incomplete"
    first, second = world.records(new)
    assert first["passed"] is True
    assert second["outcome"] == "cancelled"
    assert second["failure_message"] == (
        "run nightly ended before it sealed a candidate for this attempt"
    )
    assert world.harness_pods == {old}


def test_only_the_chosen_tasks_are_graded_again(world):
    world.finished()
    new = world.regraded(taskSelector={"include": ["t1"]})
    assert [record["task_id"] for record in world.records(new)] == ["t1"]


def test_a_row_that_cannot_be_verified_any_more_says_so(world):
    world.finished()
    world.rows([1, 9])
    _, second = world.records(world.regraded())
    assert (second["outcome"], second["failure_reason"]) == ("verifier", "verifier_configuration")


# What the records say of the network

RUNS = {
    "both closed": (CLOSED, CLOSED, ("verified", False)),
    "the agent reached the node": (NODE, CLOSED, ("verified", True)),
    "the check could reach the node": (CLOSED, NODE, ("verified", True)),
    "the agent's was not proven": (None, CLOSED, ("declared", False)),
    "the check's is not proven": (CLOSED, None, ("declared", False)),
}


@pytest.mark.parametrize("name", RUNS)
def test_labels_are_the_weaker_ones_of_both_runs(tmp_path, name):
    first, second, want = RUNS[name]
    with opened(RegradeWorld, tmp_path, targets=TARGETS) as world:
        world.rows([1, 1])
        uids = []
        for run, found in (("nightly", first), ("again", second)):
            more = {"regrade": {"run": "nightly"}} if uids else {}
            allowed = {"allow": ["Node"]}
            isolation = allowed if found else {**allowed, "require": "Declared"}
            uids.append(world.apply(run, isolation=isolation, **more))
            if found:
                world.probe(OPEN, found)
            world.work(uids[-1])
        labels = world.records(uids[1])[0]["labels"]
    assert (labels["isolation"], labels["node_reachable"]) == want


# Runs with a model provider


def test_a_regrade_asks_no_provider_and_needs_no_key(tmp_path):
    with opened(EgressWorld, tmp_path) as world:
        old = world.begin_codex(parallelism=2, isolation={"require": "Declared"})
        world.gateway_up()
        world.work(old)
        assert world.condition()["reason"] == "Completed"
        usage = [record["producer_metadata"]["usage"] for record in world.records()]
        world.cluster.remove(ObjectKind.SECRET, "openai")
        world.context.settings.overlays.clear()
        new = world.apply(
            "again",
            harness=CODEX,
            provider={"secretRef": {"name": "openai"}},
            isolation={"require": "Declared"},
            regrade={"run": "nightly"},
        )
        assert world.cluster.objects(ObjectKind.SERVICE) == {}
        assert all("harness" not in name for name in world.pods())
        policies = world.cluster.objects(ObjectKind.NETWORK_POLICY)
        assert [name for name in policies if new.replace("-", "")[:12] in name] == [
            f"sb-{new.replace('-', '')[:12]}-deny"
        ]
        world.work(new)
        assert world.condition(name="again")["reason"] == "Completed"
        folder = world.root / "runs" / new
        lines = (folder / "candidates.jsonl").read_text().splitlines()
        graded = [json.loads(line) for line in lines]
        summary = json.loads((folder / "summary.json").read_text())
    assert [record["producer_metadata"]["usage"] for record in graded] == usage
    assert {record["labels"]["credentials"] for record in graded} == {"brokered"}
    assert "usage" not in summary
    assert not (folder / "egress.jsonl").exists()


# Refusals

HIDDEN_ONLY = "only hidden data and tests may change, start a new run for the rest"
REFUSED = {
    "other attempts": (
        {"attempts": 2},
        "spec.regrade: attempts differs: run 'nightly' had 1, this run has 2",
    ),
    "another harness": (
        {"harness": {"type": "command", "config": {"command": "echo A"}}},
        "spec.regrade: harness differs: run 'nightly' had sha256:",
    ),
    "no such run": ({"regrade": {"run": "x"}}, "spec.regrade.run: there is no run 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_regrade_of_something_else_is_refused_in_one_line(world, name):
    spec, words = REFUSED[name]
    world.finished()
    world.apply("again", **{"regrade": {"run": "nightly"}} | spec)
    reason, message = ended_with(world)
    assert reason == "InvalidSpec"
    assert message.startswith(words)
    assert "\n" not in message


PACKS = {
    "public data": (
        lambda world: world.rows([1, 1], input={"question": "Who?", "choices": ["a", "b"]}),
        "the agent of run 'nightly' saw something else of 't0' (public data), 't1' (public data); "
        + HIDDEN_ONLY,
    ),
    "image": (
        lambda world: world.rows([1, 1], environment={"image": "python:3.12"}),
        "the agent of run 'nightly' saw something else of 't0' (image), 't1' (image)",
    ),
    "more rows": (
        lambda world: world.rows([1, 1, 1]),
        "'t2' stood elsewhere or not at all in the pack of run 'nightly'",
    ),
}


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_of_which_the_agent_saw_something_else_is_refused(world, name):
    change, words = PACKS[name]
    world.finished()
    change(world)
    new = world.apply("again", regrade={"run": "nightly"})
    reason, message = ended_with(world)
    assert reason == "InvalidSpec"
    assert message.startswith(f"spec.regrade: {words}")
    assert "\n" not in message
    assert not (world.folder(new) / "run.json").exists()


def test_a_run_that_has_not_ended_is_refused(world):
    world.apply()
    world.apply("again", regrade={"run": "nightly"})
    assert ended_with(world) == (
        "InvalidSpec",
        "spec.regrade.run: run 'nightly' has not ended; cancel it or wait",
    )


def test_results_that_were_removed_are_refused(world):
    old = world.finished()
    RunIndex(world.root).mark_removed(old, "2026-11-25T00:00:00Z")
    world.apply("again", regrade={"run": "nightly"})
    assert "were removed at 2026-11-25T00:00:00Z" in ended_with(world)[1]


@pytest.mark.parametrize("field", ["regrade", "resumeFrom"])
def test_results_that_somebody_deleted_are_refused(world, field):
    shutil.rmtree(world.folder(world.finished(runId="n")))
    world.apply("again", **{"runId": "n", field: {"run": "nightly"}})
    assert ended_with(world) == (
        "InvalidSpec",
        (
            f"spec.{field}.run: the results of run 'nightly' are not on this volume any more; "
            f"start a run without {field}"
        ),
    )


def test_a_regrade_cannot_be_resumed(world):
    world.finished()
    world.regraded(runId="n")
    world.apply("third", runId="n", resumeFrom={"run": "again"})
    assert ended_with(world, "third") == (
        "InvalidSpec",
        "spec.resumeFrom.run: run 'again' only graded another run again; resume that one",
    )


TAMPERED = {
    "candidate": "tasks/0/attempts/1/launches/1/candidate/candidate.txt",
    "record": "tasks/1/attempts/1/record.json",
}


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.parametrize("is_missing", [False, True], ids=["changed", "missing"])
def test_what_is_not_as_it_was_sealed_is_refused(world, name, is_missing):
    world.ends[1] = harness_done(seal=NOTHING)
    old = world.finished()
    path = world.folder(old) / TAMPERED[name]
    path.unlink() if is_missing else path.write_text("A")
    world.apply("again", regrade={"run": "nightly"})
    reason, message = ended_with(world)
    task = "t0" if name == "candidate" else "t1"
    assert reason == "InvalidSpec"
    assert f"attempt 1 of task {task!r} of run 'nightly' is not as it was sealed" in message
    assert str(world.root) not in message


# Restarts


def cut_journal(world, uid, lines):
    path = world.folder(uid) / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_crash_in_the_first_write_loses_no_candidate(world, lines):
    old = world.finished()
    new = world.apply("again", regrade={"run": "nightly"})
    world.restart()
    for name in world.pods():
        gone = world.cluster.delete(ObjectKind.POD, name, uid=None, grace_seconds=0)
        world.runner.run(gone)
    cut_journal(world, new, lines)
    shutil.rmtree(world.folder(old))
    world.observe(None, "again")
    world.work(new)
    assert world.grades(new) == [True, False]


def test_a_restart_in_the_middle_grades_each_candidate_once(world):
    old = world.finished()
    new = world.apply("again", regrade={"run": "nightly"})
    world.restart()
    world.observe(None, "again")
    world.work(new)
    assert world.grades(new) == [True, False]
    assert [record["launches"] for record in world.records(new)] == [1, 1]
    assert world.harness_pods == {old}


@pytest.mark.parametrize("mode", ["Graceful", "Immediate"])
def test_a_cancelled_regrade_ends_what_it_has_not_begun(world, mode):
    world.finished()
    new = world.apply("again", regrade={"run": "nightly"}, suspend=True)
    world.edit("again", cancel=mode)
    world.work(new)
    assert ended_with(world)[0] == "Cancelled"
    assert {record["outcome"] for record in world.records(new)} == {"cancelled"}


# Patches

PATCH = "diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n"
POLICIES = {"allowed": ("src", ""), "denied": ("lib", "candidate_patch_policy_violation")}


def patch_regrade(root, allowed="src", stdout=b"", read=in_this_process):
    """Leave a run behind with a sealed patch; return what grades it again, and how."""
    task = patch_task()
    key, lead = AttemptKey(task.index, 1), lead_of(root)
    old, new = RunStore(root, "old", lead), RunStore(root, "new", lead)
    launch = LaunchKey(*key, Role.HARNESS, 2)
    old.create({})
    old.make_launch_folders(launch)
    (launch_place(old, launch) / "candidate" / "candidate.txt").write_text(PATCH)
    (launch_place(old, launch) / "producer" / "stdout").write_bytes(stdout)
    digest = content_digest(PATCH.encode())
    candidate = sealed(launch=2, digest=digest, patch=SealedPatch("x", "y", "another policy"))
    journal = old.open_journal()
    journal.append([RunBound("old", "p"), Produced(key, production(candidate=candidate), NOW)])
    journal.close()
    plan = replace(task.verification.patch, policy={"allow_paths": [allowed]})
    task = replace(task, verification=replace(task.verification, patch=plan))
    regrade = replace(run_plan(task), regrade=EarlierRun("nightly", "old", "nightly"))
    entry = IndexEntry("nightly", "old", "nightly", "p", "d", "h", "1", "2026-01-01T00:00:00Z")
    work = partial(take_over, new, entry, regrade, FrozenPack(root, root, root, "d"), read)
    return work, new, launch_place(new, launch)


@pytest.fixture
def unchecked(monkeypatch):
    """Let every pack be one that the earlier run may be graded by."""
    monkeypatch.setattr(module, "check_regrade", lambda *_: None)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.usefixtures("unchecked")
def test_a_patch_is_judged_by_the_policy_of_now(tmp_path, name):
    allowed, want = POLICIES[name]
    work, new, launch_folder = patch_regrade(tmp_path, allowed)
    (taken,) = work()
    assert taken.production.candidate.patch.problem == want
    folder = launch_folder / "candidate"
    assert (folder / "candidate.txt").read_text() == PATCH
    assert (folder / "applied.patch").exists() is (want == "")
    new.keep((taken,))
    assert new.kept() == (taken,)


@pytest.mark.usefixtures("unchecked")
def test_a_patch_that_cannot_be_read_again_is_told(tmp_path):
    def read(_):
        raise ReadingEndedError("a reading ended its process with code -9")

    work, _, _ = patch_regrade(tmp_path, read=Reading(read).read)
    with pytest.raises(SpecError, match=r"attempt 1 of task .* cannot be judged again"):
        work()


@pytest.mark.usefixtures("unchecked")
def test_files_that_are_taken_over_tell_of_progress(tmp_path):
    stdout = b"x" * (3 * MIB + 1)
    work, _, launch_folder = patch_regrade(tmp_path, stdout=stdout)
    told_of_stdout, copied_and_checked = 4, 2
    assert told_progress(work) == told_of_stdout + copied_and_checked
    assert (launch_folder / "producer" / "stdout").read_bytes() == stdout
