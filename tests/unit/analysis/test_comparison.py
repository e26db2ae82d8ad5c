import pytest

from securebench.analysis.comparison import compare, verdict_sentence
from securebench.analysis.results import read_results
from support.result_folders import result_folder, result_line


def results(folder, name, *lines):
    return read_results(result_folder(folder / name, lines), name)


VERDICTS = {"P": True, "F": False, "-": None}


def tasks(verdicts, **changes):
    return [
        result_line(f"t{number}", passed=VERDICTS[each], **changes)
        for number, each in enumerate(verdicts)
    ]


def test_what_flipped(tmp_path):
    old = results(tmp_path, "old", *tasks("PPF-"))
    new = results(tmp_path, "new", *tasks("FPPP"), result_line("more"))
    found = compare(old, new)
    assert [(flip.task_id, flip.has_gained) for flip in found.flips] == [
        ("t0", False),
        ("t2", True),
    ]
    assert found.flips[0].why.startswith("new: wrong_answer")
    assert (found.difference.tasks, found.only_before, found.only_after) == (3, 0, 2)
    assert found.warnings == ()


def test_a_difference_is_said(tmp_path):
    old = results(tmp_path, "old", *tasks("F" * 12))
    new = results(tmp_path, "new", *tasks("P" * 10 + "FF"))
    assert verdict_sentence(compare(old, new)).startswith("new is better by 83.3 points (95 %")
    assert verdict_sentence(compare(new, old)).startswith("old is worse by 83.3 points (95 %")


def test_no_difference_says_what_would_have_been_seen(tmp_path):
    old = results(tmp_path, "old", *tasks("PF" * 10))
    said = verdict_sentence(compare(old, old))
    assert said.startswith("No difference is shown")
    assert said.endswith("so many tasks show one of 30.0 points or more.")


def test_no_common_task(tmp_path):
    old, new = (results(tmp_path, name, result_line(name)) for name in ("old", "new"))
    found = compare(old, new)
    assert found.difference is None
    assert verdict_sentence(found) == "The runs have no task with a verdict in common."


WARNINGS = {
    "other benchmark": ({"benchmark_id": "other"}, "different benchmarks"),
    "other pack": ({"pack_digest": "sha256:2"}, "different packs"),
    "other verifier": ({"verifier_version": "9"}, "different versions of the verifier"),
    "other isolation": ({"labels": {"isolation": "declared"}}, "isolation was verified, then"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_what_makes_runs_hard_to_compare(case, tmp_path):
    changes, said = WARNINGS[case]
    old = results(tmp_path, "old", *tasks("P"))
    new = results(tmp_path, "new", *tasks("P", **changes))
    assert any(said in warning for warning in compare(old, new).warnings)
    assert compare(new, new).warnings == ()
