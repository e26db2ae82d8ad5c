import hashlib
import json
import os
import stat

import pytest

from securebench.benchmark.files import materialize
from securebench.benchmark.files.materialize import write_answer, write_lanes
from securebench.benchmark.pack.lane_plan import (
    AssetMount,
    MaterializationPlan,
    check_task_file,
    each_reference,
    json_file,
    lane_plan,
    materialization_plan,
)
from securebench.benchmark.pack.oracle import ReferenceAnswer
from securebench.benchmark.pack.paths import PathError
from securebench.benchmark.pack.task import compile_benchmark_row, task_from_spec
from securebench.benchmark.reading.rows import BenchmarkManifest
from securebench.benchmark.resources import Component
from securebench.errors import (
    InvalidInputError,
    InvariantViolationError,
    PackError,
    StorageError,
)
from securebench.files import tree_digest
from securebench.sizes import MIB

MANIFEST = BenchmarkManifest("demo", 1, default_environment={"image": "i"})


def terminal(**changes):
    row = {
        "id": "t",
        "family": "terminal_task",
        "input": {"instructions": "do it"},
        "eval": {"checker": {"command": "true"}},
        **changes,
    }
    return compile_benchmark_row(row, manifest=MANIFEST)


def row(**sections):
    return compile_benchmark_row({"id": "t", "family": "tool_call", **sections}, manifest=MANIFEST)


FULL = terminal(
    assets=[
        {"path": "in.csv", "mount": "data/in.csv"},
        {"path": "notes", "read_only": False},
        {"path": "lib"},
    ],
    eval={
        "checker": {"source": "pytest", "path": "checks/test_it.py"},
        "needed_commands": [],
        "test_files": {"path": "geo/cases"},
        "run_tests": {"path": "run.sh", "mount": "securebench/evaluation_inputs/bin/run.sh"},
        "expected_state": {"secret": "never written"},
    },
)


@pytest.fixture
def pack_root(tmp_path):
    root = tmp_path / "pack"
    for path, content in {
        "assets/in.csv": "1,2\n",
        "assets/notes/a/b.txt": "b",
        "assets/lib/x.py": "x",
        "hidden/checks/test_it.py": "def test(): pass\n",
        "hidden/geo/cases/1.txt": "one",
        "hidden/geo/cases/deep/2.txt": "two",
        "hidden/run.sh": "#!/bin/sh\n",
    }.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(0o777)
    (root / "assets/notes/empty").mkdir()
    return root


PLANS = {
    "agent": [
        "securebench/public/instructions.json",
        "data/in.csv",
        "notes",
        "lib",
    ],
    "test_sandbox": [
        "securebench/public/instructions.json",
        "data/in.csv",
        "notes",
        "lib",
        "securebench/evaluation_inputs/checker.json",
        "securebench/evaluation_inputs/needed_commands.json",
        "securebench/evaluation_inputs/geo/cases",
        "securebench/evaluation_inputs/bin/run.sh",
        "securebench/evaluation_inputs/checks/test_it.py",
    ],
    "evaluator": ["securebench/evaluator/instructions.json"],
}


@pytest.mark.parametrize("component", PLANS)
def test_plans(component):
    assert list(materialization_plan(FULL, component).paths) == PLANS[component]


LANES = {
    "public/files/securebench/public/instructions.json": json_file("do it"),
    "public/assets/0": ("data/in.csv", "assets/"),
    "public/files/notes": ("notes", "assets/"),
    "public/assets/1": ("lib", "assets/"),
    "evaluation_inputs/checker.json": json_file({"source": "pytest", "path": "checks/test_it.py"}),
    "evaluation_inputs/needed_commands.json": json_file([]),
    "evaluation_inputs/geo/cases": ("securebench/evaluation_inputs/geo/cases", "hidden/"),
    "evaluation_inputs/bin/run.sh": ("securebench/evaluation_inputs/bin/run.sh", "hidden/"),
    "evaluation_inputs/checks/test_it.py": (
        "securebench/evaluation_inputs/checks/test_it.py",
        "hidden/",
    ),
    "hidden/public/instructions.json": json_file("do it"),
}


