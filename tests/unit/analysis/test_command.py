import json
import sys

import pytest

from securebench.analysis import command
from securebench.analysis.command import (
    CompareOutput,
    compare_runs,
    diff_runs,
    export_run,
    write_report,
)
from securebench.analysis.export import ExportFormat
from securebench.client.follow import RunState
from securebench.client.output import OutputForm
from securebench.client.results import Fetched
from securebench.client.volume import ClusterTarget
from securebench.errors import InvalidInputError
from support.result_folders import result_folder, result_line

TARGET = ClusterTarget(None, None)


@pytest.fixture
def folders(tmp_path):
    one = result_folder(tmp_path / "one", [result_line("a"), result_line("b")])
    two = result_folder(tmp_path / "two", [result_line("a"), result_line("b", passed=False)])
    return str(one), str(two)


def test_a_report_of_two_folders(folders, tmp_path, capsys):
    out = tmp_path / "out.html"
    assert write_report(folders, out, TARGET) == 0
    assert out.read_text().count("<h1>") == 2
    assert capsys.readouterr().out == f"securebench: written {out}\n"
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_a_page_that_has_no_place_is_refused(folders, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for output, want in (
        (tmp_path / "absent/x.html", f"the folder {tmp_path}/absent does not exist"),
        (file / "x.html", f"{file} is no folder"),
        (tmp_path, f"{tmp_path} is a folder; name a file"),
    ):
        for write in (
            lambda to: write_report(folders, to, TARGET),
            lambda to: compare_runs(folders, CompareOutput.TEXT, to, TARGET),
            lambda to: export_run(folders[0], to, ExportFormat.CSV, TARGET),
        ):
            with pytest.raises(InvalidInputError) as caught:
                write(output)
            assert caught.value.reason == want


def test_a_report_that_fails_keeps_the_old_one(folders, tmp_path, monkeypatch):
    out = tmp_path / "out.html"
    out.write_text("old")

    def broken(*_):
        yield "new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("securebench.analysis.page.report_page", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(folders, out, TARGET)
    assert out.read_text() == "old"
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_a_comparison_as_text(folders, capsys):
    assert compare_runs(folders, CompareOutput.TEXT, None, TARGET) == 0
    first, second, sentence, header, row = capsys.readouterr().out.splitlines()
    assert "passed 100.0 % (95 % interval" in first
    assert "passed 50.0 % (95 % interval" in second
    assert "A difference of -50.0 points" in sentence
    assert sentence.endswith("may be chance; so few tasks can show none.")
    assert header.split() == ["TASK", "BEFORE", "AFTER", "WHY"]
    assert row.split()[:3] == ["b", "1/1", "0/1"]


def test_a_comparison_as_json_and_page(folders, tmp_path, capsys):
    out = tmp_path / "out.html"
    assert compare_runs([*folders, folders[0]], CompareOutput.JSON, out, TARGET) == 0
    printed = capsys.readouterr()
    first, second = map(json.loads, printed.out.splitlines())
    assert f"written {out}" in printed.err
    assert first["have_ended"] == [True, True]
    assert first["difference"]["value"] == -0.5
    assert [flip["task_id"] for flip in first["flips"]] == ["b"]
    assert second["difference"]["value"] == 0.0
    assert out.read_text().count("<h1>") == 3


def rewarded(task, score, grading="reward-file"):
    made = result_line(task, passed=score >= 1, score=score)
    return {**made, "labels": {**made["labels"], "grading": grading}}


def test_mean_rewards_stand_beside_pass_rates_where_a_run_has_rewards(tmp_path, capsys):
    lines = {"one": [rewarded("a", 1.0), rewarded("b", -0.5)], "two": [rewarded("a", 3.0)]}
    folders = [str(result_folder(tmp_path / name, each)) for name, each in lines.items()]
    page = tmp_path / "out.html"
    assert compare_runs(folders, CompareOutput.TEXT, None, TARGET) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert ", mean reward 0.25 (95 % interval " in first
    assert ", mean reward 3 (95 % interval " in second
    assert compare_runs(folders, CompareOutput.JSON, page, TARGET) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["value"] for each in found["mean_rewards"]] == [0.25, 3.0]
    assert page.read_text().count("mean reward") == 1
    assert write_report(folders, page, TARGET) == 0
    assert page.read_text().count("mean reward") == 2


def test_a_run_without_rewards_shows_none(folders, tmp_path, capsys):
    page = tmp_path / "out.html"
    assert compare_runs(folders, CompareOutput.JSON, page, TARGET) == 0
    assert json.loads(capsys.readouterr().out)["mean_rewards"] == [None, None]
    assert write_report(folders, tmp_path / "report.html", TARGET) == 0
    for text in (page.read_text(), (tmp_path / "report.html").read_text()):
        assert "mean reward" not in text


