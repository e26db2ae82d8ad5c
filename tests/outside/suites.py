"""A suite whose token budget is too small, and one that is stopped by a look; `make suites`.

Agents, gateways and verifiers are real, the provider is the fake of tests/outside, which writes
down every request. The exit code is 1 where something is not as it must be.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from outside import journal
from outside.model_wire import TOKENS
from securebench.names import CANCEL_REASON_ANNOTATION, SUITE_LABEL
from support.outside_release import BENCHMARKS, PROVIDER_SECRET, outside_release, pack_files
from support.release import Raw, Record, Release, condition, keyed_pack

METERED, WATCHED = "metered", "watched"
MODELS = ("script-oracle-small", "script-oracle-large")
PACK, TASKS, REQUESTS = "code-completion-smoke", 5, 3
"""The agent of each task sends so many requests."""
PARALLELISM = 2
BUDGET = 16 * TOKENS
"""Of both cells together, which would need twice as many requests, less two."""

QUESTIONS, LOOKS, SECONDS_EACH = 48, 4, 8
SECONDS = 420


class Check(NamedTuple):
    """One thing that must hold.

    Attributes:
        what: In words.
        seen: What was found.
        holds: Whether it is as it must be.
    """

    what: str
    seen: object
    holds: bool


def suite(name: str, spec: Raw) -> Raw:
    """Return a BenchmarkSuite."""
    kind = {"apiVersion": "securebench.dev/v1alpha1", "kind": "BenchmarkSuite"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def metered(pack: Raw) -> Raw:
    """Return the spec of the suite with a budget: two models that each need 15 requests."""
    harness = {"type": "codex", "config": {"model": MODELS[0]}}
    provider = {"secretRef": {"name": PROVIDER_SECRET}}
    models = [{"name": model.rpartition("-")[2], "model": model} for model in MODELS]
    return {
        "matrix": {
            "packs": [{"name": "code", "pack": pack}],
            "harnesses": [{"name": "codex", "harness": harness, "provider": provider}],
            "models": models,
        },
        "maxConcurrentRuns": 2,
        "budget": {"tokens": BUDGET},
        "template": {"taskSelector": {"limit": TASKS}, "parallelism": PARALLELISM},
    }


def watched(pack: Raw, command: str) -> Raw:
    """Return the spec of the suite that takes looks."""
    harness = {"type": "command", "config": {"command": command}}
    return {
        "matrix": {
            "packs": [{"name": "questions", "pack": pack}],
            "harnesses": [{"name": "shell", "harness": harness}],
        },
        "baseline": {"suite": WATCHED},
        "gates": {"notWorse": {"level": "0.05", "looks": LOOKS}},
        "template": {"parallelism": 6},
    }


def questions() -> dict[str, bytes]:
    """Return a pack of questions with one right choice."""
    rows = [
        {
            "id": f"q-{number:02}",
            "input": {"question": f"Which of these is {number}?", "choices": ["none", str(number)]},
            "eval": {"answer": 1},
        }
        for number in range(QUESTIONS)
    ]
    manifest = (
        "id: questions\nversion: 1\ndefaults:\n  family: multiple_choice\n"
        '  environment: {image: "python:3.11-slim", timeout_seconds: 60}\n'
    )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return {"manifest.yaml": manifest.encode(), "tasks.jsonl": lines.encode()}


def ready(installed: Release, name: str, kind: str = "Ready") -> Raw:
    """Return a condition of a suite."""
    return condition(installed.get("bsuite", name), kind)


def await_end(installed: Release, name: str, reason: str) -> None:
    """Wait until a suite says a reason."""
    path = '{.status.conditions[?(@.type=="Ready")].reason}'
    words = ("wait", f"bsuite/{name}", f"--for=jsonpath={path}={reason}", f"--timeout={SECONDS}s")
    installed.kubectl(*words, seconds=SECONDS + 20)


def runs(installed: Release, name: str) -> list[Raw]:
    """Return the runs of a suite, oldest first."""
    selector = f"{SUITE_LABEL}={name}"
    text = installed.kubectl("get", "brun", "-l", selector, "-o", "json")
    items: list[Any] = json.loads(text)["items"]
    return sorted(items, key=lambda each: str(each["metadata"]["creationTimestamp"]))


def outcomes(records: Sequence[Record]) -> Counter[str]:
    """Return how often records say what."""
    return Counter(str(record.get("failure_reason") or record["outcome"]) for record in records)


def budget_checks(installed: Release, since: float) -> Iterator[Check]:
    """Yield what the suite with a budget says, beside what the provider has seen."""
    asked = [
        line
        for model in MODELS
        for line in journal.entries("provider", f'"{model}"', since)
        if line["status"] == 200
    ]
    sent, status = len(asked) * TOKENS, installed.get("bsuite", METERED)["status"]
    said, made = ready(installed, METERED), runs(installed, METERED)
    most = BUDGET + len(made) * PARALLELISM * TOKENS
    yield Check("budget, tokens", BUDGET, holds=True)
    yield Check("tokens that the provider served", sent, BUDGET <= sent <= most)
    yield Check("beyond the budget, requests", (sent - BUDGET) / TOKENS, sent <= most)
    yield Check("status.budget", status["budget"], status["budget"]["usedTokens"] == sent)
    yield Check("Ready", (said["reason"], said["message"]), said["reason"] == "CellsFailed")
    reasons = {each["reason"] for each in status["results"]}
    yield Check("reasons of the cells", sorted(reasons), reasons == {"BudgetExhausted"})
    for run in made:
        name = run["metadata"]["name"]
        found = outcomes(installed.records(name))
        yield Check(f"records of {name}", dict(found), set(found) <= RIGHT)
        yield Check(f"Pods of {name}", *no_pods(installed, name))


RIGHT = {"scored", "run_budget_exhausted", "cancelled"}
"""A launch ended before the budget did, was refused a request, or never began."""


def look_checks(installed: Release) -> Iterator[Check]:
    """Yield what the suite says that a look has stopped."""
    gate, (result,) = (
        ready(installed, WATCHED, "GatesPassed"),
        installed.get("bsuite", WATCHED)["status"]["results"],
    )
    yield Check("GatesPassed", (gate["reason"], gate["message"]), gate["reason"] == "GatesFailed")
    yield Check("state of the cell", result["state"], result["state"] == "Stopped")
    run = installed.get("brun", result["run"])
    why = run["metadata"]["annotations"].get(CANCEL_REASON_ANNOTATION, "")
    yield Check("why its run was cancelled", why, why.startswith("gate notWorse"))
    records = installed.records(result["run"])
    found = outcomes(records)
    yield Check("records", dict(found), found["scored"] < QUESTIONS and len(records) == QUESTIONS)
    rest = QUESTIONS - found["scored"]
    yield Check(
        "cancelled records", rest, sum(r["outcome"] == "cancelled" for r in records) == rest
    )
    yield Check("Pods", *no_pods(installed, result["run"]))


def no_pods(installed: Release, run: str) -> tuple[object, bool]:
    """Return the Pods of a run that work, and whether there are none."""
    left = [
        pod["metadata"]["name"]
        for pod in installed.pods(run)
        if pod["status"]["phase"] in {"Pending", "Running"}
    ]
    return left, not left


def main() -> int:
    """Run both suites side by side and print what was found."""
    console, since = Console(width=160), time.time()
    with outside_release("sb-suites") as installed:
        code_map, code = keyed_pack("ConfigMap", "code", pack_files(BENCHMARKS / PACK))
        question_map, source = keyed_pack("ConfigMap", "questions", questions())
        installed.create(code_map, question_map)
        installed.create(suite(METERED, metered(code)), suite(WATCHED, watched(source, "echo B")))
        await_end(installed, WATCHED, "Completed")
        worse = {"spec": watched(source, f"sleep {SECONDS_EACH}; echo A")}
        change = json.dumps(worse)
        installed.kubectl("patch", "bsuite", WATCHED, "--type=merge", "--patch", change)
        begun = time.time()
        await_end(installed, METERED, "CellsFailed")
        await_end(installed, WATCHED, "GatesFailed")
        console.print(f"decided after {time.time() - begun:.0f} s")
        checks = [*budget_checks(installed, since), *look_checks(installed)]
        console.print(installed.kubectl("get", "bsuite,brun"))
    table = Table("what", "seen", "")
    for check in checks:
        table.add_row(check.what, str(check.seen), "ok" if check.holds else "[red]wrong[/]")
    console.print(table)
    return 0 if all(check.holds for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
