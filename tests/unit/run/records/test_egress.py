"""What records, summary and logs say of a run with egress."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import securebench.schemas as schemas_folder
from securebench.controller.volume import gateway_reports
from securebench.controller.volume.gateway_reports import merge_logs
from securebench.controller.volume.store import RunStore
from securebench.gateway.account import MODELS
from securebench.protocol.volume import EGRESS
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AgentPlan, EgressPlan
from securebench.run.records.labels import IsolationLabel
from securebench.run.records.record import RecordContext, RecordTexts, candidate_record
from securebench.run.records.summary import run_summary
from securebench.run.state.attempts import CommandReport, DiffReport, Finish, Usage
from support.build import (
    DOMAINS,
    KEY,
    NOW,
    OPENAI,
    egress_report,
    history_of,
    production,
    relayed,
    verification,
)
from support.manifest_samples import RUN_UID, run_plan, text_task
from support.places import gateway_place

SCHEMA = json.loads(
    (Path(next(iter(schemas_folder.__path__))) / "record.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)
CONTEXT = RecordContext(IsolationLabel.VERIFIED, finished_at=NOW + 9, platform="linux-arm64")
FINISH = Finish(KEY, Outcome.SCORED, passed=True)
OUTAGE = Finish(KEY, Outcome.PROVIDER, "provider_auth", "producer", "openai refused the key")
AGENT = AgentPlan(
    overlay="overlay-claude-code:2",
    overlay_path="/opt/securebench/claude-code",
    home="/opt/securebench/claude-home",
    version="2.1.330",
    environment={},
    preflight=("claude", "--version"),
)
VERDICT = {"verifier": "short_answer"}
USAGE = Usage(7, 2000, 300, 90)


def plan(egress, task=None, **harness):
    known = run_plan(task or text_task(), egress=egress)
    return replace(known, harness=replace(known.harness, **harness))


def agent_plan(egress=OPENAI, task=None, **changes):
    config = {"version": "latest", "model": "opus", "allowed_domains": []}
    known = {"type": "claude_code", "agent": AGENT, "config": config}
    return plan(egress, task, **(known | changes))


def record(of, finish=FINISH, **changes):
    known = {"production": production(egress=relayed()), "usage": USAGE, "launches": 1}
    known |= {"verification": verification(metadata=VERDICT)} if finish is FINISH else {}
    history = history_of(**(known | changes))
    (task,) = of.tasks.values()
    made = candidate_record(of, task, history, finish, RecordTexts(candidate="Bath"), CONTEXT)
    VALIDATOR.validate(made)
    return made


# Labels

BOTH = replace(OPENAI, domains=DOMAINS.domains)
TOOLS = replace(OPENAI, provider=replace(OPENAI.provider, allow_external_tools=True))
LABELS = {
    "no network": (plan(None), "none", "none", False, None),
    "tunnels": (plan(DOMAINS), "egress", "none", False, False),
    "a provider": (agent_plan(), "egress", "brokered", False, True),
    "a provider and tunnels": (agent_plan(BOTH), "egress", "brokered", False, False),
    "hosted tools": (agent_plan(TOOLS), "egress", "brokered", True, True),
    "a forwarded value": (
        agent_plan(env=("TOKEN",), secret="values"),
        "egress",
        "exposed",
        False,
        True,
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_a_way_out(name):
    of, network, credentials, tools, confidential = LABELS[name]
    made = record(of)
    labels = made["labels"]
    assert (labels["network"], labels["credentials"]) == (network, credentials)
    assert labels["external_tools"] is tools
    assert labels.get("network_confidential") is confidential
    metadata = made["producer_metadata"]
    assert (metadata["network"], metadata["credentials"]) == (network, credentials)


# Metadata


def test_metadata_of_an_agent():
    metadata = record(agent_plan(BOTH))["producer_metadata"]
    want = {
        "harness": "claude_code",
        "allowed_domains": ["api.openai.com", "docs.example.org"],
        "claude_code_version": "latest",
        "claude_code_model": "opus",
        "cli_version_resolved": "2.1.330",
        "overlay_platform": "linux-arm64",
        "overlay_cache_path": "claude-code/2.1.330/linux-arm64",
        "benchmark_environment_image": "python:3.11-slim",
        "provider": "openai",
        "provider_relay_enabled": True,
        "allow_external_tools": False,
        "provider_relay_requests": 4,
        "provider_relay_blocked": 0,
        "provider_relay_stripped_tools": [],
        "provider_models": [],
        "egress_requests": 0,
        "egress_blocked": 0,
        "usage": {
            "requests": 7,
            "input_tokens": 2000,
            "cached_tokens": 300,
            "output_tokens": 90,
        },
    }
    assert {name: metadata.get(name) for name in want} == want
    assert "repo_patch_baseline" not in metadata


def test_a_listed_provider_stands_there_once():
    listed = EgressPlan(("docs.example.org", "api.openai.com"), OPENAI.provider)
    metadata = record(agent_plan(listed))["producer_metadata"]
    assert metadata["allowed_domains"] == ["api.openai.com", "docs.example.org"]


def test_metadata_of_tunnels():
    made = production(egress=egress_report(requests=5, blocked=2))
    metadata = record(plan(DOMAINS), production=made)["producer_metadata"]
    assert metadata["allowed_domains"] == ["docs.example.org"]
    assert (metadata["egress_requests"], metadata["egress_blocked"]) == (5, 2)
    assert not [name for name in metadata if "provider" in name or name == "usage"]


def test_a_run_without_a_way_out_says_nothing_of_one():
    metadata = record(plan(None), production=production())["producer_metadata"]
    assert metadata["allowed_domains"] == []
    assert not [name for name in metadata if name.startswith(("egress", "provider", "overlay"))]


def test_what_was_stripped_is_named():
    made = production(egress=relayed(stripped_tools=("web_search",), blocked=3))
    metadata = record(agent_plan(), production=made)["producer_metadata"]
    assert metadata["provider_relay_stripped_tools"] == ["web_search"]
    assert metadata["provider_relay_blocked"] == 3


def test_the_models_that_were_asked_are_named():
    made = record(agent_plan(), production=production(egress=relayed(models=("haiku", "opus"))))
    metadata = made["producer_metadata"]
    assert metadata["claude_code_model"] == "opus"
    assert metadata["provider_models"] == ["haiku", "opus"]


OTHER_MODELS = {
    "twice": ["a", "a"],
    "no plain word": ["a b"],
    "empty": [""],
    "long": ["m" * 65],
    "a number": [1],
    "no list": "a",
    "many": [f"m-{number}" for number in range(MODELS + 1)],
}


@pytest.mark.parametrize("models", OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_other_models_are_no_record(models):
    made = record(agent_plan())
    made["producer_metadata"]["provider_models"] = models
    assert not VALIDATOR.is_valid(made)


def test_an_outage_keeps_what_the_last_launch_left():
    made = record(agent_plan(), OUTAGE)
    assert (made["outcome"], made["verification_status"]) == ("provider", "pending")
    assert (made["failure_reason"], made["failure_phase"]) == ("provider_auth", "producer")
    assert "score" not in made
    assert made["producer_metadata"]["exit_code"] == 0


def test_an_attempt_whose_launches_were_all_lost_has_its_usage():
    lost = Finish(KEY, Outcome.INFRASTRUCTURE, "egress_report_missing", "producer", "no report")
    metadata = record(agent_plan(), lost, production=None)["producer_metadata"]
    assert metadata["usage"]["requests"] == 7
    assert "provider_relay_requests" not in metadata


def test_the_command_of_an_agent_that_ran_out_of_time_is_the_tasks():
    task = text_task(command=("claude", "-p", "Read task.json"))
    report = CommandReport(timed_out=True, phase="harness")
    made = production(command=report, egress=relayed())
    finish = Finish(KEY, Outcome.AGENT, "producer_timeout", "producer", "too slow", passed=False)
    metadata = record(agent_plan(task=task), finish, production=made)["producer_metadata"]
    assert metadata["command"] == ["claude", "-p", "Read task.json"]


@pytest.mark.parametrize("baseline", ["committed", "clean", ""])
def test_the_baseline_of_a_repository_is_shown(baseline):
    report = CommandReport(diff=DiffReport(0, "", baseline))
    made = production(command=report, egress=relayed())
    metadata = record(agent_plan(), production=made)["producer_metadata"]
    assert metadata.get("repo_patch_baseline", "") == baseline


# Summary


def test_the_summary_has_the_usage_of_the_run():
    body = run_summary("r", [], USAGE).to_json("/out", "/out/candidates.jsonl")
    assert body["usage"] == {
        "requests": 7,
        "input_tokens": 2000,
        "cached_tokens": 300,
        "output_tokens": 90,
    }
    assert "usage" not in run_summary("r", []).to_json("/out", "/out/candidates.jsonl")


# egress.jsonl


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path, RUN_UID)
    (gateway_place(store) / "launches").mkdir(parents=True)
    return store


def leave(store, name, *lines):
    path = gateway_place(store) / "launches" / f"sb-3f2a9c1e5b7d-{name}.jsonl"
    path.write_bytes(b"".join(lines))


def merged(store, *tasks):
    merge_logs(store, run_plan(*(tasks or (text_task(),)), egress=DOMAINS))
    path = store.folder / EGRESS
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else None


def line(host):
    return json.dumps({"host": host}).encode() + b"\n"


def test_logs_are_merged_in_the_order_of_the_pack(store):
    tasks = [text_task(index=index) for index in (0, 2, 10)]
    leave(store, "10-1h1", line("ten"))
    leave(store, "2-1h2", line("two, again"))
    leave(store, "2-1h1", line("two"), line("two"))
    leave(store, "0-2h1", line("zero"))
    found = merged(store, *tasks)
    assert [(item["task"], item["attempt"], item["launch"], item["host"]) for item in found] == [
        (0, 2, 1, "zero"),
        (2, 1, 1, "two"),
        (2, 1, 1, "two"),
        (2, 1, 2, "two, again"),
        (10, 1, 1, "ten"),
    ]
    assert {item["task_id"] for item in found} == {tasks[0].task.id}


def test_a_cut_line_and_a_foreign_file_are_left_out(store):
    leave(store, "0-1h1", line("a"), b'{"host": "b', b"\n", b"[]\n", b'{"host":"c"')
    leave(store, "0-1v1", line("verifier"))
    leave(store, "7-1h1", line("unknown task"))
    assert [item["host"] for item in merged(store)] == ["a"]


def test_a_place_cannot_be_forged_by_a_line(store):
    leave(store, "0-1h1", b'{"task": 5, "task_id": "other"}\n', b'{"task": 0, "task": 5}\n')
    (found,) = merged(store)
    assert (found["task"], found["task_id"]) == (0, text_task().task.id)


def test_a_file_has_a_bound(store, monkeypatch):
    monkeypatch.setattr(gateway_reports, "MAX_EGRESS_BYTES", 300)
    leave(store, "0-1h1", *(line("docs.example.org") for _ in range(10)))
    found = merged(store)
    assert found[-1] == {"dropped_lines": 10 - (len(found) - 1)}
    assert 1 < len(found) < 10


def test_a_run_without_logs_has_no_file(store):
    assert merged(store) is None


def test_merging_again_gives_the_same(store):
    leave(store, "0-1h1", line("a"))
    assert merged(store) == merged(store)
