"""Rows become tasks: lanes, images and oracles."""

import json
import os

import pytest

from securebench.benchmark.files.load import read_answers
from securebench.benchmark.pack.oracle import ReferenceAnswer, reference_answers
from securebench.benchmark.pack.paths import image_problem
from securebench.benchmark.pack.task import (
    BenchmarkPack,
    SecureBenchTask,
    compile_benchmark_pack,
    compile_benchmark_row,
    task_from_spec,
)
from securebench.benchmark.reading.rows import (
    AssetRoots,
    BenchmarkManifest,
    BenchmarkRow,
    split_lines,
)
from securebench.benchmark.resources import Lane, ResourceError
from securebench.digests import content_digest
from securebench.errors import ConfigErrors, PackError

MANIFEST = BenchmarkManifest(
    id="demo",
    version=2,
    default_environment={"image": "base", "workdir": "/app"},
    path="m.yaml",
)
CHOICE = {
    "id": "geo:7",
    "family": "multiple_choice",
    "input": {"question": "q", "choices": ["a", "b"]},
    "eval": {"answer": "b"},
}


def pack(*rows):
    lines = [json.dumps(row).encode() if isinstance(row, dict) else row for row in rows]
    return BenchmarkPack(MANIFEST, tuple(split_lines(lines)), "t.jsonl")


def lanes(task):
    return [(item.name, item.visibility.value, item.kind) for item in task.resources]


def test_a_compiled_task():
    row = {
        **CHOICE,
        "environment": {"image": "own"},
        "metadata": {"level": 3, "environment": "replaced"},
        "assets": [{"path": "a.png", "type": "image"}],
    }
    (task,) = compile_benchmark_pack(pack(row))
    assert (task.id, task.benchmark_id, task.task_type) == ("geo:7", "demo", "multiple_choice")
    assert lanes(task) == [
        ("question", "public", "text"),
        ("choices", "public", "json"),
        ("assets", "public", "json"),
        ("answer", "hidden", "text"),
    ]
    assert task.metadata == {
        "level": 3,
        "benchmark_pack": {"id": "demo", "version": 2, "manifest_path": "m.yaml"},
        "environment": {"image": "own", "workdir": "/app"},
        "asset_roots": {"public": "assets/", "eval": "hidden/"},
        "asset_defaults": {"read_only": True},
    }
    assert task.environment == {"image": "own", "workdir": "/app"}
    assert task.agent_payload()["assets"] == [{"path": "a.png", "type": "image"}]


def test_tasks_share_what_their_pack_says_of_all():
    rows = [{**CHOICE, "id": name} for name in ("a", "b")]
    own = {**CHOICE, "id": "own", "environment": {"image": "own"}}
    first, second, other = compile_benchmark_pack(pack(*rows, own))
    names = ("benchmark_pack", "environment", "asset_roots", "asset_defaults")
    assert all(first.metadata[name] is second.metadata[name] for name in names)
    assert first.environment == {"image": "base", "workdir": "/app"}
    assert other.environment == {"image": "own", "workdir": "/app"}


CHECK = "def check(candidate):\n    assert candidate(4) == 8\n"


@pytest.mark.parametrize(
    ("code", "entry", "place", "appended"),
    [
        (CHECK, "double", "input", "\n\ncheck(double)\n"),
        (CHECK, "double", "eval", "\n\ncheck(double)\n"),
        (CHECK.rstrip(), "Solution().run", "input", "\n\ncheck(Solution().run)\n"),
        (CHECK, "double\nimport os", "input", ""),
        (CHECK, "print(1)", "input", ""),
        (CHECK, 3, "input", ""),
        (f"{CHECK}check(double)\n", "double", "input", ""),
        ("assert double(4) == 8\n", "double", "input", ""),
    ],
)
def test_a_check_is_called_with_the_entry_point(code, entry, place, appended):
    row = {
        "id": "a",
        "family": "code_completion",
        "input": {"prompt": "p"},
        "eval": {"tests": {"source": "inline", "code": code}},
    }
    row[place]["entry_point"] = entry
    task = compile_benchmark_row(row, manifest=MANIFEST)
    assert task.resources.value("tests")["code"] == f"{code}{appended}"


def test_payloads_of_a_task():
    (task,) = compile_benchmark_pack(pack(CHOICE))
    assert task.agent_payload() == task.public_payload() == CHOICE["input"]
    assert task.evaluation_payload() == CHOICE["input"]
    assert task.hidden_payload() == {**CHOICE["input"], "answer": "b"}
    assert task.view_for("result")["answer"] == "<redacted>"
    assert task.resource_summary()[2] == {
        "name": "answer",
        "visibility": "hidden",
        "kind": "text",
        "redacted": True,
    }


