"""The packs of benchmarks/: they hold, both ways to run them agree, and their harness answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from securebench.agents.harness import CommandHarness, ProviderHarness
from securebench.agents.registry import harness_config
from securebench.benchmark.families.registry import text_verifier
from securebench.benchmark.files.load import check_pack, load_tasks
from securebench.benchmark.files.materialize import write_lanes
from securebench.benchmark.lint import LintRule, lint_pack
from securebench.benchmark.pack.lane_plan import public_assets
from securebench.client.tester_config import load_tester_config
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.verification.command import RUNNER
from support.code_pair import judge

ROOT = Path(__file__).parents[3] / "benchmarks"
PACKS = sorted(path.parent.name for path in ROOT.glob("*/manifest.yaml"))

WANT_FAILED = {
    "agentbench-os-mini": [f"agentbench-os-{row}" for row in (47, 58, 63, 86)],
    "code-completion-smoke": [],
    "humaneval-mini": [f"humaneval-{row}" for row in (0, 1, 3, 4, 5, 6)],
    "mmlu-abstract-algebra-mini": [f"abstract-algebra-{row}" for row in (3, 6, 7)],
    "multiple-choice-smoke": ["capital-of-australia"],
    "real-bugs-mini": [
        "markupsafe-striptags-space",
        "typing-extensions-annotated-unhashable",
        "idna-decode-wrong-exception",
        "sqlparse-strip-comments-hints",
        "itsdangerous-future-timestamp",
        "xmltodict-whitespace-only",
        "tomlkit-integer-division",
        "h11-chunk-terminator",
        "h11-content-length-digits",
        "jinja2-sandbox-attr-filter",
        "markdown-standalone-emphasis",
        "boltons-sentinel-copy",
    ],
    "squad-short-answer-mini": ["squad-56be4db0acb8001400a502ef"],
    "swe-bench-verified-codex-smoke": [],
    "terminal-bench-first10": [
        "assembly-primers",
        "csv-by-sed",
        "hidden-layer",
        "image-by-c",
        "jump-in-frames",
        "sparse-eigenvector",
        "stable-kmeans",
    ],
    "terminal-task-smoke": [],
    "truthfulqa-free-response-mini": ["truthfulqa-2", "truthfulqa-3"],
}
WANT_ROWS = {
    "agentbench-os-mini": 12,
    "code-completion-smoke": 5,
    "humaneval-mini": 10,
    "mmlu-abstract-algebra-mini": 10,
    "multiple-choice-smoke": 4,
    "real-bugs-mini": 13,
    "squad-short-answer-mini": 4,
    "swe-bench-verified-codex-smoke": 3,
    "terminal-bench-first10": 10,
    "terminal-task-smoke": 5,
    "truthfulqa-free-response-mini": 4,
}


COMPILED_ONLY = "swe-bench-verified-codex-smoke"
"""Its harness needs a model's provider; its images are those of another pack."""

RUN = [pack for pack in PACKS if pack != COMPILED_ONLY]


LONG = "terminal-bench-first10"
"""Its tasks compute for seconds: `make packs` runs its tests."""


def marked(packs):
    """Return packs as parameters, the long one marked."""
    return [pytest.param(each, marks=pytest.mark.slow) if each == LONG else each for each in packs]


def tasks_of(pack):
    return load_tasks(ROOT / pack / "manifest.yaml", ROOT / pack / "tasks.jsonl").tasks


def read_yaml(pack, name):
    return yaml.safe_load((ROOT / pack / name).read_text(encoding="utf-8"))


def own_images(pack):
    images = ROOT / pack / "images"
    return [*images.glob("*/Dockerfile"), *images.glob("*/build.args")]


def harness_of(pack):
    config = load_tester_config(ROOT / pack / "tester.yaml")
    harness = harness_config(config.harness.type, config.harness.config)
    assert isinstance(harness, CommandHarness)
    return harness


def image_folder(task):
    """Return what the task's own image has in its working folder."""
    image = task.environment["image"].split("/")[-1].partition(":")[0]
    name = image.removeprefix(f"{task.benchmark_id}-")
    return ROOT / task.benchmark_id / "images" / name / task.environment["workdir"].strip("/")


def copy_into(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)


