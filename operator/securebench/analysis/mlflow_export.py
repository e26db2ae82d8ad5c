"""A run as a run of MLflow: one for each BenchmarkRun, made once and then updated."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from securebench.analysis.export import TOKEN_COLUMNS
from securebench.analysis.results import (
    Entry,
    ResultSet,
    group_of,
    overview,
    provenance_sentence,
    visible,
)
from securebench.digests import json_digest
from securebench.errors import InvalidInputError
from securebench.protocol.volume import SUMMARY
from securebench.stats.cost import DOLLAR
from securebench.stats.intervals import Interval

IDENTITY: Final = "securebench.identity"
"""Tag by which the MLflow run of a run is found again."""
_UID: Final = "securebench.run_uid"
_OUTCOME: Final = "outcome/"
_LOST: Final = "lost/"
_LABELS: Final = ("isolation", "network", "grading", "runtime")
_MOST_CHARACTERS: Final = 500
"""Of a value; older servers of MLflow refuse longer ones."""
_UNNAMEABLE: Final = re.compile(r"[^\w.\- ]", re.ASCII)
"""What MLflow refuses in the name of a metric."""
_UNQUOTED: Final = re.compile("[\"'`;]")
"""What MLflow's own look-up of an experiment takes for the end of its name."""


class Logged(NamedTuple):
    """What was done.

    Attributes:
        run_id: ID of MLflow's run.
        experiment: Its name.
        is_new: Whether it was made; otherwise it was updated.
        notices: What MLflow did not take.
    """

    run_id: str
    experiment: str
    is_new: bool
    notices: tuple[str, ...]


def log_run(
    results: ResultSet, uri: str, experiment: str = "", *, with_artifacts: bool = False
) -> Logged:
    """Make or update the MLflow run of a run.

    Args:
        uri: URI of the tracking server.
        experiment: Name, made where there is none; empty for the run's benchmark id.
        with_artifacts: Whether records and summary are uploaded.

    Raises:
        InvalidInputError: The server is not there, or refuses.
    """
    name = _UNQUOTED.sub("_", visible(experiment or results.benchmark_id))
    with _said(uri):
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(name)
        place = client.create_experiment(name) if known is None else known.experiment_id
        found = _found(client, place, results)
        run = found or client.create_run(place, run_name=visible(results.name))
        notices = _log(client, run, results)
        if with_artifacts:
            _upload(client, run.info.run_id, results)
        if results.has_ended:
            client.set_terminated(run.info.run_id)
        else:
            client.update_run(run.info.run_id, "RUNNING")
    return Logged(run.info.run_id, name, found is None, notices)


def _found(client: MlflowClient, experiment: str, results: ResultSet) -> Run | None:
    """Return the run that was made before; one of another BenchmarkRun is not it."""
    runs = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{_identity(results)}'")
    known = ((run, run.data.tags.get(_UID, "")) for run in runs)
    return next(
        (run for run, uid in known if not (uid and results.uid) or uid == results.uid), None
    )


def _identity(results: ResultSet) -> str:
    """Return what stays the same while a run is active and when it is resumed."""
    digests = {
        name: sorted(results.provenance.digests.get(name, ())) for name in ("pack", "harness")
    }
    return json_digest({"run": results.run_id, "benchmark": results.benchmark_id, **digests})


def _log(client: MlflowClient, run: Run, results: ResultSet) -> tuple[str, ...]:
    now = round(time.time() * 1000)
    figures = dict.fromkeys(filter(_is_count, run.data.metrics), 0.0) | run_metrics(results)
    metrics = [Metric(name, value, now, 0) for name, value in figures.items()]
    params, before = run_params(results), run.data.params
    client.log_batch(
        run.info.run_id,
        metrics=metrics,
        params=[Param(*item) for item in params.items() if item[0] not in before],
        tags=[RunTag(*item) for item in _tags(results).items()],
    )
    return tuple(
        f"MLflow keeps a parameter's first value: {name} stays {before[name]}, and is now {value}"
        for name, value in params.items()
        if before.get(name, value) != value
    )


def run_params(results: ResultSet) -> dict[str, str]:
    """Return what a run was made of; several values are joined."""
    made = results.provenance
    values = {
        **{f"{name}_digest": made.digests.get(name) for name in ("pack", "harness", "policy")},
        "verifier_version": made.digests.get("verifier"),
        **{name: made.agents.get(name) for name in ("harness", "model", "version")},
        **{name: made.labels.get(name) for name in _LABELS},
    }
    joined = {name: ", ".join(sorted(found)) for name, found in values.items() if found}
    return {
        name: visible(value)[:_MOST_CHARACTERS]
        for name, value in {"pack": results.benchmark_id, **joined}.items()
    }


def run_metrics(results: ResultSet) -> dict[str, float]:
    """Return the figures of a run, as in its report."""
    figures = overview(results)
    found: dict[str, float] = {
        "tasks": figures.tasks,
        "verdicts": figures.verified,
        "passed": figures.passed,
        **_bounds("pass_rate", figures.score),
        **_bounds("mean_reward", figures.mean_reward),
    }
    for each in figures.pass_at_k:
        found |= _bounds(f"pass_at_{each.k}", each.estimate)
    for family, entries in _families(results).items():
        found |= _bounds(f"family/{family}/pass_rate", group_of(family, entries).score)
    found |= {f"{_OUTCOME}{_named(name)}": count for name, count in figures.outcomes.items()}
    found |= {f"{_LOST}{_named(name)}": count for name, count in results.lost_launches.items()}
    if figures.tokens is not None:
        found |= zip(TOKEN_COLUMNS, figures.tokens, strict=True)
    if figures.cost is not None:
        found["cost_dollars"] = figures.cost.micro_dollars / DOLLAR
        found["unpriced_tokens"] = sum(figures.cost.unpriced.values())
    return found


def _bounds(name: str, share: Interval | None) -> dict[str, float]:
    if share is None:
        return {}
    return {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}


def _families(results: ResultSet) -> Mapping[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in results.entries:
        found[_named(entry.family)].append(entry)
    return found


def _is_count(name: str) -> bool:
    """Whether a metric counts what may be gone once a run was resumed."""
    return name.startswith((_OUTCOME, _LOST))


def _named(text: str) -> str:
    return _UNNAMEABLE.sub("_", text)


def _tags(results: ResultSet) -> dict[str, str]:
    """Return the tags; the last is MLflow's description of a run."""
    uid = {_UID: results.uid} if results.uid else {}
    return {
        IDENTITY: _identity(results),
        "securebench.run_id": visible(results.run_id),
        **uid,
        "mlflow.note.content": provenance_sentence(results.provenance),
    }


def _upload(client: MlflowClient, run_id: str, results: ResultSet) -> None:
    client.log_artifact(run_id, str(results.path))
    if results.has_ended:
        client.log_artifact(run_id, str(results.path.with_name(SUMMARY)))


@contextmanager
def _said(uri: str) -> Iterator[None]:
    """Say in one line what the server or its library said, without a password in the URI."""
    try:
        yield
    except MlflowException as error:
        secret = urlsplit(uri).netloc.rpartition("@")[0]
        said = " ".join(str(error).split())[:_MOST_CHARACTERS]
        place, message = (
            text.replace(f"{secret}@", "") if secret else text for text in (uri, said)
        )
        raise InvalidInputError(
            f"MLflow at {place}: {message}; check --tracking-uri and --experiment"
        ) from None
