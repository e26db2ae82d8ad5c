import json
from codecs import BOM_UTF8

import pytest

from securebench.analysis.results import Tokens, read_results
from securebench.errors import InvalidInputError
from securebench.stats.intervals import TaskVerdicts
from support.result_folders import result_folder, result_line

USAGE = {"requests": 2, "input_tokens": 30, "cached_tokens": 10, "output_tokens": 5}


def test_an_attempt_that_did_not_pass_says_why(tmp_path):
    lines = [
        result_line("a", producer_metadata={"usage": USAGE}),
        result_line("b", passed=False, outcome="agent", failure_reason="empty_candidate"),
    ]
    first, second = read_results(result_folder(tmp_path, lines), "r").entries
    assert (first.verdict, first.reason, first.tokens) == ("passed", "", Tokens(2, 30, 10, 5))
    assert (second.verdict, second.reason, second.tokens) == ("failed", "empty_candidate", None)


def test_attempts_are_counted_by_task(tmp_path):
    lines = [
        result_line("a"),
        result_line("a", passed=False, attempt=2),
        result_line("b", passed=None, outcome="infrastructure"),
    ]
    found = read_results(result_folder(tmp_path, lines), "r")
    assert found.by_task() == {"a": TaskVerdicts(2, 1), "b": TaskVerdicts(0, 0)}
    assert found.verdict_counts() == {TaskVerdicts(2, 1): 1}


def test_damaged_lines_are_counted_and_left_out(tmp_path):
    folder = result_folder(tmp_path, [result_line("a"), '{"task_id": "b', "[]"])
    found = read_results(folder, "r")
    assert (len(found.entries), found.flaws.damaged) == (1, 2)


REPEATS = {
    "the file twice": (
        [result_line("a"), result_line("b"), result_line("a"), result_line("b")],
        "candidates.jsonl repeats task 'a', attempt 1; task 'b', attempt 1: each counts once",
    ),
    "keys in another order": (
        [
            result_line("a"),
            result_line("b"),
            dict(reversed(result_line("a").items())),
        ],
        "candidates.jsonl repeats task 'a', attempt 1: each counts once",
    ),
    "another verdict": (
        [result_line("a", passed=False), result_line("b"), result_line("a", passed=True)],
        (
            "candidates.jsonl has records that contradict one another of task 'a', attempt 1:"
            " the first counts"
        ),
    ),
}


@pytest.mark.parametrize("name", REPEATS)
def test_a_record_counts_once(tmp_path, name):
    lines, want = REPEATS[name]
    found = read_results(result_folder(tmp_path, lines), "r")
    assert [each.task_id for each in found.entries] == ["a", "b"]
    assert found.entries[0].passed is (name != "another verdict")
    assert list(found.flaws.sentences("candidates.jsonl")) == [want]


def test_attempts_of_one_task_repeat_nothing(tmp_path):
    lines = [result_line("a"), result_line("a", attempt=2)]
    found = read_results(result_folder(tmp_path, lines), "r")
    assert (len(found.entries), bool(found.flaws)) == (2, False)


def test_a_byte_order_mark_is_no_damage(tmp_path):
    folder = result_folder(tmp_path, [result_line("a"), result_line("b")])
    path = folder / "candidates.jsonl"
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    found = read_results(folder, "r")
    assert ([each.task_id for each in found.entries], bool(found.flaws)) == (["a", "b"], False)


def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    odd = json.dumps(result_line("a", failure_message="x\u2028y\x85z"), ensure_ascii=False)
    found = read_results(result_folder(tmp_path, [odd + "\r", result_line("b")]), "r")
    assert ([each.task_id for each in found.entries], bool(found.flaws)) == (["a", "b"], False)


def test_a_number_that_is_too_large_is_none(tmp_path):
    odd = result_line("a", launches=10**400, producer_metadata={"memory_kills": 10**400})
    entry, other = read_results(result_folder(tmp_path, [odd, result_line("b")]), "r").entries
    assert (entry.task_id, entry.launches, entry.memory_kills) == ("a", 0, 0)
    assert other.verdict == "passed"


def test_the_basis_has_each_value_with_its_records(tmp_path):
    lines = [
        result_line("a", pack_digest="sha256:1", labels={"audit": False, "network": "none"}),
        result_line("b", pack_digest="sha256:2", labels={"audit": False, "network": "egress"}),
    ]
    provenance = read_results(result_folder(tmp_path, lines), "r").provenance
    assert provenance.digests["pack"] == {"sha256:1": 1, "sha256:2": 1}
    assert provenance.labels == {"audit": {"no": 2}, "network": {"none": 1, "egress": 1}}


NO_RECORDS = {
    "no file": (None, "securebench results RUN fetches"),
    "empty": ([], "has no record"),
    "nothing but damage": (["{"], "has no record"),
}


@pytest.mark.parametrize("case", NO_RECORDS)
def test_a_folder_without_records(case, tmp_path):
    lines, said = NO_RECORDS[case]
    if lines is not None:
        result_folder(tmp_path, lines)
    with pytest.raises(InvalidInputError, match=said):
        read_results(tmp_path, "r")


def test_values_of_other_kinds_are_no_error(tmp_path):
    """A record that somebody edited: numbers as texts, lists instead of objects."""
    line = result_line("a", timing=[], producer_metadata=1, labels=None, launches="2", score="x")
    (entry,) = read_results(result_folder(tmp_path, [line]), "r").entries
    assert (entry.seconds, entry.launches, entry.score, entry.tokens) == (0.0, 0, None, None)


@pytest.mark.parametrize(
    ("summary", "want"),
    [
        ("{}", (1, 0)),
        ('{"tries": 19}', (19, 0)),
        ('{"tries": "x", "tries_by_others": "x"}', (1, 0)),
        ('{"tries_by_others": 3}', (1, 3)),
    ],
)
def test_tries_are_those_of_the_summary(tmp_path, summary, want):
    folder = result_folder(tmp_path, [result_line("a")])
    (folder / "summary.json").write_text(summary)
    found = read_results(folder, "r")
    assert (found.tries, found.tries_by_others) == want
