"""A run as a job folder of Harbor, for its viewer and its summaries: a trial for each attempt.

An attempt that was lost has no reward: its trial has an exception, whose policy says that nothing
of it counts, so that no reader takes it for a reward of 0. A score of 0 without a script, where the
agent handed nothing in, is a reward of 0 with an exception that says why.

Texts of agents are spelled out as in reports. No path contains more of an id than plain characters.

Source: the classes of the package harbor 0.26.0 (``make harbor-differential`` reads what is
written here with them).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from math import isfinite, prod
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from securebench.analysis.export import attempt_cost
from securebench.analysis.results import Entry, ResultSet, visible
from securebench.client.result_folder import read_records
from securebench.json_values import as_number, object_at, object_in, text_at, text_in
from securebench.names import kubernetes_name, logical_name
from securebench.protocol.candidate import STREAMS
from securebench.reasons import (
    HARNESS_FAILED,
    PRODUCER_TIMEOUT,
    PROVIDER_AUTH,
    PROVIDER_QUOTA,
    PROVIDER_UNAVAILABLE,
    REWARD_AMBIGUOUS,
    REWARD_EMPTY,
    REWARD_INVALID,
    REWARD_MISSING,
    VERIFIER_TIMEOUT,
)
from securebench.run.api.field_types import Outcome
from securebench.run.records.reading import Record, RecordKey, record_key
from securebench.stats.cost import DOLLAR

Fields = Mapping[str, object]
Json = dict[str, object]

_NAMESPACE: Final = UUID("5d0f7c52-7e3b-5a53-9f2c-0d9a4c1b7e60")
"""Of the ids of jobs and trials: the same attempt has the same id in every export."""

_AGENT_TIMEOUT: Final = "AgentTimeoutError"
_AGENT_EXIT: Final = "NonZeroAgentExitCodeError"
_BY_REASON: Final[Fields] = {
    PRODUCER_TIMEOUT: _AGENT_TIMEOUT,
    HARNESS_FAILED: _AGENT_EXIT,
    VERIFIER_TIMEOUT: "VerifierTimeoutError",
    REWARD_MISSING: "RewardFileNotFoundError",
    REWARD_EMPTY: "RewardFileEmptyError",
    REWARD_INVALID: "VerifierOutputParseError",
    REWARD_AMBIGUOUS: "VerifierOutputParseError",
    PROVIDER_AUTH: "AgentAuthenticationError",
    PROVIDER_QUOTA: "ApiUsageLimitError",
    PROVIDER_UNAVAILABLE: "ApiInternalServerError",
}
"""Exceptions of Harbor that mean the same as a ``failure_reason``."""
_BY_OUTCOME: Final[Fields] = {
    Outcome.AGENT: "SecureBenchAgentError",
    Outcome.RESOURCE: "SecureBenchResourceError",
    Outcome.VERIFIER: "SecureBenchVerifierError",
    Outcome.PROVIDER: "SecureBenchProviderError",
    Outcome.INFRASTRUCTURE: "SecureBenchInfrastructureError",
    Outcome.CANCELLED: "CancelledError",
}
"""Of other reasons; the last is the one by which Harbor counts cancelled trials."""
_REPEATED: Final = (Outcome.INFRASTRUCTURE, Outcome.PROVIDER)
_UNGRADED: Final = (*_REPEATED, Outcome.CANCELLED)

_NAME_CHARACTERS: Final = 32
"""Harbor's own trials have as much of a task's name in theirs."""
_DIGEST_CHARACTERS: Final = 7
_MOST_NESTED: Final = 32
"""Depth of what is copied from a record; Harbor's parser refuses some 200 levels."""

_LEFT_OUT: Final = frozenset(
    (
        *(f"{side}_{stream}" for side in ("producer", "verifier") for stream in STREAMS),
        *("candidate_text", "candidate_patch", "resource_summary", "hidden_values"),
    )
)
"""Fields of a record that are files of a trial, or of no use without the pack."""


class TrialFigures(NamedTuple):
    """What the statistics of a job need of a trial.

    Args:
        name: Of its folder.
        task_name: Of its task.
        group: Agent, model and data set, as Harbor keys its statistics.
        agent: Its configuration.
        rewards: All that count; None without a valid reward.
        exception: Type of its exception; empty without one.
        usage: Tokens and cost, as the agent's result names them.
        started: When its first launch began, as text; empty if unknown.
        finished: When it ended.
    """

    name: str
    task_name: str
    group: str
    agent: Fields
    rewards: Mapping[str, float] | None
    exception: str
    usage: Mapping[str, float]
    started: str
    finished: str


