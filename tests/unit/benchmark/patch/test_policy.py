"""Contract 14.5.3, and steps 0, 3, 4, 5, 8 and 9 of 14.5.1."""

import pytest

from securebench.benchmark.patch.candidate_policy import (
    CandidatePolicy,
    PathDecision,
    Patterns,
    is_hard_denied,
    is_sensitive,
    link_destination,
)
from securebench.benchmark.patch.judgement import (
    LISTED_PATHS,
    PatchProblem,
    judge_changes,
    judge_patch,
)


def policy(allow=(), sensitive=(), preserved=()):
    return CandidatePolicy.of(
        {
            "allow_paths": list(allow),
            "allow_sensitive_paths": list(sensitive),
            "patch_preserved_paths": list(preserved),
        }
    )


def touching(*paths):
    return "".join(
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"
        for path in paths
    )


def linking(path, target):
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("pattern", "path", "want"),
    [
        ("lib/**", "lib/x/y.c", True),
        ("docs", "docs/intro.md", True),
        ("docs", "docs2/intro.md", False),
        ("docs/", "docs/intro.md", True),
        ("docs", "docs", True),
        ("*.c", "lib/x/y.c", True),
        ("*.c", "lib/x/y.C", False),
        ("lib/?.c", "lib/x.c", True),
        ("lib/[xy].c", "lib/y.c", True),
        ("lib/[!xy].c", "lib/y.c", False),
        ("lib/x[1", "lib/x[1", True),
        ("a", "b/a", False),
        ("/", "a", False),
    ],
)
def test_a_pattern_is_a_wildcard_a_path_or_a_folder(pattern, path, want):
    assert Patterns([pattern]).matches(path) is want


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../b",
        "a/./b",
        "./a",
        "a//b",
        "a/",
        ".git",
        ".git/config",
        "a/.git/hooks/x",
        "a/.GIT/x",
        "securebench",
        "securebench/x",
        "Securebench/x",
        "",
    ],
)
def test_some_paths_no_list_can_allow(path):
    assert is_hard_denied(path)
    assert policy(allow=["*"], sensitive=["*"]).decide(path) is PathDecision.HARD_DENIED


@pytest.mark.parametrize("path", ["a/securebench/x", ".gitignore", "a/.github/x", "...", "..a/b"])
def test_similar_paths_are_not_hard_denied(path):
    assert not is_hard_denied(path)


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/x.yml",
        ".GitLab/x",
        "ci/run",
        "pytest/x.py",
        ".circleci/config.yml",
        "a/__pycache__/x.pyc",
        "src/test/x",
        "Tests/x",
        "a/__tests__/b.js",
        "Cargo.lock",
        "a/Cargo.toml",
        "conftest.py",
        "a/b/conftest.py",
        "go.mod",
        "go.sum",
        "package.json",
        "package-lock.json",
        "Pipfile",
        "Pipfile.lock",
        "pnpm-lock.yaml",
        "poetry.lock",
        "pyproject.toml",
        "requirements-dev.txt",
        "requirements-test.txt",
        "requirements.txt",
        "setup.cfg",
        "setup.py",
        "tox.ini",
        "yarn.lock",
        "a/sitecustomize.py",
        "usercustomize.py",
        ".gitlab-ci.yml",
        "azure-pipelines.yml",
        "Jenkinsfile",
        ".pre-commit-config.yaml",
        "sitecustomize/__init__.py",
        "usercustomize/x",
        "pytest.ini",
        "pytest.toml",
        ".pytest.ini",
        "pluggy.py",
        "_pytest/x.py",
        "iniconfig/__init__.py",
        "unittest.py",
        "a/noxfile.py",
        "x.bash",
        "run.sh",
        "a.zsh",
        "flake.lock",
        "x.pth",
    ],
)
def test_sensitive_paths_need_a_list(path):
    assert is_sensitive(path)
    assert policy().decide(path) is PathDecision.SENSITIVE
    assert policy(sensitive=[path]).decide(path) is PathDecision.ALLOWED
    assert policy(allow=[path]).decide(path) is PathDecision.SENSITIVE
    assert policy(allow=["other"], sensitive=[path]).decide(path) is PathDecision.NOT_LISTED
    assert policy(allow=[path], sensitive=[path]).decide(path) is PathDecision.ALLOWED


