"""Runs with attempts of every outcome, which are exported as job folders of Harbor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from securebench.analysis.command import export_to_harbor
from securebench.client.volume import ClusterTarget
from support.records import VALIDATOR
from support.result_folders import result_folder, result_line

Lines = list[dict[str, Any]]

USAGE = {"requests": 3, "input_tokens": 1200, "cached_tokens": 200, "output_tokens": 50}
REWARD_LABELS = {"grading": "reward-file-root"}
LOST = {
    "verifier": (
        "reward_missing",
        "reward_empty",
        "reward_invalid",
        "verifier_timeout",
        "verifier_error",
    ),
    "provider": ("provider_auth", "provider_quota", "provider_unavailable", "provider_usage"),
    "infrastructure": ("node_lost", "image_pull_failed"),
    "cancelled": ("cancelled",),
}
"""Reasons of the outcomes that are no score."""


def failure(reason: str, message: str = "it went wrong") -> dict[str, str]:
    """Return the fields of a record that say what decided other than the score."""
    return {"failure_reason": reason, "failure_phase": "producer", "failure_message": message}


def line(task: str, *, passed: bool | None = True, **changes: Any) -> dict[str, Any]:
    """Return a record of a model's agent that obeys the schema."""
    made = result_line(task, passed=passed, **changes)
    VALIDATOR.validate(made)
    return made


OUT_OF_TIME = {
    "timed_out": True,
    "timeout_seconds": 60.0,
    "command": ["agent"],
    "phase": "producer",
    "exit_code": 124,
}


def out_of_time(task: str) -> dict[str, Any]:
    """Return the record of an agent whose candidate was not taken after its time limit."""
    metadata = agent_metadata(**OUT_OF_TIME)
    metadata.pop("candidate_sha256", None)
    made = result_line(task, passed=False, outcome="agent", candidate_text=None)
    verifier = {"verifier_stdout", "verifier_stderr", "verifier_metadata"}
    kept = {name: value for name, value in made.items() if name not in verifier}
    found = {**kept, "producer_metadata": metadata, **failure("producer_timeout")}
    VALIDATOR.validate(found)
    return found


def agent_metadata(**changes: Any) -> dict[str, Any]:
    """Return the metadata of a harness with a model."""
    base = result_line("x")["producer_metadata"]
    named = {"harness": "claude_code", "claude_code_model": "m-1", "claude_code_version": "2.0"}
    found = {**base, **named, "exit_code": 0, "provider": "anthropic", "usage": USAGE}
    return {**found, "cli_version_resolved": "2.0.1", **changes}


def rewarded(task: str, rewards: Mapping[str, float], *, score: float, **changes: Any) -> Any:
    """Return a record of a script with a reward file."""
    base = result_line(task)
    metadata = {"verifier": "harbor_task", "threshold": 1.0, "rewards": dict(rewards)}
    return line(
        task,
        passed=score >= 1,
        **{
            "task_type": "harbor_task",
            "candidate_text": None,
            "score": score,
            "verifier_metadata": metadata,
            "verifier_stdout": "2 tests\n",
            "verifier_stderr": "",
            "labels": {**base["labels"], **REWARD_LABELS},
            "producer_metadata": agent_metadata(),
            **changes,
        },
    )


def every_outcome() -> Lines:
    """Return a run with each outcome and reason, tasks with several attempts among them."""
    scored = [
        line("plain", passed=True, producer_metadata=agent_metadata()),
        line("plain", attempt=2, passed=False, producer_metadata=agent_metadata(exit_code=1)),
        line("absent", passed=False, outcome="agent", **failure("candidate_missing")),
        out_of_time("late"),
        line("ended", passed=False, outcome="agent", **failure("harness_failed")),
        line("large", passed=False, outcome="resource", **failure("disk_limit_exceeded")),
        line("unverified", passed=None, outcome=None),
    ]
    lost = [
        line(f"{outcome}-{reason}", passed=None, outcome=outcome, **failure(reason))
        for outcome, reasons in LOST.items()
        for reason in reasons
    ]
    return scored + lost


def rewards() -> Lines:
    """Return a run of scripts: partial, several and odd rewards."""
    late = agent_metadata(**OUT_OF_TIME)
    return [
        rewarded("full", {"reward": 1}, score=1),
        rewarded("part", {"reward": 0.25}, score=0.25),
        rewarded("negative", {"reward": -3}, score=-3),
        rewarded("several", {"reward": 0.5, "style": 2}, score=0.5),
        rewarded("late", {"reward": 1.0}, score=1, producer_metadata=late),
        line("none", passed=None, outcome="verifier", **failure("reward_missing")),
        line("gone", passed=False, outcome="agent", **failure("candidate_missing")),
    ]


def repeated() -> Lines:
    """Return a run with eleven attempts of two tasks, some of them lost."""
    found = [
        rewarded(
            task, {"accuracy": float(number % 3 == 0)}, score=float(number % 3 == 0), attempt=number
        )
        for task in ("a", "b")
        for number in range(1, 11)
    ]
    lost = [
        line(task, attempt=11, passed=None, outcome="infrastructure", **failure("node_lost"))
        for task in ("a", "b")
    ]
    return found + lost


HOSTILE_IDS = (
    "../../etc/passwd",
    "/absolute",
    "..",
    "a/b",
    "A/B",
    "a_b",
    "-rf",
    "~root",
    "nul\0byte",
    "line\nend",
    "x" * 300,
    "\u202eevil",
    "\ud800",
    "<script>",
    "..\\..",
    " ",
)


def hostile() -> Lines:
    """Return a run with ids, texts and times that no reader may trust."""
    text = "\x1b[2J\u202e\ud800 </script>\0"
    lines = [result_line(task, producer_stdout=text, candidate_text=text) for task in HOSTILE_IDS]
    lines[0] |= {"outcome": "infrastructure", "passed": None, **failure("x", text), "score": "1"}
    lines[1] |= {"timing": {"started_at": "yesterday", "finished_at": 3}, "labels": deep(500)}
    lines[2] |= {"producer_metadata": {"harness": text, "usage": {"input_tokens": 10**300}}}
    lines[3] |= {"verifier_metadata": {"rewards": {text: "1", "reward": 10**400}}, "outcome": "odd"}
    lines[4] |= {"producer_metadata": [], "timing": [], "score": 10**400, "digests": "no"}
    return lines


def deep(levels: int) -> dict[str, Any]:
    """Return nested objects."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"x": found}
    return found


RUNS = {
    "every-outcome": every_outcome,
    "rewards": rewards,
    "repeated": repeated,
    "hostile": hostile,
}


def exported(scratch: Path) -> Iterator[tuple[str, Path]]:
    """Export all runs and yield each name with its job folder."""
    for name, lines in RUNS.items():
        records = [{**each, "run_id": name} for each in lines()]
        folder = result_folder(scratch / f"records-{name}", records)
        export_to_harbor(str(folder), scratch / "jobs", ClusterTarget(None, None))
        yield name, scratch / "jobs" / name
