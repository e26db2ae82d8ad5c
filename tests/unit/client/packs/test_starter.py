"""`securebench init`: what it writes holds, and its reference answers are right."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from securebench.agents.registry import AGENTS
from securebench.audit.subject import load_subject
from securebench.benchmark.families.registry import row_families, text_verifier
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.cli.main import app
from securebench.client.packs import PackFiles, pack_findings
from securebench.client.starter import agents, pack_name, starter_files

ROOT = Path(__file__).parents[4]
TEXT_FAMILIES = [name for name in row_families() if text_verifier(name) is not None]


def init(*words: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["init", *words])
    return done.exit_code, done.stdout.splitlines()


def test_help_names_every_family_and_agent() -> None:
    done = CliRunner().invoke(app, ["init", "--help"], env={"COLUMNS": "400"})
    listed = set(re.findall(r"\w+", done.stdout))
    assert {*(each for each in row_families() if each in _templates()), *agents()} <= listed


def _templates() -> set[str]:
    return {each.name for each in files("securebench.client").joinpath("templates").iterdir()}


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    family = request.node.callspec.params["family"]
    agent = request.node.callspec.params.get("agent", "command")
    folder = tmp_path / "My first Pack"
    assert init(str(folder), "--family", family, "--agent", agent)[0] == 0
    return folder


@pytest.mark.parametrize("agent", agents())
@pytest.mark.parametrize("family", row_families())
def test_lint_finds_the_tag_of_the_image_alone(made: Path, family: str, agent: str) -> None:
    """And that the tests of the repository, which has no pytest, are not counted."""
    found = {each.rule for each in pack_findings(PackFiles(made / "tester.yaml"))}
    assert found == {"image-digest"} | ({"exit-code"} if family == "repo_patch" else set())
    assert f"`{family}`" in (made / "README.md").read_text()
    assert yaml.safe_load((made / "tester.yaml").read_text())["harness"]["type"] == agent
    assert not re.search(r"\{\{", "".join(tree(made).values()))


def test_every_agent_but_those_of_audits_has_a_template() -> None:
    assert set(agents()) <= {name for name, agent in AGENTS.items() if not agent.is_audit}
    assert {"command", "codex", "claude_code"} <= set(agents())


@pytest.mark.parametrize("agent", agents())
@pytest.mark.parametrize("family", row_families())
def test_its_schemas_accept_it_and_editors_find_them(made: Path, family: str, agent: str) -> None:
    assert AGENTS[agent]
    for name in ("manifest", "tester"):
        text = (made / f"{name}.yaml").read_text()
        (place,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
        jsonschema.validate(yaml.safe_load(text), json.loads((made / place).read_text()))
    settings = json.loads((made / ".vscode/settings.json").read_text())
    (rows,) = settings["json.schemas"]
    assert rows["fileMatch"] == ["tasks.jsonl"]
    assert rows["url"] == f"./schemas/row.{family}.schema.json"
    schema = json.loads((made / rows["url"]).read_text())
    for line in (made / "tasks.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema)
    assert all((made / place).is_file() for place in settings["yaml.schemas"])


@pytest.mark.parametrize("family", ["short_answer"])
def test_the_editors_task_reads_what_lint_prints(made: Path, family: str) -> None:
    (made / "tasks.jsonl").write_text(f'{{"id": "a", "family": "{family}"}}\n')
    (task,) = json.loads((made / ".vscode/tasks.json").read_text())["tasks"]
    matcher = task["problemMatcher"]
    said = CliRunner().invoke(app, ["pack", "lint", "--config", str(made / "tester.yaml")])
    lines = said.stdout.splitlines()
    found = [
        match.groups() for line in lines if (match := re.match(matcher["pattern"]["regexp"], line))
    ]
    assert len(found) == len(lines) - 1
    assert found[0][:3] == ("error", str(made / "tasks.jsonl"), "1")
    assert re.match(matcher["background"]["endsPattern"], lines[-1])
    assert task["args"][:2] == ["pack", "lint"]


def verdict(task: SecureBenchTask, candidate: str) -> bool:
    verifier = text_verifier(task.task_type)
    assert verifier is not None
    return verifier.verify(candidate, task.agent_payload(), task.hidden_payload()).passed


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_its_reference_answers_pass_and_nothing_does_not(made: Path, family: str) -> None:
    subject = load_subject(made / "manifest.yaml", made / "tasks.jsonl")
    assert {task.task_type for task in subject.tasks} == {family}
    for task in subject.tasks:
        assert verdict(task, subject.answers[task.id].text)
        assert not verdict(task, "")


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_its_agent_solves_one_of_two(made: Path, family: str, tmp_path: Path) -> None:
    command = yaml.safe_load((made / "tester.yaml").read_text())["harness"]["config"]["command"]
    subject = load_subject(made / "manifest.yaml", made / "tasks.jsonl")
    passed = []
    for task in subject.tasks:
        folder = tmp_path / family / task.id
        folder.mkdir(parents=True)
        (folder / "task.json").write_text(json.dumps(task.agent_payload()))
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True
        )
        passed.append(verdict(task, done.stdout))
    assert sorted(passed) == [False, True]


def test_the_repository_is_that_of_the_docs() -> None:
    made = starter_files("slugs", "repo_patch", "command")
    example = ROOT / "docs/examples/slugs"
    images = {name: text for name, text in made.items() if name.startswith("images/")}
    assert images == {f"images/{name}": text for name, text in tree(example / "images").items()}
    assert made["tasks.jsonl"] == (example / "tasks.jsonl").read_text()
    assert made["oracle/answers.jsonl"] == (example / "oracle/answers.jsonl").read_text()
    assert "image: securebench/slugs-slugify:1" in made["manifest.yaml"]


@pytest.mark.parametrize(
    ("name", "want"),
    [("My first Pack", "my-first-pack"), ("geo_2", "geo-2"), ("übung", "bung"), ("…", "pack")],
)
def test_a_name_that_images_and_runs_may_have(tmp_path: Path, name: str, want: str) -> None:
    assert pack_name(tmp_path / name) == want


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "geo").mkdir()
    code, lines = init(str(tmp_path / "geo"), "--family", "terminal_task")
    assert (code, lines[-1]) == (
        0,
        f"securebench: pack geo family=terminal_task agent=command files={len(tree(tmp_path))}",
    )


MISTAKES = {
    "not empty": (["full", "--family", "short_answer"], "full is not empty; name a new or an"),
    "a file": (["full/x", "--family", "short_answer"], "full/x is a file; name a new or an empty"),
    "family": (
        ["new", "--family", "short-answer"],
        "unknown family 'short-answer', did you mean 'short_answer'?",
    ),
    "deferred family": (["new", "--family", "tool_call"], "unknown family 'tool_call'; known are"),
    "agent": (
        ["new", "--family", "short_answer", "--agent", "claude-code"],
        "unknown agent 'claude-code', did you mean 'claude_code'?",
    ),
    "audit": (
        ["new", "--family", "short_answer", "--agent", "oracle"],
        "unknown agent 'oracle'; known are ",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("mine")
    words, want = MISTAKES[case]
    code, lines = init(*words)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"securebench: error: {want}")
    assert tree(tmp_path) == {"full/x": "mine"}


def test_the_templates_are_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["securebench"]
    package = ROOT / "operator/securebench"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    templates = [path for path in (package / "client/templates").rglob("*") if path.is_file()]
    assert len(templates) > len(row_families())
    assert set(templates) <= packed
    assert not [path for path in templates if path.name.startswith(".") or path.suffix == ".py"]