class _Job(NamedTuple):
    """What all trials share.

    Args:
        results: The run.
        folder: Absolute path that the job folder will have.
        id: Of the job.
        now: Stands for times that no record has.
    """

    results: ResultSet
    folder: Path
    id: UUID
    now: datetime


def job_name(results: ResultSet) -> str:
    """Return the name of a run's job folder: its run id, if that is a DNS label."""
    return kubernetes_name(results.run_id)


def trial_name(key: RecordKey, taken: set[str]) -> str:
    """Return the name of an attempt's folder, and take it.

    Args:
        key: The attempt.
        taken: Names of other attempts, in lower case.
    """
    readable = logical_name(key.task_id)[:_NAME_CHARACTERS].strip("._-") or "task"
    digest = sha256(json.dumps(key).encode()).hexdigest()
    name = f"{readable}__{digest[:_DIGEST_CHARACTERS]}"
    if name.lower() in taken:
        name = f"{readable}__{digest}"
    taken.add(name.lower())
    return name


def write_job(results: ResultSet, draft: Path, folder: Path, now: datetime) -> int:
    """Write the job folder of a run and return its number of trials.

    Args:
        results: The run.
        draft: The folder, which is empty.
        folder: Absolute path that it will have.
        now: Stands for times that no record has.
    """
    shared = _Job(results, folder, _job_id(results), now)
    taken: set[str] = set()
    trials = []
    entries = {RecordKey(entry.task_id, entry.attempt): entry for entry in results.entries}
    for record in read_records(results.path):
        key = record_key(record)
        if key in entries:
            attempt = _Attempt(shared, record, entries[key], trial_name(key, taken))
            attempt.write(draft / attempt.name)
            trials.append(attempt.trial())
    _write_json(draft / "config.json", _job_config(shared, trials))
    _write_json(draft / "result.json", _job_result(shared, trials))
    return len(trials)


def _job_id(results: ResultSet) -> UUID:
    digests = results.provenance.digests
    made_of = {name: sorted(digests.get(name, ())) for name in ("pack", "harness")}
    ordinals = [record.get("run_ordinal") for record in islice(read_records(results.path), 1)]
    known = {"run": results.run_id, "benchmark": results.benchmark_id, "ordinal": ordinals}
    return uuid5(_NAMESPACE, json.dumps({**known, **made_of}, sort_keys=True))


