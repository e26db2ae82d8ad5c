"""history: every place of a repository that tells of what came after its base commit."""

import zlib

import pytest

from securebench.audit.images import Git, GitError, KeptLayers, Repository, traces
from unit.audit.image_archives import Work

OLD, NOW, FIXED = (b"value = %d\n" % number for number in (1, 2, 3))


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path / "work")


def found(work, base, *, gold=None, earlier=()):
    """Return the messages about a working tree, with objects that were removed later."""
    files = {path.removeprefix("w/"): content for path, content in work.layer("w").items()}
    ever = {f"testbed/{path}": (content,) for path, content in files.items()}
    for name, content in earlier:
        ever.setdefault(f"testbed/.git/{name}", (content,))
    final = {f"testbed/{path}": content for path, content in files.items()}
    repository = Repository.of(KeptLayers(final, ever), "/testbed/")
    return [trace.message for trace in traces(repository, base, gold or {})]


def test_a_repository_of_its_base_commit_has_no_trace(work):
    work.commit({"a.py": OLD})
    work.git("tag", "-a", "v1", "-m", "one")
    base = work.commit({"a.py": NOW})
    work.git("tag", "v2")
    work.git("tag", "-a", "v2-signed", "-m", "two")
    work.git("repack", "-adq")
    work.git("pack-refs", "--all")
    work.forget()

    assert found(work, base, gold={"a.py": FIXED}) == []


def after(work):
    """Commit the fix and go back to the base."""
    base = work.commit({"a.py": NOW})
    work.commit({"a.py": FIXED})
    work.git("reset", "-q", "--hard", base)
    work.forget()
    return base


def test_objects_without_a_name_are_found(work):
    (message,) = found(work, after(work))

    assert message.startswith("it holds 3 objects that the base commit does not reach")


def test_objects_that_a_later_layer_removed_are_found(work):
    base = after(work)
    name = work.git("hash-object", "-w", "a.py")
    hidden = zlib.compress(b"blob 6\0hidden")
    work.git("gc", "-q", "--prune=now")

    assert name
    assert found(work, base) == []
    assert len(found(work, base, earlier=[(f"objects/{'4' * 2}/{'5' * 38}", hidden)])) == 1


def test_a_pack_without_its_index_is_found(work):
    base = work.commit({"a.py": NOW})
    tip = work.commit({"a.py": FIXED})
    work.git("repack", "-adq")
    (index,) = (work.folder / ".git/objects/pack").glob("*.idx")
    index.chmod(0o644)
    index.unlink()
    work.forget()
    (work.folder / ".git/refs/heads/main").write_text(f"{base}\n")

    assert tip != base
    (message,) = found(work, base)
    assert message.startswith("it holds 3 objects")


def branch(work, base):
    work.git("update-ref", "refs/heads/fix", "HEAD")
    work.git("reset", "-q", "--hard", base)


def tag(work, base):
    work.git("tag", "v9")
    work.git("reset", "-q", "--hard", base)


def signed_tag(work, base):
    work.git("tag", "-a", "v9", "-m", "nine")
    work.git("reset", "-q", "--hard", base)


def packed_tag(work, base):
    tag(work, base)
    work.git("pack-refs", "--all")


LATER = {
    branch: "refs/heads/fix names an object",
    tag: "refs/tags/v9 names an object",
    signed_tag: "refs/tags/v9 names an object",
    packed_tag: "refs/tags/v9 names an object",
}


@pytest.mark.parametrize("leave", LATER, ids=lambda leave: leave.__name__)
def test_names_of_later_commits_are_found(work, leave):
    base = work.commit({"a.py": NOW})
    work.commit({"a.py": FIXED})
    leave(work, base)
    work.forget()

    messages = found(work, base)

    assert any(message.startswith(LATER[leave]) for message in messages)
    assert any("does not reach, for instance" in message for message in messages)


def stash(work):
    (work.folder / "a.py").write_bytes(FIXED)
    work.git("stash")
    work.forget()


def remote(work):
    work.git("remote", "add", "origin", "https://example.invalid/a.git")


def remote_branch(work):
    work.git("update-ref", "refs/remotes/origin/main", "HEAD")


def reflog(work):
    folder = work.folder / ".git/logs"
    folder.mkdir()
    (folder / "HEAD").write_text("one line\n")


def fetch_head(work):
    (work.folder / ".git/FETCH_HEAD").write_text("x\n")


def alternates(work):
    (work.folder / ".git/objects/info").mkdir(exist_ok=True)
    (work.folder / ".git/objects/info/alternates").write_text("/elsewhere\n")


def submodule(work):
    (work.folder / ".git/modules/x").mkdir(parents=True)
    (work.folder / ".git/modules/x/HEAD").write_text("x\n")


PLACES = {
    stash: "it has refs/stash",
    remote: "it has a remote",
    remote_branch: "it has refs/remotes/origin/main",
    reflog: "it has a reflog: logs/HEAD",
    fetch_head: "it has FETCH_HEAD",
    alternates: "it borrows objects from another folder",
    submodule: "it has repositories of submodules",
}


@pytest.mark.parametrize("leave", PLACES, ids=lambda leave: leave.__name__)
def test_each_place_is_looked_at(work, leave):
    base = work.commit({"a.py": NOW})
    work.forget()
    leave(work)

    assert PLACES[leave] in found(work, base)


def test_the_gold_patched_file_in_an_earlier_commit_is_found(work):
    work.commit({"a.py": FIXED})
    base = work.commit({"a.py": NOW})
    work.forget()

    assert found(work, base, gold={"a.py": FIXED}) == [
        "the gold-patched 'a.py' is an object of the history"
    ]


def test_another_base_commit_is_found(work):
    work.commit({"a.py": NOW})
    work.forget()

    assert found(work, "0" * 40) == [f"it does not hold the base commit {'0' * 40}"]


def test_a_shallow_clone_is_no_trace(work, tmp_path):
    work.commit({"a.py": OLD})
    base = work.commit({"a.py": NOW})
    work.git("clone", "-q", "--depth=1", f"file://{work.folder}", str(tmp_path / "shallow"))
    clone = Work(tmp_path / "shallow")
    clone.git("remote", "remove", "origin")
    clone.forget()

    assert found(clone, base) == []


def test_a_damaged_repository_is_an_error_and_not_a_clean_one(work):
    base = work.commit({"a.py": NOW})
    work.forget()
    (path,) = (p for p in (work.folder / ".git/objects").rglob("*") if base.endswith(p.name))
    path.chmod(0o644)
    path.write_bytes(b"nothing")

    with pytest.raises(GitError):
        found(work, base)


def test_the_configuration_of_the_image_is_not_used(work, tmp_path):
    base = work.commit({"a.py": NOW})
    work.forget()
    trap = tmp_path / "trap"
    config = f"\n[core]\n\tfsmonitor = touch {trap}\n[alias]\n\trev-list = !touch {trap}\n"
    with (work.folder / ".git/config").open("a") as stream:
        stream.write(config)

    assert found(work, base) == []
    assert not trap.exists()


def test_git_that_is_missing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GitError, match="not installed"):
        Git(tmp_path).run(["version"])


def test_git_that_takes_too_long_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("securebench.audit.images.TIMEOUT_SECONDS", 0.2)

    with pytest.raises(GitError, match="longer than"):
        Git(tmp_path).run(["-c", "alias.wait=!sleep 1", "wait"])
