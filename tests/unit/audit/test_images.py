"""image and history: settings, layers, gold-patched files, and what cannot be looked at."""

import base64

import pytest

from securebench.audit.images import GitError, catalogue, patched_files
from securebench.audit.rules import check_history, check_image
from securebench.audit.subject import FindingOutcome
from unit.audit.audit_packs import GOLD, code, repo, write_pack
from unit.audit.image_archives import Work, docker_archive, tar

CHECK = "# checks the sum of all numbers\ngrep -q 4711 out.txt\n"
DATA = "one;two;three;four;five;six;seven;eight\n"
LONG = b"value = %d  # the number that everything here is about\n"
PATCH = f"""diff --git a/src/a.py b/src/a.py
index a9831f7..b03e1c6 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1 +1 @@
-{(LONG % 2).decode()}+{(LONG % 3).decode()}"""


def terminal(instructions="Write the sum to out.txt.", workdir="/app"):
    checker = {"source": "script", "path": "check.sh"}
    return {
        "id": "sum",
        "family": "terminal_task",
        "input": {"instructions": instructions},
        "environment": {"image": "small:1", "workdir": workdir},
        "eval": {"checker": checker, "test_files": {"path": "tests"}},
    }


def subject_of(tmp_path, *rows, answers=()):
    hidden = tmp_path / "pack" / "hidden" / "tests"
    hidden.mkdir(parents=True)
    (hidden / "in.csv").write_text(DATA)
    (hidden.parent / "check.sh").write_text(CHECK)
    return write_pack(tmp_path / "pack", *rows, answers=answers)


IN_CHECK = "file 'check.sh' is in "
SETTINGS = "its config: ENV, LABEL or the like"
IMAGES = {
    "clean": ([{"a": b"x" * 100}], {"config": {"Env": ["A=1"], "Labels": None}}, []),
    "in a layer": (
        [{"opt/c": b"x" + CHECK.encode()}],
        {},
        [f"{IN_CHECK}the file 'opt/c' of layer 1"],
    ),
    "in a removed file": (
        [{"b": b"b"}, {"c": CHECK.encode()}, {".wh.c": b""}],
        {},
        [f"{IN_CHECK}the file 'c' of layer 2"],
    ),
    "in a folder of the workdir": (
        [{"app/tests/check.sh": CHECK.encode()}],
        {},
        [f"{IN_CHECK}the file 'app/tests/check.sh' of layer 1"],
    ),
    "in ENV": ([], {"config": {"Env": [f"A={CHECK}"]}}, [f"{IN_CHECK}{SETTINGS} (plain)"]),
    "in a label": (
        [],
        {"config": {"Labels": {"a": base64.b64encode(CHECK.encode()).decode()}}},
        [f"{IN_CHECK}{SETTINGS} (base64)"],
    ),
    "in the history": (
        [],
        {"history": [{"created_by": f"RUN echo {CHECK}"}]},
        [f"{IN_CHECK}its history (plain)"],
    ),
    "a short part": ([{"c": CHECK[:31].encode()}], {}, []),
    "reference answer": (
        [{"root/.history": b"python3 solve.py --all --numbers > out.txt\n"}],
        {},
        ["the reference answer is in the file 'root/.history' of layer 1"],
    ),
    "an input under its name": ([{"app/in.csv": DATA.encode()}], {}, []),
    "an input elsewhere": (
        [{"opt/in.csv": DATA.encode()}],
        {},
        ["file 'tests/in.csv' is in the file 'opt/in.csv' of layer 1"],
    ),
}


@pytest.mark.parametrize("case", IMAGES)
def test_images_are_searched(case, tmp_path):
    layers, config, want = IMAGES[case]
    docker_archive(tmp_path / "a.tar", "docker.io/library/small:1", layers, config)
    answer = {"id": "sum", "command": "python3 solve.py --all --numbers > out.txt"}
    subject = subject_of(
        tmp_path, terminal("Write the sum of in.csv to out.txt."), answers=(answer,)
    )

    found = check_image(subject, catalogue(tmp_path))

    failed = [each for each in found if each.outcome is FindingOutcome.FAILED]
    assert [each.message for each in failed] == want
    assert {each.object for each in failed} <= {"image 'small:1'"}
    assert [each.outcome for each in found if each not in failed] == (
        [] if want else [FindingOutcome.PASSED]
    )


def fix(tmp_path, base_commit="0" * 40, **more):
    row = repo("fix", gold=PATCH, allow_paths=["src"])
    row["input"]["base_commit"] = base_commit
    row["eval"]["tests"] |= more
    return subject_of(tmp_path, row)


def test_a_gold_patched_file_in_a_lower_layer_is_found(tmp_path):
    layers = [{"tmp/a.py": LONG % 3}, {"testbed/src/a.py": LONG % 2, "tmp/.wh.a.py": b""}]
    docker_archive(tmp_path / "a.tar", "small:1", layers)

    found = check_image(fix(tmp_path), catalogue(tmp_path))

    assert [each.message for each in found] == [
        "the gold-patched 'src/a.py' is in the file 'tmp/a.py' of layer 1"
    ]