@pytest.fixture
def stage(tmp_path):
    """Build the agent's workspace of a task as a harness Pod sees it."""

    def build(pack, task):
        lanes, workspace = tmp_path / task.id / "lanes", tmp_path / task.id / "workspace"
        written = write_lanes(task, ROOT / pack, lanes)
        if task.environment.get("materialize_workdir_from_image"):
            copy_into(image_folder(task), workspace)
        copy_into(lanes / "public" / "files", workspace)
        for mount in written.asset_mounts:
            copy_into(lanes / "public" / mount.lane_path, workspace / mount.mount)
        return lanes, workspace

    return build


def produce(pack, workspace):
    done = subprocess.run(
        harness_of(pack).argv, cwd=workspace, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip()
    return done.stdout


def check(task, lanes, workspace):
    target = workspace / "securebench" / "evaluation_inputs"
    copy_into(lanes / "evaluation_inputs", target)
    checker = task.resources.value("checker")
    argv, more = (
        check_by_command(checker) if "command" in checker else check_by_file(checker, target)
    )
    environment = {**os.environ, **more, "SECUREBENCH_WORKSPACE": str(workspace)}
    done = subprocess.run(
        argv, cwd=workspace, env=environment, capture_output=True, check=False, timeout=60
    )
    return done.returncode == 0


def is_right(task, text):
    tests = task.resources.value("tests")
    return judge(text, tests["code"], repeat=tests.get("repeat", 0)).code == 0


def check_by_command(checker):
    command = checker["command"]
    return ["sh", "-lc", command] if isinstance(command, str) else command, {}


def check_by_file(checker, evaluator):
    """Return how a Pod starts the pack's file; supervise reads its first line there."""
    path = evaluator / checker["path"]
    folder = path if path.is_dir() else path.parent
    variables = {"SECUREBENCH_EVALUATOR": str(evaluator), "TEST_DIR": str(folder)}
    if checker["source"] == "pytest":
        workspace = str(evaluator.parents[1])
        words = [workspace, "", str(evaluator), str(path), f"{workspace}/../collected.json"]
        return [sys.executable, *RUNNER[1:], "run", *words], variables
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return [*first.removeprefix("#!").split(), str(path)], variables


def test_all_packs_are_known():
    assert set(WANT_FAILED) == set(WANT_ROWS) == set(PACKS)


@pytest.mark.parametrize("pack", PACKS)
def test_pack_holds(pack):
    checked = check_pack(ROOT / pack / "manifest.yaml", ROOT / pack / "tasks.jsonl")
    assert checked.errors == ()
    assert len(checked.tasks) == WANT_ROWS[pack]
    own = {f"securebench/{pack}-{path.parent.name}:1" for path in own_images(pack)}
    used = {task.environment["image"] for _, task in checked.tasks}
    if pack == COMPILED_ONLY:
        own = {row.environment["image"] for row in tasks_of("real-bugs-mini")} & used
    assert own <= used <= {"python:3.11-slim", *own}
    assert checked.pack.manifest.id == pack


@pytest.mark.parametrize("pack", PACKS)
def test_tester_yaml_names_the_pack(pack):
    config = load_tester_config(ROOT / pack / "tester.yaml")
    assert config.run.id == pack
    assert config.run.output_dir.resolve() == ROOT.parent / "results" / pack
    assert config.benchmark.manifest.is_file()
    assert config.benchmark.tasks.is_file()
    harness = harness_config(config.harness.type, config.harness.config)
    assert isinstance(harness, ProviderHarness) == (pack == COMPILED_ONLY)


@pytest.mark.parametrize("pack", PACKS)
def test_benchmark_run_is_accepted_and_runs_the_same_command(pack):
    run = read_yaml(pack, "benchmarkrun.yaml")
    assert (run["apiVersion"], run["kind"]) == ("securebench.dev/v1alpha1", "BenchmarkRun")
    assert run["metadata"] == {"name": pack}
    spec = BenchmarkRunSpec.parse(run["spec"])
    assert (spec.provider is None) == (pack in RUN)
    assert spec.parallelism == 4
    tester = read_yaml(pack, "tester.yaml")
    assert run["spec"]["harness"] == tester["harness"]


@pytest.mark.parametrize("pack", PACKS)
def test_config_map_ships_every_file_of_the_pack(pack):
    kustomization = read_yaml(pack, "kustomization.yaml")
    assert "namespace" not in kustomization
    (generator,) = kustomization["configMapGenerator"]
    source = read_yaml(pack, "benchmarkrun.yaml")["spec"]["pack"]["configMap"]
    assert generator["name"] == source["name"]
    shipped = dict(entry.split("=") for entry in generator["files"] if "=" in entry)
    assert shipped == {path.replace("/", "--"): path for path in shipped.values()}
    at_root = {entry for entry in generator["files"] if "=" not in entry}
    assert at_root == {"manifest.yaml", "tasks.jsonl"}
    files = {
        path.relative_to(ROOT / pack).as_posix()
        for folder in ("assets", "hidden")
        for path in (ROOT / pack / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(shipped.values()) == files


@pytest.mark.parametrize("pack", PACKS)
def test_generated_name_reaches_the_run(pack):
    kustomization = read_yaml(pack, "kustomization.yaml")
    assert kustomization["resources"] == ["benchmarkrun.yaml"]
    (configuration,) = kustomization["configurations"]
    assert read_yaml(pack, configuration)["nameReference"] == [
        {
            "kind": "ConfigMap",
            "version": "v1",
            "fieldSpecs": [
                {
                    "group": "securebench.dev",
                    "kind": "BenchmarkRun",
                    "path": "spec/pack/configMap/name",
                }
            ],
        }
    ]


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_writes_the_hashed_name_into_the_run(pack):
    built = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / pack)], capture_output=True, check=True, timeout=60
    )
    by_kind = {item["kind"]: item for item in yaml.safe_load_all(built.stdout)}
    generated = by_kind["ConfigMap"]["metadata"]["name"]
    assert generated.startswith(f"{pack}-pack-")
    assert by_kind["BenchmarkRun"]["spec"]["pack"]["configMap"]["name"] == generated


