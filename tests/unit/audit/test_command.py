"""`securebench audit`: exit code, last line, report; and our own packs are clean."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securebench.audit.command import Report, every_rule
from securebench.audit.subject import Finding, FindingOutcome, Rule
from securebench.cli.main import app
from unit.audit.audit_packs import choice, short, write_pack
from unit.audit.image_archives import docker_archive

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PACKS = sorted(path.parent.name for path in BENCHMARKS.glob("*/manifest.yaml"))


def call(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def failed(report):
    return [each["message"] for each in report["findings"] if each["outcome"] == "failed"]


@pytest.mark.parametrize("pack", PACKS)
def test_our_packs_are_clean_without_a_cluster(pack, tmp_path):
    done = call(BENCHMARKS / pack, "--static", "--output-dir", tmp_path)

    report = json.loads((tmp_path / "audit-report.json").read_text())
    assert failed(report) == []
    assert done.exit_code == 0
    assert report["pack"]["id"] == pack
    unchecked = {each["rule"] for each in report["findings"] if each["outcome"] == "not_checked"}
    runs = {"oracle", "nop", "stubs", "base-fails", "gold-passes", "flaky"}
    assert runs | {"image"} <= unchecked <= runs | {"image", "history", "lint"}


def test_a_clean_pack_ends_with_0_and_the_line_of_the_contract(tmp_path):
    write_pack(tmp_path / "pack", choice(["red", "blue"], "B"))
    docker_archive(tmp_path / "small.tar", "small:1", [{"a": b"x"}])

    done = call(tmp_path / "pack", "--static", "--images", tmp_path, "--output-dir", tmp_path / "o")

    path = tmp_path / "o" / "audit-report.json"
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == (
        f"securebench audit: pack=small passed=4 failed=0 not_checked=7 report={path}"
    )
    assert "not about this pack: allow-paths, history\n" in done.stdout
    assert "no task that this rule is about" not in done.stdout
    rules = "oracle, gold-passes, nop, stubs, base-fails, flaky"
    assert f"not checked: {rules}: nothing was run\n" in done.stdout
    assert done.stdout.count("nothing was run\n") == 1
    report = json.loads(path.read_text())
    assert list(report) == ["schema_version", "pack", "time", "counts", "findings"]
    assert re.fullmatch("sha256:[0-9a-f]{64}", report["pack"]["digest"])
    assert report["pack"]["tasks"] == 1
    assert report["counts"] == {"passed": 6, "failed": 0, "not_checked": 7}
    assert [each["rule"] for each in report["findings"]] == list(every_rule())
    keys = ["rule", "outcome", "object", "message", "remedy"]
    assert all(list(each) == keys for each in report["findings"])


def test_a_pack_that_could_not_be_run_is_one_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    row = choice(["red", "blue"], "B")
    write_pack(tmp_path / "pack", row, answers=({"id": row["id"], "candidate": "B"},))

    done = call(tmp_path / "pack", "--output-dir", tmp_path)

    assert done.exit_code == 1
    assert done.stdout.count("could not be run") == 1
    error, last = done.stdout.splitlines()[-2:]
    assert error.startswith("securebench: error: the pack could not be run: no cluster: ")
    assert error in done.stderr
    assert last.startswith("securebench audit: pack=small passed=3 failed=0 not_checked=8 ")
    report = json.loads((tmp_path / "audit-report.json").read_text())
    unchecked = [each["rule"] for each in report["findings"] if "no cluster" in each["message"]]
    assert unchecked == ["oracle", "gold-passes", "nop", "stubs", "base-fails", "flaky"]


def test_a_defect_ends_with_1_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pack(tmp_path / "pack", short("Is it 4?", "4"))

    done = call("pack", "--static")

    assert done.exit_code == 1
    assert "an echo of the question passes" in done.stdout
    assert "null-answers: change the accepted answers" in done.stdout
    assert failed(json.loads(Path("audit-small/audit-report.json").read_text()))


def test_a_tester_file_names_pack_and_lint_of_the_harness(tmp_path):
    write_pack(tmp_path / "pack", choice(["red", "blue"], "B"), short("Is it 4?", "4"))
    (tmp_path / "tester.yaml").write_text(
        "schema_version: '0.2'\n"
        "run: {id: a, output_dir: out}\n"
        "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
        "harness: {type: command, env: [MY_TOKEN], config: {command: 'true'}}\n"
    )

    call("--config", tmp_path / "tester.yaml", "--static", "--output-dir", tmp_path, "--limit", 1)

    report = json.loads((tmp_path / "audit-report.json").read_text())
    assert report["pack"]["tasks"] == 1
    assert [message.split()[0:2] for message in failed(report)] == [["harness.env", "'MY_TOKEN'"]]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], "name the pack: a folder or --config"),
        (["pack", "--config", "x"], "not both"),
        (["pack", "--runs", "0"], "--runs"),
    ],
)
def test_wrong_usage_ends_with_2(arguments, want):
    done = call(*arguments)
    assert (done.exit_code, want in done.stderr) == (2, True)


def test_a_folder_without_a_pack_is_a_finding(tmp_path):
    done = call(tmp_path / "nothing", "--static", "--output-dir", tmp_path)

    assert done.exit_code == 1
    report = json.loads((tmp_path / "audit-report.json").read_text())
    assert report["pack"] == {"id": "nothing", "digest": None, "tasks": 0}
    assert "cannot be read" in failed(report)[0]


def test_a_folder_of_archives_that_is_no_folder_is_an_error(tmp_path):
    write_pack(tmp_path / "pack", choice(["red", "blue"], "B"))

    done = call(
        tmp_path / "pack", "--static", "--images", tmp_path / "no", "--output-dir", tmp_path
    )

    assert done.exit_code == 1
    assert "securebench: error:" in done.stdout


def test_a_pack_with_an_odd_id_stays_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pack(tmp_path / "pack", choice(["red", "blue"], "B"))
    text = "id: ../../\x41/b\nversion: 1\n"
    (tmp_path / "pack" / "manifest.yaml").write_text(text)

    call("pack", "--static")

    (folder,) = (path for path in tmp_path.iterdir() if path.name != "pack")
    assert folder.name.startswith("audit-")
    shutil.rmtree(folder)


@pytest.mark.parametrize(("columns", "is_table"), [("69", False), ("70", True)])
def test_a_narrow_terminal_gets_lines(tmp_path, monkeypatch, columns, is_table):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    write_pack(tmp_path / "pack", short("Is it 4?", "4"))

    said = call(tmp_path / "pack", "--static", "--output-dir", tmp_path).stdout

    line = "payload: passed: pack: what the agents of 1 tasks get was searched"
    assert (line in said.splitlines(), "outcome" in said) == (not is_table, is_table)


def test_remedies_are_told_once_with_their_rules():
    findings = [
        Finding("oracle", FindingOutcome.NOT_CHECKED, "pack", "a", "do it"),
        Finding(Rule.NOP, FindingOutcome.NOT_CHECKED, "pack", "b", "do it"),
        Finding(Rule.LINT, FindingOutcome.PASSED, "pack", "c"),
    ]

    assert Report("p", None, 0, "", tuple(findings)).remedies() == ("oracle, nop: do it",)
