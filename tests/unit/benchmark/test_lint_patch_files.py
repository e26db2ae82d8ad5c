"""Malformed patches of authors: each defect with its line, and nothing that git applies whole."""

import subprocess

import pytest

from securebench.benchmark.lint import patch_problem

HEAD = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n"
HUNK = "@@ -1,3 +1,3 @@ def f():\n a\n-b\n+c\n d\n"
GOOD = {
    "one hunk": HEAD + HUNK,
    "two hunks": HEAD + HUNK + "@@ -9 +9,2 @@\n-q\n+r\n+s\n",
    "two files": HEAD + HUNK + HEAD.replace("x.py", "y.py") + HUNK,
    "no line end at the end": (HEAD + HUNK).removesuffix("\n"),
    "no line end in the file": HEAD + "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    "\\ No newline at end of file\n",
    "blank context without its blank": HEAD + "@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n",
    "a mail": "Subject: x\n\n---\n x.py | 2 +-\n\n" + HEAD + HUNK + "-- \n2.39.2\n\n",
    "a rename": "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
    "an empty file": "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n",
    "a binary file": "diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 1\n"
    "IcmZPo00ouv@@\n\nliteral 0\nHcmV?d00001\n\n",
    "without a git header": HEAD.partition("\n")[2] + HUNK,
    "removed lines that look like headers": HEAD + "@@ -1,2 +1 @@\n--- a\n+++ b\n-c\n",
}
BAD = {
    "empty": ("", 1, "changes nothing"),
    "text": ("hello\n", 1, "changes nothing"),
    "a header alone": (HEAD, 4, "a hunk of x.py (@@"),
    "a hunk of another form": (HEAD + "@@ x @@\n-b\n+c\n", 4, "hunk 1 of x.py does not begin"),
    "an indented hunk": (HEAD + "  @@ -1 +1 @@\n-a\n+b\n", 4, "a hunk of x.py (@@"),
    "a hunk alone": (HUNK, 1, "before the lines --- and +++"),
    "too few lines": (HEAD + HUNK.replace("+c\n", ""), 4, "1 of them are missing"),
    "cut": (HEAD + HUNK.replace(" d\n", ""), 4, "hunk 1 of x.py announces 3 old and 3 new lines"),
    "too many lines": (HEAD + HUNK + "+e\n", 9, "has more lines than its @@ line (line 4)"),
    "more context": (HEAD + HUNK + " e\n", 9, "has more lines"),
    "a missing blank": (HEAD + HUNK.replace(" d\n", "d\n"), 4, "1 and 1 of them are missing"),
    "wrong kinds": (HEAD + HUNK.replace("-b", "+b"), 8, "other lines here"),
    "context alone": (HEAD + "@@ -1 +1 @@\n a\n", 4, "changes nothing"),
    "the second hunk": (HEAD + HUNK + "@@ -9,2 +9,2 @@\n-q\n+r\n", 9, "hunk 2 of x.py announces"),
    "the second file": (
        HEAD + HUNK + HEAD.replace("x.py", "y.py") + "@@ -1 +1 @@\n-a\n",
        12,
        "hunk 1 of y.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_patch_that_holds(name):
    assert patch_problem(GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_a_defect_has_its_line(name):
    text, line, words = BAD[name]
    found = patch_problem(text)
    assert found is not None
    assert found.startswith(f"line {line}: ")
    assert words in found


def git_reads(text, folder):
    """Return whether git takes a patch, and how many changed lines it sees."""
    command = ["git", "apply", "--numstat", "-"]
    done = subprocess.run(
        command, input=text.encode(), cwd=folder, capture_output=True, check=False
    )
    counts = [line.split(b"\t")[:2] for line in done.stdout.splitlines()]
    return done.returncode == 0, sum(int(number) for pair in counts for number in pair)


TWO_FILES = HEAD + HUNK + "@@ -9,2 +9,3 @@\n q\n+r\n+s\n-t\n" + HEAD.replace("x.py", "y.py") + HUNK
LINES = TWO_FILES.splitlines(keepends=True)
CHANGES = {
    "dropped": lambda at: LINES[:at] + LINES[at + 1 :],
    "doubled": lambda at: LINES[: at + 1] + LINES[at:],
    "cut": lambda at: LINES[:at],
    **{
        f"with {sign!r}": lambda at, sign=sign: [
            *LINES[:at],
            sign + LINES[at][1:],
            *LINES[at + 1 :],
        ]
        for sign in "+- x"
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_holds_is_taken_whole_by_git(tmp_path, change):
    for at in range(len(LINES)):
        text = "".join(CHANGES[change](at))
        if patch_problem(text) is None:
            signed = [
                x
                for x in text.splitlines()
                if x[0] in "+-" and "iff --git" not in x and x[:4] not in {"--- ", "+++ "}
            ]
            assert git_reads(text, tmp_path) == (True, len(signed)), text


def test_most_changes_are_seen():
    texts = ["".join(make(at)) for make in CHANGES.values() for at in range(len(LINES))]
    seen = [text for text in texts if text != TWO_FILES and patch_problem(text) is not None]
    assert len(seen) > len(texts) / 2