def test_deferred_families_compile_with_their_lanes():
    row = {"id": "1", "family": "browser_task", "eval": {"credentials": "c", "other": 1}}
    (task,) = compile_benchmark_pack(pack(row))
    assert lanes(task) == [
        ("credentials", "evaluation_inputs", "text"),
        ("other", "hidden", "json"),
    ]


UNKNOWN = {
    "family": (
        {"family": "short-answer"}, "unknown family 'short-answer', did you mean 'short_answer'?"),
    "environment": (
        {"family": "tool_call", "environment": {"imgae": "x"}},
        "unknown key 'imgae' in environment, did you mean 'image'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_words_are_refused(case):
    row, want = UNKNOWN[case]
    with pytest.raises(ConfigErrors) as caught:
        compile_benchmark_row({"id": "a", **row}, manifest=MANIFEST)
    assert str(caught.value) == f"task 'a' ({row['family']}): {want}"


def test_limit():
    assert len(compile_benchmark_pack(pack(CHOICE, b"broken"), limit=1)) == 1


def test_all_errors_of_a_file_in_order():
    wrong = {**CHOICE, "id": "w", "input": {"question": "q"}}
    with pytest.raises(ConfigErrors) as caught:
        compile_benchmark_pack(pack(wrong, b"{", CHOICE, CHOICE))
    assert [str(error) for error in caught.value.errors] == [
        "t.jsonl:1: task 'w' (multiple_choice): input.choices is required",
        "t.jsonl:2: invalid JSON: Expecting property name enclosed in double quotes (column 2)",
        "t.jsonl:4: duplicate task id 'geo:7' on lines 3 and 4",
    ]


DUPLICATES = {
    "input and eval": {"input": {"x": 1}, "eval": {"x": 2}},
    "input and assets": {"input": {"assets": 1}, "assets": [{"path": "p"}]},
    "eval and assets": {"eval": {"assets": 1}, "assets": [{"path": "p"}]},
}


@pytest.mark.parametrize("case", DUPLICATES)
def test_duplicate_resource_names(case):
    row = {"id": "a", "family": "tool_call", **DUPLICATES[case]}
    with pytest.raises(ConfigErrors, match="Duplicate compiled resource name"):
        compile_benchmark_pack(pack(row))


def test_a_single_row():
    task = compile_benchmark_row(CHOICE, manifest=MANIFEST)
    row = BenchmarkRow("geo:7", "multiple_choice", CHOICE["input"], CHOICE["eval"])
    assert task == compile_benchmark_row(row, manifest=MANIFEST)
    assert task.id == "geo:7"


BAD_ROWS = {
    "top level": ({"family": "x"}, "benchmark row.id is required"),
    "family": ({**CHOICE, "eval": {}}, "eval.answer is required"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_single_row(case):
    row, want = BAD_ROWS[case]
    with pytest.raises(ConfigErrors, match=want):
        compile_benchmark_row(row, manifest=MANIFEST)


def test_values_are_copies():
    row = {"id": "a", "family": "tool_call", "input": {"x": [1]}}
    task = compile_benchmark_row(row, manifest=MANIFEST)
    row["input"]["x"].append(2)
    assert task.agent_payload() == {"x": [1]}


SPEC = {
    "id": "t",
    "benchmark_id": "b",
    "task_type": "short_answer",
    "resources": [
        {"name": "question", "visibility": "public", "value": "q"},
        {"name": "accepted_answers", "visibility": "hidden", "kind": "json", "value": ["x"]},
    ],
}


def test_task_from_spec():
    task = task_from_spec(SPEC)
    assert lanes(task) == [("question", "public", "text"), ("accepted_answers", "hidden", "json")]
    assert task.metadata == {}
    assert task.environment == {}


def test_task_from_spec_with_a_mapping_of_resources():
    resources = {"a": {"visibility": "hidden", "value": 1}}
    task = task_from_spec({**SPEC, "metadata": {"environment": 1}, "resources": resources})
    assert lanes(task) == [("a", "hidden", "json")]
    assert task.environment == {}


BAD_SPECS = {
    "id": ({"id": ""}, PackError, "task spec id"),
    "type": ({"task_type": None}, PackError, "task spec task_type"),
    "metadata": ({"metadata": []}, PackError, "task spec metadata"),
    "resources": ({"resources": "x"}, PackError, "must be a list or an object"),
    "resource": ({"resources": [1]}, PackError, r"resources\[0\]"),
    "kind": (
        {"resources": [{"name": "a", "visibility": "hidden", "kind": 1}]}, PackError, "kind"),
    "lane": ({"resources": [{"name": "a", "visibility": "x"}]}, ResourceError, "visibility"),
    "key": (
        {"resources": {"a": {"name": "b", "visibility": "hidden"}}},
        ResourceError, "does not match"),
    "missing for the family": (
        {"task_type": "multiple_choice"}, PackError, "resource 'choices' is required"),
    "prompt": ({"task_type": "code_completion"}, PackError, "resource 'prompt' is required"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SPECS)
def test_bad_specs(case):
    change, want_type, want_text = BAD_SPECS[case]
    with pytest.raises(want_type, match=want_text):
        task_from_spec({**SPEC, **change})


def test_defaults_of_a_task():
    task = SecureBenchTask("a", "b", "tool_call")
    assert task.agent_payload() == {}
    assert Lane.PUBLIC == "public"


def test_roots_of_the_manifest_reach_the_metadata():
    manifest = BenchmarkManifest(
        "m", 1, asset_roots=AssetRoots("files/", "private"), asset_read_only=False
    )
    task = compile_benchmark_row({"id": "a", "family": "tool_call"}, manifest=manifest)
    assert task.metadata["asset_roots"] == {"public": "files/", "eval": "private"}
    assert task.metadata["asset_defaults"] == {"read_only": False}
    assert task.metadata["benchmark_pack"]["manifest_path"] is None


ORACLE_MANIFEST = BenchmarkManifest("demo", 1, default_environment={"image": "i"})


def task(task_id, family="short_answer"):
    sections = {
        "short_answer": {"input": {"question": "?"}, "eval": {"accepted_answers": ["a"]}},
        "terminal_task": {
            "input": {"instructions": "i"},
            "eval": {"checker": {"command": "true"}},
        },
    }[family]
    row = {"id": task_id, "family": family, **sections}
    return compile_benchmark_row(row, manifest=ORACLE_MANIFEST)


TASKS = (task("text"), task("work", "terminal_task"), task("later"))
GOOD = ({"id": "work", "command": "make\n"}, {"id": "text", "candidate": " é\n"})


def content(*lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return "\n".join(texts).encode()


def problems(*lines, wanted=("text", "work"), is_whole=True):
    with pytest.raises(ConfigErrors) as caught:
        reference_answers(content(*lines), TASKS, wanted, is_whole=is_whole)
    return [
        str(error).removeprefix("oracle/answers.jsonl:").strip() for error in caught.value.errors
    ]


def test_answers_in_any_order_with_blank_lines():
    data = content(*GOOD, "", "  ")
    found = reference_answers(data, TASKS, {"text", "work"}, is_whole=True)
    assert found.by_id == {
        "work": ReferenceAnswer("command", "make\n"),
        "text": ReferenceAnswer("candidate", " é\n"),
    }
    assert found.digest == content_digest(data)


def test_a_task_that_does_not_run_needs_no_answer():
    assert problems(*GOOD, wanted=("text", "later")) == ["there is no answer for task 'later'"]


def test_ids_behind_a_limit_are_not_known():
    extra = {"id": "row-99", "candidate": "x"}
    data = content(*GOOD, extra)
    assert "row-99" in reference_answers(data, TASKS, {"text"}, is_whole=False).by_id
    assert problems(*GOOD, extra) == ["3: the pack has no task 'row-99'"]


def test_no_file():
    with pytest.raises(
        ConfigErrors, match=r"^p/answers: the pack has no such file; an oracle hands"
    ):
        reference_answers(None, TASKS, {"text"}, is_whole=True, path="p/answers")


BAD = {
    "not JSON": ("{", "1: "),
    "a key twice": ('{"id": "text", "id": "text", "candidate": "x"}', "1: "),
    "no object": ("[1]", "1: an answer must be an object"),
    "no id": ({"candidate": "x"}, "1: id must be a non-empty string"),
    "id of another type": ({"id": 3, "candidate": "x"}, "1: id must be a non-empty string"),
    "nothing": ({"id": "text"}, "1: the answer for task 'text' needs either candidate or command"),
    "both": (
        {"id": "text", "candidate": "x", "command": "y"},
        "1: the answer for task 'text' needs either candidate or command",
    ),
    "blank": ({"id": "text", "command": " \n"}, "1: command of the answer for task 'text' must be"),
    "no text": ({"id": "text", "candidate": ["x"]}, "1: candidate of the answer for task 'text' m"),
    "half a character": ({"id": "text", "candidate": "\ud800"}, "1: candidate of the answer for"),
    "unknown key": (
        {"id": "text", "candidate": "x", "why": 1, "a": 2},
        "1: the answer for task 'text' has unknown key(s): a, why",
    ),
    "text for a workspace": (
        {"id": "work", "candidate": "x"},
        "1: task 'work' is solved in its workspace: its answer needs a command",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_one_defect_gives_one_line(name):
    line, want = BAD[name]
    (found,) = problems(line, wanted=())
    assert found.startswith(want)


def test_all_defects_come_together():
    lines = (GOOD[1], "", "{", GOOD[1], {"id": "typo", "candidate": "x"})
    found = problems(*lines, wanted=("text", "work", "later"))
    assert found[1:] == [
        "4: a second answer for task 'text'; the first is on line 1",
        "5: the pack has no task 'typo'",
        "there is no answer for task 'work'",
        "there is no answer for task 'later'",
    ]
    assert found[0].startswith("3: ")


# The file


def test_the_file_lies_beside_the_manifest(tmp_path):
    assert read_answers(tmp_path) is None
    (tmp_path / "oracle").mkdir()
    assert read_answers(tmp_path) is None
    (tmp_path / "oracle/answers.jsonl").write_bytes(b"{}")
    assert read_answers(tmp_path) == b"{}"


@pytest.mark.parametrize("link", ["oracle", "oracle/answers.jsonl"])
def test_a_symlink_is_refused(link, tmp_path):
    outside, pack = tmp_path / "outside", tmp_path / "pack"
    for folder in (outside, pack):
        (folder / "oracle").mkdir(parents=True)
        (folder / "oracle/answers.jsonl").write_bytes(b"{}")
    if link == "oracle":
        (pack / "oracle/answers.jsonl").unlink()
        (pack / "oracle").rmdir()
    else:
        (pack / link).unlink()
    (pack / link).symlink_to(outside / link)
    with pytest.raises(PackError, match="not reached by a symlink"):
        read_answers(pack)


def test_a_folder_in_its_place_cannot_be_read(tmp_path):
    (tmp_path / "oracle/answers.jsonl").mkdir(parents=True)
    with pytest.raises(PackError, match=r"oracle/answers\.jsonl: cannot be read: Is a directory"):
        read_answers(tmp_path)


def test_answers_that_are_no_file_are_not_opened(tmp_path):
    (tmp_path / "oracle").mkdir()
    os.mkfifo(tmp_path / "oracle/answers.jsonl")
    with pytest.raises(PackError, match="is a FIFO"):
        read_answers(tmp_path)


DIGEST = "sha256:" + "0a" * 32
REFERENCE_GOOD = (
    "python",
    "python:3.11-slim",
    "library/python:3.11",
    "registry.example/team/image",
    "registry.example:5000/a__b/c-d.e:v1_2.3",
    "localhost/image",
    "LOCALHOST:5000/image",
    "[2001:db8::1]:5000/image",
    f"python@{DIGEST}",
    f"registry.example:5000/python:3.11@{DIGEST}",
    "0123abc",
    "a/" + "b" * 253,
)
REFERENCE_BAD = {
    "Python:3.11 slim": "holds a blank",
    " python": "holds a blank",
    "python:3.11\n": "holds a blank",
    "Python:3.11": "small letters only",
    "registry.example/Team/image": "small letters only",
    "python:": "'' is no tag",
    "python:-slim": "'-slim' is no tag",
    "python:" + "a" * 129: "is no tag",
    "python@sha256:12": "is no digest",
    "python@": "is no digest",
    "python:3.11:4": "'python:3.11' is no name",
    "https://registry.example/image": "is no name of a repository",
    "registry.example/a//b": "is no name of a repository",
    "-python": "is no name of a repository",
    "python/": "is no name of a repository",
    "a/" + "b" * 254: "more than 255",
    "pythön": "is no name of a repository",
    "@": "is no name of a repository",
}


@pytest.mark.parametrize("image", REFERENCE_GOOD)
def test_a_name(image):
    assert image_problem(image) is None


@pytest.mark.parametrize("image", REFERENCE_BAD)
def test_no_name(image):
    assert REFERENCE_BAD[image] in (image_problem(image) or "")
