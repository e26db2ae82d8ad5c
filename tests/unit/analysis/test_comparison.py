import pytest

from securebench.analysis.comparison import (
    compare,
    compare_all,
    compare_in_looks,
    conclusion,
    sequential_conclusion,
)
from securebench.analysis.results import read_results
from support.result_folders import result_folder, result_line


def results(folder, name, *lines):
    return read_results(result_folder(folder / name, lines), name)


POLICY = "sha256:" + "3" * 64
"""Of every record of ``result_line``."""

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
    assert (found.difference.tasks, found.only_baseline, found.only_candidate) == (3, 0, 2)
    assert found.warnings == ()


def test_a_difference_is_said(tmp_path):
    old = results(tmp_path, "old", *tasks("F" * 12))
    new = results(tmp_path, "new", *tasks("P" * 10 + "FF"))
    assert conclusion(compare(old, new)).startswith("new is better by 83.3 points (95 %")
    assert conclusion(compare(new, old)).startswith("old is worse by 83.3 points (95 %")


def test_no_difference_says_what_would_have_been_seen(tmp_path):
    old = results(tmp_path, "old", *tasks("PF" * 10))
    said = conclusion(compare(old, old))
    assert said.startswith("No difference was seen (95 % interval -9.0 to +9.0, p = 1, 20 tasks)")
    assert said.endswith("a true difference of 39.2 points would be found 4 times in 5.")


def test_several_candidates_have_corrected_p_values(tmp_path):
    old = results(tmp_path, "old", *tasks("F" * 12))
    six = results(tmp_path, "six", *tasks("P" * 6 + "F" * 6))
    foreign = results(tmp_path, "foreign", result_line("other"))
    same = results(tmp_path, "same", *tasks("F" * 12))
    (alone,) = compare_all(old, [six])
    assert alone.p_value == alone.difference.p_value == pytest.approx(0.03125)
    assert "six is better" in conclusion(alone)
    found, without, equal = compare_all(old, [six, foreign, same])
    assert found.difference.p_value == pytest.approx(0.03125)
    assert found.p_value == pytest.approx(0.0625)
    assert "p = 0.0625 for 2 comparisons, 12 tasks) may be chance" in conclusion(found)
    assert without.p_value is None
    assert equal.p_value == 1.0


def test_no_common_task(tmp_path):
    old, new = (results(tmp_path, name, result_line(name)) for name in ("old", "new"))
    found = compare(old, new)
    assert found.difference is None
    assert conclusion(found) == "The runs have no task with a verdict in common."


WARNINGS = {
    "other benchmark": ({"benchmark_id": "other"}, "different benchmarks"),
    "other pack": ({"pack_digest": "sha256:2"}, "their packs have different digests"),
    "other verifier": ({"verifier_version": "9"}, "different versions of the verifier"),
    "other limits": ({"digests": {"policy": "sha256:2"}}, "their limits, isolation or"),
    "other task image": (
        {"digests": {"policy": POLICY, "images": {"harness": "image@sha256:2"}}},
        "of 1 tasks the agents worked in different images",
    ),
    "other check image": (
        {"digests": {"policy": POLICY, "images": {"verifier": "image@sha256:2"}}},
        "of 1 tasks the checks ran in different images",
    ),
    "an audit": ({"labels": {"audit": True}}, "audit (a run of the harness oracle or nop) was"),
    "other isolation": ({"labels": {"isolation": "declared"}}, "isolation was verified, then"),
}


LACKING = {
    "pack": ({"pack_digest": ""}, "records without pack_digest do not say"),
    "verifier": ({"verifier_version": None}, "records without verifier_version do not say"),
    "policy": ({"digests": {}}, "records without digests.policy do not say"),
}


@pytest.mark.parametrize("case", LACKING)
def test_a_digest_that_lacks_equals_none(case, tmp_path):
    changes, said = LACKING[case]
    old = results(tmp_path, "old", *tasks("PP"))
    new = results(tmp_path, "new", *tasks("P"), result_line("t1", **changes))
    for each in (compare(old, new), compare(new, old), compare(new, new)):
        (warning,) = each.warnings
        assert said in warning


@pytest.mark.parametrize("case", WARNINGS)
def test_what_makes_runs_hard_to_compare(case, tmp_path):
    changes, said = WARNINGS[case]
    old = results(tmp_path, "old", *tasks("P"))
    new = results(tmp_path, "new", *tasks("P", **changes))
    assert any(said in warning for warning in compare(old, new).warnings)
    assert compare(new, new).warnings == ()


def test_only_images_of_the_same_task_are_compared(tmp_path):
    def lines(**images):
        return [
            result_line(task, digests={"policy": POLICY, "images": {"verifier": image}})
            for task, image in images.items()
        ]

    old = results(tmp_path, "old", *lines(a="one", b="two"))
    swapped = results(tmp_path, "swapped", *lines(a="two", b="one"))
    fewer = results(tmp_path, "fewer", *lines(a="one"))
    assert "of 2 tasks the checks" in " ".join(compare(old, swapped).warnings)
    assert compare(old, fewer).warnings == ()


def test_a_task_whose_row_changed_is_not_compared(tmp_path):
    old = results(tmp_path, "old", result_line("a", digests={"row": "1"}), result_line("b"))
    new = results(
        tmp_path, "new", result_line("a", digests={"row": "2"}, passed=False), result_line("b")
    )
    found = compare(old, new)
    assert (found.changed_rows, found.difference.tasks, found.flips) == (1, 1, ())


