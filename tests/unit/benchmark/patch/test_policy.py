"""Contract 14.5.3, and steps 0, 3, 4, 5, 8 and 9 of 14.5.1."""

import time

import pytest

from securebench.benchmark.patch.candidate_policy import (
    CandidatePolicy,
    PathDecision,
    Patterns,
    is_hard_denied,
    link_destination,
)
from securebench.benchmark.patch.judgement import (
    LISTED_PATHS,
    PatchProblem,
    judge_changes,
    judge_patch,
)
from securebench.benchmark.patch.judgement import test_paths as paths_of_tests


def is_sensitive(path):
    """Tell whether the table alone keeps a path out of a patch, be it new or not."""
    return CandidatePolicy.of({}).unasked(path) is not PathDecision.ALLOWED


def policy(allow=(), sensitive=(), preserved=(), on_denied="", tests=(), workdir=""):
    lists = {
        "allow_paths": list(allow),
        "allow_sensitive_paths": list(sensitive),
        "patch_preserved_paths": list(preserved),
    }
    given = {"on_denied": on_denied} if on_denied else {}
    return CandidatePolicy.of(lists | given, frozenset(tests), workdir)


def adding(*paths, line="x"):
    return "".join(
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n"
        for path in paths
    )


def deleting(*paths):
    return "".join(
        f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-x\n"
        for path in paths
    )


def touching(*paths):
    return "".join(
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"
        for path in paths
    )


REFUSE = policy(on_denied="refuse")


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
    why = policy().decide(path, is_new=False)
    assert why is not PathDecision.ALLOWED
    assert policy(sensitive=[path]).decide(path) is PathDecision.ALLOWED
    assert policy(allow=[path]).decide(path, is_new=False) is why
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
        "my.sh.txt",
        "a/.github/x",
        "requirements-docs.txt",
        "xpytest.ini",
    ],
)
def test_ordinary_paths_are_allowed(path):
    assert not is_sensitive(path)
    assert policy().decide(path, is_new=False) is PathDecision.ALLOWED
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
        (linking("d/l", "../src/x"), None),
        (linking("l", "/etc/passwd"), PathDecision.BAD_LINK),
        (linking("l", "../x"), PathDecision.BAD_LINK),
        (linking("l", ".git/config"), PathDecision.BAD_LINK),
        (linking("l", "tests/x"), PathDecision.TEST_FOLDER),
        (linking("d/l", ".."), PathDecision.BAD_LINK),
        ("diff --git a/l b/l\nnew file mode 120000\n", PathDecision.BAD_LINK),
        ("diff --git a/l b/l\nnew file mode 160000\n", PathDecision.SUBMODULE),
        ("diff --git a/l b/l\nold mode 100644\nnew mode 160000\n", PathDecision.SUBMODULE),
        ("diff --git a/l b/l\ndeleted file mode 120000\n", None),
    ],
)
def test_links_and_submodules_are_judged(text, want):
    judgement = judge_patch(text, policy(on_denied="refuse"))
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
    judgement = judge_patch(touching("src/x", "tests/a", "setup.py"), policy(on_denied="refuse"))
    assert judgement.problem is PatchProblem.POLICY
    assert judgement.text == b""
    assert judgement.metadata()["denied_candidate_patch_paths"] == ["tests/a", "setup.py"]
    assert "tests/a: " in judgement.stderr
    assert "'setup.py'" in judgement.message


def test_both_names_of_a_rename_are_judged():
    text = "diff --git a/src/a b/setup.py\nrename from src/a\nrename to setup.py\n"
    assert list(judge_patch(text, policy(on_denied="refuse")).denied) == ["setup.py"]
    assert list(judge_patch(text + touching("src/x"), policy()).dropped) == ["setup.py"]


def test_the_source_of_a_copy_is_judged_but_not_changed():
    text = "diff --git a/src/a b/src/b\ncopy from src/a\ncopy to src/b\n"
    assert judge_patch(text, policy()).changed == ("src/b",)
    assert judge_patch(text, policy(allow=["src/b"])).problem is PatchProblem.POLICY