@pytest.mark.parametrize(
    "path",
    [
        "src/x.py",
        "spec/x.rb",
        "a/ci/x",
        "a/pytest/x",
        "src/pluggy/x.py",
        "unittests/x.py",
        "testing/x",
        "a/sitecustomize/x",
        "my.sh.txt",
        "a/.github/x",
        "requirements-docs.txt",
        "xpytest.ini",
    ],
)
def test_ordinary_paths_are_allowed(path):
    assert not is_sensitive(path)
    assert policy().decide(path) is PathDecision.ALLOWED
    assert policy(allow=["lib"]).decide(path) is PathDecision.NOT_LISTED


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("l", "a/b", "a/b"),
        ("d/l", "../x", "x"),
        ("d/l", "./x", "d/x"),
        ("l", "../x", None),
        ("d/l", "../../x", None),
        ("l", "/etc/passwd", None),
        ("l", "..", None),
        ("l", "a/../../x", None),
        ("e", "p/q/r/d/../../etc/passwd", None),
        ("d/e/l", "../../x/../y", None),
    ],
)
def test_a_link_leads_to_a_path(path, target, want):
    assert link_destination(path, target) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (linking("l", "src/x"), None),
        (linking("l", "/etc/passwd"), PathDecision.BAD_LINK),
        (linking("l", "../x"), PathDecision.BAD_LINK),
        (linking("l", ".git/config"), PathDecision.HARD_DENIED),
        (linking("l", "tests/x"), PathDecision.SENSITIVE),
        (linking("d/l", ".."), PathDecision.HARD_DENIED),
        ("diff --git a/l b/l\nnew file mode 120000\n", PathDecision.BAD_LINK),
        ("diff --git a/l b/l\nnew file mode 160000\n", PathDecision.SUBMODULE),
        ("diff --git a/l b/l\nold mode 100644\nnew mode 160000\n", PathDecision.SUBMODULE),
        ("diff --git a/l b/l\ndeleted file mode 120000\n", None),
    ],
)
def test_links_and_submodules_are_judged(text, want):
    judgement = judge_patch(text, policy())
    path = "d/l" if "d/l" in text else "l"
    assert dict(judgement.denied) == ({} if want is None else {path: want})


def test_a_blank_patch_is_empty():
    judgement = judge_patch(" \n\t\n", policy())
    assert judgement.problem is PatchProblem.EMPTY
    assert judgement.problem.phase == "candidate_patch"
    assert judgement.stderr == "empty candidate patch\n"


def test_prose_is_not_canonical():
    judgement = judge_patch("I cannot do that.", policy())
    assert judgement.problem is PatchProblem.NONCANONICAL
    assert judgement.problem.phase == "candidate_policy"
    assert "line 1" in judgement.message


def test_preserved_sections_are_left_out():
    text = touching("src/x", "tests/a", "src/y")
    judgement = judge_patch(text, policy(preserved=["tests"]))
    assert judgement.problem is None
    assert judgement.text == touching("src/x", "src/y").encode()
    assert judgement.metadata() == {
        "candidate_patch_paths": ["src/x", "tests/a", "src/y"],
        "stripped_candidate_patch_paths": ["tests/a"],
        "applied_candidate_patch_paths": ["src/x", "src/y"],
    }


def test_a_rename_out_of_a_preserved_folder_is_left_out_whole():
    text = "diff --git a/tests/a b/src/a\nrename from tests/a\nrename to src/a\n"
    judgement = judge_patch(text + touching("src/x"), policy(preserved=["tests"]))
    assert judgement.text == touching("src/x").encode()


