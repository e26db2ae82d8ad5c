"""What is exported for Harbor; ``make harbor-differential`` reads it with Harbor's own classes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harbor_folders.jobs import (
    HOSTILE_IDS,
    LOST,
    RUNS,
    agent_metadata,
    exported,
    failure,
    line,
    rewarded,
)
from securebench.analysis import command, harbor_export
from securebench.analysis.command import export_to_harbor
from securebench.analysis.harbor_export import trial_name
from securebench.cli.main import app
from securebench.client.follow import RunState
from securebench.client.results import Fetched
from securebench.client.volume import ClusterTarget
from securebench.errors import InvalidInputError
from securebench.run.records.reading import RecordKey
from securebench.stats.cost import Price
from support.result_folders import result_folder

TARGET = ClusterTarget(None, None)
RECORDED = {
    job["name"]: job
    for job in map(
        json.loads, Path(__file__).with_name("recorded_jobs.jsonl").read_text().splitlines()[1:]
    )
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return dict(exported(tmp_path_factory.mktemp("jobs")))


def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def trials(job):
    return {path.name: content(path / "result.json") for path in job.iterdir() if path.is_dir()}


def by_task(job):
    return {trial["task_name"]: trial for trial in trials(job).values()}


def export(tmp_path, lines, **changes):
    """Export records and return the job folder."""
    folder = result_folder(tmp_path / "records", lines, **changes)
    export_to_harbor(str(folder), tmp_path / "jobs", TARGET)
    (job,) = (tmp_path / "jobs").iterdir()
    return job


def plain(value):
    """Return JSON without null and without an order of lists of names."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    return value


@pytest.mark.parametrize("name", RUNS)
def test_harbor_made_the_same_statistics_of_the_trials(jobs, name):
    assert RECORDED[name]["differences"] == []
    assert plain(content(jobs[name] / "result.json")["stats"]) == plain(RECORDED[name]["stats"])


@pytest.mark.parametrize("name", RUNS)
def test_harbor_read_the_same_of_each_trial(jobs, name):
    read = RECORDED[name]["trials"]
    for trial, found in trials(jobs[name]).items():
        rewards = found.get("verifier_result", {}).get("rewards")
        assert rewards == read[trial]["rewards"]
        assert read[trial]["reward_valid"] == (rewards is not None)
        kind = found.get("exception_info", {}).get("exception_type")
        assert kind == read[trial]["exception"]
    assert read.keys() == trials(jobs[name]).keys()


@pytest.mark.parametrize("outcome", LOST)
def test_a_lost_attempt_has_no_reward(jobs, outcome):
    for task, trial in by_task(jobs["every-outcome"]).items():
        if not task.startswith(f"{outcome}-"):
            continue
        assert "verifier_result" not in trial
        assert trial["exception_info"]["policy_override"]["has_valid_reward"] is False
        assert not (jobs["every-outcome"] / trial["trial_name"] / "verifier/reward.json").exists()
        assert trial["agent_result"]["metadata"]["securebench"]["outcome"] == outcome


EXCEPTIONS = {
    "absent": "SecureBenchAgentError",
    "late": "AgentTimeoutError",
    "ended": "NonZeroAgentExitCodeError",
    "large": "SecureBenchResourceError",
    "verifier-reward_missing": "RewardFileNotFoundError",
    "verifier-reward_empty": "RewardFileEmptyError",
    "verifier-reward_invalid": "VerifierOutputParseError",
    "verifier-verifier_timeout": "VerifierTimeoutError",
    "verifier-verifier_error": "SecureBenchVerifierError",
    "provider-provider_usage": "SecureBenchProviderError",
    "infrastructure-node_lost": "SecureBenchInfrastructureError",
    "cancelled-cancelled": "CancelledError",
    "unverified": None,
}


@pytest.mark.parametrize("task", EXCEPTIONS)
def test_exceptions_say_why(jobs, task):
    trial = by_task(jobs["every-outcome"])[task]
    assert trial.get("exception_info", {}).get("exception_type") == EXCEPTIONS[task]