def test_links_that_are_left_are_known():
    text = (
        linking("d/l", "x")
        + linking("d/m", "y")
        + ("diff --git a/d/m b/d/m\ndeleted file mode 120000\n")
    )
    assert dict(judge_patch(text, policy()).links) == {"d/l": "x"}


def test_many_denied_paths_are_cut_in_the_message():
    judgement = judge_patch(touching(*(f"tests/{n}" for n in range(30))), REFUSE)
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
    judgement = judge_patch(touching(*paths), REFUSE)
    metadata = judgement.metadata()
    assert metadata["denied_candidate_patch_paths"] == paths[:LISTED_PATHS]
    assert metadata["denied_candidate_patch_paths_total"] == LISTED_PATHS + 2
    assert metadata["candidate_patch_paths"] == paths[:LISTED_PATHS]
    assert judgement.stderr.splitlines()[-1] == "and 2 more"


def test_lists_of_long_paths_are_cut_by_their_bytes():
    paths = [f"tests/{number}/" + "ä" * 2000 for number in range(100)]
    judgement = judge_patch(touching(*paths), REFUSE)
    assert len(judgement.metadata()["denied_candidate_patch_paths"]) == 16
    assert len(judgement.message) < 20 * 250
    assert len(judgement.stderr.encode()) < 80_000


FIX = touching("lib/num.py")
ATTACKS = [
    "zz-1.0.dist-info/entry_points.txt",
    "src/zz.egg-info/entry_points.txt",
    "zz.egg-link",
    "lib/zz.pth",
    "unittest.pyc",
    "lib/unittest.pyc",
    "pluggy.abi3.so",
    "conftest.py",
    "CONFTEST.PY",
    "\uff43onftest.py",
    "lib/conftest.cpython-311-x86_64-linux-gnu.so",
    "lib/conftest/__init__.py",
    "sitecustomize.pyc",
    "lib/usercustomize/__init__.py",
    "json/__init__.py",
    "argparse.py",
    "src/unittest.py",
    "src/pytest_cov/__init__.py",
    "lib/pluggy.py",
    "venv/lib/python3.11/site-packages/zz.py",
    "pytest.toml",
    ".coveragerc",
    "lib/tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "manage.py",
    "lib/management/commands/test.py",
    "lib/testzz.py",
    "package.json",
    "lib/package.json",
    ".npmrc",
    "node_modules/assert/index.js",
    "lib/__mocks__/fs.js",
    "jest.config.cjs",
    "jest.setup.ts",
    ".mocharc.yml",
    "vitest.config.mts",
    "vite.config.ts",
    "lib/setupTests.js",
    "lib/num.spec.tsx",
    "lib/num-test.mjs",
    ".cargo/config.toml",
    "build.rs",
    "crates/num/build.rs",
    "target/debug/deps/num.d",
    "go.work",
    "lib/zz_test.go",
    "vendor/github.com/stretchr/testify/assert/assert.go",
    "GNUmakefile",
    "lib/rules.mk",
    "cmake/Tests.cmake",
    "meson.build",
    "pom.xml",
    ".mvn/extensions.xml",
    "init.gradle.kts",
    "buildSrc/zz.java",
    "src/main/java/org/junit/jupiter/api/Assertions.java",
    "src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener",
    "src/main/resources/junit-platform.properties",
    "phpunit.xml.dist",
    "vendor/autoload.php",
    ".rspec",
    "lib/rspec.rb",
    "lib/minitest/zz_plugin.rb",
    "rakelib/zz.rake",
    "Gemfile",
    "spec/support/zz.rb",
    "Directory.Build.targets",
    "config/test.exs",
    "t/zz.t",
    ".env",
    "testdata/want.golden",
    "integration_tests/x.py",
    "spec/new.rb",
]
SCRATCH = [
    "repro.sh",
    "reproduce.py",
    "notes.md",
    "tests/test_half.py",
    "test_half.py",
    "lib/test_half.py",
    "lib/__pycache__/num.cpython-311.pyc",
    ".pytest_cache/v/cache/lastfailed",
    "num.o",
    "debug.log",
    ".github/workflows/x.yml",
    "tmp.c",
]
SOURCES = [
    "lib/signs.py",
    "lib/json.py",
    "lib/types.py",
    "lib/new/__init__.py",
    "src/pkg/json.py",
    "src/pkg/pytest_plugin.py",
    "src/_pytest/new.py",
    "pkg/testing/x.py",
    "lib/latest.py",
    "lib/contest.py",
    "lib/attest.py",
    "src/build.rs",
    "src/half.rs",
    "src/half.ts",
    "src/specs.ts",
    "lib/jest/matcher.js",
    "pkg/half.go",
    "half.go",
    "half.c",
    "src/main/java/org/example/gradle/Half.java",
    "lib/num/half.rb",
    "lib/Makefile.py",
    "src/Half.cs",
    "docs/guide.md",
    "vendor/dep/num.c",
    "app/models.py",
    "manage/x.py",
    "lib/venv/x.py",
    "src/env/half.py",
]


