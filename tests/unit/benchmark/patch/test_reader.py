"""Contract 14.5.2: what is canonical, and what is read from it."""

import os
import subprocess

import pytest

from securebench.benchmark.patch.reader import (
    LINK_BYTES,
    MAX_BINARY_BYTES,
    PATH_BYTES,
    PATHS_BYTES,
    SECTIONS,
    Content,
    Mode,
    NoncanonicalPatchError,
    PatchTooLargeError,
    changed_paths,
    read_patch,
    render,
    unique_paths,
)

HUNK = "@@ -1 +1 @@\n-old\n+new\n"


def changed(path="lib/x.py", body=HUNK):
    return (
        f"diff --git a/{path} b/{path}\nindex 1111111..2222222 100644\n"
        f"--- a/{path}\n+++ b/{path}\n{body}"
    )


NEW_FILE = (
    "diff --git a/n b/n\nnew file mode 100644\nindex 0000000..257cc56\n"
    "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+foo\n"
)
DELETED = (
    "diff --git a/d b/d\ndeleted file mode 100644\nindex 257cc56..0000000\n"
    "--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-foo\n"
)
RENAMED = "diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n"
COPIED = "diff --git a/src b/dst\nsimilarity index 100%\ncopy from src\ncopy to dst\n"
MODE = "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
EMPTY_FILE = "diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n"
BINARY = (
    "diff --git a/b.bin b/b.bin\nindex 1111111..2222222 100644\nGIT binary patch\n"
    "literal 4\nLcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n"
)
LINK = (
    "diff --git a/l b/l\nnew file mode 120000\nindex 0000000..1de5659\n"
    "--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+docs/x\n\\ No newline at end of file\n"
)
RELINKED = (
    "diff --git a/l b/l\nindex 1111111..2222222 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n"
    "-old\n\\ No newline at end of file\n+new/place\n\\ No newline at end of file\n"
)

ACCEPTED = {
    "changed": (changed(), ["lib/x.py"]),
    "without an index line": (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n" + HUNK,
        ["x"],
    ),
    "new": (NEW_FILE, ["n"]),
    "deleted": (DELETED, ["d"]),
    "renamed": (RENAMED, ["from", "to"]),
    "copied": (COPIED, ["src", "dst"]),
    "mode": (MODE, ["run"]),
    "empty file": (EMPTY_FILE, ["e"]),
    "binary": (BINARY, ["b.bin"]),
    "link": (LINK, ["l"]),
    "submodule": (
        (
            "diff --git a/s b/s\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n"
            "+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 1111111\n"
        ),
        ["s"],
    ),
    "two sections, one order": (changed("z") + changed("a"), ["z", "a"]),
    "trailing blank lines": (changed() + "\n  \n\t\n", ["lib/x.py"]),
    "no newline at the end": (changed().removesuffix("\n"), ["lib/x.py"]),
    "removed line like a header": (
        changed("x", "@@ -1,2 +1 @@\n--- a/y\n kept\n"),
        ["x"],
    ),
    "added line like a header": (
        changed("x", "@@ -1 +1,3 @@\n kept\n+++ b/y\n+diff --git a/q b/q\n"),
        ["x"],
    ),
    "context without its blank": (changed("x", "@@ -1,2 +1,2 @@\n\n-a\n+b\n"), ["x"]),
    "heading of a hunk": (changed("x", "@@ -1 +1 @@ def f(): # @@\n-a\n+b\n"), ["x"]),
    "no newline on both sides": (
        changed(
            "x",
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        ),
        ["x"],
    ),
    "carriage returns are content": (changed("x", "@@ -1 +1 @@\n-a\r\n+b\r\n"), ["x"]),
    "quoted": (
        (
            'diff --git "a/a b\\t\\"\\\\\\303\\244" "b/a b\\t\\"\\\\\\303\\244"\n'
            "old mode 100644\nnew mode 100755\n"
        ),
        ['a b\t"\\ä'],
    ),
    "non-ASCII without quotes": (changed("ä/ö"), ["ä/ö"]),
    "tab behind a name": (
        'diff --git "a/a b" "b/a b"\n--- "a/a b"\t\n+++ "b/a b"\t\n' + HUNK,
        ["a b"],
    ),
    "one prefix only": (changed("a/b/c"), ["a/b/c"]),
    "prefix inside": (changed("b/x"), ["b/x"]),
}


