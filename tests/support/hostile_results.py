"""Results in which every text is the given one: a task's name, an answer, a reason, a label."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from securebench.analysis.results import ResultSet, read_results
from support.result_folders import result_folder, result_line


def line_of(name: str, text: str, **changes: object) -> dict[str, Any]:
    """Return a record whose texts are all the given one, but for its task's name."""
    return result_line(
        name,
        passed=False,
        failure_reason=text,
        failure_message=text,
        candidate_text=text,
        producer_stdout=text,
        verifier_stdout=text,
        task_type=text,
        difficulty=text,
        tags=[text],
        outcome=text,
        labels={"isolation": text, text: text},
        **changes,
    )


def report_lines(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return records of a run: one for each text, and a task that passed once."""
    return [
        *(line_of(f"t{number} {text}", text) for number, text in enumerate(texts)),
        result_line("fine", difficulty="easy"),
        result_line("fine", attempt=2, passed=False, difficulty="easy"),
    ]


def compared_results(folder: Path, texts: Iterable[str]) -> tuple[ResultSet, ResultSet]:
    """Return two runs, named by the first text and in English; each task's name is a text."""
    each = list(texts)
    old = [result_line(text) for text in each]
    new = [{**line_of(text, text), "benchmark_id": text} for text in each]
    return (
        read_results(result_folder(folder / "old", old), each[0]),
        read_results(result_folder(folder / "new", new), "new"),
    )