def test_the_plan_of_the_lanes_says_what_lies_where():
    plan = lane_plan(FULL)
    planned = {file.path: file.content or (file.place, file.root) for file in plan.files}
    assert planned.pop("public/files/task.json") == json_file(FULL.agent_payload())
    assert planned == LANES
    folders = {"public/assets/1", "evaluation_inputs/geo/cases"}
    assert plan.asset_mounts(folders) == (
        AssetMount("assets/0", "data/in.csv", is_folder=False),
        AssetMount("assets/1", "lib", is_folder=True),
    )
    assert not plan.has_checker_folder(folders)


def test_read_only_flags():
    plan = materialization_plan(FULL, "test_sandbox")
    assert [item.read_only for item in plan.files] == [
        False, True, False, True, True, True, True, True, True,
    ]  # fmt: skip


def test_objects_with_further_keys_are_data():
    task = terminal(
        eval={"checker": {"command": "x"}, "test_files": {"path": "geo/cases", "strict": True}}
    )
    paths = materialization_plan(task, "test_sandbox").paths
    assert "securebench/evaluation_inputs/test_files.json" in paths
    assert list(each_reference(task)) == []


def test_hidden_file_references():
    task = row(eval={"gold": {"path": "gold.png"}, "other": {"path": "x", "mount": None}})
    assert materialization_plan(task, "evaluator").paths == (
        "securebench/evaluator/gold.png",
        "securebench/evaluator/x",
    )