class _Attempt:
    """One attempt as a trial."""

    def __init__(self, job: _Job, record: Record, entry: Entry, name: str) -> None:
        self.name = name
        self._job, self._record, self._entry = job, record, entry
        self._producer = object_at(record, "producer_metadata")
        timing = object_at(record, "timing")
        self._started, self._finished = (
            _time(timing.get(end)) for end in ("started_at", "finished_at")
        )
        self._source = visible(job.results.benchmark_id)
        self._harness = text_at(self._producer, "harness")
        self._agent_name = visible(self._harness).replace("_", "-") or "unknown"
        self._model = visible(text_at(self._producer, f"{self._harness}_model"))
        self._provider = visible(text_at(self._producer, "provider"))

    @property
    def _task_name(self) -> str:
        known = self._entry.task_id
        shown = visible(known)
        return shown if shown == known else f"{shown} {logical_name(known)}"

    def trial(self) -> TrialFigures:
        """Return what the job's statistics need."""
        exception = self._exception()
        parts = [self._agent_name, *filter(None, [self._model]), self._source or "adhoc"]
        return TrialFigures(
            name=self.name,
            task_name=self._task_name,
            group="__".join(parts),
            agent=self._agent(),
            rewards=self._rewards(),
            exception="" if exception is None else text_in(exception["exception_type"]),
            usage=self._usage(),
            started=self._started or "",
            finished=self._finished or "",
        )

    def write(self, folder: Path) -> None:
        """Write the folder of the trial, which is not there."""
        folder.mkdir()
        config, exception, rewards = self._config(), self._exception(), self._rewards()
        _write_json(folder / "config.json", config)
        _write_json(folder / "result.json", self._result(config, exception, rewards))
        if exception is not None:
            said = f"{exception['exception_type']}: {exception['exception_message']}\n"
            _write_text(folder / "exception.txt", said)
        for stream in STREAMS:
            self._copy(f"producer_{stream}", folder / "agent/command-0" / f"{stream}.txt")
            self._copy(f"verifier_{stream}", folder / "verifier" / f"test-{stream}.txt")
        self._copy("candidate_text", folder / "artifacts/candidate.txt")
        self._copy("candidate_patch", folder / "artifacts/candidate.patch")
        if rewards is not None:
            _write_json(folder / "verifier/reward.json", rewards)

    def _copy(self, field: str, path: Path) -> None:
        if text := text_at(self._record, field):
            _write_text(path, visible(text))

    def _config(self) -> Json:
        verifier = {} if self._entry.outcome else {"verifier": {"disable": True}}
        return {
            "task": {"path": self._task_path, "source": self._source},
            "trial_name": self.name,
            "trials_dir": str(self._job.folder),
            "agent": self._agent(),
            "environment": {"import_path": "securebench"},
            **verifier,
            "job_id": str(self._job.id),
        }

    @property
    def _task_path(self) -> str:
        pack, task = self._job.results.benchmark_id, self._entry.task_id
        return f"{logical_name(pack)}/{logical_name(task)}"

    def _agent(self) -> Json:
        model = f"{self._provider}/{self._model}" if self._provider else self._model
        return {"name": self._agent_name, **({"model_name": model} if self._model else {})}

    def _result(self, config: Json, exception: Json | None, rewards: Fields | None) -> Json:
        optional: Json = {
            "verifier_result": None if rewards is None else {"rewards": rewards},
            "exception_info": exception,
            "started_at": self._started,
            "finished_at": self._finished,
        }
        return {
            "id": str(uuid5(self._job.id, json.dumps(record_key(self._record)))),
            "task_name": self._task_name,
            "trial_name": self.name,
            "trial_uri": (self._job.folder / self.name).as_uri(),
            "task_id": {"path": self._task_path},
            "source": self._source,
            "task_checksum": self._task_digest,
            "config": config,
            "agent_info": self._agent_info(),
            "agent_result": {**self._usage(), "metadata": self._metadata()},
            **{name: value for name, value in optional.items() if value is not None},
        }

    @property
    def _task_digest(self) -> str:
        digest = text_at(object_at(self._record, "verifier_metadata"), "task_digest")
        return visible(digest or self._entry.row)

    def _agent_info(self) -> Json:
        version = self._producer.get("cli_version_resolved") or self._producer.get(
            f"{self._harness}_version"
        )
        info: Json = {"name": self._agent_name, "version": visible(text_in(version)) or "unknown"}
        if self._model:
            provider = {"provider": self._provider} if self._provider else {}
            info["model_info"] = {"name": self._model, **provider}
        return info

    def _usage(self) -> dict[str, float]:
        tokens = self._entry.tokens
        if tokens is None:
            return {}
        used: dict[str, float] = {
            "n_input_tokens": tokens.input,
            "n_cache_tokens": tokens.cached,
            "n_output_tokens": tokens.output,
        }
        micro_dollars = attempt_cost(self._job.results, self._entry)
        return used if micro_dollars is None else {**used, "cost_usd": micro_dollars / DOLLAR}

    def _metadata(self) -> Json:
        """Return what a record has beyond Harbor's fields, but for its long texts."""
        kept = {name: each for name, each in self._record.items() if name not in _LEFT_OUT}
        return {"securebench": _shown(kept)}

    def _rewards(self) -> dict[str, float] | None:
        """Return the rewards of a script, else the score; None where no score is known."""
        score = self._entry.score
        if self._entry.passed is None or score is None or not isfinite(score):
            return None
        if self._entry.outcome != Outcome.SCORED:
            return {"reward": score}
        left = object_at(object_at(self._record, "verifier_metadata"), "rewards")
        numbers = {visible(name): as_number(value) for name, value in left.items()}
        found = {
            name: value for name, value in numbers.items() if value is not None and isfinite(value)
        }
        return found or {"reward": score}

    def _exception(self) -> Json | None:
        kind = self._exception_type()
        if not kind:
            return None
        outcome, entry = self._entry.outcome, self._entry
        said = text_at(self._record, "failure_message") or entry.details
        reason = entry.reason if outcome != Outcome.SCORED else ""
        return {
            "exception_type": kind,
            "exception_message": visible(": ".join(filter(None, [outcome, reason, said]))),
            "exception_traceback": "",
            "occurred_at": self._finished or self._job.now.isoformat(),
            "policy_override": {
                "should_retry": outcome in _REPEATED,
                "should_grade": outcome not in _UNGRADED,
                "has_valid_reward": self._rewards() is not None,
            },
        }

    def _exception_type(self) -> str:
        outcome = self._entry.outcome
        if not outcome:
            return ""
        if outcome != Outcome.SCORED:
            by_outcome = text_in(_BY_OUTCOME.get(outcome)) or "SecureBenchError"
            return text_in(_BY_REASON.get(self._entry.reason)) or by_outcome
        if self._producer.get("timed_out") is True:
            return _AGENT_TIMEOUT
        return _AGENT_EXIT if self._producer.get("exit_code") not in {0, None} else ""


