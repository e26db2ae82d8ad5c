from __future__ import annotations

import errno
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind, QuotaExceeded
from securebench.controller.object_loop import RETRY_LIMIT_SECONDS
from securebench.controller.suite_loop import SuiteLoop
from securebench.controller.suite_results import RunObserver
from securebench.controller.suite_store import SuiteStore, suite_folders
from securebench.errors import TransientClusterError
from securebench.run.decide.refusals import REMEDY
from support.build import question, write_pack
from support.suite_world import HARNESSES, PACKS, SuiteWorld

CELLS = {"smoke/a", "smoke/b", "other/a", "other/b"}


def test_every_cell_gets_one_run_as_many_at_once_as_allowed(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=3)
    assert len(world.going()) == 3
    assert world.said()[:2] == ("False", "Running")
    assert world.said("Reconciling")[0] == "True"
    world.end(min(world.going().values()))
    assert len(world.going()) == 3
    world.end_all()
    assert len(world.run_names()) == 4
    assert world.said() == ("True", "Completed", "all 4 cells have their result")
    assert world.said("Stalled")[0] == "False"
    runs = world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()
    assert {world.cell(raw) for raw in runs} == CELLS


def test_nothing_runs_twice_after_a_sync_and_a_restart(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    names = world.run_names()
    world.apply_suite(maxConcurrentRuns=4)
    world.restart_suites()
    world.end_all()
    world.apply_suite(maxConcurrentRuns=4)
    world.restart_suites()
    world.settle(300)
    assert world.run_names() == names


def test_runs_that_are_deleted_after_their_end_do_not_run_again(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    for name in world.run_names():
        world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    world.restart_suites()
    assert world.run_names() == []
    assert world.said()[:2] == ("True", "Completed")


def test_a_changed_pack_runs_its_cells_again_and_no_other(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    write_pack(world.root / "packs/other", [question("c"), question("d")])
    world.settle(120)
    assert set(world.going()) == {"other/a", "other/b"}
    assert len(world.run_names()) == 6


def test_a_changed_harness_runs_its_cells_again_and_no_other(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    config = {"command": "echo C"}
    changed = {"name": "b", "harness": {"type": "command", "config": config}}
    world.apply_suite(matrix={"packs": PACKS, "harnesses": [HARNESSES[0], changed]})
    assert set(world.going()) == {"smoke/b", "other/b"}


def test_what_no_score_depends_on_runs_nothing(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    world.apply_suite(maxConcurrentRuns=4, template={"parallelism": 9})
    assert world.going() == {}


def test_an_unknown_pack_in_one_cell_lets_the_others_run(world: SuiteWorld) -> None:
    packs = [*PACKS, {"name": "lost", "pack": {"volume": {"path": "lost"}}}]
    world.apply_suite(matrix={"packs": packs, "harnesses": HARNESSES[:1]}, maxConcurrentRuns=4)
    assert set(world.going()) == {"smoke/a", "other/a"}
    world.end_all()
    status, reason, message = world.said()
    assert (status, reason) == ("False", "CellsInvalid")
    assert "lost/a: pack 'lost': there is no pack folder 'lost' on the volume" in message
    assert world.said("Stalled")[0] == "True"
    write_pack(world.root / "packs/lost", [question("e")])
    world.settle(120)
    assert set(world.going()) == {"lost/a"}


def test_an_invalid_spec_starts_nothing_and_says_why(world: SuiteWorld) -> None:
    world.apply_suite(matrix={"packs": PACKS, "harnesses": HARNESSES, "exclude": [{}]})
    assert world.run_names() == []
    assert world.said() == ("False", "InvalidSpec", "spec.matrix: exclude leaves no cell")
    assert world.said("Stalled")[0] == "True"
    world.apply_suite(maxConcurrentRuns=4)
    assert len(world.going()) == 4


def test_the_annotation_runs_all_cells_once_for_each_value(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    for value in ("one", "one", None, "two"):
        world.annotate(value)
        world.end_all()
    assert len(world.run_names()) == 12
    tries = {each["tries"] for each in world.suite_status()["results"]}
    assert tries == {3}


def test_suspend_starts_nothing_new(world: SuiteWorld) -> None:
    world.apply_suite(suspend=True)
    assert world.run_names() == []
    assert world.said()[:2] == ("False", "Suspended")
    world.apply_suite(maxConcurrentRuns=1)
    (name,) = world.run_names()
    world.apply_suite(maxConcurrentRuns=1, suspend=True)
    world.end(name)
    assert world.going() == {}
    assert world.said() == ("False", "Suspended", "spec.suspend is true: 3 cells wait")


def test_a_run_that_failed_is_named_and_stays_failed(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.end(world.going()["smoke/a"], "DeadlineExceeded")
    world.end_all()
    status, reason, message = world.said()
    assert (status, reason) == ("False", "CellsFailed")
    assert message.startswith("smoke/a: said DeadlineExceeded; to run it again")


def test_a_run_that_somebody_else_named_so_is_not_taken_for_the_cells(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    name = world.going()["smoke/a"]
    body = dict(world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name])
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    forged = {
        "metadata": {"name": name},
        "spec": {**body["spec"], "harness": {"type": "command", "config": {"command": "cheat"}}},
    }
    world.runner.run(world.cluster.create(ObjectKind.BENCHMARK_RUN, forged))
    world.settle(60)
    cells = {each["cell"]: each for each in world.suite_status()["results"]}
    assert cells["smoke/a"]["state"] == "Invalid"
    assert "belongs to a run with another spec" in cells["smoke/a"]["message"]


def test_runs_of_earlier_rounds_go_by_the_history_limits(world: SuiteWorld) -> None:
    limits = {"successfulRunsHistoryLimit": 1, "failedRunsHistoryLimit": 0}
    world.apply_suite(maxConcurrentRuns=4, **limits)
    for value in ("one", "two", "three"):
        world.end_all(reason="Cancelled" if value == "two" else "Completed")
        world.annotate(value)
    assert len(world.run_names()) == 8
    assert len(world.going()) == 4


def test_the_runs_belong_to_their_suite(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=1)
    (raw,) = world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()
    metadata = raw["metadata"]
    assert metadata["labels"]["securebench.dev/suite"] == "nightly"
    assert metadata["ownerReferences"][0]["kind"] == "BenchmarkSuite"
    assert raw["spec"]["runId"] == f"nightly/{world.cell(raw)}"
    assert raw["spec"]["pack"]["digest"].startswith("sha256:")


def test_a_defect_is_told_and_the_loop_starts_again(world: SuiteWorld) -> None:
    with mock.patch.object(RunObserver, "observe", side_effect=AssertionError("a defect")):
        world.apply_suite(maxConcurrentRuns=4)
        assert world.said() == ("False", "Internal", "AssertionError: a defect")
    world.settle(120)
    assert len(world.going()) == 4


def test_a_deleted_suite_leaves_nothing_on_the_volume(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    (folder,) = (world.root / "suites").iterdir()
    world.tell_suite(kind="DELETED")
    assert not folder.exists()


def test_a_suite_that_is_deleted_slowly_is_stopped_at_once_and_forgotten_at_the_end(
    world: SuiteWorld,
) -> None:
    world.apply_suite(maxConcurrentRuns=1)
    (folder,) = (world.root / "suites").iterdir()
    deleting = {"metadata": {"deletionTimestamp": "2026-11-26T00:00:00Z"}}
    world.cluster.edit(ObjectKind.BENCHMARK_SUITE, "nightly", deleting)
    world.tell_suite()
    world.end_all()
    assert len(world.run_names()) == 1
    assert (world.suites.active, folder.exists()) == (0, True)
    world.tell_suite(kind="DELETED")
    assert not folder.exists()


def test_a_suite_of_the_same_name_begins_anew(world: SuiteWorld) -> None:
    world.apply_suite(maxConcurrentRuns=4)
    world.tell_suite(kind="DELETED")
    world.cluster.remove(ObjectKind.BENCHMARK_SUITE, "nightly")
    world.apply_suite(maxConcurrentRuns=4)
    world.end_all()
    assert world.said()[:2] == ("True", "Completed")
    assert [path.name[:8] for path in (world.root / "suites").iterdir()] == ["00000002"]


def test_an_event_of_a_run_wakes_its_suite_alone(world: SuiteWorld) -> None:
    world.apply_suite("nightly", maxConcurrentRuns=1)
    world.apply_suite("weekly", maxConcurrentRuns=1)
    woken: list[str] = []

    def wake(loop: SuiteLoop) -> None:
        woken.append(loop.name)

    with mock.patch.object(SuiteLoop, "wake", wake):
        world.end(world.going()["smoke/a"])
    assert set(woken) == {"weekly"}


def test_a_defect_is_a_failed_loop_and_no_outage(world: SuiteWorld) -> None:
    """Also a ValueError, which data that somebody damaged does not raise."""
    with mock.patch.object(RunObserver, "observe", side_effect=ValueError("a defect")):
        world.apply_suite(maxConcurrentRuns=4)
        assert world.said() == ("False", "Internal", "ValueError: a defect")
        assert (world.suites.active, world.suites.failed) == (0, 1)
    world.settle(RETRY_LIMIT_SECONDS + 1)
    assert (world.suites.active, world.suites.failed) == (1, 0)
    assert len(world.going()) == 4


OUTAGES = {
    "QuotaExceeded": (QuotaExceeded("exceeded quota: runs"), "exceeded quota: runs"),
    "Forbidden": (
        Forbidden("the webhook denied it", status=403),
        f"the webhook denied it; {REMEDY}",
    ),
    "Internal": (TransientClusterError("no answer"), "the API server: no answer"),
}


@pytest.mark.parametrize("reason", OUTAGES)
def test_a_suite_says_what_keeps_it_from_creating_runs(world: SuiteWorld, reason: str) -> None:
    error, message = OUTAGES[reason]
    world.cluster.fail_next("create", error, kind=ObjectKind.BENCHMARK_RUN)
    world.apply_suite(maxConcurrentRuns=4)
    assert world.said() == ("False", reason, f"{message}; tried again")
    assert world.said("Reconciling")[0] == "True"
    world.settle(RETRY_LIMIT_SECONDS)
    assert len(world.going()) == 4


def test_a_full_volume_is_waited_out(world: SuiteWorld) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch.object(SuiteStore, "write", side_effect=full):
        world.apply_suite(maxConcurrentRuns=4)
        message = "the results volume: No space left on device; tried again"
        assert world.said() == ("False", "StorageUnavailable", message)
    world.settle(RETRY_LIMIT_SECONDS)
    assert len(world.going()) == 4


def test_a_damaged_index_is_waited_out(world: SuiteWorld) -> None:
    index = world.root / "runs/index.jsonl"
    index.parent.mkdir(exist_ok=True)
    index.write_text("{}\n")
    world.apply_suite(maxConcurrentRuns=4)
    status, reason, message = world.said()
    assert (status, reason) == ("False", "StorageUnavailable")
    assert message.endswith("runs/index.jsonl on the results volume is damaged; tried again")
    assert world.suites.failed == 0
    index.write_text("")
    world.settle(RETRY_LIMIT_SECONDS)
    assert len(world.going()) == 4


def test_a_suite_that_went_without_an_event_ends_its_loop_and_is_forgotten(
    world: SuiteWorld,
) -> None:
    world.apply_suite()
    assert world.suites.active == 1
    world.cluster.remove(ObjectKind.BENCHMARK_SUITE, "nightly")
    world.wait(40)
    assert world.suites.active == 0
    assert suite_folders(world.root) == []


def test_a_suite_that_took_the_name_without_an_event_has_the_only_loop(world: SuiteWorld) -> None:
    world.apply_suite()
    world.cluster.remove(ObjectKind.BENCHMARK_SUITE, "nightly")
    world.apply_suite(suspend=True)
    world.wait(40)
    assert world.suites.active == 1
    assert suite_folders(world.root) == [world.suite_uid()]
    assert world.said("Suspended")[0] == "True"


def test_a_late_event_brings_no_earlier_spec_back(world: SuiteWorld) -> None:
    world.apply_suite(suspend=True)
    late = world.cluster.objects(ObjectKind.BENCHMARK_SUITE)["nightly"]
    world.apply_suite(maxConcurrentRuns=1)
    assert world.said("Suspended")[0] == "False"
    world.tell_suite(body=late)
    world.wait(40)
    assert world.said("Suspended")[0] == "False"


def test_a_status_that_somebody_cleared_is_written_again(world: SuiteWorld) -> None:
    world.apply_suite(suspend=True)
    before = world.suite_status()
    world.cluster.edit(ObjectKind.BENCHMARK_SUITE, "nightly", {"status": dict.fromkeys(before)})
    world.wait(40)
    assert world.suite_status() == before
