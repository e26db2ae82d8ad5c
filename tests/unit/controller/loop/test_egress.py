"""Whole runs with egress, on an operator in memory."""

import base64
import json
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind, QuotaExceeded
from securebench.controller import attempt_keeper
from securebench.controller.loop_tasks import FALLBACK_SECONDS, Wake
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume.journal import read_entries
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.protocol.gateway import LaunchReport, RelayReport, encode
from securebench.protocol.supervise import ProbeTarget
from securebench.run.observe.pods import pod_view
from securebench.run.state.entries import LaunchLost
from support.build import ended, pod_status, running, waiting
from support.operator_world import World, opened

DOMAINS = {
    "type": "command",
    "config": {"command": "echo B", "allowed_domains": ["docs.example.org"]},
}
CODEX = {"type": "codex", "config": {"model": "m"}}
OVERLAYS = {"codex": {"images": {"1": "overlay-codex:1"}, "latest": "1"}}
READY = {"type": "Ready", "status": "True"}
TARGETS = (ProbeTarget("dns", "10.96.0.10", 53, "udp"),)
OPEN, CLOSED = {"dns": "open"}, {"dns": "closed"}


class EgressWorld(World):
    def __init__(self, root):
        super().__init__(root, targets=TARGETS, overlays=OVERLAYS)
        self.relay = RelayReport(requests=2, input_tokens=100, output_tokens=5)
        labels = {"securebench.dev/usable-by-runs": "true"}
        secret = {
            "metadata": {"name": "openai", "labels": labels},
            "data": {"OPENAI_API_KEY": "eA=="},
        }
        self.runner.run(self.cluster.create(ObjectKind.SECRET, secret))

    def begin(self, **spec):
        self.uid = self.apply(**({"harness": DOMAINS, "parallelism": 1} | spec))
        self.short = f"sb-{self.uid.replace('-', '')[:12]}"
        self.name = f"{self.short}-gateway"
        return self.uid

    def begin_codex(self, **spec):
        return self.begin(harness=CODEX, provider={"secretRef": {"name": "openai"}}, **spec)

    def gateway(self, status, number=1):
        self.cluster.set_pod_status(f"{self.name}-{number}", status)
        self.wait(0.1)

    def gateway_up(self, number=1):
        status = pod_status("Running", running("gateway"), conditions=[READY])
        self.gateway(status, number)

    def told(self, name):
        """Return the arguments of a Pod's main container."""
        pod = self.cluster.objects(ObjectKind.POD)[name]
        return json.dumps(pod["spec"]["containers"][0]["command"])

    def harnesses(self):
        return [name for name in self.pods() if "gateway" not in name]

    def ending(self, uid, launch):
        status = super().ending(uid, launch)
        if launch.role == "harness" and self.cluster.objects(ObjectKind.SERVICE):
            self.report(launch)
            status["initContainerStatuses"].append(ended("egress-proxy"))
        return status

    def report(self, launch, **changes):
        for name, raw in self.cluster.objects(ObjectKind.POD).items():
            if pod_view(raw).launch == launch:
                folder = self.root / "runs" / self.uid / "gateway/launches"
                relay = self.relay if self.is_codex() else None
                known = {"closed": True, "requests": 1, "relay": relay} | changes
                report = LaunchReport(name, raw["metadata"]["uid"], **known)
                (folder / f"{name}.json").write_bytes(encode(report))
                (folder / f"{name}.jsonl").write_text('{"host":"docs.example.org"}\n')

    def is_gateway_gone(self):
        """Whether Pods of the run are gone or going, and the Service with them."""
        marks = [raw["metadata"] for raw in self.cluster.objects(ObjectKind.POD).values()]
        is_going = all("deletionTimestamp" in mark for mark in marks)
        return is_going and not self.cluster.objects(ObjectKind.SERVICE)

    def is_codex(self):
        return self.run()["spec"]["harness"]["type"] == "codex"

    def folder(self):
        return self.root / "runs" / self.uid

    def records(self):
        lines = (self.folder() / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def world(tmp_path):
    with opened(EgressWorld, tmp_path) as world:
        yield world


@pytest.fixture
def sleeps():
    """Counts how often the loop went to sleep."""
    counter = mock.Mock()
    real = Wake.wait

    async def wait(wake, times, dues=()):
        counter()
        await real(wake, times, dues)

    with mock.patch.object(Wake, "wait", wait):
        yield counter


async def inline(work, *args, **kwargs):
    return work(*args, **kwargs)


def succeeded(world):
    found = world.condition()
    return found["status"], found["reason"]


# From start to end


def test_a_run_with_domains(world):
    world.begin()
    assert world.pods() == [f"{world.name}-1"]
    assert succeeded(world) == ("Unknown", "GatewayStarting")
    assert world.harnesses() == []
    world.gateway_up()
    assert len(world.harnesses()) == 1
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")
    assert world.is_gateway_gone()
    lines = (world.folder() / "egress.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["a", "b"]
    for record in world.records():
        assert record["labels"]["network"] == "egress"
        assert record["producer_metadata"]["egress_requests"] == 1


def test_a_run_of_codex(world):
    world.begin_codex()
    world.gateway_up()
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")
    assert world.run()["status"]["usage"] == {
        "requests": 4,
        "inputTokens": 200,
        "cachedTokens": 0,
        "outputTokens": 10,
    }
    summary = json.loads((world.folder() / "summary.json").read_text())
    assert summary["usage"]["input_tokens"] == 200


def test_what_a_gateway_writes_while_it_ends_is_kept(world):
    world.begin(taskSelector={"limit": 1})
    world.gateway_up()
    (first,) = world.harnesses()
    world.work(world.uid, rounds=2)
    assert world.is_gateway_gone()
    assert succeeded(world) == ("Unknown", "Running")
    log = world.folder() / f"gateway/launches/{first}.jsonl"
    log.write_text(log.read_text() + '{"host":"last.example.org"}\n')
    world.cluster.remove(ObjectKind.POD, f"{world.name}-1")
    world.wait(1)
    assert succeeded(world) == ("True", "Completed")
    lines = (world.folder() / "egress.jsonl").read_text().splitlines()
    assert [json.loads(line)["host"] for line in lines] == ["docs.example.org", "last.example.org"]


def test_gateway_and_canary_start_together(world):
    world.begin(isolation={"require": "Verified"})
    canary, control, gateway = world.pods()
    assert (canary, control) == (f"{world.short}-canary-1", f"{world.short}-control-1")
    assert gateway == f"{world.name}-1"
    address = world.cluster.objects(ObjectKind.SERVICE)[world.name]["spec"]["clusterIP"]
    assert address in world.told(canary)
    assert address not in world.told(control)
    world.probe(OPEN, CLOSED | {"gateway": "open"})
    assert succeeded(world) == ("Unknown", "GatewayStarting")
    assert world.condition("IsolationVerified") == {}
    world.gateway_up()
    message = world.condition("IsolationVerified")["message"]
    assert message == "closed: dns; open: gateway"
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")


def test_no_canary_starts_before_the_gateway_has_an_address(world):
    for _ in range(3):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("create", lost, kind=ObjectKind.SERVICE)
    world.begin(isolation={"require": "Verified"})
    assert world.pods() == []
    world.wait(10)
    canary, _, _ = world.pods()
    address = world.cluster.objects(ObjectKind.SERVICE)[world.name]["spec"]["clusterIP"]
    assert address in world.told(canary)


def test_a_canary_that_fails_takes_the_gateway_away(world):
    world.begin(isolation={"require": "Verified"})
    world.gateway_up()
    world.probe(OPEN, OPEN | {"gateway": "open"})
    world.wait(15)
    assert succeeded(world) == ("False", "IsolationNotVerified")
    assert world.is_gateway_gone()


def test_an_operator_that_starts_again_goes_on(world):
    world.begin()
    world.gateway_up()
    world.restart()
    world.observe(None)
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")
    made = [call.name for call in world.cluster.calls if call.verb == "create"]
    assert made.count(f"{world.name}-1") == 1


def test_a_graceful_end_spares_what_runs_while_the_operator_starts_again(world):
    world.begin()
    world.gateway_up()
    world.edit(cancel="Graceful")
    world.restart()
    world.observe(None)
    world.work(world.uid)
    assert succeeded(world) == ("False", "Cancelled")
    ends = [(item["outcome"], item.get("failure_phase")) for item in world.records()]
    assert ends == [("scored", None), ("cancelled", "queued")]


def test_a_launch_without_an_answer_is_not_repeated_before_the_gateway_is_there(world):
    world.begin(taskSelector={"limit": 1})
    lost = TransientClusterError("no answer")
    world.cluster.set_pod_status(
        f"{world.name}-1", pod_status("Running", running("gateway"), conditions=[READY])
    )
    world.cluster.fail_next("create", lost, kind=ObjectKind.POD)
    world.wait(1)
    world.restart()
    world.gateway(pod_status("Failed", ended("gateway", 1)))
    world.edit(cancel="Graceful")
    world.wait(5)
    assert world.harnesses() == []
    world.gateway_up(2)
    assert len(world.harnesses()) == 1
    world.work(world.uid)
    assert [record["outcome"] for record in world.records()] == ["scored"]


def test_a_deadline_that_is_moved_lets_nothing_begin_without_a_canary(world):
    real = RunLedger.finish

    async def finish(ledger, finishes, *given, **named):
        await real(ledger, finishes, *given, **named)
        if finishes:
            world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"spec": move})
            world.supervisor.observe("MODIFIED", world.run())

    world.begin(activeDeadlineSeconds=60, isolation={"require": "Verified"})
    move = {"activeDeadlineSeconds": 6000}
    with (
        mock.patch.object(RunLedger, "finish", finish),
        mock.patch.object(attempt_keeper, "FINISH_BATCH", 1),
    ):
        world.wait(70)
    assert succeeded(world)[0] == "Unknown"
    world.gateway_up()
    assert [name for name in world.harnesses() if "h1" in name] == []
    world.probe(OPEN, CLOSED | {"gateway": "open"})
    world.work(world.uid)
    assert [record["outcome"] for record in world.records()] == ["cancelled", "scored"]