def test_something_must_remain():
    judgement = judge_patch(touching("tests/a"), policy(preserved=["tests"]))
    assert judgement.problem is PatchProblem.EMPTY_FILTERED
    assert judgement.metadata()["stripped_candidate_patch_paths"] == ["tests/a"]


def test_a_denied_path_denies_the_patch():
    judgement = judge_patch(touching("src/x", "tests/a", "setup.py"), policy())
    assert judgement.problem is PatchProblem.POLICY
    assert judgement.text == b""
    assert judgement.metadata()["denied_candidate_patch_paths"] == ["tests/a", "setup.py"]
    assert "tests/a: " in judgement.stderr
    assert "'setup.py'" in judgement.message


def test_both_names_of_a_rename_are_judged():
    text = "diff --git a/src/a b/setup.py\nrename from src/a\nrename to setup.py\n"
    assert list(judge_patch(text, policy()).denied) == ["setup.py"]


def test_the_source_of_a_copy_is_judged_but_not_changed():
    text = "diff --git a/src/a b/src/b\ncopy from src/a\ncopy to src/b\n"
    assert judge_patch(text, policy()).changed == ("src/b",)
    assert judge_patch(text, policy(allow=["src/b"])).problem is PatchProblem.POLICY


def test_links_that_are_left_are_known():
    text = (
        linking("l", "src/x")
        + linking("m", "src/y")
        + ("diff --git a/m b/m\ndeleted file mode 120000\n")
    )
    assert dict(judge_patch(text, policy()).links) == {"l": "src/x"}


def test_many_denied_paths_are_cut_in_the_message():
    judgement = judge_patch(touching(*(f"tests/{n}" for n in range(30))), policy())
    assert judgement.message.endswith("and 10 more")
    assert len(judgement.denied) == 30


@pytest.mark.parametrize(
    ("changed", "want", "denied"),
    [
        ({"src/x": None, "setup.py": None}, PatchProblem.POLICY, ["setup.py"]),
        ({"src/x": None, "src/y": None}, PatchProblem.MISMATCH, []),
        ({"src/x": "/etc"}, PatchProblem.POLICY, ["src/x"]),
        ({"src/x": "y"}, PatchProblem.MISMATCH, []),
        ({}, PatchProblem.MISMATCH, []),
    ],
)
def test_what_really_changed_is_judged_again(changed, want, denied):
    judgement = judge_changes(changed, policy())
    assert judgement.problem is want
    assert list(judgement.denied) == denied


def test_a_patch_beyond_the_bounds_is_the_candidates():
    judgement = judge_patch("diff --git a/" + "x" * 50_000 + " b/x\n", policy())
    assert judgement.problem is PatchProblem.TOO_LARGE
    assert judgement.problem.value == "candidate_too_large"
    assert judgement.problem.phase == "candidate_extraction"
    assert judgement.message == (
        "the candidate patch is not read to its end: line 1: a path has more than 4096 bytes"
    )


def test_long_lists_are_cut():
    paths = [f"tests/{number}" for number in range(LISTED_PATHS + 2)]
    judgement = judge_patch(touching(*paths), policy())
    metadata = judgement.metadata()
    assert metadata["denied_candidate_patch_paths"] == paths[:LISTED_PATHS]
    assert metadata["denied_candidate_patch_paths_total"] == LISTED_PATHS + 2
    assert metadata["candidate_patch_paths"] == paths[:LISTED_PATHS]
    assert judgement.stderr.splitlines()[-1] == "and 2 more"


def test_lists_of_long_paths_are_cut_by_their_bytes():
    paths = [f"tests/{number}/" + "ä" * 2000 for number in range(100)]
    judgement = judge_patch(touching(*paths), policy())
    assert len(judgement.metadata()["denied_candidate_patch_paths"]) == 16
    assert len(judgement.message) < 20 * 250
    assert len(judgement.stderr.encode()) < 80_000
