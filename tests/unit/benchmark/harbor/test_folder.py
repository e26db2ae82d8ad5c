"""Harbor task folders on disk: files, links, bounds, and folders of folders."""

import os
from pathlib import Path

import pytest

from harbor_folders.cases import files_of, write
from securebench.benchmark.harbor import folder as folder_module
from securebench.benchmark.harbor.config import FindingKind
from securebench.benchmark.harbor.folder import (
    FolderReading,
    MainImage,
    holds_tasks,
    read_folder,
    read_folders,
    without_canary,
)


@pytest.fixture
def task(tmp_path) -> Path:
    folder = tmp_path / "tasks" / "fix-it"
    write(folder, files_of({}))
    return folder


def refusals(reading: FolderReading):
    return [(each.file, each.reason) for each in reading.of_kind(FindingKind.REFUSED)]


def test_a_folder_is_read(task):
    (task / "solution").mkdir()
    (task / "solution/solve.sh").write_text("exit 0\n")
    reading = read_folder(task)
    assert reading.findings == ()
    assert (reading.task.id, reading.task.image) == ("fix-it", MainImage.DOCKERFILE)
    assert reading.task.instruction == "Do it.\n"
    assert [file.path for file in reading.task.tests] == ["test.sh"]
    assert [file.path for file in reading.task.solution] == ["solve.sh"]


def test_all_problems_of_a_folder_come_together(task):
    (task / "task.toml").write_text("[environment]\ngpus = 1\n[agent]\ntimeout_sec = 'x'\n")
    (task / "instruction.md").unlink()
    (task / "tests/link").symlink_to("test.sh")
    (task / "trajectory.json").write_text("{}")
    files = [file for file, _ in refusals(read_folder(task))]
    assert sorted(files) == ["task.toml", "task.toml", "tests/link", "trajectory.json"]
    (task / "task.toml").write_text("[environment]\ngpus = 1\n")
    files = [file for file, _ in refusals(read_folder(task))]
    assert sorted(files) == ["instruction.md", "task.toml", "tests/link", "trajectory.json"]


def make_link(task, name, target):
    (task / name).parent.mkdir(parents=True, exist_ok=True)
    (task / name).unlink(missing_ok=True)
    (task / name).symlink_to(target)


@pytest.mark.parametrize(
    ("name", "target", "want"),
    [
        ("instruction.md", "/etc/hostname", "is a symbolic link, not a regular file"),
        ("task.toml", "../other.toml", "is a symbolic link, not a regular file"),
        ("tests/data", "/etc", "is a symbolic link; put the file there"),
        ("tests/data", "test.sh", "is a symbolic link; put the file there"),
        ("solution/solve.sh", "../tests/test.sh", "is a symbolic link; put the file there"),
        ("environment/data", "../../..", "is a link that leaves the task folder"),
        ("environment/data", "/etc/passwd", "is a link that leaves the task folder"),
        ("environment/data", "data", "is a link that leads to itself"),
        ("environment/data", "../environment/data/x", "is a link that leads to itself"),
        ("solution", "/etc", "must be a folder, no link and no file"),
    ],
)
def test_links_are_not_followed(task, name, target, want):
    make_link(task, name, target)
    assert (name, want) in refusals(read_folder(task))


def test_no_folder_above_a_tree_is_a_link(task, tmp_path):
    write(tmp_path / "other", {"one/instruction.md": "x", "one/tests/secret": "x"})
    (task / "task.toml").write_text("[[steps]]\nname = 'one'\n")
    (task / "steps").symlink_to(tmp_path / "other")
    assert refusals(read_folder(task)) == [
        ("steps/one/instruction.md", "a symbolic link is on the way to steps/one/instruction.md"),
        ("steps", "must be a folder, no link and no file"),
    ]


