"""Decision 0045: finished runs and their results go when their time is over."""

import asyncio
import json
import os
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind
from securebench.controller import removal as module
from securebench.controller.packs import CONTENT, UNUSED_SECONDS
from securebench.controller.removal import RetentionSweeper
from securebench.controller.volume.registers import RunIndex
from securebench.controller.volume.results import remove_folder
from securebench.errors import TransientClusterError
from support.build import question, write_pack
from support.operator_world import World, opened

TTL = 500


class Kept(World):
    """A world in which retention follows the events too."""

    def __init__(self, root, **settings):
        super().__init__(root, **settings)
        self.tasks = []
        self.start_retention()

    def start_retention(self, **options):
        self.retention = RetentionSweeper(self.context, **options)
        for run in self.cluster.objects(ObjectKind.BENCHMARK_RUN).values():
            self.retention.observe(None, run)

        async def start():
            self.tasks.append(asyncio.create_task(self.retention.run()))

        self.runner.run(start())

    def stop_retention(self):
        for task in self.tasks:
            assert not task.done() or task.cancelled(), task.exception()
            task.cancel()
        self.tasks.clear()

    def observe(self, kind, name="nightly", body=None):
        super().observe(kind, name, body)
        self.retention.observe(kind, body or self.run(name))

    def finished(self, name="nightly", **spec):
        uid = self.apply(name, **spec)
        self.work(uid)
        assert self.condition(name=name)["status"] == "True"
        return uid

    @property
    def names(self):
        return sorted(self.cluster.objects(ObjectKind.BENCHMARK_RUN))

    def files(self, uid):
        folder = self.root / "runs" / uid
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else None

    def delete(self, name):
        body = self.run(name)
        self.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
        self.observe("DELETED", name, body)


@pytest.fixture
def world(tmp_path, request):
    with opened(Kept, tmp_path, **getattr(request, "param", {})) as world:
        yield world
        world.stop_retention()


with_results_ttl = pytest.mark.parametrize(
    "world", [{"retention": {"results_ttl_seconds": TTL}}], indirect=True
)


# BenchmarkRuns


def test_a_run_stays_without_a_time_to_live(world):
    world.finished()
    world.wait(10**6)
    assert world.names == ["nightly"]


def test_a_run_goes_when_its_time_is_over(world):
    uid = world.finished(retention={"ttlSecondsAfterFinished": TTL})
    world.wait(TTL / 2)
    assert world.names == ["nightly"]
    world.wait(TTL / 2)
    assert world.names == []
    assert "candidates.jsonl" in world.files(uid)
    assert RunIndex(world.root).named("nightly")[-1].removed_at == ""


def test_a_run_that_goes_on_stays(world):
    world.apply(retention={"ttlSecondsAfterFinished": 0})
    world.wait(10**4)
    assert world.names == ["nightly"]


def test_a_run_that_was_refused_goes_too(world):
    world.apply(pack={"volume": {"path": "missing"}}, retention={"ttlSecondsAfterFinished": 0})
    world.wait(700)
    assert world.names == []


def test_a_time_to_live_survives_the_operator(world):
    world.finished(retention={"ttlSecondsAfterFinished": TTL})
    world.stop_retention()
    world.wait(TTL)
    assert world.names == ["nightly"]
    world.start_retention()
    world.wait()
    assert world.names == []


def test_the_newest_time_to_live_counts(world):
    world.finished(retention={"ttlSecondsAfterFinished": TTL})
    world.cluster.edit(
        ObjectKind.BENCHMARK_RUN, "nightly", {"spec": {"retention": {"pods": "None"}}}
    )
    world.cluster.edit(
        ObjectKind.BENCHMARK_RUN,
        "nightly",
        {"spec": {"retention": {"ttlSecondsAfterFinished": None}}},
    )
    world.wait(2 * TTL)
    assert world.names == ["nightly"]
    world.edit(retention={"ttlSecondsAfterFinished": 3 * TTL})
    world.wait(2 * TTL)
    assert world.names == []


def test_another_run_of_the_name_stays(world):
    world.finished(retention={"ttlSecondsAfterFinished": TTL})
    world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"metadata": {"uid": "another"}})
    world.wait(2 * TTL)
    assert world.names == ["nightly"]


def test_trouble_of_the_cluster_is_waited_out(world):
    world.finished(retention={"ttlSecondsAfterFinished": TTL})
    for _ in range(3):
        world.cluster.fail_next("delete", TransientClusterError("x"), kind=ObjectKind.BENCHMARK_RUN)
    world.wait(TTL + 5 * module.TICK_SECONDS)
    assert world.names == []


def refused(real, held):
    async def delete(kind, name, **options):
        if name == held:
            raise Forbidden("a webhook refuses it", status=403)
        return await real(kind, name, **options)

    return delete


