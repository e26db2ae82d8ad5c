import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from typer.testing import CliRunner

from securebench.analysis.command import export_to_mlflow
from securebench.analysis.mlflow_export import log_run, run_metrics, run_params
from securebench.analysis.results import read_results
from securebench.cli.main import app
from securebench.client.volume import ClusterTarget
from securebench.errors import InvalidInputError
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.stats.cost import Price
from support.hostile_texts import HOSTILE_TEXTS
from support.result_folders import result_folder, result_line

TARGET = ClusterTarget(None, None)
USAGE = {"requests": 2, "input_tokens": 1_000_000, "cached_tokens": 0, "output_tokens": 0}
PRODUCER = {
    "harness": "opencode",
    "opencode_model": "m",
    "cli_version_resolved": "1.18.18",
    "usage": USAGE,
    "provider_models": ["m"],
}


def attempt(task, **changes):
    return result_line(task, **{"producer_metadata": PRODUCER, **changes})


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file://{tmp_path / 'mlflow'}"


@pytest.fixture
def folder(tmp_path):
    lines = [
        attempt("a"),
        attempt("a", attempt=2, passed=False),
        attempt("b", passed=False, task_type="multiple_choice"),
        attempt("c", passed=None, outcome="infrastructure"),
    ]
    made = result_folder(tmp_path / "run", lines)
    (made / SUMMARY).write_text('{"lost_launches": {"evicted": 3}}')
    return made


@pytest.fixture
def results(folder):
    return read_results(folder, "nightly", {"m": Price(1_250_000, 0, 0)})


def logged(server, results, **options):
    """Export a run and return its MLflow run, as the library's client reads it."""
    return MlflowClient(server).get_run(log_run(results, server, **options).run_id)


def runs(server, experiment="geo-pack"):
    client = MlflowClient(server)
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_what_mlflow_has(server, results):
    run = logged(server, results)
    assert run.data.params == {
        "pack": "geo-pack",
        "pack_digest": "sha256:" + 64 * "1",
        "harness_digest": "sha256:" + 64 * "2",
        "policy_digest": "sha256:" + 64 * "3",
        "verifier_version": "1",
        "harness": "opencode",
        "model": "m",
        "version": "1.18.18",
        "isolation": "verified",
        "network": "none",
        "runtime": "unknown",
    }
    assert run.data.tags["securebench.run_id"] == "nightly 1"
    assert run.data.tags["mlflow.note.content"].startswith("Isolation was proven by a canary")
    assert (run.info.run_name, run.info.status) == ("nightly", "FINISHED")
    assert run.data.metrics == run_metrics(results)


def test_metrics(results):
    metrics = run_metrics(results)
    assert {name: metrics[name] for name in ("tasks", "verdicts", "passed")} == {
        "tasks": 3,
        "verdicts": 3,
        "passed": 1,
    }
    assert metrics["pass_rate_low"] < metrics["pass_rate"] < metrics["pass_rate_high"]
    assert metrics["pass_rate"] == pytest.approx(1 / 3)
    # Of the one task that has two verdicts, as half of those with a verdict have.
    assert metrics["pass_at_1"] == 0.5
    assert metrics["family/short_answer/pass_rate"] == 0.5
    assert metrics["family/multiple_choice/pass_rate"] == 0
    assert (metrics["outcome/infrastructure"], metrics["lost/evicted"]) == (1, 3)
    assert (metrics["input_tokens"], metrics["cost_dollars"]) == (4_000_000, 5.0)
    assert metrics["unpriced_tokens"] == 0


def test_a_second_export_updates_the_same_run(server, folder, results):
    first = log_run(results, server)
    lines = [attempt(task) for task in "abc"]
    again = read_results(result_folder(folder, lines), "nightly")
    second = log_run(again, server)
    assert (first.is_new, second.is_new) == (True, False)
    (run,) = runs(server)
    assert run.info.run_id == first.run_id == second.run_id
    assert run.data.metrics["pass_rate"] == 1
    counts = {name: run.data.metrics[name] for name in ("outcome/infrastructure", "lost/evicted")}
    assert counts == {"outcome/infrastructure": 0, "lost/evicted": 0}


def test_a_run_that_goes_on_is_finished_later(server, tmp_path):
    going = result_folder(tmp_path / "going", [attempt("a")], has_ended=False)
    assert logged(server, read_results(going, "nightly")).info.status == "RUNNING"
    ended = result_folder(tmp_path / "going", [attempt("a")])
    assert logged(server, read_results(ended, "nightly")).info.status == "FINISHED"
    assert len(runs(server)) == 1


def test_another_run_is_another_mlflow_run(server, results, tmp_path):
    log_run(results, server)
    for name in ("run_id", "pack_digest", "harness_digest"):
        other = result_folder(tmp_path / name, [attempt("a", **{name: "other"})])
        assert log_run(read_results(other, "nightly"), server).is_new
    assert len(runs(server)) == 4