def test_other_line_ends_are_a_remark(task):
    (task / "instruction.md").write_bytes(b"one\r\ntwo\rthree\n")
    reading = read_folder(task)
    assert reading.task.instruction == "one\ntwo\nthree\n"
    assert [each.kind for each in reading.findings] == [FindingKind.REMARK]


def test_a_link_inside_a_build_context_is_left_to_the_builder(task):
    make_link(task, "environment/data", "Dockerfile")
    assert read_folder(task).findings == ()


@pytest.mark.parametrize("name", ["instruction.md", "task.toml", "environment/docker-compose.yaml"])
def test_a_huge_text_is_not_read(task, name, monkeypatch):
    monkeypatch.setattr(folder_module, "MAX_TEXT_BYTES", 100)
    (task / name).write_text("#" * 101)
    assert (name, "has more than 100 bytes") in refusals(read_folder(task))


def test_a_folder_of_too_many_files_is_refused(task, monkeypatch):
    monkeypatch.setattr(folder_module, "MAX_FILES", 3)
    for number in range(4):
        (task / f"tests/{number}").write_text("")
    assert "tests" in [file for file, _ in refusals(read_folder(task))]


def test_a_fifo_is_refused_and_not_opened(task):
    os.mkfifo(task / "tests/pipe")
    (task / "instruction.md").unlink()
    os.mkfifo(task / "instruction.md")
    assert refusals(read_folder(task)) == [
        ("tests/pipe", "is neither file nor folder"),
        ("instruction.md", "is a FIFO, not a regular file"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "want_line"),
    [
        ("instruction.md", b"one\n\xff\n", 2),
        ("task.toml", "a = 1\n".encode("utf-16"), 1),
        ("task.toml", b"a = 1\nb\n", 2),
        ("environment/docker-compose.yaml", b"services:\n  main: [\n", 3),
    ],
)
def test_a_text_that_cannot_be_read_has_its_line(task, name, data, want_line):
    (task / name).write_bytes(data)
    found = read_folder(task).of_kind(FindingKind.REFUSED)
    assert [(each.file, each.line) for each in found] == [(name, want_line)]


def test_an_instruction_is_handed_on_byte_for_byte(task):
    text = "  Do\t it.  \n\n\n\u00e4\u2028 ${NAME} {{ x }}\n"
    (task / "instruction.md").write_bytes(text.encode())
    assert read_folder(task).task.instruction == text


@pytest.mark.parametrize("text", ["", "\n \n", "<!-- canary -->\n", "a\0b\n"])
def test_an_instruction_that_no_agent_can_get_is_refused(task, text):
    (task / "instruction.md").write_text(text)
    assert [file for file, _ in refusals(read_folder(task))] == ["instruction.md"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("<!-- Canary GUID 1 -->\n# canary\n\n \nDo.\n", "Do.\n"),
        ("# Title\n<!-- canary -->\n", "# Title\n<!-- canary -->\n"),
        ("\n\nDo.\n", "Do.\n"),
        ("Do.  \n\n", "Do.  \n\n"),
    ],
)
def test_the_marks_of_provenance_go(text, want):
    assert without_canary(text) == want


def test_files_beside_a_ready_image_are_for_its_working_folder(tmp_path):
    config = {"environment": {"docker_image": "a/b:1"}}
    write(
        tmp_path / "a", files_of(config, **{"environment/Dockerfile": None, "environment/x": "1"})
    )
    write(tmp_path / "b", files_of(config, **{"environment/x": "1"}))
    write(tmp_path / "c", files_of(config, **{"environment/Dockerfile": None}))
    found = [read_folder(tmp_path / name).task for name in "abc"]
    assert {each.image for each in found} == {MainImage.READY}
    assert [[file.path for file in each.copied] for each in found] == [["x"], [], []]


