"""The supervisor with everything below it real but time, cluster and threads."""

import hashlib
import json
import logging
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind
from securebench.controller import run_loop
from securebench.controller.context import run_object
from securebench.controller.lifecycle import RunLifecycle, Supervisor, is_pack_error
from securebench.controller.object_loop import RETRY_LIMIT_SECONDS
from securebench.controller.publish import Publisher
from securebench.controller.run_loop import RunLoop
from securebench.controller.settings import PodTemplateRules
from securebench.controller.volume.registers import RunIndex
from securebench.errors import (
    ConfigErrors,
    PackError,
    PermanentClusterError,
    SpecError,
    TransientClusterError,
)
from securebench.run.observe.pods import pod_view
from support.build import (
    NOW,
    context_of,
    ended,
    pod_status,
    question,
    run_body,
    running,
    write_pack,
)


def failed_loops(caplog):
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


# From start to end


def test_a_run_from_start_to_end(world):
    uid = world.apply(parallelism=1)
    assert world.pods() == [f"sb-{uid.replace('-', '')[:12]}-0-1h1"]
    assert world.condition()["status"] == "Unknown"
    assert world.supervisor.active == 1
    world.work(uid)
    assert world.condition()["status"] == "True"
    assert world.condition()["reason"] == "Completed"
    assert world.condition("ResultsSealed")["status"] == "True"
    assert world.run()["status"]["tasks"]["done"] == 2
    assert world.supervisor.active == 0
    assert world.pods() == []
    assert [entry.outcome for entry in RunIndex(world.root).entries()] == ["Completed"]
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["a", "b"]
    published = (world.root / "published" / uid / "candidates.jsonl").read_bytes()
    assert b'"verifier_metadata"' not in published
    found = world.run()["status"]["results"]["publishedSha256"]
    assert found == hashlib.sha256(published).hexdigest()


def test_a_finished_run_is_published_again_and_not_run_again(world):
    uid = world.apply()
    world.work(uid)
    before = world.run()["status"]
    world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"status": None})
    world.restart()
    world.observe(None)
    assert world.run()["status"] == before
    assert world.pods() == []
    assert world.supervisor.active == 0


WRITES = ("patch_status", ObjectKind.BENCHMARK_RUN)


def test_a_restart_writes_no_status_that_is_there(world):
    """A namespace may hold ten thousand finished runs, and a queue of them."""
    world.settings = {"max_active_runs": 1}
    world.restart()
    names = ("nightly", "refused", "other", "queued")
    uids = [
        world.apply("nightly"),
        world.apply("refused", nonsense=1),
        world.apply("other", suspend=True),
    ]
    world.work(uids[0])
    world.edit("other", suspend=False)
    world.wait(5)
    world.apply("queued")
    assert [world.condition(name=name)["reason"] for name in names] == [
        "Completed",
        "InvalidSpec",
        "Starting",
        "Queued",
    ]
    before = world.cluster.requests[WRITES]
    world.restart()
    for name in names:
        world.observe(None, name)
    world.wait(10)
    assert world.cluster.requests[WRITES] == before
    world.cluster.edit(ObjectKind.BENCHMARK_RUN, "refused", {"status": {"conditions": []}})
    world.restart()
    for name in names:
        world.observe(None, name)
    assert world.cluster.requests[WRITES] == before + 1


def test_two_runs_go_side_by_side(world):
    first, second = world.apply(), world.apply("other")
    assert world.supervisor.active == 2
    for _ in range(10):
        for uid in (first, second):
            short = uid.replace("-", "")[:12]
            for name, raw in world.cluster.objects(ObjectKind.POD).items():
                view = pod_view(raw)
                if not view.is_terminal and name.startswith(f"sb-{short}-"):
                    world.cluster.set_pod_status(name, world.ending(uid, view.launch))
        world.wait(5)
    assert world.condition(name="nightly")["reason"] == "Completed"
    assert world.condition(name="other")["reason"] == "Completed"