def test_a_run_that_may_not_be_deleted_holds_up_no_other(world, caplog):
    for name in ("held", "free"):
        world.finished(name, retention={"ttlSecondsAfterFinished": TTL})
    with mock.patch.object(world.cluster, "delete", refused(world.cluster.delete, "held")):
        world.wait(2 * TTL)
    assert world.names == ["held"]
    assert "retention: run held: a webhook refuses it; tried again" in caplog.messages
    world.wait(module.TICK_SECONDS)
    assert world.names == []


def malform(world, uid):
    end = {"status": {"completionTime": "yesterday"}}
    (world.root / "runs" / uid / "status.json").write_text(json.dumps(end))


def test_a_run_whose_end_is_malformed_holds_up_no_other(world, caplog):
    held, _ = (
        world.finished(name, retention={"ttlSecondsAfterFinished": TTL})
        for name in ("held", "free")
    )
    malform(world, held)
    world.wait(2 * TTL)
    assert world.names == ["held"]
    assert any("retention: run held: " in line for line in caplog.messages)


# Results


def test_results_stay_by_default(world):
    uid = world.finished()
    world.delete("nightly")
    world.wait(10**6)
    assert "candidates.jsonl" in world.files(uid)
    assert (world.root / "published" / uid / "candidates.jsonl").exists()


@with_results_ttl
def test_of_a_run_that_is_there_its_end_stays(world):
    uid = world.finished()
    ended = world.condition()
    world.wait(2 * TTL)
    assert world.files(uid) == ["status.json"]
    assert not (world.root / "published" / uid).exists()
    for index in (RunIndex(world.root), RunIndex(world.root, "published")):
        assert index.named("nightly")[-1].removed_at

    world.restart()
    world.edit(parallelism=2)
    world.wait(100)
    assert world.pods() == []
    assert world.condition()["reason"] == ended["reason"]


@with_results_ttl
def test_the_folder_of_a_run_that_is_gone_goes(world):
    uid = world.finished(retention={"ttlSecondsAfterFinished": 100})
    world.wait(2 * TTL)
    assert world.names == []
    assert world.files(uid) is None
    assert not (world.root / "published" / uid).exists()
    (entry,) = RunIndex(world.root).entries()
    assert (entry.uid, entry.outcome) == (uid, "Completed")
    assert entry.removed_at


@with_results_ttl
def test_results_that_are_continued_stay(world):
    first = world.apply()
    world.edit(cancel="Immediate")
    world.wait(10)
    world.apply("second", runId="nightly", suspend=True, resumeFrom={"run": "nightly"})
    world.wait(5 * TTL)
    assert "candidates.jsonl" in world.files(first)

    world.edit("second", cancel="Immediate")
    world.wait(5 * TTL)
    assert world.files(first) == ["status.json"]


@with_results_ttl
def test_results_that_a_waiting_regrade_needs_stay_until_it_is_done(world):
    first = world.finished(runId="n-1")
    second = world.apply("second", suspend=True, regrade={"run": "n-1"})
    world.wait(5 * TTL)
    assert "candidates.jsonl" in world.files(first)

    world.edit("second", suspend=False)
    world.work(second)
    assert world.condition(name="second")["reason"] == "Completed"
    world.wait(2 * TTL)
    assert world.files(first) == ["status.json"]


@with_results_ttl
def test_a_file_keeps_a_run_while_it_is_there(world):
    uid = world.finished()
    keep = world.root / "runs" / uid / "KEEP"
    keep.touch()
    world.delete("nightly")
    world.wait(5 * TTL)
    assert "candidates.jsonl" in world.files(uid)
    assert RunIndex(world.root).named("nightly")[-1].removed_at == ""
    keep.unlink()
    world.wait(TTL)
    assert world.files(uid) is None


@with_results_ttl
def test_what_others_need_stays_and_an_answer_that_fails_keeps_everything(world, caplog):
    needed, free = (world.finished(name) for name in ("needed", "free"))
    answers = mock.AsyncMock(side_effect=OSError(5, "Input/output error"))
    world.stop_retention()
    world.start_retention(needs=(answers,))
    world.wait(2 * TTL)
    assert "candidates.jsonl" in world.files(free)
    assert any("retention: results on the volume: " in line for line in caplog.messages)
    answers.side_effect = None
    answers.return_value = [needed]
    world.wait(2 * TTL)
    assert "candidates.jsonl" in world.files(needed)
    assert world.files(free) == ["status.json"]


def removals(world):
    events = world.cluster.objects(ObjectKind.EVENT).values()
    return [
        (event["regarding"]["uid"], event["note"])
        for event in events
        if event["reason"] == "ResultsRemoved"
    ]


@with_results_ttl
def test_a_removal_is_told_once_in_an_event(world):
    uid = world.finished()
    world.wait(3 * TTL)
    ((found, note),) = removals(world)
    assert (found, "settings.retention.resultsTtlSeconds" in note) == (uid, True)


@with_results_ttl
def test_a_removal_of_an_unended_run_that_was_broken_off_is_finished_at_once(world):
    uid = world.apply()
    world.delete("nightly")
    journal = world.root / "runs" / uid / "journal.jsonl"
    os.utime(journal, (0, world.clock.now()))
    with mock.patch.object(module, "remove_folder", side_effect=OSError(5, "x")):
        world.wait(2 * TTL)
    journal.unlink()
    world.wait(TTL / 2)
    assert world.files(uid) is None