def _job_config(job: _Job, trials: Sequence[TrialFigures]) -> Json:
    agents = {json.dumps(trial.agent): trial.agent for trial in trials}
    return {
        "job_name": job.folder.name,
        "jobs_dir": str(job.folder.parent),
        "n_attempts": max((1, *(entry.attempt for entry in job.results.entries))),
        "environment": {"import_path": "securebench"},
        "agents": list(agents.values()),
        "datasets": [{"path": logical_name(job.results.benchmark_id)}],
    }


def _job_result(job: _Job, trials: Sequence[TrialFigures]) -> Json:
    started = min(filter(None, (trial.started for trial in trials)), default=job.now.isoformat())
    finished = max(filter(None, (trial.finished for trial in trials)), default=started)
    return {
        "id": str(job.id),
        "started_at": started,
        "updated_at": finished,
        **({"finished_at": finished} if job.results.has_ended else {}),
        "n_total_trials": len(trials),
        "stats": {
            "n_completed_trials": len(trials),
            "n_errored_trials": sum(bool(trial.exception) for trial in trials),
            "n_running_trials": 0,
            "n_pending_trials": 0,
            "n_cancelled_trials": sum(
                trial.exception == _BY_OUTCOME[Outcome.CANCELLED] for trial in trials
            ),
            "n_retries": sum(job.results.lost_launches.values()),
            **_sums(trials),
            "evals": {group: _statistics(members) for group, members in _groups(trials).items()},
        },
    }


def _groups(trials: Iterable[TrialFigures]) -> dict[str, list[TrialFigures]]:
    found: dict[str, list[TrialFigures]] = defaultdict(list)
    for trial in trials:
        found[trial.group].append(trial)
    return found


def _sums(trials: Iterable[TrialFigures]) -> Json:
    found: dict[str, float] = {}
    for trial in trials:
        for name, value in trial.usage.items():
            found[name] = found.get(name, 0) + value
    return dict(found)


def _statistics(trials: Sequence[TrialFigures]) -> Json:
    rewards: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    exceptions: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        for name, value in (trial.rewards or {}).items():
            rewards[name][str(value)].append(trial.name)
        if trial.exception:
            exceptions[trial.exception].append(trial.name)
    valid = [trial.rewards for trial in trials if trial.rewards is not None]
    return {
        "n_trials": len(valid),
        "n_errors": sum(map(len, exceptions.values())),
        "metrics": [_mean(valid)] if valid else [],
        "pass_at_k": {str(k): share for k, share in pass_at_k(trials).items()},
        "reward_stats": rewards,
        "exception_stats": exceptions,
    }


def _mean(rewards: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return Harbor's mean: of the only reward, or of each; one that a trial lacks counts 0."""
    names = sorted({name for each in rewards for name in each})
    if len(names) == 1:
        return {"mean": sum(next(iter(each.values())) for each in rewards) / len(rewards)}
    return {name: sum(each.get(name, 0.0) for each in rewards) / len(rewards) for name in names}


def pass_at_k(trials: Iterable[TrialFigures]) -> dict[int, float]:
    """Return pass@k as Harbor has it: only of single rewards of 0 and 1, for k from 2."""
    passed: dict[str, Counter[bool]] = defaultdict(Counter)
    for trial in trials:
        if trial.rewards is None:
            continue
        if len(trial.rewards) != 1 or not set(trial.rewards.values()) <= {0.0, 1.0}:
            return {}
        passed[trial.task_name][1.0 in trial.rewards.values()] += 1
    least = min((counts.total() for counts in passed.values()), default=0)
    powers = {2**power for power in range(1, least.bit_length())}
    return {
        k: sum(_chance(each.total(), each[False], k) for each in passed.values()) / len(passed)
        for k in sorted(powers | set(range(5, least + 1, 5)))
    }


def _chance(tried: int, failed: int, k: int) -> float:
    if failed < k:
        return 1.0
    return 1.0 - prod((failed - each) / (tried - each) for each in range(k))


def _time(value: object) -> str | None:
    """Return a time of a record in UTC as Harbor writes it, or None for anything else."""
    try:
        found = datetime.fromisoformat(text_in(value))
        return found.astimezone(UTC).isoformat() if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _shown(value: object, depth: int = 0) -> object:
    """Return JSON with every text spelled out, and nothing below ``_MOST_NESTED`` levels."""
    if isinstance(value, str):
        return visible(value)
    if not isinstance(value, Mapping | list):
        return value
    if depth == _MOST_NESTED:
        return "…"
    if isinstance(value, list):
        return [_shown(each, depth + 1) for each in value]
    return {visible(name): _shown(each, depth + 1) for name, each in object_in(value).items()}


def _write_json(path: Path, value: Fields) -> None:
    _write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8", newline="") as out:
        out.write(text)
