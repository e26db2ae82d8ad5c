"""A token budget together with other ways in which a run ends or is continued."""

from dataclasses import replace
from operator import itemgetter

import pytest

from securebench.cluster.port import ObjectKind
from securebench.protocol.gateway import LaunchReport, encode
from support.agent_world import CODEX, CODEX_OVERLAYS, READY, RELAY
from support.build import ended, pod_status, question, running, write_pack
from support.operator_world import opened
from unit.controller.loop.test_budget import LIMIT, BudgetWorld

CUT = "cancelled, run_budget_exhausted"


class CrossingWorld(BudgetWorld):
    """A run of three tasks with a budget, whose gateway may refuse requests of the second.

    Attributes:
        is_refusing: Whether it does.
    """

    def __init__(self, root, **settings):
        super().__init__(root, harness=CODEX, key="OPENAI_API_KEY", **settings)
        self.is_refusing = False
        write_pack(root / "packs/smoke", [question(name) for name in "abc"])

    def next_run(self, name, **spec):
        """Create a run like the first one; return its uid."""
        provider = {"secretRef": {"name": "key"}}
        budget = {"tokens": LIMIT}
        return self.apply(name, harness=CODEX, provider=provider, budget=budget, **spec)

    def gateway(self, uid, status, number=1):
        name = f"sb-{uid.replace('-', '')[:12]}-gateway-{number}"
        if name in self.pods():
            self.cluster.set_pod_status(name, status)

    def gateway_up(self, uid):
        self.gateway(uid, pod_status("Running", running("gateway"), conditions=[READY]))
        self.wait(0.1)

    def gateway_fails(self, uid):
        for number in range(1, 30):
            self.gateway(uid, pod_status("Failed", ended("gateway", 1)), number)
            self.wait(15)

    def report(self, uid, launch):
        super().report(uid, launch)
        if not self.is_refusing or launch.task != 1:
            return
        (path,) = (
            self.root / "runs" / uid / "gateway/launches" / f"{name}.json"
            for name in self.harnesses()
            if self.launch(name) == launch
        )
        uid_of_pod = self.cluster.objects(ObjectKind.POD)[path.stem]["metadata"]["uid"]
        relay = replace(RELAY, run_budget_exhausted=True)
        path.write_bytes(encode(LaunchReport(path.stem, uid_of_pod, closed=True, relay=relay)))

    def outcomes(self, uid):
        """Return outcome and reason of each attempt, in pack order."""
        records = sorted(self.records(uid), key=itemgetter("task_id"))
        pairs = ((each["outcome"], each.get("failure_reason")) for each in records)
        return [", ".join(filter(None, pair)) for pair in pairs]


@pytest.fixture
def world(tmp_path):
    with opened(CrossingWorld, tmp_path, overlays=CODEX_OVERLAYS) as world:
        yield world


def cut(world):
    """End a run by its budget: one attempt has a verdict, one is cut short, one never begins."""
    world.is_refusing = True
    uid = world.begin(budget={"tokens": LIMIT}, parallelism=1, runId="n")
    world.work(uid)
    assert world.condition()["reason"] == "BudgetExhausted"
    assert world.outcomes(uid) == ["scored", CUT, CUT]
    world.is_refusing = False


def regraded(world):
    cut(world)
    return world.next_run("again", regrade={"run": "nightly"})


def resumed(world):
    cut(world)
    uid = world.next_run("again", runId="n", resumeFrom={"run": "nightly"})
    world.gateway_up(uid)
    return uid


def spent(world):
    """Begin a run and use up its budget during its first attempt."""
    uid = world.begin(budget={"tokens": LIMIT}, parallelism=1)
    world.gateway_says(uid, LIMIT)
    return uid


def cancelled(world):
    uid = spent(world)
    world.edit(cancel="Immediate")
    return uid


def without_gateway(world):
    uid = spent(world)
    world.gateway_fails(uid)
    return uid


CROSSINGS = {
    regraded: ("Incomplete", None, ["scored", CUT, CUT]),
    resumed: ("Completed", LIMIT, ["scored"] * 3),
    cancelled: ("Cancelled", LIMIT, ["cancelled, cancelled", CUT, CUT]),
    without_gateway: ("GatewayFailed", LIMIT, ["cancelled, cancelled", CUT, CUT]),
}


@pytest.mark.parametrize("ending", CROSSINGS)
def test_how_a_run_ends(world, ending):
    uid = ending(world)
    world.work(uid)
    (name,) = (
        name
        for name, raw in world.cluster.objects(ObjectKind.BENCHMARK_RUN).items()
        if raw["metadata"]["uid"] == uid
    )
    want_reason, want_budget, want_outcomes = CROSSINGS[ending]
    assert world.condition(name=name)["reason"] == want_reason
    assert world.outcomes(uid) == want_outcomes
    assert world.run(name)["status"].get("usage", {}).get("budgetTokens") == want_budget
