"""F6: repositories inside of a repository: their files are files of the patch, their git is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from threats.capture.checkout_repository import git, grade, repository, work, write
from threats.kit.canaries import canary, hits

ALLOW_FILES = ("-c", "protocol.file.allow=always")
FIX = "echo fixed > src/x.py\n"
COMMIT = "git -c user.name=a -c user.email=a@a commit -qam x"


def with_submodules(folder: Path) -> Path:
    """Make the repository with a submodule in ``deps/lib`` that has one in ``inner``."""
    for name, text in (("inner", "inner\n"), ("lib", "lib\n")):
        made = folder / f"origin-{name}"
        write(made / "x.c", text)
        write(made / ".gitignore", "*.o\n*.out\n")
        git(made, "init", "-q")
        if name == "lib":
            git(made, *ALLOW_FILES, "submodule", "add", "-q", "../origin-inner", "inner")
            write(made / "kept.out", "tracked\n")
            git(made, "add", "-f", "kept.out")
        git(made, "add", "-A")
        git(made, "commit", "-q", "-m", "base")
    root = repository(folder)
    git(root, *ALLOW_FILES, "submodule", "add", "-q", str(folder / "origin-lib"), "deps/lib")
    git(root, *ALLOW_FILES, "submodule", "update", "-q", "--init", "--recursive")
    git(root, "commit", "-q", "-m", "submodule")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return with_submodules(tmp_path)


def contents(root: Path) -> dict[str, object]:
    """Return the files of a tree but those of git and those that are built."""
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if (path.is_symlink() or path.is_file())
        and ".git" not in path.relative_to(root).parts
        and not path.name.startswith("built")
        and path.name != "checks-ran"
    }


HONEST = {
    "an edit": "echo new > deps/lib/x.c",
    "an edit and a build": "echo new > deps/lib/x.c; echo o > deps/lib/built.o",
    "a tracked file that rules ignore": "echo new > deps/lib/kept.out; echo n >> deps/lib/x.c",
    "a new file": "mkdir deps/lib/more; echo new > deps/lib/more/y.c",
    "a deleted file": "rm deps/lib/x.c",
    "a moved commit": f"cd deps/lib; echo new > x.c; {COMMIT}",
    "a moved commit, recorded": f"cd deps/lib; echo new > x.c; {COMMIT}; cd ../..; {COMMIT}",
    "the submodule of a submodule": "echo new > deps/lib/inner/x.c; echo a > deps/lib/inner/a",
    "a name with blanks": "echo new > 'deps/lib/a b.c'; printf 'x' > \"deps/lib/ü\\\"q.c\"",
    "bytes": "printf '\\000\\377' > deps/lib/data",
    "a mode": "chmod +x deps/lib/x.c",
    "without its .git": "echo new > deps/lib/x.c; rm deps/lib/.git",
    "a broken .git": "echo new > deps/lib/x.c; echo 'gitdir: nowhere' > deps/lib/.git",
    "a repository of its own": "rm deps/lib/.git; git init -q deps/lib; echo n > deps/lib/x.c",
    "a new repository": "git init -q src/new; echo n > src/new/x.c",
    "a new repository with a commit": "git init -q src/new; cd src/new; echo n > x; git add x; "
    + COMMIT,
    "a repository in a folder of the base": "git init -q src; echo n > src/y.py",
    "repositories in each other": "git init -q src/a/b; echo n > src/a/b/x; git init -q src/a; "
    "echo n > src/a/y",
    "all of it": "rm -rf deps/lib/inner/x.c deps/lib/kept.out",
}


@pytest.mark.parametrize("name", HONEST)
def test_a_436_honest(root: Path, tmp_path: Path, name: str) -> None:
    fresh = tmp_path / "fresh"
    shutil.copytree(root, fresh / "repo", symlinks=True)

    worked = work(root, f"{FIX}{HONEST[name]}")

    assert "Subproject" not in worked.diff
    assert worked.diff.count("diff --git") > 1
    assert grade(fresh / "repo", worked.diff).code == 0
    assert contents(fresh / "repo") == contents(root)


CONFIGURED = {
    "a monitor": "git -C deps/lib config core.fsmonitor '{program}'",
    "a filter": "git -C deps/lib config filter.x.clean '{program}; cat'; "
    "echo '* filter=x' > deps/lib/.gitattributes; touch deps/lib/x.c",
    "a monitor of its own repository": "rm -rf deps/lib/.git; git init -q deps/lib; "
    "cd deps/lib; git add x.c; git -c user.name=a -c user.email=a@a commit -qm x; cd ../..; "
    "git -C deps/lib config core.fsmonitor '{program}'",
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_436_attack(root: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    script = CONFIGURED[name].format(program=f"touch {marker}")

    worked = work(root, f"{FIX}echo new > deps/lib/x.c\n{script}\nrm -f {marker}")

    assert not marker.exists()
    assert "+new" in worked.diff


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_436_twin(root: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    script = CONFIGURED[name].format(program=f"touch {marker}")
    work(root, f"{FIX}echo new > deps/lib/x.c\n{script}\nrm -f {marker}")

    git(root / "deps/lib", "status", is_checked=False)
    git(root / "deps/lib", "diff", is_checked=False)

    assert marker.exists()


LEADING_OUT = {
    "a .git file": "rm -rf deps/lib/.git; echo 'gitdir: {guarded}/.git' > deps/lib/.git",
    "a link": "rm -rf deps/lib/.git; ln -s {guarded}/.git deps/lib/.git",
    "a link for the folder": "rm -rf deps/lib; ln -s {guarded} deps/lib",
    "a link for the folder above": "mv deps old; ln -s {guarded}/.. deps",
    "a new repository": "mkdir src/new; echo 'gitdir: {guarded}/.git' > src/new/.git",
    "another work tree": "git -C deps/lib config core.worktree {guarded}",
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_436_attack_on_others(root: Path, tmp_path: Path, name: str) -> None:
    secret = canary()
    guarded = tmp_path / "guarded/lib"
    write(guarded / "x.c", secret + "\n")
    git(guarded, "init", "-q")
    git(guarded, "add", "-A")
    git(guarded, "commit", "-q", "-m", "guarded")

    worked = work(root, FIX + LEADING_OUT[name].format(guarded=guarded))

    blob = git(guarded, "rev-parse", "HEAD:x.c").strip()
    assert not hits(worked.diff.encode(), secret)
    assert blob[:12] not in worked.diff
    assert "+fixed" in worked.diff


def test_a_436_twin_on_others(root: Path, tmp_path: Path) -> None:
    secret = canary()
    guarded = tmp_path / "guarded"
    write(guarded / "x.c", secret + "\n")
    git(guarded, "init", "-q")
    git(guarded, "add", "-A")
    git(guarded, "commit", "-q", "-m", "guarded")
    work(root, FIX + LEADING_OUT["a .git file"].format(guarded=guarded))

    told = git(root / "deps/lib", "diff", "--full-index", "HEAD", is_checked=False)

    assert hits(told.encode(), secret)


def test_a_436_attack_by_many_repositories(root: Path) -> None:
    worked = work(root, FIX + "for n in $(seq 150); do git init -q src/r$n; echo > src/r$n/f; done")

    said = worked.ended.report["diff"]["stderr"]
    assert said.startswith("not part of the patch, repositories inside of the repository: src/r")
    assert "+fixed" in worked.diff
    assert worked.diff.count("new file mode") == 98


def test_a_436_twin_by_many_repositories(root: Path) -> None:
    for number in range(150):
        git(root, "init", "-q", f"src/r{number}")
    assert len(list(root.glob("src/*/.git"))) == 150


def test_a_name_that_is_no_text_does_not_cost_the_fix(root: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    shutil.copytree(root, fresh / "repo", symlinks=True)

    worked = work(
        root, f"{FIX}printf x > \"$(printf 'docs/caf\\351')\"; echo 'diff --git' > docs/a"
    )

    assert worked.ended.report["diff"]["stderr"] == (
        "not part of the patch, 1 files whose names are not UTF-8 text"
    )
    assert grade(fresh / "repo", worked.diff).code == 0
    assert (fresh / "repo/docs/a").exists()


def test_a_deep_folder_does_not_cost_the_fix(root: Path) -> None:
    deep = "/".join(["d"] * 700)

    worked = work(root, f"{FIX}mkdir -p docs/{deep}; echo x > docs/{deep}/x")

    assert "+fixed" in worked.diff