def test_a_run_that_is_gone_without_an_event_is_left_alone(world):
    """kopf lists anew after an expired watch, and tells nothing of what was deleted meanwhile."""
    uid = world.apply(parallelism=1)
    before = world.pods()
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, "nightly")
    world.cluster.set_pod_status(before[0], world.ending(uid, world.launch(before[0])))
    world.wait(60)
    assert world.supervisor.active == 0
    pods = world.pods()
    world.work(uid)
    assert world.pods() == pods
    assert not (world.root / "runs" / uid / "status.json").exists()


def test_a_queued_run_that_is_gone_without_an_event_holds_up_nobody(world):
    world.settings = {"max_active_runs": 1}
    world.restart()
    world.apply("first")
    gone = world.run("first") | {"metadata": world.run("first")["metadata"] | {"name": "gone"}}
    gone["metadata"]["uid"] = "99999999-0000-4000-8000-000000000000"
    world.observe("ADDED", "gone", gone)
    world.apply("last")
    world.edit("first", cancel="Immediate")
    world.wait(5)
    assert world.condition(name="last")["reason"] == "Starting"


# Refusals


def test_a_refusal_is_remembered(world):
    uid = world.apply(nonsense=1)
    assert world.condition()["status"] == "False"
    assert world.condition()["reason"] == "InvalidSpec"
    assert "nonsense" in world.condition()["message"]
    assert world.supervisor.active == 0
    assert (world.root / "runs" / uid / "status.json").is_file()
    before = world.run()["status"]
    world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"status": None})
    world.restart()
    world.observe(None)
    assert world.run()["status"] == before


def test_a_mended_pack_does_not_revive_a_refused_run(world):
    (world.root / "packs/smoke/tasks.jsonl").write_text("[]\n")
    world.apply()
    assert world.condition()["reason"] == "PackInvalid"
    write_pack(world.root / "packs/smoke", [question("a")])
    world.restart()
    world.observe(None)
    assert world.condition()["reason"] == "PackInvalid"
    assert world.pods() == []


def test_a_run_that_may_not_go_on_leaves_nothing_in_the_cluster(world):
    rules = PodTemplateRules(runtime_class_names=("listed",))
    world.settings = {"pod_template": rules}
    world.restart()
    domains = {"command": "echo B", "allowed_domains": ["docs.example.org"]}
    world.apply(
        harness={"type": "command", "config": domains},
        podTemplate={"runtimeClassName": "listed"},
    )
    (gateway,) = world.pods()
    ready = [{"type": "Ready", "status": "True"}]
    world.cluster.set_pod_status(
        gateway, pod_status("Running", running("gateway"), conditions=ready)
    )
    world.wait(1)
    assert len(world.pods()) == 3
    assert len(world.cluster.objects(ObjectKind.SERVICE)) == 1
    world.settings = {}
    world.restart()
    error = TransientClusterError("no route to host")
    world.cluster.fail_next("delete", error, kind=ObjectKind.SERVICE)
    world.observe(None)
    assert world.condition()["status"] == "Unknown"
    world.wait(60)
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "InvalidSpec")
    assert "'listed' is not allowed" in world.condition()["message"]
    marks = [raw["metadata"] for raw in world.cluster.objects(ObjectKind.POD).values()]
    assert all("deletionTimestamp" in mark for mark in marks)
    assert world.cluster.objects(ObjectKind.SERVICE) == {}
    assert [entry.outcome for entry in RunIndex(world.root).entries()] == ["InvalidSpec"]


# Trouble


def test_trouble_of_the_api_server_is_waited_out(world, caplog):
    for _ in range(2):
        world.cluster.fail_next(
            "list", TransientClusterError("no route to host"), kind=ObjectKind.POD
        )
    uid = world.apply()
    assert world.condition()["status"] == "Unknown"
    assert "no route to host" in world.condition()["message"]
    assert world.cluster.requests["list", ObjectKind.POD] == 1
    world.wait(2)
    assert world.cluster.requests["list", ObjectKind.POD] == 2
    world.wait(4)
    assert world.cluster.requests["list", ObjectKind.POD] == 3
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    assert failed_loops(caplog) == []


def test_a_lost_volume_is_waited_out(world):
    with mock.patch.object(RunLoop, "reconcile_once", side_effect=OSError(5, "Input/output error")):
        uid = world.apply()
        assert world.condition()["reason"] == "StorageUnavailable"
        assert "Input/output error" in world.condition()["message"]
    world.wait(3)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def without(data, number):
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: number - 1] + lines[number:])


