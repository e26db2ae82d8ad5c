"""Results, and pages on them, in which every text is a given one: a name, an answer, a label."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from securebench.analysis.comparison import compare
from securebench.analysis.page import comparison_page, report_page
from securebench.analysis.results import ResultSet, read_results
from support.result_folders import result_folder, result_line

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


def report_file(folder: Path, texts: Iterable[str]) -> Path:
    """Write the report on a run with these texts."""
    results = read_results(result_folder(folder, report_lines(texts)), "nightly")
    path = folder / "report.html"
    path.write_text("".join(report_page([results], NOW)), encoding="utf-8")
    return path


def comparison_file(folder: Path, texts: Iterable[str]) -> Path:
    """Write the comparison of two runs with these texts."""
    found = compare(*compared_results(folder, texts))
    path = folder / "comparison.html"
    path.write_text("".join(comparison_page([found], NOW)), encoding="utf-8")
    return path
