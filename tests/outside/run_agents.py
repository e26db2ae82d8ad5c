"""Real agents solve tasks of three packs; `make run-agents` prints the table.

The provider is the fake of tests/outside, which knows the reference answers; all else is real: the
tools in their overlay images, their shell calls, the sidecar, the gateway, the verifiers. The exit
code is 1 where an attempt did not pass, or where something about its egress is not as it must be.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from outside import journal
from outside.journal import Entry
from outside.model_wire import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS
from support.outside_release import begin_agent, key, outside_release
from support.release import DATA, Record, Release, condition


class Job(NamedTuple):
    """What an agent is to solve: so many tasks of a pack; no agent gets a task twice."""

    agent: str
    pack: str
    limit: int


JOBS = (
    Job("codex", "code-completion-smoke", 5),
    Job("codex", "real-bugs-mini", 2),
    Job("claude_code", "terminal-task-smoke", 5),
    Job("claude_code", "real-bugs-mini", 2),
    Job("mini_swe_agent", "code-completion-smoke", 5),
    Job("mini_swe_agent", "real-bugs-mini", 2),
    Job("opencode", "code-completion-smoke", 5),
    Job("opencode", "real-bugs-mini", 2),
)
MODEL = "script-oracle"
"""Each agent's name is appended: two of them have the same path and the same tasks."""
DOMAIN = "docs.allowed.test"
"""Allowed so that there is a proxy, which would tell what an agent asks besides its provider."""
STEPS = 3
"""Requests of a task: read it, write the answer, say that it is done."""
SECONDS = 900
COLUMNS = ("agent", "task", "outcome", "passed", "requests", "in", "cached", "out", "seconds")
USAGE = ("requests", "input_tokens", "cached_tokens", "output_tokens")
PATHS = {
    "codex": "/v1/responses",
    "claude_code": "/v1/messages?beta=true",
    "mini_swe_agent": "/v1/chat/completions",
    "opencode": "/v1/chat/completions",
}

FIND = """\
import pathlib, sys
key = sys.stdin.buffer.read()
files = [path for path in pathlib.Path(sys.argv[1]).rglob("*") if path.is_file()]
print("\\n".join(str(path) for path in files if key in path.read_bytes()))
"""


class Finished(NamedTuple):
    """A run that has ended."""

    agent: str
    name: str
    records: list[Record]
    asked: list[Entry]
    """What the provider wrote down of it."""


def begin(installed: Release, job: Job) -> str:
    """Start a run and return its name."""
    chosen = {"limit": job.limit}
    config = {"allowed_domains": [DOMAIN]}
    model = model_of(job.agent)
    return begin_agent(installed, job.pack, job.agent, model, taskSelector=chosen, config=config)


def model_of(agent: str) -> str:
    """Return the model of an agent's runs."""
    return f"{MODEL}-{agent.replace('_', '-')}"


def finish(installed: Release, agent: str, name: str, since: float) -> Finished:
    """Wait for the end of a run."""
    ended = condition(installed.wait_ended(name, SECONDS))
    assert ended["status"] == "True", f"{name}: {ended}"
    lines = journal.entries("provider", f'"{model_of(agent)}"', since)
    asked = [line for line in lines if line["path"] == PATHS[agent]]
    return Finished(agent, name, installed.records(name), asked)


def agent_of(job: Job) -> str:
    """Return the agent of a job."""
    return job.agent


def solve(installed: Release, jobs: Iterable[Job], since: float) -> list[Finished]:
    """Do the jobs of one agent side by side; all agents at once start too slowly on two cores."""
    begun = [(job.agent, begin(installed, job)) for job in jobs]
    return [finish(installed, agent, name, since) for agent, name in begun]


def row(agent: str, record: Record) -> list[str]:
    """Return the cells of one record."""
    metadata = record["producer_metadata"]
    usage = metadata.get("usage", {})
    passed = "[green]yes[/]" if record.get("passed") else f"[red]{why(record)}[/]"
    numbers = [str(usage.get(name, "?")) for name in USAGE]
    seconds = f"{metadata.get('duration_seconds') or 0:.1f}"
    return [agent, record["task_id"], str(record["outcome"]), passed, *numbers, seconds]


def why(record: Record) -> str:
    """Return why a record did not pass."""
    return str(record.get("failure_reason") or "no")


