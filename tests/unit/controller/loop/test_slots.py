"""How many runs are worked on, and what suspended ones cost."""

import json
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind
from securebench.controller.lifecycle import ENDING_SLOTS, RunSlots
from securebench.controller.object_loop import RETRY_SECONDS
from securebench.controller.volume.journal import journal_bytes
from securebench.controller.volume.store import RunStore
from securebench.errors import TransientClusterError
from securebench.run.observe.pods import pod_view
from support.build import NOW, FakeClock, pod_status, question, running, write_pack
from support.operator_world import World, opened

FLOOD = 120
TURN_SECONDS = 1800.0


@pytest.fixture
def small(tmp_path):
    with opened(World, tmp_path, max_active_runs=2) as world:
        yield world


def slots_of(limit, clock=None):
    return RunSlots(limit, TURN_SECONDS, clock or FakeClock())


def reason(world, name="nightly"):
    return world.condition(name=name)["reason"]


def short(uid):
    return uid.replace("-", "")[:12]


def pods_of(world, uid):
    return [name for name in world.pods() if name.startswith(f"sb-{short(uid)}-")]


def end_all(world, uid, rounds=10):
    """Let the Pods of one run end well."""
    for _ in range(rounds):
        for name in pods_of(world, uid):
            view = pod_view(world.cluster.objects(ObjectKind.POD)[name])
            if view.launch is not None and not view.is_terminal:
                world.cluster.set_pod_status(name, world.ending(uid, view.launch))
        world.wait(5)


# Suspended runs


def test_suspended_runs_hold_nothing(world):
    for number in range(FLOOD):
        world.apply(f"flood-{number}", suspend=True, isolation={"require": "Verified"})
    world.wait(100)
    assert {reason(world, f"flood-{number}") for number in range(FLOOD)} == {"Suspended"}
    for kind in (ObjectKind.POD, ObjectKind.NETWORK_POLICY):
        assert world.cluster.objects(kind) == {}
    for verb in ("list", "watch"):
        assert world.cluster.requests[verb, ObjectKind.POD] == 0
    assert not (world.root / "packs/.content").exists()
    uid = world.apply("honest")
    world.work(uid)
    assert reason(world, "honest") == "Completed"


def test_a_wait_that_could_not_be_told_is_told_later(world):
    error = TransientClusterError("busy")
    world.cluster.fail_next("patch_status", error, kind=ObjectKind.BENCHMARK_RUN)
    world.apply(suspend=True)
    assert "status" not in world.run()
    world.wait(5)
    assert reason(world) == "Suspended"
    requests = dict(world.cluster.requests)
    world.wait(200)
    assert world.cluster.requests == requests


def test_a_run_that_is_suspended_ends_what_it_began_and_rests(world):
    uid = world.apply(parallelism=1)
    world.edit(suspend=True)
    assert reason(world) == "Starting"
    end_all(world, uid)
    assert reason(world) == "Suspended"
    status = world.run()["status"]
    assert (status["tasks"]["done"], status["results"]["records"]) == (0, 0)
    requests = dict(world.cluster.requests)
    world.wait(200)
    assert world.cluster.requests == requests
    world.edit(suspend=False)
    world.work(uid)
    assert reason(world) == "Completed"


def test_what_was_finished_is_published_before_the_rest(world, monkeypatch):
    monkeypatch.setattr("securebench.run.decide.attempt.MAX_WAIT_SECONDS", 0.0)
    uid = world.apply(parallelism=1)
    end_all(world, uid, rounds=2)
    world.edit(suspend=True)
    end_all(world, uid)
    assert reason(world) == "Suspended"
    status = world.run()["status"]
    assert (status["tasks"]["done"], status["results"]["records"]) == (1, 1)


def test_a_suspended_run_with_a_launch_is_looked_after_by_the_next_process(world):
    uid = world.apply(parallelism=1)
    (name,) = pods_of(world, uid)
    world.cluster.set_pod_status(name, pod_status("Running", running("harness")))
    world.edit(suspend=True)
    world.restart()
    world.observe(None)
    assert pods_of(world, uid) == [name]
    end_all(world, uid)
    assert (reason(world), world.pods()) == ("Suspended", [])
    assert b'"type":"Produced"' in journal_bytes(world.root / "runs" / uid)


def test_the_deadline_of_a_suspended_run_ends_it(world):
    world.apply(activeDeadlineSeconds=60)
    world.edit(suspend=True)
    world.cluster.end_watches()
    for name in world.pods():
        world.cluster.remove(ObjectKind.POD, name)
    world.wait(5)
    assert reason(world) == "Suspended"
    world.wait(NOW + 63 - world.clock.now())
    assert reason(world) == "DeadlineExceeded"


def test_a_suspended_run_can_be_cancelled(world):
    world.apply(suspend=True)
    world.edit(cancel="Graceful")
    world.wait(5)
    assert reason(world) == "Cancelled"
    assert world.pods() == []