REFUSED_PLANS = {
    "result": (FULL, "result", "never a target"),
    "unsafe asset": (row(assets=[{"path": "../x"}]), "agent", "must not contain"),
    "reserved mount": (
        row(assets=[{"path": "x", "mount": "securebench/evaluator/x"}]), "agent", "reserved"),
    "denied mount": (row(assets=[{"path": "x", "mount": "eval/x"}]), "agent", "denied"),
    "same mount": (
        row(assets=[{"path": "x", "mount": "m"}, {"path": "y", "mount": "m/n"}]),
        "agent", "duplicate materialized path"),
    "asset over public file": (
        row(input={"q": 1}, assets=[{"path": "x", "mount": "securebench/public/q.json"}]),
        "agent", "duplicate materialized path"),
    "resource name": (row(input={"a..b": 1}), "agent", "resource name"),
    "assets of another kind": (row(input={"assets": "x"}), "agent", "must be an object"),
    "asset without path": (row(input={"assets": [{}]}), "agent", "path is required"),
    "eval mount elsewhere": (
        row(eval={"initial_state": {"path": "x", "mount": "y"}}), "test_sandbox", "must be under"),
    "eval mount is the root": (
        row(eval={"initial_state": {"path": "x", "mount": "securebench/evaluation_inputs"}}),
        "test_sandbox", "must be under"),
    "eval path": (row(eval={"initial_state": {"path": "/x"}}), "test_sandbox", "relative"),
    "eval path type": (row(eval={"initial_state": {"path": 1}}), "test_sandbox", "path must be"),
    "kind": (
        task_from_spec({"id": "t", "benchmark_id": "b", "task_type": "x", "resources": [
            {"name": "a", "visibility": "public", "kind": "binary", "value": 1}]}),
        "agent", "not supported for materialization"),
    "value": (
        task_from_spec({"id": "t", "benchmark_id": "b", "task_type": "x", "resources": [
            {"name": "a", "visibility": "public", "value": {1, 2}}]}),
        "agent", "not JSON-serializable"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_PLANS)
def test_refused_plans(case):
    task, component, want = REFUSED_PLANS[case]
    with pytest.raises(InvalidInputError, match=want):
        materialization_plan(task, component)


def test_a_plan_holds_files_of_one_component():
    files = materialization_plan(FULL, "agent").files
    with pytest.raises(PathError, match="does not match plan component"):
        MaterializationPlan(Component.TEST_SANDBOX, files)


def test_task_file():
    plan = materialization_plan(FULL, "agent")
    assert check_task_file(plan, "task.json") == "task.json"
    with pytest.raises(PathError, match="collides with public materialized path"):
        check_task_file(plan, "notes/task.json")


def test_each_reference_goes_on_after_a_bad_one():
    task = terminal(
        assets=[{"path": "/bad"}, {"path": "good"}],
        eval={"checker": {"source": "script", "path": "../x"}, "test_files": {"path": "y"}},
    )
    found = list(each_reference(task))
    assert [isinstance(item, PathError) for item in found] == [True, False, False, True]


JSON_FILES = {
    "text": ("ü", b'"\\u00fc"\n'),
    "object": ({"b": [1], "a": None}, b'{\n  "a": null,\n  "b": [\n    1\n  ]\n}\n'),
}


@pytest.mark.parametrize("case", JSON_FILES)
def test_json_form(case):
    value, want = JSON_FILES[case]
    assert json_file(value) == want


def tree(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_lanes_on_disk(pack_root, tmp_path):
    lanes = write_lanes(FULL, pack_root, tmp_path / "lanes")
    assert tree(tmp_path / "lanes") == [
        "evaluation_inputs/bin/run.sh",
        "evaluation_inputs/checker.json",
        "evaluation_inputs/checks/test_it.py",
        "evaluation_inputs/geo/cases/1.txt",
        "evaluation_inputs/geo/cases/deep/2.txt",
        "evaluation_inputs/needed_commands.json",
        "hidden/public/instructions.json",
        "public/assets/0",
        "public/assets/1/x.py",
        "public/files/notes/a/b.txt",
        "public/files/securebench/public/instructions.json",
        "public/files/task.json",
    ]
    assert lanes.asset_mounts == (
        AssetMount("assets/0", "data/in.csv", is_folder=False),
        AssetMount("assets/1", "lib", is_folder=True),
    )
    payload = (tmp_path / "lanes/public/files/task.json").read_bytes()
    assert payload == json_file(FULL.agent_payload())
    digest = hashlib.sha256()
    content = sha256(b'"do it"\n')
    digest.update(f"public/instructions.json\0{content}\n".encode())
    assert lanes.hidden_digest == f"sha256:{digest.hexdigest()}"
    assert len({lanes.public_digest, lanes.evaluation_inputs_digest, lanes.hidden_digest}) == 3


@pytest.mark.parametrize(("path", "want"), [("checks", True), ("checks/test_it.py", False)])
def test_lanes_tell_whether_the_checkers_file_is_a_folder(pack_root, tmp_path, path, want):
    task = terminal(eval={"checker": {"source": "pytest", "path": path}})
    assert write_lanes(task, pack_root, tmp_path / "lanes").checker_is_folder is want


def test_another_folder_is_not_the_checkers(pack_root, tmp_path):
    task = terminal(eval={"checker": {"command": "x"}, "test_files": {"path": "geo/cases"}})
    assert write_lanes(task, pack_root, tmp_path / "lanes").checker_is_folder is False


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_modes_do_not_depend_on_the_umask(pack_root, tmp_path):
    before = os.umask(0o077)
    try:
        write_lanes(FULL, pack_root, tmp_path / "a" / "lanes")
    finally:
        os.umask(before)
    for path in (tmp_path / "a").rglob("*"):
        want = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == want


def test_text_family_gets_public_values_beside_the_hidden_ones(tmp_path):
    task = compile_benchmark_row(
        {
            "id": "t",
            "family": "multiple_choice",
            "input": {"question": "q", "choices": ["a", "b"]},
            "eval": {"answer": 1},
        },
        manifest=MANIFEST,
    )
    write_lanes(task, tmp_path, tmp_path / "lanes", task_file="in/work.json")
    assert tree(tmp_path / "lanes") == [
        "hidden/answer.json",
        "hidden/public/choices.json",
        "hidden/public/question.json",
        "public/files/in/work.json",
        "public/files/securebench/public/choices.json",
        "public/files/securebench/public/question.json",
    ]
    assert json.loads((tmp_path / "lanes/hidden/answer.json").read_text()) == 1
    assert (tmp_path / "lanes/evaluation_inputs").is_dir()


def test_a_second_write_leaves_nothing_of_the_first(pack_root, tmp_path):
    lanes = tmp_path / "lanes"
    first = write_lanes(FULL, pack_root, lanes)
    (lanes / "public/files/stale").write_text("x")
    assert write_lanes(FULL, pack_root, lanes) == first
    assert not (lanes / "public/files/stale").exists()


def test_an_empty_folder_is_an_empty_mount(pack_root, tmp_path):
    lanes = write_lanes(
        terminal(assets=[{"path": "notes/empty", "mount": "e"}]), pack_root, tmp_path / "lanes"
    )
    assert lanes.asset_mounts == (AssetMount("assets/0", "e", is_folder=True),)
    assert (tmp_path / "lanes/public/assets/0").is_dir()


def test_nothing_is_written_when_an_asset_does_not_hold(pack_root, tmp_path):
    (pack_root / "assets/in.csv").unlink()
    with pytest.raises(PackError, match="asset source does not exist"):
        write_lanes(FULL, pack_root, tmp_path / "lanes")
    assert not (tmp_path / "lanes").exists()


def test_collision_inside_the_hidden_lane(tmp_path):
    task = row(input={"q": 1}, eval={"x": {"path": "public/q.json"}})
    (tmp_path / "hidden/public").mkdir(parents=True)
    (tmp_path / "hidden/public/q.json").write_text("1")
    with pytest.raises(PathError, match="duplicate materialized path"):
        write_lanes(task, tmp_path, tmp_path / "lanes")


def test_a_broken_volume_is_a_storage_error(pack_root, tmp_path):
    (tmp_path / "lanes").write_text("a file in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        write_lanes(FULL, pack_root, tmp_path / "lanes")


def test_every_file_and_folder_is_synced(pack_root, tmp_path, monkeypatch):
    synced = set()
    real = os.fsync

    def fsync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(materialize.os, "fsync", fsync)
    write_lanes(FULL, pack_root, tmp_path / "deep" / "lanes")
    written = [tmp_path, *(tmp_path / "deep").rglob("*"), tmp_path / "deep"]
    assert {path.stat().st_ino for path in written} <= synced


def test_a_planned_file_needs_content_or_source(tmp_path):
    with pytest.raises(InvariantViolationError):
        materialize._write(tmp_path / "x", None, None)


# Reference answers


def test_an_answer_is_written_and_synced(tmp_path, monkeypatch):
    synced = set()
    real = os.fsync

    def fsync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(materialize.os, "fsync", fsync)
    (tmp_path / "lanes/public").mkdir(parents=True)
    digest = write_answer(
        ReferenceAnswer("command", "echo é\n"), terminal(), tmp_path, tmp_path / "lanes"
    )
    file = tmp_path / "lanes/oracle/command"
    assert file.read_text(encoding="utf-8") == "echo é\n"
    assert digest == tree_digest(file.parent)
    written = (file, file.parent, tmp_path / "lanes")
    assert {path.stat().st_ino for path in written} <= synced


def test_an_answer_on_a_broken_volume_is_a_storage_error(tmp_path):
    (tmp_path / "lanes").write_text("a file in the way")
    with pytest.raises(StorageError, match="a reference answer cannot be written"):
        write_answer(ReferenceAnswer("candidate", "x"), terminal(), tmp_path, tmp_path / "lanes")


def test_a_large_lane_is_on_the_disk_part_by_part_and_tells_of_it(tmp_path, pack_root, monkeypatch):
    parts, told, sizes = 5, [], []
    (pack_root / "assets/in.csv").write_bytes(b"x" * (parts * MIB))
    monkeypatch.setattr(materialize, "SYNC_BYTES", 2 * MIB)
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    monkeypatch.setattr(materialize, "note_progress", lambda: told.append(sizes[-1]))
    write_lanes(FULL, pack_root, tmp_path / "lanes")
    large = [size // MIB for size in told if size >= MIB]
    assert large == [2, 4, 5]
