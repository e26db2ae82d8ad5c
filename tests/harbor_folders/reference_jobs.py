"""Reads job folders with the classes of the package harbor; runs in an environment of its own.

usage: reference_jobs.py JOBS: the keys of a job's configuration, then a JSON object for each job:
what differs between its files and what Harbor reads in them or makes of its trials, and what it
makes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import harbor
from harbor.metrics.mean import Mean
from harbor.models.job.config import JobConfig
from harbor.models.job.result import JobResult, JobStats
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals
from reference import keys


def scanner() -> Any:
    """Return the class with which the viewer reads folders, without the viewer's server."""
    path = Path(harbor.__file__).parent / "viewer/scanner.py"
    spec = importlib.util.spec_from_file_location("scanner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.JobScanner


def reading(jobs: Path, name: str) -> dict:
    """Return what Harbor makes of a job, and in what its files say anything else."""
    seen = scanner()(jobs)
    folder = jobs / name
    trials, differences = [], []
    children = sorted(each.name for each in folder.iterdir() if each.is_dir())
    if children != seen.list_trials(name):
        differences.append("the viewer sees other trials")
    for child in children:
        config, result = folder / child / "config.json", folder / child / "result.json"
        differences += _changed(TrialConfig, config, seen.get_trial_config(name, child))
        trial = seen.get_trial_result(name, child)
        differences += _changed(TrialResult, result, trial)
        written = TrialConfig.model_validate_json(config.read_text(encoding="utf-8"))
        if trial is not None and trial.config != written:
            differences.append(f"{config}: not the one in its result")
        trials.append(trial)
    job = seen.get_job_result(name)
    differences += _changed(JobConfig, folder / "config.json", seen.get_job_config(name))
    differences += _changed(JobResult, folder / "result.json", job)
    if None in (job, *trials):
        return {"name": name, "differences": differences}
    stats = _statistics(trials, job.stats.n_retries)
    written = job.stats.model_dump(mode="json")
    if _sorted(written) != _sorted(stats):
        differences.append(f"statistics: harbor has {stats}, we have {written}")
    return {
        "name": name,
        "differences": differences,
        "stats": _sorted(stats),
        "trials": {trial.trial_name: _facts(trial) for trial in trials},
    }


def _changed(model: type, path: Path, seen: object) -> list[str]:
    """Say what Harbor does not take as it stands: unknown keys, converted values, refusals."""
    text = path.read_text(encoding="utf-8")
    try:
        read = model.model_validate_json(text)
    except ValueError as error:
        return [f"{path}: {error}"]
    found = [] if seen is not None else [f"{path}: the viewer does not read it"]
    dumped = read.model_dump(mode="json", exclude_unset=True)
    return found + list(_missing(json.loads(text), dumped, path.name))


def _missing(written: object, read: object, place: str) -> Any:
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            yield from _missing(value, read.get(key, "nothing"), f"{place}.{key}")
    elif written != read and not (place.endswith("_at") and read != "nothing"):
        yield f"{place}: harbor has {read!r}, we have {written!r}"


def _statistics(trials: list, n_retries: int) -> dict:
    stats = JobStats.from_trial_results(trials, n_total_trials=len(trials), n_retries=n_retries)
    for key, shares in compute_pass_at_k_by_evals(trials).items():
        stats.evals[key].pass_at_k = shares
    for key, evaluation in stats.evals.items():
        counted = [trial for trial in trials if _group(trial) == key and trial.reward_valid]
        valid = [trial.verifier_result.rewards for trial in counted]
        evaluation.metrics = [Mean().compute(valid)] if valid else []
    return stats.model_dump(mode="json")


def _group(trial: TrialResult) -> str:
    model = trial.agent_info.model_info
    return JobStats.format_agent_evals_key(
        trial.agent_info.name, model.name if model else None, trial.source or "adhoc"
    )


def _facts(trial: TrialResult) -> dict:
    exception = trial.exception_info
    return {
        "reward_valid": trial.reward_valid,
        "rewards": trial.verifier_result.rewards if trial.verifier_result else None,
        "exception": exception.exception_type if exception else None,
        "totals": trial.compute_token_cost_totals(),
    }


def _sorted(value: object) -> object:
    """Return JSON without an order of its lists of names."""
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in sorted(value.items())}
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    return [_sorted(each) for each in value] if isinstance(value, list) else value


def main(jobs: Path) -> None:
    """Print the keys of a job's configuration, and a line for each job that the viewer sees."""
    print(json.dumps({"keys": keys(JobConfig)}))
    for name in sorted(scanner()(jobs).list_jobs()):
        print(json.dumps(reading(jobs, name), sort_keys=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