# Trouble with the gateway


def test_a_gateway_that_does_not_start_ends_the_run(world):
    world.begin()
    world.gateway(pod_status("Pending", waiting("gateway", "ErrImagePull", "no such image")))
    world.wait(5)
    assert succeeded(world) == ("Unknown", "GatewayStarting")
    assert "ErrImagePull: no such image" in world.condition()["message"]
    world.wait(180 + 2 * FALLBACK_SECONDS)
    assert succeeded(world) == ("False", "GatewayFailed")
    assert "no such image" in world.condition()["message"]
    assert world.harnesses() == []
    assert {record["outcome"] for record in world.records()} == {"cancelled"}


def test_a_quota_without_room_for_the_gateway_is_shown(world):
    for _ in range(40):
        error = QuotaExceeded("exceeded quota: pods")
        world.cluster.fail_next("create", error, kind=ObjectKind.POD)
    world.begin()
    world.wait(250)
    assert succeeded(world) == ("Unknown", "QuotaExceeded")
    assert "exceeded quota: pods" in world.condition()["message"]
    world.edit(cancel="Immediate")
    world.wait(5)
    assert succeeded(world) == ("False", "Cancelled")


@pytest.mark.parametrize("kind", [ObjectKind.POD, ObjectKind.SERVICE])
def test_a_refused_gateway_ends_the_run_with_the_servers_words(world, kind):
    error = PermanentClusterError("violates PodSecurity", status=422)
    world.cluster.fail_next("create", error, kind=kind)
    world.begin()
    world.wait(5)
    want = "PodRefused" if kind is ObjectKind.POD else "GatewayFailed"
    assert succeeded(world) == ("False", want)
    assert "violates PodSecurity" in world.condition()["message"]


