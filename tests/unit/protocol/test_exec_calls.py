"""Calls of the exec protocol and the marks that they carry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from securebench.errors import InvalidInputError
from securebench.protocol.exec_calls import (
    LaunchNumbers,
    LiveMark,
    Operation,
    OutputMark,
    PrefixMark,
)

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"
SHA256 = "0f" * 32


def test_the_reference_has_every_operation_in_this_order():
    listed = re.findall(
        "^securebench operator-io -- ([a-z-]+)", REFERENCE.read_text(), re.MULTILINE
    )
    assert listed == [operation.value for operation in Operation]


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (PrefixMark(0, SHA256), f"0:{SHA256}"),
        (PrefixMark(10, SHA256), f"10:{SHA256}"),
        (LiveMark(LaunchNumbers(0, 1, 2), 30), "0.1.2:30"),
        (OutputMark(1, 2, "stderr", 30), "1.2.stderr:30"),
    ],
)
def test_a_mark_is_an_argument(mark, text):
    assert mark.encode() == text
    assert type(mark).decode(text) == mark


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        (PrefixMark, "", "a mark must be OFFSET:SHA256"),
        (PrefixMark, f"-1:{SHA256}", "a mark must be OFFSET:SHA256"),
        (PrefixMark, f"01:{SHA256}", "a mark must be OFFSET:SHA256"),
        (PrefixMark, f"1:{SHA256.upper()}", "a mark must be OFFSET:SHA256"),
        (LiveMark, "1.2:30", "a mark of live output must be TASK.ATTEMPT.LAUNCH:OFFSET"),
        (LiveMark, "1.2.3:٣", "a mark of live output must be TASK.ATTEMPT.LAUNCH:OFFSET"),
        (OutputMark, "1.2.stdin:3", "a mark of output must be ATTEMPT.LAUNCH.STREAM:OFFSET"),
        (OutputMark, "1.2.stdout:", "a mark of output must be ATTEMPT.LAUNCH.STREAM:OFFSET"),
    ],
)
def test_a_mark_of_another_form_is_refused(kind, text, form):
    with pytest.raises(InvalidInputError) as refused:
        kind.decode(text)
    assert str(refused.value) == form
