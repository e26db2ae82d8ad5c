import pytest

from securebench.benchmark.pack.paths import (
    DENIED,
    PathError,
    author_path,
    check_collisions,
    check_tester_path,
    framework_path,
    resource_file_name,
    safe_relative_path,
)

SAFE = {"a": "a", "a/b": "a/b", "./a": "a", "a//b/": "a/b", "a/./b": "a/b", ".hidden": ".hidden"}


@pytest.mark.parametrize("path", SAFE)
def test_safe_paths_get_their_normal_form(path):
    assert safe_relative_path(path, "path") == SAFE[path]


UNSAFE = ["", " ", None, 3, "/a", "..", "a/../b", ".", "./.", "a\\b", "a\0b", "\ud800", "//a"]


@pytest.mark.parametrize("path", UNSAFE, ids=repr)
def test_unsafe_paths(path):
    with pytest.raises(PathError, match="mount must"):
        safe_relative_path(path, "mount")


@pytest.mark.parametrize("component", ["agent", "test_sandbox", "evaluator"])
@pytest.mark.parametrize("denied", DENIED)
def test_denied_for_every_component(component, denied):
    for path in (denied, f"{denied}/below"):
        with pytest.raises(PathError, match="denied"):
            author_path(path, component)
        with pytest.raises(PathError, match="denied"):
            framework_path(path, component)


AUTHOR = {
    "plain": ("agent", "data/in.csv", True),
    "public root": ("agent", "securebench/public/x.json", True),
    "like a denied name": ("agent", "evaluation/x", True),
    "case matters": ("agent", "Eval/x", True),
    "inputs of the agent": ("agent", "securebench/evaluation_inputs/x", False),
    "evaluator of the agent": ("agent", "securebench/evaluator", False),
    "inputs of the sandbox": ("test_sandbox", "securebench/evaluation_inputs", False),
    "anything of the evaluator": ("evaluator", "securebench/evaluator/x", True),
}


@pytest.mark.parametrize("case", AUTHOR)
def test_author_paths(case):
    component, path, want = AUTHOR[case]
    if want:
        assert author_path(path, component) == path
    else:
        with pytest.raises(PathError, match="reserved"):
            author_path(path, component)


FRAMEWORK = {
    "public for the agent": ("agent", "securebench/public/q.json", True),
    "inputs for the agent": ("agent", "securebench/evaluation_inputs/q.json", False),
    "inputs for the sandbox": ("test_sandbox", "securebench/evaluation_inputs/q.json", True),
    "public for the evaluator": ("evaluator", "securebench/public/q.json", False),
    "evaluator": ("evaluator", "securebench/evaluator/q.json", True),
    "like a root": ("agent", "securebench/publicity/q.json", False),
}


@pytest.mark.parametrize("case", FRAMEWORK)
def test_framework_paths(case):
    component, path, want = FRAMEWORK[case]
    if want:
        assert framework_path(path, component) == path
    else:
        with pytest.raises(PathError, match="outside allowed roots"):
            framework_path(path, component)


@pytest.mark.parametrize("component", ["result", "courier"])
def test_never_a_target(component):
    with pytest.raises(ValueError, match="never a target"):
        author_path("a", component)


@pytest.mark.parametrize("name", ["", " ", "a/b", "/a", "a\\b", "a..b", "..", "a\0", "\ud800"])
def test_resource_names_that_are_no_file_names(name):
    with pytest.raises(PathError, match="resource name"):
        resource_file_name(name)


def test_resource_file_name():
    assert resource_file_name("question.v1") == "question.v1.json"


COLLISIONS = {
    "equal": (["a/b", "a/b"], True),
    "parent": (["a/b", "c", "a"], True),
    "not neighbours in text order": (["a", "a-b", "a/b"], True),
    "prefix only": (["a", "ab", "a-b/c"], False),
    "siblings": (["a/b", "a/c"], False),
    "none": ([], False),
}


@pytest.mark.parametrize("case", COLLISIONS)
def test_collisions(case):
    paths, want = COLLISIONS[case]
    if want:
        with pytest.raises(PathError, match="duplicate materialized path"):
            check_collisions(paths)
    else:
        check_collisions(paths)


@pytest.mark.parametrize("path", ["data", "data/in.csv", "data/in.csv/x"])
def test_tester_paths_that_collide(path):
    with pytest.raises(PathError, match="collides with public materialized path"):
        check_tester_path(path, ["data/in.csv"], "task_file")


def test_tester_path():
    assert check_tester_path("./out/task.json", ["data/in.csv"], "task_file") == "out/task.json"