def test_a_comparison_in_looks(folders, capsys):
    assert compare_runs(folders, CompareOutput.TEXT, None, TARGET, looks=1) == 0
    looked = capsys.readouterr().out.splitlines()[3]
    assert "No difference was shown by look 1 of 1, the last (p = 1 > 0.05, 2 of 2" in looked
    assert compare_runs(folders, CompareOutput.JSON, None, TARGET, looks=1) == 0
    found = json.loads(capsys.readouterr().out)["looks"]
    assert (found["planned"], found["tasks"], found["done"], found["decided_at"]) == (1, 2, 2, None)
    assert [look["p_value"] for look in found["taken"]] == [1.0]


def test_looks_need_a_baseline_that_has_ended(tmp_path):
    one, two = (
        str(result_folder(tmp_path / name, [result_line("a")], has_ended=name == "two"))
        for name in ("one", "two")
    )
    assert compare_runs([two, one], CompareOutput.TEXT, None, TARGET, looks=1) == 0
    with pytest.raises(InvalidInputError, match="needs a baseline that has ended"):
        compare_runs([one, two], CompareOutput.TEXT, None, TARGET, looks=1)


def test_looks_need_all_attempts_of_the_baseline(tmp_path):
    lines = [result_line("a"), result_line("a", attempt=2)]
    one, two = str(result_folder(tmp_path / "one", lines[:1])), tmp_path / "two"
    result_folder(two, lines)
    with pytest.raises(InvalidInputError, match=r"two \(2 per task\) in .*one, which has 1: leave"):
        compare_runs([str(two), one], CompareOutput.TEXT, None, TARGET, looks=1)


def test_a_diff_names_what_flipped_whatever_row_it_has(tmp_path, capsys):
    old = [result_line("a"), result_line("b"), result_line("c", passed=False)]
    new = [
        result_line("a", digests={"row": "sha256:other"}, passed=False),
        result_line("b", passed=None),
        result_line("c"),
    ]
    one, two = (
        str(result_folder(tmp_path / name, lines)) for name, lines in (("one", old), ("two", new))
    )
    assert diff_runs(one, two, OutputForm.TEXT, TARGET) == 0
    first, header, *rows = capsys.readouterr().out.splitlines()
    assert first == "securebench: 3 of 3 tasks flipped: 2 lost, 1 gained"
    assert header.split() == ["TASK", "BEFORE", "AFTER", "WHY"]
    assert [row.split()[:3] for row in rows] == [
        ["a", "1/1", "0/1"],
        ["b", "1/1", "0/0"],
        ["c", "0/1", "1/1"],
    ]
    assert diff_runs(one, two, OutputForm.JSON, TARGET) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["old"], found["new"], found["tasks"]) == (one, two, 3)
    assert [flip["task_id"] for flip in found["flips"]] == ["a", "b", "c"]
    assert found["flips"][1]["after"] == {"verified": 0, "passed": 0}


def test_a_diff_of_equal_runs_is_one_line(folders, capsys):
    assert diff_runs(folders[0], folders[0], OutputForm.TEXT, TARGET) == 0
    assert capsys.readouterr().out == "securebench: 0 of 2 tasks flipped: 0 lost, 0 gained\n"


def test_a_diff_sees_attempts_that_changed_places(tmp_path, capsys):
    runs = [
        [result_line("a", attempt=1, passed=first), result_line("a", attempt=2, passed=not first)]
        for first in (True, False)
    ]
    one, two = (
        str(result_folder(tmp_path / name, lines))
        for name, lines in zip(("one", "two"), runs, strict=True)
    )
    assert diff_runs(one, two, OutputForm.TEXT, TARGET) == 0
    assert capsys.readouterr().out.startswith("securebench: 1 of 1 tasks flipped: 0 lost, 0 gained")


GONE = RunState("nightly", "uid-1", "", "Completed", "", total=0, done=0)
"""A run whose object was deleted."""


def test_a_name_that_is_no_folder_is_a_run_of_the_cluster(monkeypatch, tmp_path, capsys):
    async def fetch(_run, folder, _target):
        result_folder(folder, [result_line("a")])
        return Fetched(GONE, {"run_id": "r"})

    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly").mkdir()
    monkeypatch.setattr(command, "fetch_results", fetch)
    assert write_report(["nightly"], tmp_path / "out.html", TARGET) == 0
    assert "the run of this name in the cluster; the folder is ./nightly" in capsys.readouterr().err
    assert "has not ended" not in (tmp_path / "out.html").read_text()
    assert "<h1>nightly</h1>" in (tmp_path / "out.html").read_text()
    with command.loaded_runs(["nightly"], TARGET) as (results,):
        assert results.uid == GONE.uid


def test_without_the_libraries_of_pages(folders, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "securebench.analysis.page", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        InvalidInputError, match=r"need jinja2: pip install 'securebench\[report\]'"
    ):
        write_report(folders, tmp_path / "out.html", TARGET)