@with_results_ttl
def test_no_link_is_followed_out_of_the_volume(world, tmp_path_factory, caplog):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").touch()
    os.utime(outside, (0, world.clock.now()))
    uid = world.finished()
    world.delete("nightly")
    folder = world.root / "runs" / uid
    (folder / "link").symlink_to(outside)
    (world.root / "runs/linked").symlink_to(outside)
    world.wait(3 * TTL)
    assert world.files(uid) is None
    assert (outside / "precious").exists()
    assert not [line for line in caplog.messages if line.startswith("retention: ")]


def test_a_folder_that_became_a_link_is_not_removed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/u1").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove_folder(tmp_path, "u1")
    assert (outside / "precious").exists()


@with_results_ttl
def test_results_that_are_gone_are_not_continued(world):
    world.finished()
    world.wait(2 * TTL)
    world.apply("second", runId="nightly", resumeFrom={"run": "nightly"})
    world.wait(100)
    assert world.condition(name="second")["reason"] == "InvalidSpec"
    assert "were removed at" in world.condition(name="second")["message"]


@with_results_ttl
def test_a_removal_that_was_broken_off_is_finished(world):
    uid = world.finished()
    with mock.patch.object(module, "remove_results", side_effect=OSError(5, "x")):
        world.wait(2 * TTL)
    assert "candidates.jsonl" in world.files(uid)
    assert RunIndex(world.root).named("nightly")[-1].removed_at
    world.wait(TTL)
    assert world.files(uid) == ["status.json"]


@with_results_ttl
def test_trouble_with_runs_keeps_no_results_of_others(world, caplog):
    world.finished("held", retention={"ttlSecondsAfterFinished": 1000})
    malformed, free = (world.finished(name) for name in ("malformed", "free"))
    malform(world, malformed)
    with mock.patch.object(world.cluster, "delete", refused(world.cluster.delete, "held")):
        world.wait(3 * TTL)
    assert world.files(free) == ["status.json"]
    assert "candidates.jsonl" in world.files(malformed)
    assert any("retention: run malformed: " in line for line in caplog.messages)


@with_results_ttl
def test_results_that_cannot_be_removed_hold_up_no_others(world, caplog):
    held, free = (world.finished(name) for name in ("held", "free"))
    real = module.remove_results

    def remove(root, uid):
        if uid == held:
            raise OSError(5, "Input/output error")
        real(root, uid)

    with mock.patch.object(module, "remove_results", remove):
        world.wait(2 * TTL)
    assert "candidates.jsonl" in world.files(held)
    assert world.files(free) == ["status.json"]
    assert any(f"retention: run {held}: " in line for line in caplog.messages)


@with_results_ttl
def test_frozen_packs_go_with_the_last_run_that_uses_them(world):
    content = world.root / CONTENT
    world.finished("one")
    write_pack(world.root / "packs/smoke", [question("c")])
    world.wait(TTL / 2)
    second = world.finished("two")
    both = {path.name for path in content.iterdir()}
    assert len(both) == 2
    for path in content.iterdir():
        os.utime(path, (0, world.clock.now() - UNUSED_SECONDS))
    fresh = content / "fresh"
    fresh.mkdir()
    os.utime(fresh, (0, world.clock.now()))
    world.wait(TTL - TTL / 4)
    assert world.files(second) != ["status.json"]
    left = {path.name for path in content.iterdir()}
    assert len(left) == 2
    assert "fresh" in left
    world.wait(TTL)
    assert [path.name for path in content.iterdir()] == ["fresh"]


@with_results_ttl
def test_a_copy_that_was_broken_off_goes_and_one_that_goes_on_stays(world):
    world.finished("one")
    broken, living = (world.root / CONTENT / f".incoming-{name}" for name in ("old", "new"))
    for folder, since in ((broken, -2 * UNUSED_SECONDS), (living, 0)):
        folder.mkdir()
        os.utime(folder, (0, world.clock.now() + since))
    world.wait(3 * TTL)
    assert not broken.exists()
    assert living.exists()


@with_results_ttl
def test_a_binding_that_cannot_be_read_keeps_the_packs(world, caplog):
    world.finished("one")
    other = world.root / "runs/other"
    other.mkdir()
    (other / "run.json").write_text(json.dumps({"spec": {"pack": 1}, "pack_digest": "x"}))
    (other / "status.json").write_text(
        json.dumps({"status": {"completionTime": "2100-01-01T00:00:00Z"}})
    )
    (content,) = (world.root / CONTENT).iterdir()
    os.utime(content, (0, 0))
    world.wait(3 * TTL)
    assert content.exists()
    assert "retention: packs that no run uses any more: " in caplog.text
    later = world.finished("two")
    world.wait(3 * TTL)
    assert world.files(later) == ["status.json"]
