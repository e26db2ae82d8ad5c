"""Content decides: right answers in many forms, wrong ones that are near (contract 14)."""

import pytest

from securebench.benchmark.families import free_response, multiple_choice, short_answer
from unit.benchmark.scorers import forms


def short(accepted, text, tolerance=None):
    hidden = {"accepted_answers": [accepted], "tolerance": tolerance}
    return short_answer.verify(text, {}, hidden).passed


def chosen(choices, answer, text):
    return multiple_choice.verify(text, {"choices": list(choices)}, {"answer": answer}).passed


def free(accepted, text):
    return free_response.verify(text, {}, {"rubric": {"accepted_answers": [accepted]}}).passed


TABLE = [
    *((short, (accepted,), right, wrong, ()) for accepted, right, wrong in forms.NUMBERS),
    *((short, (accepted,), right, wrong, (near,)) for accepted, near, right, wrong in forms.NEAR),
    *((chosen, (forms.PLANTS, 1), right, wrong, ()) for right, wrong in forms.CHOICES),
    *((chosen, (given, at), right, wrong, ()) for given, at, right, wrong in forms.READ_APART),
    *((short, (accepted,), right, wrong, ()) for accepted, right, wrong in forms.TEXTS),
    *((free, (accepted,), right, wrong, ()) for accepted, right, wrong in forms.FREE),
]


@pytest.mark.parametrize(("judge", "row", "right", "wrong", "more"), TABLE)
def test_a_form_of_the_right_answer_passes_and_a_near_one_fails(judge, row, right, wrong, more):
    assert judge(*row, right, *more), f"{right!r} for {row}"
    assert not judge(*row, wrong, *more), f"{wrong!r} for {row}"


def test_there_are_pairs_of_each_kind():
    pairs = {(judge, row, right, wrong) for judge, row, right, wrong, _ in TABLE}
    assert len(pairs) == len(TABLE) >= 350
    assert len(forms.CHOICES) >= 100