def test_the_compose_file_of_a_separate_verifier_is_checked_too(task):
    (task / "tests/docker-compose.yaml").write_text("services: {main: {privileged: true}}\n")
    assert read_folder(task).findings == ()
    (task / "task.toml").write_text("[verifier]\nenvironment_mode = 'separate'\n")
    reading = read_folder(task)
    assert [(each.file, each.key) for each in reading.findings] == [
        ("tests/docker-compose.yaml", "services.main.privileged"),
        ("tests/docker-compose.yaml", "services.main"),
    ]
    (task / "tests/docker-compose.yaml").write_text(
        "services: {main: {image: a}, db: {image: b}}\n"
    )
    (source,) = read_folder(task).task.verifiers
    assert [each.name for each in source.services] == ["main", "db"]


def test_what_has_no_effect_is_a_remark(task):
    (task / ".harborignore").write_text("*")
    (task / "steps/left").mkdir(parents=True)
    found = read_folder(task)
    remarks = [each.file for each in found.of_kind(FindingKind.REMARK)]
    assert remarks == [".harborignore", "steps/left"]
    assert found.task is not None


def test_an_ignore_file_further_down_decides_about_its_own_folder(task):
    names = ("a.txt", "b.log", "sub/a.txt", "sub/b.txt", "out/keep.log")
    rules = {".harborignore": "*.txt\nout/\n", "sub/.harborignore": "!a.txt\n"}
    for name, text in {**dict.fromkeys((*names, "out/.harborignore"), "!*"), **rules}.items():
        (task / "tests" / name).parent.mkdir(exist_ok=True)
        (task / "tests" / name).write_text(text)
    found = read_folder(task)
    assert [file.path for file in found.task.tests] == ["b.log", "sub/a.txt", "test.sh"]


def test_an_ignore_file_must_not_take_the_test_script_out(task):
    (task / "tests/.harborignore").write_text("*.sh\n")
    assert refusals(read_folder(task)) == [("tests/test.sh", ".harborignore takes it out")]


def test_an_ignore_file_that_is_none_has_its_line(task):
    (task / "tests/.harborignore").write_text("ok\nend\\\n")
    (finding,) = read_folder(task).findings
    assert (finding.file, finding.line) == ("tests/.harborignore", 2)


def test_nothing_of_a_folder_of_folders_is_skipped(task):
    tasks = task.parent
    write(tasks / "broken", files_of("x"))
    (tasks / "notes").mkdir()
    (tasks / "README.md").write_text("x")
    (tasks / ".git").mkdir()
    (tasks / "linked").symlink_to(task)
    reading = read_folders(tasks)
    assert [(each.id, each.task is not None) for each in reading.tasks] == [
        ("broken", False),
        ("fix-it", True),
        ("linked", False),
        ("notes", False),
    ]
    assert reading.beside == (".git", "README.md")
    assert all(refusals(each) for each in reading.tasks if each.task is None)


def test_a_single_task_folder_is_a_folder_of_one(task):
    assert [each.id for each in read_folders(task).tasks] == ["fix-it"]


def test_two_tasks_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for name in ("b", "a"):
        write(tmp_path / name, files_of({"task": {"name": "org/same"}}))
    first, second = read_folders(tmp_path).tasks
    assert first.findings == ()
    (remark,) = second.findings
    assert (second.id, remark.kind, remark.key) == ("b", FindingKind.REMARK, "task.name")
    assert "'a'" in remark.reason


@pytest.mark.usefixtures("task")
def test_what_holds_tasks(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "hidden/.task", files_of({}))
    names = ("tasks", "tasks/fix-it", "hidden/.task", "hidden", "empty", "no")
    assert [name for name in names if holds_tasks(tmp_path / name)] == list(names[:3])
    assert read_folders(tmp_path / "hidden").tasks == ()


def test_folders_inside_one_another_are_bounded(task):
    deep = task / "tests" / "/".join("d" * 102)
    deep.mkdir(parents=True)
    reason = "has more than 100 folders inside one another"
    assert refusals(read_folder(task)) == [("tests", reason)]