def test_a_score_of_0_without_a_script_counts(jobs):
    trial = by_task(jobs["every-outcome"])["absent"]
    assert trial["verifier_result"]["rewards"] == {"reward": 0.0}
    assert trial["exception_info"]["policy_override"] == {
        "should_retry": False,
        "should_grade": True,
        "has_valid_reward": True,
    }
    assert "agent: candidate_missing: it went wrong" in trial["exception_info"]["exception_message"]


def test_lost_attempts_are_no_part_of_the_mean(tmp_path):
    lost = line("b", passed=None, outcome="infrastructure", **failure("node_lost"))
    job = export(tmp_path, [line("a"), lost])
    (statistics,) = content(job / "result.json")["stats"]["evals"].values()
    assert statistics["metrics"] == [{"mean": 1.0}]
    assert statistics["n_trials"] == 1


def test_a_family_without_a_verifier_has_it_disabled(jobs):
    found = by_task(jobs["every-outcome"])
    assert found["unverified"]["config"]["verifier"] == {"disable": True}
    assert "verifier" not in found["absent"]["config"]


def test_the_files_of_a_trial(tmp_path):
    rewards = {"reward": 0.5, "style": 2}
    output = {"producer_stdout": "hello\n", "producer_stderr": "", "candidate_patch": None}
    job = export(tmp_path, [rewarded("a", rewards, score=0.5, **output)])
    (folder,) = (path for path in job.iterdir() if path.is_dir())
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "config.json",
        "result.json",
        "agent/command-0/stdout.txt",
        "verifier/test-stdout.txt",
        "verifier/reward.json",
    }
    assert (folder / "agent/command-0/stdout.txt").read_text() == "hello\n"
    assert content(folder / "verifier/reward.json") == rewards
    assert content(folder / "config.json") == content(folder / "result.json")["config"]


def test_agent_model_tokens_and_cost(tmp_path):
    folder = result_folder(
        tmp_path / "records", [line("a", producer_metadata=agent_metadata(provider_models=["m"]))]
    )
    prices = tmp_path / "prices.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "load_prices", lambda _: {"m": Price(1_000_000, 0, 0)})
        export_to_harbor(str(folder), tmp_path / "jobs", TARGET, prices)
    (job,) = (tmp_path / "jobs").iterdir()
    (trial,) = trials(job).values()
    assert trial["agent_info"] == {
        "name": "claude-code",
        "version": "2.0.1",
        "model_info": {"name": "m-1", "provider": "anthropic"},
    }
    assert trial["config"]["agent"] == {"name": "claude-code", "model_name": "anthropic/m-1"}
    used = {name: each for name, each in trial["agent_result"].items() if name != "metadata"}
    assert used == {
        "n_input_tokens": 1200,
        "n_cache_tokens": 200,
        "n_output_tokens": 50,
        "cost_usd": 0.001,
    }
    assert content(job / "config.json")["agents"] == [trial["config"]["agent"]]


def test_a_run_that_goes_on_has_no_end(tmp_path):
    job = export(tmp_path, [line("a")], has_ended=False)
    result = content(job / "result.json")
    assert "finished_at" not in result
    assert result["started_at"] <= result["updated_at"]


def test_an_attempt_has_the_same_id_in_every_export(tmp_path, jobs):
    again = dict(exported(tmp_path))["rewards"]
    first = {name: trial["id"] for name, trial in trials(jobs["rewards"]).items()}
    assert {name: trial["id"] for name, trial in trials(again).items()} == first
    assert len(set(first.values())) == len(first)


class TestHostile:
    def test_no_path_has_more_of_an_id_than_plain_characters(self, jobs):
        folder = jobs["hostile"]
        assert len(trials(folder)) == len(HOSTILE_IDS)
        for path in folder.rglob("*"):
            assert path.name.isascii()
            assert not set(path.name) & set("\\ \n\0<>~")
            assert not path.name.startswith((".", "-"))
        for trial in trials(folder).values():
            parts = Path(trial["task_id"]["path"]).parts
            assert len(parts) == 2
            assert ".." not in parts

    def test_texts_are_spelled_out(self, jobs):
        for path in (path for path in jobs["hostile"].rglob("*") if path.is_file()):
            text = path.read_text(encoding="utf-8")
            assert not set(text) & set("\x1b\0\u202e")
            assert not any(escape in text for escape in ("\\u001b", "\\u202e", "\\ud800"))

    def test_names_that_would_collide_differ(self, monkeypatch):
        monkeypatch.setattr(harbor_export, "_DIGEST_CHARACTERS", 0)
        taken = set()
        keys = [RecordKey(task, number) for task in ("a", "A", "a/") for number in (1, 2)]
        names = [trial_name(key, taken) for key in keys]
        assert len({name.lower() for name in names}) == len(keys)

    def test_a_run_id_is_no_path(self, tmp_path):
        job = export(tmp_path, [line("a", run_id="../../x")])
        assert job.parent == tmp_path / "jobs"
        assert content(job / "config.json")["job_name"] == job.name


