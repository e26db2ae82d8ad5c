"""The nearest known word."""

import pytest

from securebench.text import did_you_mean, did_you_mean_or_known, near_words, nearest

KNOWN = ("short_answer", "image", "input", "metadata", "id")


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("short-answer", "short_answer"),
        (" Short Answer", "short_answer"),
        ("imgae", "image"),
        ("inputs", "input"),
        ("idx", "id"),
        ("meta", None),
        ("note", None),
        ("", None),
        ("x" * 1_000_000, None),
    ],
)
def test_nearest(word, want):
    assert nearest(word, KNOWN) == want


def test_what_could_have_been_meant():
    assert did_you_mean(["note"], KNOWN) == ""
    assert did_you_mean(["imgae"], KNOWN) == ", did you mean 'image'?"
    assert did_you_mean(["imgae", "note", "inputs"], KNOWN) == (
        ", did you mean 'image' for 'imgae', 'input' for 'inputs'?"
    )
    assert did_you_mean_or_known("inputs", KNOWN) == ", did you mean 'input'?"
    assert (
        did_you_mean_or_known("note", KNOWN)
        == "; known are id, image, input, metadata, short_answer"
    )


def test_only_the_first_words_are_compared():
    assert len(near_words([f"input{number}" for number in range(1000)], ["input"])) <= 100
