"""The Harbor task folders of benchmarks/: they hold, and images and page fit them."""

import re
from pathlib import Path

from securebench.benchmark.files.load import check_upload
from securebench.benchmark.pack.oracle import reference_answers

ROOT = Path(__file__).parents[3] / "benchmarks/harbor-tasks"
CHECKED = check_upload(ROOT / "tasks/manifest.yaml", ROOT / "tasks/tasks.jsonl")
TASKS = [task for _, task in CHECKED.tasks]


def test_they_run_with_a_reference_solution_each():
    assert CHECKED.errors == ()
    assert len(TASKS) >= 4
    ids = {task.id for task in TASKS}
    assert set(reference_answers(None, TASKS, ids, is_whole=True).by_id) == ids


def test_their_images_are_built_here():
    built = {f"securebench/harbor-tasks-{path.name}:1" for path in (ROOT / "images").iterdir()}
    named = {
        each["image"]
        for task in TASKS
        for each in (
            task.environment,
            *task.environment.get("services", ()),
        )
    }
    verifiers = [task.resources.value("verifier").get("image", {}) for task in TASKS]
    assert named | {each["path"] for each in verifiers if each} == built


def test_the_page_names_each():
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == [task.id for task in TASKS]