def test_a_suspended_run_with_a_wrong_spec_is_refused(world):
    world.apply(suspend=True, nonsense=1)
    assert reason(world) == "InvalidSpec"


# Slots


def test_a_run_without_a_slot_waits_and_says_so(small):
    first, _, third = (small.apply(name) for name in ("one", "two", "three"))
    assert reason(small, "three") == "Queued"
    assert small.condition(name="three")["status"] == "Unknown"
    assert small.condition(name="three")["message"] == (
        "waiting for a slot: 2 runs are active, and settings.maxActiveRuns allows no more"
    )
    assert pods_of(small, third) == []
    end_all(small, first)
    assert reason(small, "one") == "Completed"
    assert len(pods_of(small, third)) == 2


def test_a_queued_run_whose_status_was_refused_is_served_in_its_turn(small):
    first, second = small.apply("one"), small.apply("two")
    refused = Forbidden("a webhook refuses it", status=403)
    small.cluster.fail_next("patch_status", refused, kind=ObjectKind.BENCHMARK_RUN)
    small.apply("three")
    small.apply("four")
    small.wait(RETRY_SECONDS)
    assert reason(small, "three") == "Queued"
    end_all(small, first)
    assert (reason(small, "three"), reason(small, "four")) == ("Starting", "Queued")
    end_all(small, second)
    assert reason(small, "four") == "Starting"


def test_a_suspended_run_gives_its_slot_away(small):
    first, second, third = (small.apply(name) for name in ("one", "two", "three"))
    small.edit("one", suspend=True)
    end_all(small, first, rounds=3)
    assert reason(small, "one") == "Suspended"
    assert len(pods_of(small, third)) == 2
    small.edit("one", suspend=False)
    assert reason(small, "one") == "Queued"
    end_all(small, second)
    end_all(small, first)
    assert reason(small, "one") == "Completed"


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_a_waiting_run_can_be_ended(small, how):
    for name in ("one", "two", "three", "four"):
        small.apply(name)
    if how == "cancel":
        small.edit("three", cancel="Immediate")
        small.wait(5)
        assert reason(small, "three") == "Cancelled"
    else:
        small.observe("DELETED", "three")
    small.edit("one", cancel="Immediate")
    small.wait(5)
    assert reason(small, "one") == "Cancelled"
    assert reason(small, "four") == "Starting"


def test_runs_that_had_a_slot_have_it_again_after_a_restart(small):
    begun = [small.apply("later"), small.apply("latest")]
    small.apply("early")
    before = small.pods()
    small.restart()
    for name in ("early", "later", "latest"):
        small.observe(None, name)
    assert {reason(small, name) for name in ("later", "latest")} == {"Starting"}
    assert small.pods()[: len(before)] == before
    for uid in begun:
        end_all(small, uid)
    assert {reason(small, name) for name in ("later", "latest")} == {"Completed"}


def test_a_run_that_is_held_up_for_long_gives_its_slot_away(small):
    uid = small.apply("broken")
    path = small.root / "runs" / uid / "journal.jsonl"
    whole = path.read_bytes()
    small.restart()
    path.write_bytes(b"\n".join(whole.splitlines()[1:]) + b"\n")
    small.observe(None, "broken")
    small.apply("one")
    small.apply("two")
    assert reason(small, "two") == "Queued"
    small.wait(100)
    assert reason(small, "two") == "Starting"
    assert json.loads(json.dumps(small.condition(name="broken")))["status"] == "Unknown"


def test_a_run_that_has_begun_never_queues_after_trouble(small):
    """Its slot went to another run meanwhile; its own Pod has ended."""
    uid = small.apply("begun")
    real = RunStore.open_journal

    def broken(store, *args, **facts):
        if uid in str(store.folder):
            raise OSError(5, "Input/output error")
        return real(store, *args, **facts)

    small.restart()
    with mock.patch.object(RunStore, "open_journal", broken):
        small.observe(None, "begun")
        small.wait(150)
        for name in ("one", "two"):
            small.apply(name)
        assert reason(small, "two") == "Starting"
        assert reason(small, "begun") == "StorageUnavailable"
    small.wait(70)
    end_all(small, uid)
    assert reason(small, "begun") == "Completed"


def test_slots_are_served_in_the_order_of_the_queue():
    slots, woken = slots_of(1), []
    assert slots.try_acquire("a", lambda: woken.append("a"))
    assert not slots.try_acquire("b", lambda: woken.append("b"))
    assert not slots.try_acquire("c", lambda: woken.append("c"))
    slots.release("a")
    assert set(woken) == {"b", "c"}
    assert not slots.try_acquire("c", lambda: None)
    assert slots.try_acquire("b", lambda: None)
    assert (slots.taken, slots.limit) == (1, 1)