@pytest.mark.parametrize("kind", [ObjectKind.POD, ObjectKind.SERVICE])
def test_time_in_which_rights_refuse_the_gateway_is_not_its_own(world, kind):
    for _ in range(8):
        error = Forbidden("is forbidden: no scan yet", status=403)
        world.cluster.fail_next("create", error, kind=kind)
    world.begin()
    world.wait(300)
    assert succeeded(world) == ("Unknown", "Forbidden")
    assert "is forbidden: no scan yet; tried again" in world.condition()["message"]
    world.wait(60)
    assert succeeded(world) == ("Unknown", "GatewayStarting")
    assert "no scan yet" not in world.condition()["message"]


@pytest.mark.parametrize("kind", [ObjectKind.POD, ObjectKind.SERVICE])
def test_a_gateway_that_rights_refuse_for_long_ends_the_run(world, kind):
    for _ in range(99):
        world.cluster.fail_next("create", Forbidden("is forbidden", status=403), kind=kind)
    world.begin()
    world.wait(700)
    want = "PodRefused" if kind is ObjectKind.POD else "GatewayFailed"
    assert succeeded(world) == ("False", want)
    assert "is forbidden; mend the operator's rights" in world.condition()["message"]


STOPS = {
    "cancel": ({"cancel": "Immediate"}, "Cancelled"),
    "graceful": ({"cancel": "Graceful"}, "Cancelled"),
    "deadline": ({"activeDeadlineSeconds": 60}, "DeadlineExceeded"),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_run_that_waits_for_its_gateway_can_be_ended(world, name):
    change, reason = STOPS[name]
    world.begin()
    world.wait(70)
    world.edit(**change)
    world.wait(5)
    assert succeeded(world) == ("False", reason)
    assert world.harnesses() == []
    assert world.is_gateway_gone()
    assert {record["outcome"] for record in world.records()} == {"cancelled"}


def test_a_run_with_all_its_records_is_only_ended(world):
    world.begin(isolation={"require": "Verified"})
    error = TransientClusterError("no answer")
    world.cluster.fail_next("delete", error, kind=ObjectKind.SERVICE)
    world.edit(cancel="Immediate")
    world.wait(10)
    assert succeeded(world) == ("False", "Cancelled")
    assert world.is_gateway_gone()
    made = [call for call in world.cluster.calls if call.verb == "create"]
    pods = [call.name for call in made if call.kind is ObjectKind.POD]
    assert pods == [f"{world.name}-1", f"{world.short}-control-1", f"{world.short}-canary-1"]


def test_a_suspension_is_shown_while_it_waits(world):
    world.begin()
    world.edit(suspend=True)
    assert world.condition("Suspended")["status"] == "True"
    world.wait(15)
    assert succeeded(world)[1] == "Suspended"
    assert world.is_gateway_gone()
    world.edit(suspend=False)
    assert succeeded(world)[1] == "GatewayStarting"
    assert world.harnesses() == []
    world.gateway_up()
    assert len(world.harnesses()) == 1


def test_no_launch_begins_while_the_gateway_is_replaced(world):
    world.begin()
    world.gateway_up()
    world.gateway(pod_status("Failed", ended("gateway", 1)))
    (first,) = world.harnesses()
    world.cluster.remove(ObjectKind.POD, first)
    world.wait(60)
    assert world.harnesses() == []
    assert f"{world.name}-2" in world.pods()
    assert succeeded(world)[1] == "GatewayStarting"
    world.gateway_up(2)
    assert world.harnesses() == [first.replace("h1", "h2")]
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")


def test_a_service_that_somebody_deletes_is_there_before_the_next_launch(world):
    world.begin()
    world.gateway_up()
    (first,) = world.harnesses()
    before = world.cluster.objects(ObjectKind.SERVICE)[world.name]["spec"]["clusterIP"]
    lost = TransientClusterError("no answer")
    world.cluster.fail_next("create", lost, kind=ObjectKind.SERVICE)
    world.cluster.remove(ObjectKind.SERVICE, world.name)
    world.cluster.remove(ObjectKind.POD, first)
    world.wait(1)
    assert world.harnesses() == []
    world.wait(20)
    (second,) = world.harnesses()
    address = world.cluster.objects(ObjectKind.SERVICE)[world.name]["spec"]["clusterIP"]
    assert address != before
    assert address in json.dumps(world.cluster.objects(ObjectKind.POD)[second])
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")


def test_a_gateway_that_was_lost_before_the_operator_started_is_replaced(world):
    world.begin()
    world.gateway_up()
    world.restart()
    world.gateway(pod_status("Running", running("gateway")))
    world.observe(None)
    world.wait(100)
    assert f"{world.name}-2" in world.pods()
    world.gateway_up(2)
    world.work(world.uid)
    world.wait(10)
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")


def test_a_launch_whose_gateway_is_replaced_is_launched_again(world):
    world.begin(taskSelector={"limit": 1})
    world.gateway_up()
    (first,) = world.harnesses()
    world.wait(5)
    world.gateway(pod_status("Failed", ended("gateway", 1)))
    world.wait(5)
    world.gateway_up(2)
    world.work(world.uid)
    world.wait(10)
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")
    (record,) = world.records()
    assert record["launches"] == 2
    journal = (world.folder() / "journal.jsonl").read_bytes()
    entries = read_entries(journal, world.uid).entries
    (loss,) = (entry.lost for entry in entries if isinstance(entry, LaunchLost))
    assert loss.reason == "egress_setup_failed"
    assert loss.message == f"the run's gateway was replaced while Pod {first} ran"


def test_an_api_server_that_fails_now_and_then_is_asked_seldom(world, sleeps):
    lost = TransientClusterError("no answer")
    world.begin()
    for _ in range(2):
        world.cluster.fail_next("create", lost, kind=ObjectKind.POD)
    world.gateway(pod_status("Failed", ended("gateway", 1)))
    world.wait(2.05)
    for _ in range(3):
        world.cluster.fail_next("create", lost, kind=ObjectKind.SERVICE)
    world.wait(30)
    assert f"{world.name}-2" in world.pods()
    assert sleeps.call_count < 25


def test_a_run_that_is_stopped_sleeps_while_its_pods_go(world, sleeps):
    world.begin()
    world.gateway_up()
    lost = TransientClusterError("no answer")
    for _ in range(10):
        world.cluster.fail_next("delete", lost, kind=ObjectKind.POD)
    world.edit(cancel="Immediate")
    world.restart()
    world.observe(None)
    world.wait(700)
    assert succeeded(world) == ("False", "Cancelled")
    assert sleeps.call_count < 40


def test_a_gateway_that_cannot_be_replaced_ends_the_run(world):
    world.begin()
    world.gateway_up()
    for number in range(1, 30):
        if f"{world.name}-{number}" in world.pods():
            world.gateway(pod_status("Failed", ended("gateway", 1)), number)
        world.wait(15)
    assert succeeded(world) == ("False", "GatewayFailed")


# The gateway's word


def test_a_launch_without_a_report_is_launched_again(world):
    world.begin(infrastructureRetries=0)
    world.gateway_up()
    with mock.patch.object(world, "report"):
        world.work(world.uid)
    assert succeeded(world) == ("False", "Incomplete")
    assert {record["failure_reason"] for record in world.records()} == {"egress_report_missing"}


def test_an_outage_is_launched_again_and_counted(world):
    world.relay = RelayReport(requests=2, failures=2, failure="provider_quota", input_tokens=1)
    world.begin_codex(providerRetries=1, infrastructureRetries=0, taskSelector={"limit": 1})
    world.gateway_up()
    with mock.patch("support.pod_ends.seal_message", no_candidate):
        world.work(world.uid)
        world.wait(30)
        world.work(world.uid)
    assert succeeded(world) == ("False", "Incomplete")
    (record,) = world.records()
    assert (record["outcome"], record["failure_reason"]) == ("provider", "provider_quota")
    assert record["launches"] == 2
    assert record["producer_metadata"]["usage"]["requests"] == 4
    assert "2 of 2 requests failed" in record["failure_message"]


def no_candidate(**_):
    body = {"v": 1, "problem": "candidate_missing", "message": "none", "file": None, "digest": ""}
    return json.dumps(body)


def test_what_a_lost_launch_asked_is_counted(world):
    world.begin_codex(taskSelector={"limit": 1})
    world.gateway_up()
    (first,) = world.harnesses()
    world.report(pod_view(world.cluster.objects(ObjectKind.POD)[first]).launch, closed=False)
    world.cluster.remove(ObjectKind.POD, first)
    world.wait(30)
    world.work(world.uid)
    assert succeeded(world) == ("True", "Completed")
    (record,) = world.records()
    assert record["launches"] == 2
    assert record["producer_metadata"]["usage"]["requests"] == 4
    assert record["producer_metadata"]["provider_relay_requests"] == 2


# Values that the tester forwards


def test_a_forwarded_value_stays_out_of_the_record(world):
    secret = {
        "metadata": {"name": "keys", "labels": {"securebench.dev/usable-by-runs": "true"}},
        "data": {"TOKEN": base64.b64encode(b"tk-5f3a9c1e5b7d").decode()},
    }
    world.runner.run(world.cluster.create(ObjectKind.SECRET, secret))
    config = {"command": "echo $TOKEN"}
    harness = {
        "type": "command",
        "config": config,
        "env": ["TOKEN"],
        "secretRef": {"name": "keys"},
    }
    uid = world.begin(harness=harness, taskSelector={"limit": 1})
    stdout = world.folder() / "tasks/0/attempts/1/launches/1/producer/stdout"
    stdout.write_bytes(b"token tk-5f3a9c1e5b7d")
    World.work(world, uid)
    (record,) = world.records()
    assert record["producer_stdout"] == "token " + "*" * 15
    assert b"tk-" not in stdout.read_bytes()