@pytest.mark.parametrize(("text", "want"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_canonical_patch_is_read_and_rendered_as_it_is(text, want):
    sections = read_patch(text)
    assert list(unique_paths(sections)) == want
    body = text.rstrip("\n\t ") + "\n" if "trailing" not in text else text
    assert render(text, sections).startswith(body.rstrip("\n").encode())
    data = text.encode()
    pieces = [data[section.start : section.end] for section in sections]
    assert b"".join(pieces) == data[: sections[-1].end]


REFUSED = {
    "prose before": "Here is the patch:\n" + changed(),
    "prose after": changed() + "That is all.\n",
    "prose between": changed() + "and\n" + changed("y"),
    "blank line between": changed() + "\n" + changed("y"),
    "blank line before": "\n" + changed(),
    "fence": "```diff\n" + changed() + "```\n",
    "mail": "From: a\nSubject: b\n\n" + changed(),
    "plain diff": "--- a/x\n+++ b/x\n" + HUNK,
    "header only": "diff --git a/x b/x\n",
    "index only": "diff --git a/x b/x\nindex 1111111..2222222 100644\n",
    "blank in an unquoted name": "diff --git a/a b b/a b\nold mode 100644\nnew mode 100755\n",
    "no prefix": "diff --git x x\nold mode 100644\nnew mode 100755\n",
    "swapped prefix": "diff --git b/x a/x\nold mode 100644\nnew mode 100755\n",
    "empty name": "diff --git a/ b/\nold mode 100644\nnew mode 100755\n",
    "other escape": 'diff --git "a/\\x41" "b/\\x41"\nold mode 100644\nnew mode 100755\n',
    "octal beyond a byte": 'diff --git "a/\\777" "b/\\777"\nold mode 100644\nnew mode 100755\n',
    "not UTF-8": 'diff --git "a/\\377" "b/\\377"\nold mode 100644\nnew mode 100755\n',
    "NUL": 'diff --git "a/\\000" "b/\\000"\nold mode 100644\nnew mode 100755\n',
    "quote left open": 'diff --git "a/x b/x\nold mode 100644\nnew mode 100755\n',
    "carriage return in the header": "diff --git a/x b/x\r\nold mode 100644\nnew mode 100755\n",
    "control byte in a name": "diff --git a/\x01 b/\x01\nold mode 100644\nnew mode 100755\n",
    "lone surrogate": "diff --git a/\ud800 b/\ud800\nold mode 100644\nnew mode 100755\n",
    "old mode alone": "diff --git a/x b/x\nold mode 100644\n",
    "mode of a folder": "diff --git a/x b/x\nold mode 100644\nnew mode 040000\n",
    "mode twice": "diff --git a/x b/x\nold mode 100644\nold mode 100644\nnew mode 100755\n",
    "new and deleted": "diff --git a/x b/x\nnew file mode 100644\ndeleted file mode 100644\n",
    "new and renamed": "diff --git a/x b/y\nnew file mode 100644\nrename from x\nrename to y\n",
    "renamed and copied": (
        "diff --git a/x b/y\nrename from x\nrename to y\ncopy from x\ncopy to y\n"
    ),
    "rename of another": "diff --git a/x b/y\nrename from x\nrename to z\n",
    "rename without target": "diff --git a/x b/y\nrename from x\n",
    "rename with a blank": "diff --git a/x b/y\nrename from x y\nrename to y\n",
    "similarity": "diff --git a/x b/y\nsimilarity index most\nrename from x\nrename to y\n",
    "index twice": "diff --git a/x b/x\nindex 1111..2222\nindex 1111..2222\n" + HUNK,
    "damaged index": "diff --git a/x b/x\nindex zz..2222\n--- a/x\n+++ b/x\n" + HUNK,
    "other old name": "diff --git a/x b/x\n--- a/y\n+++ b/x\n" + HUNK,
    "other new name": "diff --git a/x b/x\n--- a/x\n+++ b/y\n" + HUNK,
    "new name missing": "diff --git a/x b/x\n--- a/x\n" + HUNK,
    "both names null": "diff --git a/x b/x\n--- /dev/null\n+++ /dev/null\n" + HUNK,
    "time behind a name": "diff --git a/x b/x\n--- a/x\t2020-01-01\n+++ b/x\n" + HUNK,
    "no hunk": "diff --git a/x b/x\n--- a/x\n+++ b/x\n",
    "hunk without names": "diff --git a/x b/x\nindex 1111..2222\n" + HUNK,
    "too few lines": changed("x", "@@ -1,3 +1,3 @@\n-a\n+b\n c\n"),
    "too many lines": changed("x", "@@ -1 +1 @@\n-a\n+b\n+c\n"),
    "another sign": changed("x", "@@ -1 +1 @@\n-a\n*b\n"),
    "other mark": changed("x", "@@ -1 +1 @@\n-a\n+b\n\\ Kein Zeilenumbruch\n"),
    "nothing changed": changed("x", "@@ -1 +1 @@\n a\n"),
    "empty hunk": changed("x", "@@ -0,0 +0,0 @@\n"),
    "damaged numbers": changed("x", "@@ -1 +x @@\n-a\n+b\n"),
    "huge number": changed("x", "@@ -1,99999999999 +1 @@\n-a\n+b\n"),
    "combined diff": "diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n",
    "binary files differ": (
        "diff --git a/x b/x\nindex 1111..2222 100644\nBinary files a/x and b/x differ\n"
    ),
    "binary without data": "diff --git a/x b/x\nGIT binary patch\n",
    "damaged binary line": BINARY.replace("LcmZQz", "L mZQz"),
    "binary line of another length": BINARY.replace("LcmZQzWM", "LcmZQzWMM"),
    "huge binary": BINARY.replace("literal 4", f"literal {MAX_BINARY_BYTES + 1}"),
    "blank": " \n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_everything_else_is_refused(text):
    with pytest.raises(NoncanonicalPatchError):
        read_patch(text)


def many(number, path="d/{}"):
    names = map(path.format, range(number))
    return "".join(f"diff --git a/{name} b/{name}\nnew file mode 100644\n" for name in names)


TOO_LARGE = {
    "sections": many(SECTIONS + 1),
    "a path": many(1, "x" * (PATH_BYTES + 1)),
    "a path that is quoted": many(1, "x")
    .replace("a/x b/x", '"a/{0}" "b/{0}"')
    .format("\\141" * 5000),
    "all paths": many(PATHS_BYTES // 4000 + 1, "{:06}" + "x" * 3994),
    "texts of links": "".join(
        LINK.replace("/l", f"/{number}").replace("docs/x", "x" * 4000) for number in range(300)
    ),
    "a path of a rename": "diff --git a/x b/y\nrename from " + "x" * 20_000 + "\nrename to y\n",
}


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_patch_beyond_the_bounds_is_not_read_on(text):
    with pytest.raises(PatchTooLargeError):
        read_patch(text)


def test_what_the_bounds_let_through():
    assert len(read_patch(many(SECTIONS))) == SECTIONS
    assert len(read_patch(many(PATHS_BYTES // 4000, "{:06}" + "x" * 3994))) == PATHS_BYTES // 4000
    (section,) = read_patch(many(1, "x" * PATH_BYTES))
    assert len(section.new_path) == PATH_BYTES


def test_the_error_names_the_line():
    with pytest.raises(NoncanonicalPatchError) as raised:
        read_patch(changed() + "prose\n")
    assert raised.value.line == 8
    assert str(raised.value).startswith("line 8: ")


def test_sections_say_what_they_do():
    new, deleted, renamed, copied, mode, binary, link, relinked = read_patch(
        NEW_FILE + DELETED + RENAMED + COPIED + MODE + BINARY + LINK + RELINKED
    )
    assert (new.modes, new.content) == ({Mode.FILE}, Content.HUNKS)
    assert deleted.is_deletion
    assert renamed.changed_paths == ("from", "to")
    assert copied.changed_paths == ("dst",)
    assert mode.modes == {Mode.FILE, Mode.PROGRAM}
    assert binary.content is Content.BINARY
    assert (link.is_link, link.target) == (True, "docs/x")
    assert relinked.target == "new/place"
    assert changed_paths((renamed, copied)) == ("from", "to", "dst")


@pytest.mark.parametrize(
    "text",
    [
        "diff --git a/l b/l\nnew file mode 120000\nindex 0000000..1de5659\n",
        LINK.replace("@@ -0,0 +1 @@", "@@ -3,0 +3 @@"),
        LINK.replace("docs/x", "x" * (LINK_BYTES + 1)),
        LINK.replace("+1 @@", "+1,9000 @@").replace("+docs/x", "+\n" * 8999 + "+x"),
        RELINKED + "@@ -9 +9 @@\n-a\n+b\n",
        BINARY.replace("100644", "120000"),
    ],
)
def test_a_link_whose_target_is_not_seen_has_none(text):
    (link,) = read_patch(text)
    assert link.is_link
    assert link.target is None


def test_the_end_of_a_patch_is_completed():
    text = BINARY.rstrip("\n")
    assert render(text, read_patch(text)) == (BINARY.removesuffix("\n\n") + "\n\n").encode()
    assert render(changed().rstrip(), read_patch(changed().rstrip())) == changed().encode()


def git(folder, *words):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)
    return done.stdout.decode()


def test_what_git_writes_is_read(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "text").write_text("a\nb\nc\n")
    (tmp_path / "no-end").write_text("a")
    (tmp_path / "mode").write_text("a\n")
    (tmp_path / "gone").write_text("-- a/x\n++ b/x\n")
    (tmp_path / "moved").write_text("line\n" * 20)
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "link").symlink_to("text")
    git(tmp_path, "add", "-A")
    (tmp_path / "text").write_text("a\nB\nc\n")
    (tmp_path / "no-end").write_text("b")
    (tmp_path / "mode").chmod(0o755)
    (tmp_path / "gone").unlink()
    (tmp_path / "moved").rename(tmp_path / "sub-moved")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8 + b"x" * 300)
    (tmp_path / "new\ttab\u00e4").write_text("\n\n")
    (tmp_path / "empty").touch()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("no-end")
    git(tmp_path, "add", "-N", ".")
    for options in (["--no-renames"], ["-M"]):
        text = git(tmp_path, "diff", "--binary", "--full-index", *options)
        names = git(tmp_path, "diff", "--name-only", "--no-renames", "-z").split("\0")[:-1]
        sections = read_patch(text)
        assert sorted(changed_paths(sections)) == sorted(names)
        assert render(text, sections) == text.encode()
        assert [each.target for each in sections if each.is_link] == ["no-end"]