def test_a_damaged_journal_holds_the_run_up_until_it_is_put_back(world, caplog):
    uid = world.apply(parallelism=1)
    world.work(uid, rounds=1)
    path = world.root / "runs" / uid / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(without(whole, 3))
    pods = world.pods()
    world.restart()
    world.observe(None)
    assert (world.condition()["status"], world.condition()["reason"]) == (
        "Unknown",
        "StorageUnavailable",
    )
    message = world.condition()["message"]
    assert "line 3 of the journal does not follow line 2: lines are missing" in message
    assert "put the file back" in message
    assert "\n" not in message
    assert path.read_bytes() == without(whole, 3)
    assert world.pods() == pods
    assert failed_loops(caplog) == []
    path.write_bytes(whole)
    world.wait(60)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    assert world.run()["status"]["tasks"]["done"] == 2


def test_a_run_that_resumes_a_damaged_one_starts_nothing(world):
    uid = world.apply(taskSelector={"limit": 1})
    world.work(uid)
    path = world.root / "runs" / uid / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(without(whole, 2))
    second = world.apply("second", runId="nightly", resumeFrom={"run": "nightly"})
    message = world.condition(name="second")["message"]
    assert "line 2 of the journal does not follow line 1" in message
    assert world.pods() == []
    assert path.read_bytes() == without(whole, 2)
    path.write_bytes(whole)
    world.wait(60)
    world.work(second)
    assert world.condition(name="second")["reason"] == "Completed"
    assert world.run("second")["status"]["tasks"]["done"] == 2


def test_a_crashed_loop_is_logged_shown_and_started_again(world, caplog):
    with mock.patch.object(RunLoop, "reconcile_once", side_effect=KeyError("secret value")):
        uid = world.apply()
        assert world.condition()["status"] == "Unknown"
        assert world.condition()["reason"] == "Internal"
        assert "secret value" not in json.dumps(world.run()["status"])
        world.wait(100)
        assert 5 <= len(failed_loops(caplog)) <= 7
    world.wait(70)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_crashed_loop_whose_status_fails_too_is_started_again(world, caplog):
    with (
        mock.patch.object(RunLoop, "reconcile_once", side_effect=KeyError("defect")),
        mock.patch.object(Publisher, "announce", side_effect=TypeError("another")),
    ):
        uid = world.apply()
        assert len(failed_loops(caplog)) == 2
    world.wait(3)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_loop_that_fails_outside_its_tries_is_logged_and_started_again(world, caplog):
    with mock.patch.object(RunLifecycle, "pause", side_effect=KeyError("defect")):
        with mock.patch.object(RunLoop, "reconcile_once", side_effect=OSError(5, "gone")):
            uid = world.apply()
        assert [record.exc_info[0] for record in failed_loops(caplog)] == [KeyError]
    assert (world.supervisor.active, world.supervisor.failed) == (0, 1)
    world.wait(RETRY_LIMIT_SECONDS + 1)
    assert (world.supervisor.active, world.supervisor.failed) == (1, 0)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_cancel_ends_a_run_that_is_held_up_at_once(world):
    with mock.patch.object(RunLoop, "reconcile_once", side_effect=OSError(5, "gone")):
        world.apply()
        world.wait(200)
        assert world.condition()["reason"] == "StorageUnavailable"
    world.edit(cancel="Immediate")
    world.wait(1)
    assert world.condition()["reason"] == "Cancelled"


def test_a_crash_of_one_run_leaves_the_others_alone(world):
    real = RunLoop.reconcile_once

    async def step(self):
        if self._plan.identity.name == "nightly":
            raise KeyError
        return await real(self)

    with mock.patch.object(RunLoop, "reconcile_once", step):
        world.apply()
        uid = world.apply("other")
        for name, raw in world.cluster.objects(ObjectKind.POD).items():
            world.cluster.set_pod_status(name, world.ending(uid, pod_view(raw).launch))
        world.wait(5)
        assert world.condition(name="nightly")["reason"] == "Internal"
        assert world.condition(name="other")["reason"] == "Running"


