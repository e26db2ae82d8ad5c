import json

import pytest

from securebench.benchmark.files.load import (
    check_pack,
    load_benchmark_manifest,
    load_benchmark_pack,
    load_tasks,
    pack_file,
)
from securebench.benchmark.pack.task import compile_benchmark_pack
from securebench.errors import ConfigErrors, PackError

TERMINAL = {
    "id": "a",
    "family": "terminal_task",
    "input": {"instructions": "i"},
    "eval": {"checker": {"command": "true"}},
}


@pytest.fixture
def pack(tmp_path):
    (tmp_path / "manifest.yaml").write_text(
        "id: demo\nversion: 1\ndefaults:\n  environment: {image: i}\n"
    )
    return tmp_path


def write(pack, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (pack / "tasks.jsonl").write_text("\n".join(lines))
    return pack / "manifest.yaml", pack / "tasks.jsonl"


def reasons(pack, *rows, **options):
    checked = check_pack(*write(pack, *rows), **options)
    return [error.reason for error in checked.errors]


def test_a_good_pack(pack):
    manifest, tasks = write(pack, TERMINAL)
    loaded = load_tasks(manifest, tasks)
    assert [task.id for task in loaded.tasks] == ["a"]
    assert loaded.tasks[0].metadata["benchmark_pack"]["manifest_path"] == str(manifest)
    assert compile_benchmark_pack(load_benchmark_pack(manifest, tasks)) == loaded.tasks


def test_limit_reads_nothing_behind_it(pack):
    manifest, tasks = write(pack, TERMINAL, "broken")
    assert len(load_benchmark_pack(manifest, tasks, limit=1).lines) == 1
    assert len(load_tasks(manifest, tasks, limit=1).tasks) == 1
    with pytest.raises(ConfigErrors):
        load_tasks(manifest, tasks)


UNREADABLE = {
    "missing manifest": ("no.yaml", "tasks.jsonl", "no.yaml: cannot be read: No such file"),
    "missing tasks": ("manifest.yaml", "no.jsonl", "no.jsonl: cannot be read: No such file"),
    "folder": (".", "tasks.jsonl", ": cannot be read: Is a directory"),
    "bytes": ("bytes.yaml", "tasks.jsonl", "bytes.yaml:1: not UTF-8 text; save the file as UTF-8"),
    "broken": ("broken.yaml", "tasks.jsonl", "broken.yaml:1: manifest id is required"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable(pack, case):
    manifest, tasks, want = UNREADABLE[case]
    write(pack, TERMINAL)
    (pack / "bytes.yaml").write_bytes(b"\xff")
    (pack / "broken.yaml").write_text("version: 1")
    checked = check_pack(pack / manifest, pack / tasks)
    assert checked.pack is None
    assert checked.tasks == ()
    assert want in str(checked.errors[0])
    with pytest.raises(ConfigErrors):
        load_tasks(pack / manifest, pack / tasks)


def test_shown_name_of_a_manifest(pack):
    assert load_benchmark_manifest(pack / "manifest.yaml", shown="m").path == "m"


def test_all_errors_with_lines_in_file_order(pack):
    checked = check_pack(
        *write(
            pack,
            {**TERMINAL, "assets": [{"path": "no"}, {"path": "../x"}], "environment": {"image": 1}},
            "",
            {**TERMINAL, "id": "b", "input": {}},
            {**TERMINAL, "id": "c", "assets": [{"path": "no"}]},
        )
    )
    missing = "asset source does not exist: assets[0].path 'no' below 'assets/'"
    assert [(error.line, error.reason) for error in checked.errors] == [
        (1, f"task 'a' (terminal_task): {missing} (the same in 1 more row: line 4)"),
        (1, "task 'a' (terminal_task): assets[1].path must not contain '..'"),
        (
            1,
            "task 'a' (terminal_task): benchmark environment.image is required: a non-empty string",
        ),
        (3, "task 'b' (terminal_task): input.instructions is required"),
    ]


def test_eval_files_are_looked_up_below_the_eval_root(pack):
    row = {**TERMINAL, "eval": {"checker": {"source": "pytest", "path": "t.py"}}}
    assert "eval.checker.path 't.py' below 'hidden/'" in reasons(pack, row)[0]
    (pack / "hidden").mkdir()
    (pack / "hidden/t.py").write_text("")
    assert reasons(pack, row) == []


ENVIRONMENTS = {
    "no image": ({"image": None}, "benchmark environment.image"),
    "blank image": ({"image": " "}, "benchmark environment.image"),
    "timeout 0": ({"timeout_seconds": 0}, "environment.timeout_seconds"),
    "timeout bool": ({"timeout_seconds": True}, "environment.timeout_seconds"),
    "copy": ({"materialize_workdir_from_image": "yes"}, "must be a boolean"),
    "workdir type": ({"workdir": 3}, "environment.workdir"),
    "workdir relative": ({"workdir": "app"}, "environment.workdir"),
    "workdir up": ({"workdir": "/app/../etc"}, "without '..'"),
    "workdir backslash": ({"workdir": "/app\\x"}, "environment.workdir"),
    "workdir elsewhere": ({"workdir": "/application"}, "workspace mount target"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_bad_environments(pack, case):
    environment, want = ENVIRONMENTS[case]
    (reason,) = reasons(pack, {**TERMINAL, "environment": environment})
    assert want in reason


GOOD_ENVIRONMENTS = {
    "nulls": {"timeout_seconds": None, "materialize_workdir_from_image": None, "workdir": None},
    "copy": {"materialize_workdir_from_image": True, "workdir": "/app/x", "timeout_seconds": 1.5},
    "no copy": {"materialize_workdir_from_image": False, "workdir": "/testbed"},
}


@pytest.mark.parametrize("case", GOOD_ENVIRONMENTS)
def test_good_environments(pack, case):
    assert reasons(pack, {**TERMINAL, "environment": GOOD_ENVIRONMENTS[case]}) == []


def test_image_copy_is_for_terminal_tasks(pack):
    row = {"id": "a", "family": "tool_call", "environment": {"workdir": "x"}}
    assert reasons(pack, row) == []
    row["environment"]["materialize_workdir_from_image"] = True
    assert "terminal_task only" in reasons(pack, row)[0]


PLANS = {
    "agent": ({"input": {"a..b": 1}}, "resource name"),
    "evaluator": ({"eval": {"a..b": 1}}, "resource name"),
    "sandbox": (
        {"family": "browser_task", "eval": {"credentials": {"path": "assets/x", "mount": "x"}}},
        "must be under",
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_plans_are_checked_before_a_run(pack, case):
    change, want = PLANS[case]
    (reason,) = reasons(pack, {"id": "a", "family": "tool_call", **change})
    assert want in reason


def test_task_file_must_not_collide(pack):
    (pack / "assets").mkdir()
    (pack / "assets/task.json").write_text("{}")
    row = {**TERMINAL, "assets": [{"path": "task.json"}]}
    assert "collides with public materialized path" in reasons(pack, row)[0]
    assert reasons(pack, row, task_file="other.json") == []


def test_pack_file(pack):
    assert pack_file(pack, "./manifest.yaml") == pack / "manifest.yaml"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "link.yaml", "loop", "way/manifest.yaml"])
def test_pack_file_stays_in_the_pack(pack, name):
    (pack / "link.yaml").symlink_to("manifest.yaml")
    (pack / "way").symlink_to(".")
    (pack / "loop").symlink_to("loop")
    with pytest.raises(PackError):
        pack_file(pack, name)


def test_no_hidden_value_in_any_error(pack):
    canary = "CANARY-8f2e"
    rows = [
        {"id": "1", "family": "multiple_choice", "eval": {"answer": {"x": canary}}},
        {"id": "2", "family": "terminal_task", "eval": {"needed_commands": [canary]}},
        {"id": "3", "family": "repo_patch", "eval": {"tests": {"source": canary}}},
        {"id": "4", "family": "short_answer", "eval": {"accepted_answers": canary}},
        f'{{"id": "5", "eval": {{"answer": "{canary}" "x"}}}}',
        f'{{"id": "6", "eval": {{"answer": "{canary}\\x"}}}}',
    ]
    found = reasons(pack, *rows)
    assert len(found) >= len(rows)
    assert canary not in "\n".join(found)
