"""`securebench run` on folders of Harbor tasks."""

from __future__ import annotations

import pytest

from securebench.protocol.candidate import KINDS as CANDIDATES
from securebench.protocol.candidate import CandidateForm
from securebench.run.plan.kinds import KINDS
from securebench.run.verification.command import CommandVerification
from support.cli_shell import Shell
from support.harbor_packs import folder_pack

OPEN = {"environment": {"docker_image": "debian:12"}}


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know what the family names, whoever has it."""
    if "root" not in CANDIDATES:
        monkeypatch.setitem(CANDIDATES, "root", CandidateForm())
    if "reward" not in KINDS:
        monkeypatch.setitem(KINDS, "reward", CommandVerification)


@pytest.fixture
def tasks(shell: Shell):
    return folder_pack(shell.folder / "mine", "a", "b")


def test_a_folder_runs_without_a_yaml(shell: Shell, tasks) -> None:
    result = shell("run", str(tasks), "--agent", "command", "--command", "solve")
    assert result.code == 0, result.stdout
    (run,) = shell.namespace.runs()
    spec = run["spec"]
    assert spec["runId"] == "mine-command"
    assert spec["pack"]["volume"]["path"].startswith("mine-")
    assert spec["harness"] == {"type": "command", "config": {"command": "solve"}}


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_agents_of_audits_get_the_label(shell: Shell, tasks, agent) -> None:
    result = shell("submit", str(tasks), "--agent", agent)
    assert result.code == 0, result.stdout
    (run,) = shell.namespace.runs()
    assert run["metadata"]["labels"]["securebench.dev/purpose"] == "audit"
    assert not list((shell.folder / "volume/packs").glob("*/oracle"))


def test_a_folder_with_a_tester_yaml_needs_no_agent(shell: Shell, tasks) -> None:
    yaml = "schema_version: '0.2'\nrun: {id: r, output_dir: out}\npack: .\n"
    (tasks / "tester.yaml").write_text(f"{yaml}harness: {{type: nop}}\n")
    assert shell("submit", str(tasks)).code == 0
    refused = shell("submit", str(tasks), "--agent", "nop")
    assert "--agent is for a folder without tester.yaml, which names one" in refused.stdout


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ([], "name a folder, or a tester YAML with --config"),
        (["{tasks}"], "there is no tester.yaml; name the agent for the Harbor tasks with --agent"),
        (["{tasks}", "--config", "x.yaml"], "name a folder or a tester YAML, not both"),
        (["{tasks}", "--model", "m"], "--model and --command go with --agent"),
        (["{tasks}", "--agent", "codx"], "did you mean 'codex'"),
        (["{tasks}", "--agent", "codex"], "harness.config.model"),
        (["{tasks}", "--agent", "nop", "--network", "open"], "harness.config.network"),
    ],
)
def test_what_is_missing_is_named(shell: Shell, tasks, words, want) -> None:
    result = shell("run", *(word.format(tasks=tasks) for word in words))
    assert result.code != 0
    assert want in " ".join((result.stdout + result.stderr).split())


def test_a_task_with_an_open_network_is_refused_with_the_way_on(shell: Shell, tasks) -> None:
    folder_pack(tasks, "c", "d", config=OPEN)
    result = shell("run", str(tasks), "--agent", "nop")
    assert result.code == 1
    assert result.last == (
        f"securebench: error: {tasks}: task 'c' asks for the network public for the agent and"
        " public for the verifier (and 1 other task asks for an open network): run without it by"
        " --network none, or name the hosts of an agent's list in harness.config.allowed_domains"
    )
    assert shell("run", str(tasks), "--agent", "nop", "--network", "none").code == 0
    (run,) = shell.namespace.runs()
    assert run["spec"]["harness"]["config"] == {"network": "none"}


def test_one_bad_folder_stops_all_unless_it_is_skipped(shell: Shell, tasks) -> None:
    folder_pack(tasks, "bad", **{"tests/test.sh": None})
    result = shell("run", str(tasks), "--agent", "nop")
    assert result.code == 1
    assert result.last.startswith(f"securebench: error: {tasks}/bad/tests/test.sh: is missing")
    assert not shell.namespace.runs()
    result = shell("run", str(tasks), "--agent", "nop", "--skip-invalid")
    assert result.code == 0, result.stdout
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "skipped" in line]
    assert len(lines) == 2
    assert f"skipped: {tasks}/bad/tests/test.sh: is missing" in lines[-1]
    (folder,) = (shell.folder / "volume/packs").glob("mine-*")
    assert {each.name for each in folder.iterdir()} == {"manifest.yaml", "a", "b"}


def test_a_folder_of_bad_ones_does_not_run(shell: Shell, tmp_path) -> None:
    root = folder_pack(tmp_path / "p", "bad", **{"tests/test.sh": None})
    assert shell("run", str(root), "--agent", "nop", "--skip-invalid").code == 1