def test_a_run_that_has_not_ended_is_said(tmp_path):
    old = results(tmp_path, "old", result_line("a"))
    begun = result_folder(tmp_path / "new", [result_line("a")], has_ended=False)
    assert compare(old, read_results(begun, "new")).warnings == (
        "new has not ended: it has 1 records so far.",
    )


def looked(folder, old, new, looks, *, has_ended=False):
    """Return what is said of a candidate that has done the first tasks of a baseline.

    Args:
        old: P, F and - of its tasks: passed, failed, no verdict.
        new: The same of the candidate; C is cancelled.
    """
    baseline = results(folder, "old", *tasks(old))
    ends = {"C": "cancelled", "-": "provider"}
    lines = [
        result_line(f"t{number}", passed=VERDICTS.get(end), outcome=ends.get(end, "scored"))
        for number, end in enumerate(new)
    ]
    made = read_results(result_folder(folder / "new", lines, has_ended=has_ended), "new")
    return sequential_conclusion(made, compare_in_looks(baseline, made, looks))


LOOKS = {
    "before the first": (
        ("P" * 40, "F" * 9, 4),
        "No look yet: the first of 4 needs 10 of 40 tasks, 9 are done.",
    ),
    "open": (
        ("P" * 40, "F" * 10, 4),
        (
            "Not decided at look 1 of 4 (p = 0.00195 > 8.86e-05, 10 of 40 tasks): the next needs"
            " 20 tasks."
        ),
    ),
    "decided": (
        ("P" * 40, "F" * 20, 4),
        "Decided at look 2 of 4: new is worse (p = 1.91e-06 <= 0.00549, 20 of 40 tasks).",
    ),
    "better": (
        ("F" * 20, "P" * 10, 2),
        "Decided at look 1 of 2: new is better (p = 0.00195 <= 0.00557, 10 of 20 tasks).",
    ),
    "the end": (
        ("PF" * 10, "PF" * 10, 2),
        "No difference was shown by look 2 of 2, the last (p = 1 > 0.0444, 20 of 20 tasks).",
    ),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_run_under_way_is_compared_in_looks(case, tmp_path):
    given, want = LOOKS[case]
    assert looked(tmp_path, *given) == want


ENDS = {
    "cancelled, with records of the rest": "F" * 12 + "C" * 8,
    "ended without records of the rest": "F" * 12,
    "a task in between was cancelled": "F" * 12 + "C" + "F" * 7,
}


@pytest.mark.parametrize("case", ENDS)
def test_what_an_ended_run_did_not_finish_ends_the_looks(case, tmp_path):
    """Twelve losses would decide the only look, had whoever ended the run the choice of it."""
    assert looked(tmp_path, "P" * 20, ENDS[case], 1, has_ended=True) == (
        "No look yet: the first of 1 needs 20 of 20 tasks, 12 are done, and new has ended: only a"
        " run that resumes it gets there."
    )


def test_a_cancelled_run_keeps_the_looks_that_it_reached(tmp_path):
    assert looked(tmp_path, "P" * 40, "F" * 12 + "C" * 28, 4, has_ended=True) == (
        "Not decided at look 1 of 4 (p = 0.00195 > 8.86e-05, 10 of 40 tasks): the next needs 20"
        " tasks, and new has ended: only a run that resumes it gets there."
    )


def test_lost_attempts_count_against_what_the_others_show(tmp_path):
    """Six losses decide alone (p = 0.0312), but not beside a failure that may be a pass now."""
    said = looked(tmp_path, "P" * 6 + "F", "F" * 6 + "-", 1, has_ended=True)
    assert said == (
        "No difference was shown by look 1 of 1, the last (p = 0.125 > 0.05, 7 of 7 tasks, 1 lost"
        " attempt counts against it)."
    )


def test_only_the_attempts_of_the_baseline_count(tmp_path):
    """A look that was taken stays, whatever comes later."""
    old = results(tmp_path, "old", *tasks("P" * 10))
    once = tasks("F" * 10)
    again = [line for each in (2, 3) for line in tasks("P" * 10, attempt=each)]
    first = compare_in_looks(old, results(tmp_path, "new", *once), 1)
    assert compare_in_looks(old, results(tmp_path, "more", *once, *again), 1) == first
    assert first.taken[0].value == -1.0


def test_a_task_is_done_when_all_attempts_with_a_verdict_in_the_baseline_are(tmp_path):
    old = results(
        tmp_path,
        "old",
        *tasks("PPP"),
        *tasks("PPP", attempt=2),
        *tasks("--P", attempt=3, outcome="provider"),
    )
    lines = [*tasks("PP"), *tasks("P", attempt=2), *tasks("PPP", attempt=3)]
    new = read_results(result_folder(tmp_path / "new", lines, has_ended=False), "new")
    assert compare_in_looks(old, new, 1).done == 1


def test_a_task_with_another_row_is_done_and_counts_for_nothing(tmp_path):
    old = results(tmp_path, "old", *tasks("P" * 8))
    other = tasks("F" * 8, digests={"policy": POLICY, "row": "other"})
    (look,) = compare_in_looks(old, results(tmp_path, "new", *other), 1).taken
    assert (look.tasks, look.p_value) == (8, 1.0)
