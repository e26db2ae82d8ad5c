"""Whole runs with a token budget, on an operator in memory."""

import json
from dataclasses import replace
from unittest import mock

import pytest

from securebench.controller.publish import Publisher
from securebench.protocol.gateway import RunUsage, encode
from support.agent_world import CODEX, CODEX_OVERLAYS, RELAY, AgentWorld
from support.operator_world import opened

LIMIT = 150
ASKED = RELAY.input_tokens + RELAY.output_tokens
"""Tokens that one launch asked for, in the gateway's report on it."""


class BudgetWorld(AgentWorld):
    relay = RELAY

    def gateway_says(self, uid, used):
        folder = self.root / "runs" / uid / "gateway"
        text = used if isinstance(used, bytes) else encode(RunUsage(used, LIMIT))
        (folder / "usage.json").write_bytes(text)
        self.wait(2)

    def records(self, uid):
        lines = (self.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def harnesses(self):
        return [name for name in self.pods() if "gateway" not in name]

    def told(self):
        condition = self.condition()
        return condition["status"], condition["reason"], condition["message"]


@pytest.fixture
def world(tmp_path):
    settings = {"harness": CODEX, "key": "OPENAI_API_KEY", "overlays": CODEX_OVERLAYS}
    with opened(BudgetWorld, tmp_path, **settings) as world:
        yield world


def usage(world):
    seen = world.run()["status"]["usage"]
    return seen.get("budgetUsedTokens"), seen.get("budgetTokens")


def test_a_run_within_its_budget_is_complete(world):
    uid = world.begin(budget={"tokens": LIMIT}, taskSelector={"limit": 1})
    world.gateway_says(uid, LIMIT - 1)
    world.work(uid)
    assert world.told()[:2] == ("True", "Completed")
    assert usage(world) == (LIMIT - 1, LIMIT)


def test_a_run_ends_when_its_budget_is_used_up(world):
    uid = world.begin(budget={"tokens": LIMIT}, parallelism=1)
    world.gateway_says(uid, LIMIT + 20)
    world.work(uid)
    want = f"the budget of the run, {LIMIT} tokens, is used up: {LIMIT + 20} tokens were used"
    assert world.told() == ("False", "BudgetExhausted", want)
    assert usage(world) == (LIMIT + 20, LIMIT)
    first, *others = world.records(uid)
    assert first["outcome"] == "scored"
    assert {(each["outcome"], each["failure_reason"]) for each in others} == {
        ("cancelled", "run_budget_exhausted")
    }


def test_an_attempt_that_the_gateway_refused_has_no_verdict(world, monkeypatch):
    cut = replace(RELAY, run_budget_exhausted=True)
    monkeypatch.setattr("support.agent_world.RELAY", cut)
    uid = world.begin(budget={"tokens": LIMIT}, parallelism=1)
    world.work(uid)
    assert world.told()[:2] == ("False", "BudgetExhausted")
    assert world.told()[2].endswith(f": {ASKED} tokens were used")
    assert usage(world) == (ASKED, LIMIT)
    records = world.records(uid)
    assert {each["failure_reason"] for each in records} == {"run_budget_exhausted"}
    assert not any("passed" in each for each in records)


def test_a_restarted_operator_starts_nothing_beyond_the_budget(world):
    uid = world.begin(budget={"tokens": LIMIT}, parallelism=1)
    (first,) = world.harnesses()
    world.restart()
    world.gateway_says(uid, LIMIT)
    world.edit(parallelism=2)
    world.wait(5)
    assert world.harnesses() == [first]
    world.work(uid)
    assert world.told()[:2] == ("False", "BudgetExhausted")


@pytest.mark.parametrize("text", [b"{", b'{"tokens": -5, "limit": 1}', b" " * 20_000])
def test_a_file_without_sense_says_nothing(world, text):
    uid = world.begin(budget={"tokens": LIMIT}, taskSelector={"limit": 1})
    world.gateway_says(uid, text)
    world.work(uid)
    assert world.told()[:2] == ("True", "Completed")
    assert usage(world) == (ASKED, LIMIT)


def test_an_end_that_could_not_be_published_has_what_was_used(world):
    uid = world.begin(budget={"tokens": LIMIT}, taskSelector={"limit": 1})
    with mock.patch.object(Publisher, "ended", side_effect=OSError(5, "Input/output error")):
        world.gateway_says(uid, LIMIT - 1)
        world.work(uid)
        assert world.told()[:2] == ("Unknown", "StorageUnavailable")
        world.restart()
    world.observe(None)
    assert world.told()[:2] == ("True", "Completed")
    assert usage(world) == (LIMIT - 1, LIMIT)


def test_a_budget_without_a_provider_is_refused(world):
    world.apply(budget={"tokens": LIMIT})
    world.wait(5)
    status, reason, message = world.told()
    assert (status, reason) == ("False", "InvalidSpec")
    assert message.startswith("spec.budget: the harness has no model provider")