def test_a_refused_pod_ends_the_run_with_the_servers_words(world):
    words = "pods is forbidden: violates PodSecurity"
    world.cluster.fail_next("create", PermanentClusterError(words, status=422), kind=ObjectKind.POD)
    world.apply(parallelism=1)
    world.wait(5)
    assert world.condition()["reason"] == "PodRefused"
    assert words in world.condition()["message"]
    assert world.pods() == []


def refuse_pods(world, count):
    for _ in range(count):
        error = Forbidden("pods is forbidden: no scan yet", status=403)
        world.cluster.fail_next("create", error, kind=ObjectKind.POD)


def test_a_webhook_that_refuses_for_a_minute_costs_a_wait(world):
    refuse_pods(world, 4)
    uid = world.apply(parallelism=1)
    world.wait(60)
    said = world.condition()
    assert (said["status"], said["reason"]) == ("Unknown", "Forbidden")
    assert said["message"].startswith("Pod sb-000000010000-0-1h1: pods is forbidden: no scan yet;")
    world.wait(60)
    assert world.condition()["reason"] == "Starting"
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    assert [json.loads(line)["launches"] for line in lines] == [1, 1]


def test_a_refusal_that_stays_ends_the_run(world):
    refuse_pods(world, 99)
    world.apply(parallelism=1)
    world.wait(590)
    assert world.condition()["reason"] == "Forbidden"
    world.wait(30)
    assert world.condition()["reason"] == "PodRefused"
    assert "pods is forbidden: no scan yet; mend" in world.condition()["message"]
    assert world.pods() == []


def test_a_run_at_rest_uses_up_no_time_of_its_refusal(world):
    refuse_pods(world, 3)
    uid = world.apply(isolation={"require": "Verified"})
    world.wait(1)
    world.edit(suspend=True)
    world.wait(3600)
    world.edit(suspend=False)
    world.wait(60)
    assert world.condition()["status"] == "Unknown"
    assert len(world.pods()) == 2, uid


def test_a_secret_that_may_not_be_read_is_waited_for(world):
    labels = {"securebench.dev/usable-by-runs": "true"}
    secret = {"metadata": {"name": "keys", "labels": labels}, "data": {"TOKEN": "eA=="}}
    world.runner.run(world.cluster.create(ObjectKind.SECRET, secret))
    config = {"command": "echo B"}
    harness = {
        "type": "command",
        "config": config,
        "env": ["TOKEN"],
        "secretRef": {"name": "keys"},
    }
    uid = world.apply(harness=harness)
    for _ in range(5):
        error = Forbidden("secrets is forbidden", status=403)
        world.cluster.fail_next("get", error, kind=ObjectKind.SECRET)
    world.restart()
    world.observe(None)
    assert world.condition()["reason"] == "Forbidden"
    world.wait(120)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


MUST_BE_SANDBOXED = {
    "a listed class": ("listed", "IsolationNotVerified"),
    "another class": ("plain", "Starting"),
}


@pytest.mark.parametrize("name", MUST_BE_SANDBOXED)
def test_a_required_sandbox_is_proven_also_where_isolation_is_declared(name, world):
    runtime_class, reason = MUST_BE_SANDBOXED[name]
    rules = PodTemplateRules(
        runtime_class_names=("listed", "plain"), sandboxed_runtime_class_names=("listed",)
    )
    context = context_of(world.cluster, world.clock, world.root, pod_template=rules)
    world.supervisor = Supervisor(context)
    world.apply(podTemplate={"runtimeClassName": runtime_class})
    message = json.dumps({"v": 1, "targets": {}, "kernel": "6.1.0"})
    for pod in world.pods():
        if "canary" in pod:
            world.cluster.set_pod_status(
                pod, pod_status("Succeeded", ended("probe", 0, message=message))
            )
    world.wait(5)
    assert world.condition()["reason"] == reason
    assert any("h1" in pod for pod in world.pods()) is (reason == "Starting")


# The user