class TestPlace:
    @pytest.fixture
    def folder(self, tmp_path):
        return str(result_folder(tmp_path / "records", [line("a", run_id="r")]))

    def test_nothing_is_overwritten(self, folder, tmp_path):
        for make in (Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")):
            taken = tmp_path / make.__name__ / "r"
            taken.parent.mkdir()
            make(taken)
            with pytest.raises(InvalidInputError, match="exists; name another folder"):
                export_to_harbor(folder, taken.parent, TARGET)
            assert list(taken.parent.iterdir()) == [taken]

    def test_a_folder_that_appeared_meanwhile_stays(self, folder, tmp_path, monkeypatch):
        def write(_results, _draft, job, _now):
            job.mkdir()
            return 0

        monkeypatch.setattr(command, "write_job", write)
        with pytest.raises(InvalidInputError, match="exists"):
            export_to_harbor(folder, tmp_path, TARGET)
        assert list(tmp_path.glob(".*")) == []

    def test_an_export_that_fails_leaves_nothing(self, folder, tmp_path, monkeypatch):
        def broken(_results, draft, _job, _now):
            (draft / "trial").mkdir()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(command, "write_job", broken)
        with pytest.raises(OSError, match="No space"):
            export_to_harbor(folder, tmp_path / "jobs", TARGET)
        assert list((tmp_path / "jobs").iterdir()) == []

    def test_a_place_that_is_no_folder_is_refused(self, folder, tmp_path):
        file = tmp_path / "file"
        file.touch()
        for jobs, want in (
            (file, f"{file} is no folder; name one for jobs"),
            (tmp_path / "absent/jobs", f"the folder {tmp_path}/absent does not exist"),
        ):
            with pytest.raises(InvalidInputError) as caught:
                export_to_harbor(folder, jobs, TARGET)
            assert caught.value.reason == want


def test_a_run_of_the_cluster(monkeypatch, tmp_path):
    async def fetch(_run, folder, _target):
        result_folder(folder, [line("a", run_id="r")])
        state = RunState("nightly", "uid-1", "", "Completed", "", total=0, done=0)
        return Fetched(state, {"lost_launches": {"node_lost": 2}})

    monkeypatch.setattr(command, "fetch_results", fetch)
    export_to_harbor("nightly", tmp_path / "jobs", TARGET)
    result = content(tmp_path / "jobs/r/result.json")
    assert (result["stats"]["n_retries"], "finished_at" in result) == (2, True)


def run_command(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_the_command(tmp_path):
    folder = result_folder(tmp_path / "records", [line("a", run_id="r"), line("b", run_id="r")])
    done = run_command("harbor", folder, "-o", tmp_path / "jobs")
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        0,
        f"securebench: written {tmp_path}/jobs/r: 2 trials",
    )
    again = run_command("harbor", folder, "-o", tmp_path / "jobs")
    assert again.exit_code == 1
    assert "jobs/r exists" in again.output


WRONG = {
    "no folder": ("harbor", "./x"),
    "a format": ("harbor", "./x", "-o", "jobs", "--format", "csv"),
    "mlflow too": ("harbor", "./x", "-o", "jobs", "--to", "mlflow"),
    "another program": ("wandb", "./x", "-o", "jobs"),
    "two runs": ("harbor", "./x", "./y", "-o", "jobs"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_wrong_usage(words):
    assert run_command(*words).exit_code == 2


def test_a_run_may_be_called_harbor(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(command, "export_run", lambda run, *_: asked.append(run) or 0)
    assert run_command("harbor", "-o", tmp_path / "x.csv").exit_code == 0
    assert asked == ["harbor"]