def problems(installed: Release, run: Finished) -> list[str]:
    """Return what is not as it must be."""
    found = [f"{each['task_id']}: {why(each)}" for each in run.records if not each.get("passed")]
    return [
        *found,
        *diff_problems(run.records),
        *usage_problems(run.records),
        *provider_problems(run),
        *key_problems(installed, run.name),
        *log_problems(installed, run),
    ]


def diff_problems(records: Sequence[Record]) -> list[str]:
    """Return the records of checkouts that do not say that git made their diff without a word."""
    told = {each["task_id"]: each["producer_metadata"] for each in records if is_patch(each)}
    return [
        f"{task}: git ended with {metadata.get('candidate_diff_exit_code')}:"
        f" {metadata.get('candidate_diff_stderr')}"
        for task, metadata in told.items()
        if (metadata.get("candidate_diff_exit_code"), metadata.get("candidate_diff_stderr"))
        != (0, "")
    ]


def is_patch(record: Record) -> bool:
    """Return whether what was graded is what an agent changed in a checkout."""
    return bool(record["task_type"] == "repo_patch")


def usage_problems(records: Sequence[Record]) -> list[str]:
    """Return the records whose usage is not what the provider's answers say."""
    each = (STEPS, STEPS * INPUT_TOKENS, STEPS * CACHED_TOKENS, STEPS * OUTPUT_TOKENS)
    want = dict(zip(USAGE, each, strict=True))
    return [
        f"{record['task_id']}: usage {record['producer_metadata'].get('usage')}, not {want}"
        for record in records
        if record["producer_metadata"].get("usage") != want
    ]


def provider_problems(run: Finished) -> list[str]:
    """Return what the provider saw that it should not have seen, or did not see."""
    found = [f"the key was {each['key']}" for each in run.asked if each["key"] != "equal"]
    found += [
        f"hosted tools: {each['tools']}" for each in run.asked if "web_search" in each["tools"]
    ]
    for record in run.records:
        steps = sorted(each["step"] for each in run.asked if each["task"] == record["task_id"])
        if steps != list(range(1, STEPS)):  # before the first tool result the task is not known
            found.append(f"{record['task_id']}: its tool results came with the steps {steps}")
    return found


def key_problems(installed: Release, name: str) -> list[str]:
    """Return where the provider's key lies although it must not."""
    pods = json.dumps(installed.pods(name))
    found = [f"{name}: the key stands in a Pod's manifest"] if key() in pods else []
    uid = installed.uid(name)
    words = ("python3", "-I", "-c", FIND, f"{DATA}/runs/{uid}")
    files = installed.operator(*words, stdin=key().encode()).decode().split()
    return found + [f"{name}: the key stands in {file}" for file in files]


def log_problems(installed: Release, run: Finished) -> list[str]:
    """Return what the run's egress.jsonl has besides the requests of its tasks, or lacks."""
    lines = installed.file(run.name, "egress.jsonl").splitlines()
    told: list[Any] = [json.loads(line) for line in lines]
    served = [each for each in told if (each["route"], each["verdict"]) == ("provider", "allowed")]
    found = [
        f"{run.name}: asked {each['host']}:{each['port']} by {each['route']}: {each['verdict']}"
        for each in told
        if each not in served
    ]
    if len(served) != STEPS * len(run.records):
        found.append(f"{run.name}: egress.jsonl has {len(served)} requests to the provider")
    return found


def main(chosen: Sequence[str]) -> int:
    """Do the jobs, print the table and return the exit code.

    Args:
        chosen: Agents; empty: all.
    """
    console = Console(width=140)
    since = time.time()
    jobs = [job for job in JOBS if not chosen or job.agent in chosen]
    with outside_release("sb-agents") as installed:
        runs = [run for _, own in groupby(jobs, agent_of) for run in solve(installed, own, since)]
        found = [problem for run in runs for problem in problems(installed, run)]
    table = Table(*COLUMNS)
    for run in runs:
        for record in run.records:
            table.add_row(*row(run.agent, record))
    console.print(table)
    for problem in found:
        console.print(problem, markup=False, highlight=False)
    records = [record for run in runs for record in run.records]
    passed = sum(record.get("passed") is True for record in records)
    console.print(f"agents: {passed} of {len(records)} passed, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