def test_a_change_right_after_the_start_is_not_lost(world):
    async def both():
        body = run_body()
        await world.cluster.create(ObjectKind.BENCHMARK_RUN, body)
        world.supervisor.observe("ADDED", world.run())
        world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"spec": {"suspend": True}})
        world.supervisor.observe("MODIFIED", world.run())

    world.runner.run(both())
    world.wait(1)
    assert world.condition("Suspended")["status"] == "True"
    assert world.pods() == []


def test_suspend_and_go_on(world):
    uid = world.apply(suspend=True)
    world.wait(100)
    assert world.pods() == []
    world.edit(suspend=False)
    assert len(world.pods()) == 2
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_cancel(world):
    world.apply()
    world.edit(cancel="Immediate")
    world.wait(5)
    assert world.condition()["reason"] == "Cancelled"
    assert world.pods() == []


def test_a_deadline(world):
    world.apply(activeDeadlineSeconds=60)
    world.wait(59)
    assert world.condition()["status"] == "Unknown"
    world.wait(3)
    assert world.condition()["reason"] == "DeadlineExceeded"
    assert world.clock.now() < NOW + 63


@pytest.mark.parametrize("how", ["DELETED", "MODIFIED"])
def test_a_deleted_run_is_let_go(world, how):
    world.apply()
    body = {**world.run(), "metadata": {**world.run()["metadata"]}}
    if how == "MODIFIED":
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.observe(how, body=body)
    assert world.supervisor.active == 0
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    world.wait(100)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] == writes
    world.observe(how, body=body)
    assert world.supervisor.active == 0


def replace_unseen(world):
    """Put another run in the place of one, of which the operator hears nothing."""
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, "nightly")
    world.runner.run(world.cluster.create(ObjectKind.BENCHMARK_RUN, run_body("nightly")))
    assert world.run().get("status", {}) == {}


def test_a_run_that_was_replaced_unseen_does_not_end_the_next_one_of_its_name(world):
    world.apply(pack={"volume": {"path": "none"}})
    assert world.condition()["reason"] == "InputMissing"
    replace_unseen(world)
    world.wait(10_000)
    assert world.supervisor.active == 0
    assert world.condition() == {}


def test_a_run_that_was_replaced_unseen_writes_once(world):
    uid = world.apply()
    replace_unseen(world)
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    world.work(uid)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] == writes + 1
    assert world.condition()["status"] == "Unknown"


def test_a_run_that_was_replaced_unseen_is_not_held_up_for_ever(world, monkeypatch):
    """Nor does it say so of the next one of its name, again and again."""

    def broken(*_arguments, **_names):
        raise RuntimeError("a defect")

    world.apply()
    replace_unseen(world)
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    monkeypatch.setattr(run_loop, "reconcile", broken)
    world.wait(600)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] == writes + 1
    assert world.supervisor.active == 0


def test_a_run_of_the_same_name_is_another_run(world):
    first = world.apply()
    world.observe("DELETED")
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, "nightly")
    second = world.apply()
    assert first != second
    assert world.supervisor.active == 1


def test_closing_leaves_the_pods_to_the_next_process(world):
    uid = world.apply()
    pods = world.pods()
    world.restart()
    assert world.pods() == pods
    world.observe(None)
    assert world.pods() == pods
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


# Small parts


def test_the_parts_of_an_object():
    run = run_object({"metadata": {"name": "n", "uid": "u", "namespace": "s", "generation": 3}})
    assert (run.name, run.uid, run.namespace, run.generation, run.spec) == ("n", "u", "s", 3, {})
    assert run_object({"metadata": {"generation": "x"}, "spec": {"a": 1}}).spec == {"a": 1}
    assert run_object({}).generation == 0
    assert not run_object({"metadata": {"labels": None}}).audit
    assert run_object({"metadata": {"labels": {"securebench.dev/purpose": "audit"}}}).audit


PACK_ERRORS = {
    "pack": (PackError("x"), True),
    "spec": (SpecError("x"), False),
    "both": (ConfigErrors([PackError("x"), SpecError("x")]), False),
    "packs": (ConfigErrors([PackError("x"), ConfigErrors([PackError("y")])]), True),
}


@pytest.mark.parametrize("name", PACK_ERRORS)
def test_whose_fault_it_is(name):
    error, want = PACK_ERRORS[name]
    assert is_pack_error(error) is want