@pytest.mark.parametrize("path", ATTACKS + SCRATCH)
def test_what_is_no_source_is_dropped_and_named(path):
    whole = FIX + adding(path, line="int main() {}")
    judgement = judge_patch(whole, policy())
    assert judgement.problem is None
    assert judgement.text == FIX.encode()
    assert judgement.changed == ("lib/num.py",)
    metadata = judgement.metadata()
    assert metadata["patch_dropped_paths"] == [path]
    assert metadata["patch_dropped_reasons"] == [judgement.dropped[path].value]
    assert judge_patch(whole, policy(on_denied="refuse")).problem is PatchProblem.POLICY
    assert judge_patch(whole, policy(sensitive=[path])).text == whole.encode()


@pytest.mark.parametrize("path", SOURCES)
def test_new_source_stays(path):
    whole = FIX + adding(path)
    assert judge_patch(whole, policy()).text == whole.encode()
    assert judge_patch(whole, policy(on_denied="refuse")).text == whole.encode()


@pytest.mark.parametrize("path", ["slugs.py", "README.md", "index.js", "spec/x.rb", "testing/x.py"])
def test_edits_of_what_is_there_stay(path):
    assert judge_patch(touching(path), policy()).text == touching(path).encode()


MOVES = {
    "from source to a plug-in": (
        "diff --git a/lib/a.py b/conftest.py\nrename from lib/a.py\nrename to conftest.py\n",
        ["conftest.py"],
    ),
    "a copy that becomes a plug-in": (
        "diff --git a/lib/a.py b/lib/conftest.py\ncopy from lib/a.py\ncopy to lib/conftest.py\n",
        ["lib/conftest.py"],
    ),
    "a copy of a test": (
        "diff --git a/tests/a.py b/lib/a.py\ncopy from tests/a.py\ncopy to lib/a.py\n",
        [],
    ),
    "out of the tests": (
        "diff --git a/tests/a.py b/lib/a.py\nrename from tests/a.py\nrename to lib/a.py\n",
        ["tests/a.py"],
    ),
    "mode of a runner": (
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n",
        ["run.sh"],
    ),
    "mode of source": ("diff --git a/lib/a b/lib/a\nold mode 100644\nnew mode 100755\n", []),
    "link of a virtual environment": (
        linking("env/bin/python", "/usr/bin/python3"),
        ["env/bin/python"],
    ),
    "link into the tests": (linking("lib/l", "../tests/x"), ["lib/l"]),
    "link out of its folder": (linking("lib/l", ".."), ["lib/l"]),
    "a link named as a plug-in": (linking("lib/conftest.py", "num.py"), ["lib/conftest.py"]),
    "a link in the place of a folder": (linking("tests", "lib"), ["tests"]),
    "commit of a submodule": (
        (
            "diff --git a/sub b/sub\nindex 1111111..2222222 160000\n--- a/sub\n+++ b/sub\n"
            "@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n"
        ),
        ["sub"],
    ),
    "octal name": (
        'diff --git "a/\\143onftest.py" "b/\\143onftest.py"\nnew file mode 100644\n',
        ["conftest.py"],
    ),
    "binary": (
        (
            "diff --git a/lib/zz.so b/lib/zz.so\nnew file mode 100644\nindex 0000000..1111111\n"
            "GIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n"
        ),
        ["lib/zz.so"],
    ),
    "deleted test": (deleting("tests/test_a.py"), ["tests/test_a.py"]),
    "deleted settings": (deleting("pytest.ini"), ["pytest.ini"]),
    "a root module moved": (deleting("a.py") + adding("b.py"), []),
    "a root module renamed": ("diff --git a/a.py b/b.py\nrename from a.py\nrename to b.py\n", []),
    "a root module remade": (deleting("a.py") + linking("l.py", "/x"), ["l.py"]),
    "settings deleted, script new": (deleting("setup.py") + adding("b.py"), ["setup.py", "b.py"]),
    "without the word new": (
        "diff --git a/zz.py b/zz.py\n--- /dev/null\n+++ b/zz.py\n@@ -0,0 +1 @@\n+x\n",
        ["zz.py"],
    ),
    "made, deleted and made again": (
        adding("argparse.py") + deleting("argparse.py") + adding("argparse.py"),
        ["argparse.py"],
    ),
    "made and deleted for its ending": (
        adding("x.py") + deleting("x.py") + adding("b.py"),
        ["x.py", "b.py"],
    ),
    "a program in the root": (adding("repro.go", line="func main() {}"), ["repro.go"]),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_form_of_a_change_is_judged(name):
    text, want = MOVES[name]
    judgement = judge_patch(FIX + text, policy())
    assert judgement.problem is None
    assert list(judgement.dropped) == want
    assert judgement.text.startswith(FIX.encode())


def test_files_that_the_rows_tests_bring_are_theirs():
    text = (
        FIX + touching("checks/half.py") + adding("checks/json.py", "backend/zz.py", "checks/x.py")
    )
    judgement = judge_patch(text, policy(tests=["checks/half.py"], workdir="backend"))
    assert list(judgement.dropped) == ["checks/half.py", "checks/json.py", "backend/zz.py"]


def test_a_list_of_paths_refuses_what_is_outside_and_drops_what_is_no_source():
    strict = policy(allow=["lib"])
    assert judge_patch(FIX + adding("repro.py"), strict).problem is PatchProblem.POLICY
    judgement = judge_patch(FIX + adding("lib/test_half.py", "lib/zz.so"), strict)
    assert judgement.text == FIX.encode()
    assert judge_patch(FIX + adding("lib/tests/x.py"), strict).problem is PatchProblem.POLICY
    assert judge_patch(FIX + adding("lib/setup.py"), strict).problem is PatchProblem.POLICY
    assert judge_patch(FIX + linking("lib/l", "/x"), strict).problem is PatchProblem.POLICY
    lenient = judge_patch(FIX + adding("repro.py"), policy(allow=["lib"], on_denied="drop"))
    assert list(lenient.dropped) == ["repro.py"]
    listed = FIX + adding("signs.py")
    assert judge_patch(listed, policy(allow=["lib", "signs.py"])).text == listed.encode()


def test_a_patch_of_which_all_is_dropped_is_empty():
    judgement = judge_patch(adding("conftest.py", "repro.py"), policy())
    assert judgement.problem is PatchProblem.EMPTY_FILTERED
    assert judgement.message == (
        "the candidate patch has nothing that is applied, only 'conftest.py' (a tool loads or obeys"
        " it without being asked), 'repro.py' (it is new in the root or beside the tests)"
    )


@pytest.mark.parametrize(
    ("patches", "gold", "want"),
    [
        ([touching("checks/a.py")], None, {"checks/a.py"}),
        ([touching("checks/a.py", "lib/num.py")], FIX, {"checks/a.py"}),
        ([touching("src/lib.rs") + adding("src/a.rs")], None, {"src/a.rs"}),
        (["--- a/checks/a.py\n+++ b/checks/a.py\n@@ -1 +1 @@\n"], None, {"checks/a.py"}),
        ([], None, set()),
    ],
)
def test_paths_of_the_rows_tests(patches, gold, want):
    assert paths_of_tests(patches, gold) == want


def test_hostile_names_take_no_time():
    names = ["." * 4000, "_test" * 800, "a/" * 2000 + "x", "test-" + ".s" * 2000]
    started = time.process_time()
    for name in names * 60:
        policy().decide(name)
    assert time.process_time() - started < 2