def test_who_asks_again_keeps_its_place_and_is_woken_by_the_latest_call():
    slots, woken = slots_of(1), []
    assert slots.try_acquire("a", lambda: None)
    for name, wake in (("b", "dead"), ("c", "other"), ("b", "living")):
        assert not slots.try_acquire(name, lambda wake=wake: woken.append(wake))
    slots.release("a")
    assert woken == ["living", "other"]
    assert not slots.try_acquire("c", lambda: None)
    assert slots.try_acquire("b", lambda: None)


def test_runs_to_be_ended_have_some_slots_more():
    slots = slots_of(1)
    assert slots.try_acquire("a", lambda: None)
    assert not slots.try_acquire("waits", lambda: None)
    ending = [slots.try_acquire(f"e{n}", lambda: None, is_ending=True) for n in range(9)]
    assert ending.count(True) == ENDING_SLOTS


def test_what_had_its_slot_does_not_queue():
    slots = slots_of(1)
    assert slots.try_acquire("a", lambda: None)
    assert slots.try_acquire("b", lambda: None, is_active=True)


# Turns


def apply_long(world, name, tasks):
    """Create a run of so many tasks, two of them at a time."""
    write_pack(world.root / "packs/long", [question(str(number)) for number in range(tasks)])
    return world.apply(name, parallelism=2, pack={"volume": {"path": "long"}})


def test_a_long_run_gives_its_slot_to_those_that_wait(tmp_path):
    with opened(World, tmp_path, max_active_runs=1, turn_seconds=300) as world:
        long = apply_long(world, "long", 8)
        begun = pods_of(world, long)
        small = world.apply("small")
        world.wait(290)
        assert (reason(world, "small"), pods_of(world, small)) == ("Queued", [])
        assert world.condition(name="long")["message"] == "waiting for a node"
        world.wait(45)
        for name in begun:
            world.cluster.set_pod_status(name, pod_status("Running", running("harness")))
        world.wait(5)
        assert world.condition(name="long")["message"] == (
            "its turn is over and other runs are Queued: launches that are under way end, then it "
            "queues again (settings.turnSeconds)"
        )
        assert pods_of(world, small) == []
        end_all(world, long, rounds=2)
        assert (reason(world, "long"), len(pods_of(world, small))) == ("Queued", 2)
        assert world.condition("Suspended", "long")["status"] == "False"
        end_all(world, small)
        assert reason(world, "small") == "Completed"
        assert len(pods_of(world, long)) == 2
        end_all(world, long, rounds=20)
        assert reason(world, "long") == "Completed"
        counts = world.run("long")["status"]["tasks"]
        assert (counts["total"], counts["scored"]) == (8, 8)


def test_a_run_that_gave_its_slot_away_queues_in_the_next_process_too(tmp_path):
    with opened(World, tmp_path, max_active_runs=1, turn_seconds=300) as world:
        uids = {name: apply_long(world, name, 8) for name in ("long", "other")}
        world.wait(350)
        end_all(world, uids["long"], rounds=2)
        assert (reason(world, "long"), reason(world, "other")) == ("Queued", "Starting")
        world.restart()
        for name in ("other", "long"):
            world.observe(None, name)
        assert pods_of(world, uids["long"]) == []
        assert len(pods_of(world, uids["other"])) == 2
        world.wait(350)
        end_all(world, uids["other"], rounds=2)
        assert len(pods_of(world, uids["long"])) == 2
        end_all(world, uids["long"], rounds=2)


def test_turns_go_round():
    """However many long runs there are, each has a slot within so many turns."""
    clock = FakeClock()
    slots, runs = slots_of(2, clock), [f"run-{number}" for number in range(7)]
    holders = {uid for uid in runs if slots.try_acquire(uid, lambda: None)}
    had = set(holders)
    for _ in range(4):
        clock.advance(TURN_SECONDS)
        over = {uid for uid in holders if slots.is_turn_over(uid)}
        assert over == holders
        for uid in sorted(over):
            slots.release(uid)
            assert not slots.try_acquire(uid, lambda: None), "it did not queue behind the others"
        holders = {
            uid for uid in runs if uid not in holders and slots.try_acquire(uid, lambda: None)
        }
        had |= holders
    assert had == set(runs)


def test_nobody_gives_a_slot_away_that_nobody_waits_for():
    clock = FakeClock()
    slots = slots_of(2, clock)
    for uid in ("a", "b"):
        assert slots.try_acquire(uid, lambda: None)
    clock.advance(10 * TURN_SECONDS)
    assert not any(slots.is_turn_over(uid) for uid in ("a", "b"))
    assert not slots.try_acquire("c", lambda: None)
    assert [uid for uid in ("a", "b") if slots.is_turn_over(uid)] == ["a"]
    slots.release("a")
    assert not slots.is_turn_over("b")