def results_of(folder, uid=""):
    return replace(read_results(folder, "nightly"), uid=uid)


def test_two_objects_with_one_run_id_are_two_runs(server, folder):
    first = log_run(results_of(folder, "uid-1"), server)
    second = log_run(results_of(folder, "uid-2"), server)
    assert second.is_new
    assert log_run(results_of(folder, "uid-1"), server).run_id == first.run_id
    assert log_run(results_of(folder), server).run_id in {first.run_id, second.run_id}
    tags = {run.info.run_id: run.data.tags["securebench.run_uid"] for run in runs(server)}
    assert tags == {first.run_id: "uid-1", second.run_id: "uid-2"}


def test_a_changed_parameter_stays_and_is_told(server, folder, results):
    log_run(results, server)
    labels = {"isolation": "declared"}
    changed = read_results(result_folder(folder, [attempt("a", labels=labels)]), "nightly")
    assert log_run(changed, server).notices == (
        "MLflow keeps a parameter's first value: isolation stays verified, and is now declared",
    )


def test_artifacts_only_where_they_are_asked_for(server, folder, results):
    client = MlflowClient(server)
    run = logged(server, results)
    assert client.list_artifacts(run.info.run_id) == []
    log_run(results, server, with_artifacts=True)
    names = [each.path for each in client.list_artifacts(run.info.run_id)]
    assert sorted(names) == [CANDIDATES, SUMMARY]
    copied = client.download_artifacts(run.info.run_id, CANDIDATES)
    assert Path(copied).read_text() == (folder / CANDIDATES).read_text()


@pytest.mark.parametrize("case", HOSTILE_TEXTS)
def test_hostile_texts_are_shown(case, tmp_path):
    text = HOSTILE_TEXTS[case]
    producer = {**PRODUCER, "opencode_model": text}
    line = attempt("a", task_type=text, outcome=text, producer_metadata=producer)
    hostile = read_results(result_folder(tmp_path, [line]), text)
    assert all(each.isprintable() for value in run_params(hostile).values() for each in value)
    assert all(re.fullmatch(r"[\w.\-/ ]+", name, re.ASCII) for name in run_metrics(hostile))


def test_hostile_names_find_their_run_again(server, tmp_path):
    text = "'\"`; \u202e" + HOSTILE_TEXTS["terminal escapes"]
    lines = [attempt("a", run_id=text, benchmark_id=text, task_type=text)]
    hostile = read_results(result_folder(tmp_path, lines), text)
    assert [log_run(hostile, server).is_new for _ in range(2)] == [True, False]


def test_the_command_says_what_it_did(server, folder, capsys, monkeypatch):
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    assert export_to_mlflow(str(folder), server, "mine", TARGET) == 0
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert export_to_mlflow(str(folder), server, "mine", TARGET) == 0
    (run,) = runs(server, "mine")
    made, updated = capsys.readouterr().out.splitlines()
    assert made == f"securebench: made MLflow run {run.info.run_id} in experiment mine"
    assert updated == f"securebench: updated MLflow run {run.info.run_id} in experiment mine"


def test_without_the_library(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        InvalidInputError, match=r"need mlflow.*: pip install 'securebench\[mlflow\]'"
    ):
        export_to_mlflow(str(folder), "file:///x", "", TARGET)


def test_a_server_that_refuses_is_named_without_its_password(results):
    with pytest.raises(InvalidInputError, match="MLflow at odd://host") as caught:
        log_run(results, "odd://user:secret@host")
    assert "secret" not in str(caught.value)


def test_the_flags_reach_mlflow(server, folder):
    flags = ("--to", "mlflow", "--tracking-uri", server, "--experiment", "mine", "--artifacts")
    done = CliRunner().invoke(app, ["export", str(folder), *flags])
    assert done.exit_code == 0
    (run,) = runs(server, "mine")
    assert len(MlflowClient(server).list_artifacts(run.info.run_id)) == 2


FLAGS = {
    "neither": ((), "name a file with --output, or --to mlflow"),
    "both": (("-o", "x.csv", "--to", "mlflow"), "name a file with --output, or --to mlflow"),
    "a format": (("--format", "csv", "--to", "mlflow"), "name a file with --output"),
    "another place": (("--to", "elsewhere"), "--to is mlflow, not 'elsewhere'"),
    "no server": (("--to", "mlflow"), "with --tracking-uri or MLFLOW_TRACKING_URI"),
    "no format": (("-o", "x.txt"), "and x.txt does not say which"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_flags_that_do_not_go_together(case, folder, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    flags, want = FLAGS[case]
    done = CliRunner().invoke(app, ["export", str(folder), *flags])
    assert (done.exit_code, want in done.stderr) == (2, True)
