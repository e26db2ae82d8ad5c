"""The patch reader decides about any text, in linear time, and never changes it."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import PatchProblem, judge_patch
from securebench.benchmark.patch.reader import NoncanonicalPatchError, read_patch, render

POLICY = CandidatePolicy.of({"patch_preserved_paths": ["kept/*"]})
NAMES = st.sampled_from(
    ["x", "src/y", "../z", ".git/config", "kept/a", "a b", "tests/t", "ä", "b/x", ""]
)
LINES = st.sampled_from(
    [
        "--- a/x", "+++ b/x", "--- /dev/null", "+++ /dev/null", "@@ -1 +1 @@", "@@ -1,2 +1,2 @@",
        "@@ -0,0 +1 @@", "-a", "+b", " c", "", "\\ No newline at end of file", "old mode 100644",
        "new mode 120000", "new file mode 100644", "deleted file mode 100644", "rename from x",
        "rename to src/y", "copy from x", "copy to src/y", "index 1111..2222 100644",
        "GIT binary patch", "literal 4", "delta 9", "LcmZQzWMT#Y01f~L", "similarity index 9%",
        "diff --git a/x b/x", "diff --git a/x b/src/y",
    ]
)  # fmt: skip
HEADERS = st.builds(lambda old, new: f"diff --git a/{old} b/{new}", NAMES, NAMES)
QUOTED = st.text(min_size=1).map(lambda name: f'diff --git "a/{name}" "b/{name}"')
PATCHES = st.lists(LINES | HEADERS | QUOTED | st.text(max_size=9), max_size=30).map("\n".join)


def read(text):
    """Return the sections, or the line at which the text is refused."""
    try:
        return read_patch(text)
    except NoncanonicalPatchError as error:
        return error.line


@given(st.text() | PATCHES)
@example("diff --git a/x b/x\nold mode 100644\nnew mode 100755")
def test_the_reader_decides_about_any_text(text):
    found = read(text)
    if isinstance(found, int):
        assert 1 <= found <= text.count("\n") + 2
        return
    sections, data = found, text.encode()
    end = sections[-1].end
    assert b"".join(data[each.start : each.end] for each in sections) == data[:end]
    assert not data[end:].strip(b" \t\r\n")
    assert read_patch(render(text, sections))[0].paths == sections[0].paths


@given(st.text() | PATCHES)
def test_the_judgement_never_raises_and_has_text_or_a_problem(text):
    judgement = judge_patch(text, POLICY)
    assert (judgement.problem is None) == bool(judgement.text)
    assert (judgement.problem is PatchProblem.POLICY) == bool(judgement.denied)
    assert not any(path.startswith("kept/") for path in judgement.changed)


FILES = st.dictionaries(
    st.from_regex(re.compile(r"[a-z]{1,3}(/[a-z .\"\\\\\u00e4]{1,3})?"), fullmatch=True),
    st.tuples(st.lists(st.text("ab -+@\\"), max_size=5), st.lists(st.text("ab -+@\\"), max_size=5)),
    min_size=1,
    max_size=4,
)


def written(name, old, new):
    shown = "".join({'"': '\\"', "\\": "\\\\"}.get(each, each) for each in name)
    lines = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    head = f'diff --git "a/{shown}" "b/{shown}"\n'
    if not lines:
        return head + "old mode 100644\nnew mode 100755\n"
    body = "".join(f"{line}\n" for line in lines)
    return head + (f'--- "a/{shown}"\n+++ "b/{shown}"\n@@ -1,{len(old)} +1,{len(new)} @@\n{body}')


@given(FILES)
def test_what_was_written_is_read(files):
    text = "".join(written(name, old, new) for name, (old, new) in files.items())
    sections = read_patch(text)
    assert [each.old_path for each in sections] == list(files)
    assert render(text, sections) == text.encode()


LONG = 200_000


@pytest.mark.parametrize(
    "text",
    [
        "diff --git " + '"a/' + "\\" * LONG,
        "diff --git a/" + "x" * LONG + " b/" + "x" * LONG,
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9999999999 +1,9999999999 @@\n" + "\n" * LONG,
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@ " + "@" * LONG,
        "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n" * (LONG // 50),
        "diff --git a/x b/x\nGIT binary patch\nliteral 9\n" + "LcmZQzWMT#Y01f~L\n" * (LONG // 17),
    ],
    ids=["backslashes", "long names", "empty lines", "heading", "sections", "binary"],
)
def test_time_is_linear(text):
    began = time.perf_counter()
    judge_patch(text, POLICY)
    assert time.perf_counter() - began < 2.0