def test_the_reference_page_lists_the_packs():
    page = (ROOT.parent / "docs/reference/packs.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    found = {cells[1].strip(" `"): (cells[2].strip(), int(cells[3])) for cells in rows}
    assert found == {pack: (tasks_of(pack)[0].task_type, WANT_ROWS[pack]) for pack in PACKS}


FILES = (
    "README.md",
    "benchmarkrun.yaml",
    "kustomization.yaml",
    "manifest.yaml",
    "namereference.yaml",
    "oracle/answers.jsonl",
    "tasks.jsonl",
    "tester.yaml",
)


@pytest.mark.parametrize("pack", PACKS)
def test_pack_has_every_file(pack):
    assert [name for name in FILES if not (ROOT / pack / name).is_file()] == []


SECTIONS = ["Grading", "Data", "Harness", "Oracle", "Run it"]
OURS = "our own, under the licence of this repository"
LICENCE_OF_THIS = "the licence of this repository"
DATA = {
    "agentbench-os-mini": ["https://github.com/THUDM/AgentBench", "Apache License 2.0"],
    "code-completion-smoke": [OURS],
    "humaneval-mini": ["https://github.com/openai/human-eval", "MIT licence"],
    "mmlu-abstract-algebra-mini": ["https://github.com/hendrycks/test", "MIT licence"],
    "multiple-choice-smoke": ["our own questions", LICENCE_OF_THIS],
    "real-bugs-mini": ["Python Package Index", "BSD-3-Clause", "PSF-2.0", "MPL-2.0", "MIT"],
    "squad-short-answer-mini": ["https://rajpurkar.github.io/SQuAD-explorer/", "CC BY-SA 4.0"],
    "swe-bench-verified-codex-smoke": ["`real-bugs-mini`", "BSD-3-Clause", "MIT", LICENCE_OF_THIS],
    "terminal-bench-first10": [OURS, "xmltodict 0.14.1", "MIT licence"],
    "terminal-task-smoke": [OURS, "https://github.com/THUDM/AgentBench", "Apache License 2.0"],
    "truthfulqa-free-response-mini": [
        "https://github.com/sylinrl/TruthfulQA",
        "Apache License 2.0",
    ],
}
"""Where the data of a pack come from, and their licences, as its README names them."""


def sections(pack):
    """Return the sections of a pack's README by title, each as one line; "" is what comes first."""
    text = (ROOT / pack / "README.md").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in text.removeprefix(f"# {pack}\n").split("\n## ")]
    return {"": " ".join(parts[0][2].split())} | {
        title: " ".join(body.split()) for title, _, body in parts[1:]
    }


@pytest.mark.parametrize("pack", PACKS)
def test_readme_says_everything(pack):
    found = sections(pack)
    assert [title for title in found if title != "Images"] == ["", *SECTIONS]
    assert all(found.values())
    families = {task.task_type for task in tasks_of(pack)}
    assert all(f"Family `{family}`" in found["Grading"] for family in families)
    data = found["Data"]
    assert [name for name in DATA[pack] if name.lower() not in data.lower()] == []
    assert "`oracle/answers.jsonl`" in found["Oracle"]
    assert f"securebench run --config benchmarks/{pack}/tester.yaml" in found["Run it"]
    assert f"kubectl apply -k benchmarks/{pack} " in found["Run it"]


@pytest.mark.parametrize("pack", RUN)
def test_readme_has_the_expected_result(pack):
    passed = WANT_ROWS[pack] - len(WANT_FAILED[pack])
    assert f"Expected result: {passed} of {WANT_ROWS[pack]}" in sections(pack)["Harness"]


def test_readme_says_what_is_not_run():
    first = sections(COMPILED_ONLY)[""]
    assert "**This pack is linted and compiled, not run.**" in first
    assert "**No row of SWE-bench Verified is in it**" in first


IN_REPOSITORIES = {pack for pack in PACKS if tasks_of(pack)[0].task_type == "repo_patch"}
"""Their harness works on the repository of an image; see test_real_bugs.py."""


@pytest.mark.parametrize("pack", marked(sorted(set(PACKS) - IN_REPOSITORIES)))
def test_harness_gives_the_expected_answers(pack, stage):
    failed = []
    for task in tasks_of(pack):
        lanes, workspace = stage(pack, task)
        text = produce(pack, workspace)
        verifier = text_verifier(task.task_type)
        if task.task_type == "code_completion":
            passed = is_right(task, text)
        elif verifier is None:
            passed = check(task, lanes, workspace)
        else:
            passed = verifier.verify(text, task.agent_payload(), task.hidden_payload()).passed
        if not passed:
            failed.append(task.id)
    assert failed == WANT_FAILED[pack]


TERMINAL = [pack for pack in PACKS if tasks_of(pack)[0].task_type == "terminal_task"]


@pytest.mark.parametrize("pack", marked(TERMINAL))
def test_checkers_refuse_untouched_workspaces(pack, stage):
    for task in tasks_of(pack):
        lanes, workspace = stage(pack, task)
        assert not check(task, lanes, workspace), task.id


def answers_of(pack):
    """Return the reference answers by task id: text of the candidate, or a shell command."""
    lines = (ROOT / pack / "oracle/answers.jsonl").read_text(encoding="utf-8").splitlines()
    return {answer.pop("id"): answer for answer in map(json.loads, lines)}


OF_TEXT = ["candidate", "command"]


@pytest.mark.parametrize("pack", PACKS)
def test_every_task_has_one_reference_answer(pack):
    lines = (ROOT / pack / "oracle/answers.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = tasks_of(pack)
    assert [json.loads(line)["id"] for line in lines] == [task.id for task in tasks]
    for task in tasks:
        ((kind, text),) = answers_of(pack)[task.id].items()
        assert kind in (["command"] if task.task_type == "terminal_task" else OF_TEXT)
        assert text.strip()


def lanes_of(root, out):
    tasks = load_tasks(root / "manifest.yaml", root / "tasks.jsonl").tasks
    for number, task in enumerate(tasks):
        write_lanes(task, root, out / str(number))
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("pack", PACKS)
def test_no_task_is_compiled_from_the_answers(pack, tmp_path):
    bare = tmp_path / "bare"
    ignored = shutil.ignore_patterns("oracle", "images", "source")
    shutil.copytree(ROOT / pack, bare, ignore=ignored)
    with_answers = lanes_of(ROOT / pack, tmp_path / "a")
    assert with_answers == lanes_of(bare, tmp_path / "b")
    answers = (ROOT / pack / "oracle/answers.jsonl").read_bytes()
    assert with_answers
    assert answers not in with_answers.values()


TEXT = [pack for pack in PACKS if text_verifier(tasks_of(pack)[0].task_type) is not None]


@pytest.mark.parametrize("pack", TEXT)
def test_reference_answers_pass_and_empty_ones_fail(pack):
    answers = answers_of(pack)
    for task in tasks_of(pack):
        verifier = text_verifier(task.task_type)
        given = task.agent_payload(), task.hidden_payload()
        right = verifier.verify(answers[task.id]["candidate"], *given)
        assert (right.passed, right.score, right.status) == (True, 1.0, "passed"), task.id
        empty = verifier.verify("", *given)
        assert (empty.passed, empty.score, empty.status) == (False, 0.0, "failed"), task.id


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Let another C compiler stand in for tcc where there is none."""
    if shutil.which("tcc") is not None:
        return
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tcc").symlink_to(shutil.which("cc"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("pack", "task"),
    [
        pytest.param(pack, task, id=f"{pack}-{task.id}", marks=[pytest.mark.slow] * (pack == LONG))
        for pack in TERMINAL
        for task in tasks_of(pack)
    ],
)
def test_reference_commands_pass(pack, task, stage):
    lanes, workspace = stage(pack, task)
    command = answers_of(pack)[task.id]["command"]
    subprocess.run(["sh", "-lc", command], cwd=workspace, check=True, timeout=60)
    assert check(task, lanes, workspace)


@pytest.mark.parametrize(
    ("task_id", "file", "content"),
    [
        ("urgent-minutes", "answer.txt", "2 30\n"),
        ("urgent-minutes", "answer.txt", "230\n231\n"),
        ("peak-logins", "answer.txt", "3\n"),
        ("csv-totals", "totals.json", "{}"),
        ("csv-totals", "totals.json", '{"Adler": 41.0, "Brandt": 41.3, "Costa": 14.0}'),
        ("settings-port", "settings.ini", "[server]\nport = 9090\n"),
        ("starter-slug", "slug.py", "import sys\nsys.exit(0)\n"),
        ("starter-slug", "slug.py", "print('{}')\ndef slug(title): return title\n"),
        ("agentbench-os-46", "answer.txt", "3 2\n1\n"),
        ("agentbench-os-46", "answer.txt", "*"),
        ("agentbench-os-47", "answer.txt", "34 lines"),
        ("agentbench-os-47", "answer.txt", "34.0"),
        ("agentbench-os-47", "answer.txt", "-34"),
        ("agentbench-os-47", "answer.txt", "99999999999999999999"),
        ("agentbench-os-47", "answer.txt", "-f"),
        ("agentbench-os-47", "answer.txt", ""),
    ],
)
def test_checkers_refuse_wrong_results(stage, task_id, file, content):
    pack, task = next((pack, t) for pack in TERMINAL for t in tasks_of(pack) if t.id == task_id)
    lanes, workspace = stage(pack, task)
    (workspace / file).write_text(content, encoding="utf-8")
    assert not check(task, lanes, workspace)


@pytest.mark.parametrize("content", ["34", "\n\t 34 \n\n", "+34", "034"])
def test_white_space_around_an_integer_does_not_count(stage, content):
    task = next(task for task in tasks_of("agentbench-os-mini") if task.id == "agentbench-os-47")
    lanes, workspace = stage("agentbench-os-mini", task)
    (workspace / "answer.txt").write_text(content, encoding="utf-8")
    assert check(task, lanes, workspace)


def test_terminal_pack_has_read_only_and_writable_assets():
    flags = [
        asset.read_only for task in tasks_of("terminal-task-smoke") for asset in public_assets(task)
    ]
    assert set(flags) == {True, False}


@pytest.mark.parametrize("pack", PACKS)
def test_lint_finds_nothing_but_images_without_digest(pack):
    checked = check_pack(ROOT / pack / "manifest.yaml", ROOT / pack / "tasks.jsonl")
    assert {finding.rule for finding in lint_pack(checked)} == {LintRule.IMAGE_DIGEST}


CODE_PACKS = ["code-completion-smoke", "humaneval-mini"]
WRONG = {
    "nothing": "",
    "None": "{starter}    return None\n",
    "equals everything": "class Any:\n    __eq__ = lambda *_: True\n{starter}    return Any()\n",
    "exit": "{starter}    import os; os._exit(0)\n",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pack", CODE_PACKS)
def test_reference_modules_pass(pack):
    answers = answers_of(pack)
    wrong = [t.id for t in tasks_of(pack) if not is_right(t, answers[t.id]["candidate"])]
    assert wrong == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_modules_fail(name):
    for task in tasks_of("humaneval-mini"):
        starter = task.resources.value("starter_code")
        assert not is_right(task, WRONG[name].format(starter=starter)), task.id