def test_the_setup_patch_is_applied_first(tmp_path):
    first = PATCH.replace("value = 3", "value = 9").replace("value = 2", "value = 3")
    setup = first.replace("value = 3", "value = 1").replace("value = 9", "value = 2")
    layers = [{"testbed/src/a.py": LONG % 1, "opt/a.py": LONG % 3}]
    docker_archive(tmp_path / "a.tar", "small:1", layers)

    found = check_image(fix(tmp_path, setup_patch=setup), catalogue(tmp_path))

    assert [each.message for each in found] == [
        "the gold-patched 'src/a.py' is in the file 'opt/a.py' of layer 1"
    ]


def test_a_gold_patch_that_does_not_apply_is_told_and_not_passed(tmp_path):
    docker_archive(tmp_path / "a.tar", "small:1", [{"testbed/src/a.py": b"other\n"}])

    (found,) = check_image(fix(tmp_path), catalogue(tmp_path))

    assert found.outcome is FindingOutcome.NOT_CHECKED
    assert "git apply failed" in found.message


def test_a_gold_patch_that_is_none_is_told_and_not_passed(tmp_path):
    docker_archive(tmp_path / "a.tar", "small:1", [{"testbed/src/a.py": LONG % 2}])
    subject = subject_of(tmp_path, repo("fix", gold="diff", allow_paths=["src"]))

    for found in (
        check_image(subject, catalogue(tmp_path)),
        check_history(subject, catalogue(tmp_path)),
    ):
        assert [each.outcome for each in found] == [FindingOutcome.NOT_CHECKED]
        assert "not canonical" in found[0].message


@pytest.mark.parametrize("path", ["../out", ".git/hooks/x", "a/../../out"])
def test_a_patch_cannot_leave_its_folder(path):
    patch = GOLD.replace("src/a.py", path)

    with pytest.raises(GitError, match=r"canonical|outside of the repository"):
        patched_files({path: b"value = 2\n"}, [patch])


@pytest.mark.parametrize("archives", [False, True])
def test_an_image_without_an_archive_is_not_checked(tmp_path, archives):
    (tmp_path / "bad.tar").write_bytes(b"nothing")
    known = catalogue(tmp_path) if archives else None
    subject = subject_of(tmp_path, code("a"), code("b"), repo(allow_paths=["src"]))

    for found in (check_image(subject, known), check_history(subject, known)):
        (finding,) = found
        assert (finding.outcome, finding.object) == (FindingOutcome.NOT_CHECKED, "image 'small:1'")
        assert "docker save" in finding.remedy
        assert ("bad.tar was not read" in finding.message) is archives


def test_layers_that_cannot_be_read_are_not_checked(tmp_path):
    manifest = b'[{"Config": "c", "RepoTags": ["small:1"], "Layers": ["l"]}]'
    members = {"manifest.json": manifest, "c": b"{}", "l": b"\x28\xb5\x2f\xfd...."}
    (tmp_path / "a.tar").write_bytes(tar(members))
    subject = fix(tmp_path)

    for found in (
        check_image(subject, catalogue(tmp_path)),
        check_history(subject, catalogue(tmp_path)),
    ):
        assert {each.outcome for each in found} == {FindingOutcome.NOT_CHECKED}
        assert "zstd" in found[0].message


def test_a_file_beyond_the_bound_is_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr("securebench.audit.images.MAX_FILE_BYTES", 50)
    docker_archive(tmp_path / "a.tar", "small:1", [{"big": b"x" * 51}])

    (found,) = check_image(subject_of(tmp_path, code()), catalogue(tmp_path))

    assert (found.outcome, found.message) == (
        FindingOutcome.NOT_CHECKED,
        "the file 'big' of layer 1 is too large to be searched",
    )


def test_history_of_the_repository_of_a_row(tmp_path):
    work = Work(tmp_path / "work")
    base = work.commit({"src/a.py": LONG % 2})
    work.forget()
    docker_archive(tmp_path / "a.tar", "small:1", [work.layer("testbed")])
    subject = fix(tmp_path, base)

    (found,) = check_history(subject, catalogue(tmp_path))
    assert found.outcome is FindingOutcome.PASSED

    work.git("remote", "add", "origin", "x")
    docker_archive(tmp_path / "a.tar", "small:1", [work.layer("testbed")])
    (found,) = check_history(subject, catalogue(tmp_path))
    assert (found.outcome, found.message) == (
        FindingOutcome.FAILED,
        "the repository: it has a remote",
    )


@pytest.mark.parametrize("workdir", ["/testbed/sub", "sub"])
def test_the_folder_of_the_tests_is_where_the_repository_is(tmp_path, workdir):
    work = Work(tmp_path / "work")
    base = work.commit({"src/a.py": LONG % 2})
    work.forget()
    docker_archive(tmp_path / "a.tar", "small:1", [work.layer("testbed/sub")])

    (found,) = check_history(fix(tmp_path, base, workdir=workdir), catalogue(tmp_path))

    assert found.outcome is FindingOutcome.PASSED


def test_an_image_without_a_repository_fails(tmp_path):
    docker_archive(tmp_path / "a.tar", "small:1", [{"testbed/src/a.py": LONG % 2}])

    (found,) = check_history(fix(tmp_path), catalogue(tmp_path))

    assert (found.outcome, found.message) == (
        FindingOutcome.FAILED,
        "there is no repository in /testbed",
    )
