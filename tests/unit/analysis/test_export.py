import csv
import io
import sys

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyarrow import parquet

from securebench.analysis.command import export_run
from securebench.analysis.export import (
    ExportFormat,
    as_csv,
    as_openmetrics,
    attempt_rows,
    cell_text,
)
from securebench.analysis.results import read_results
from securebench.client.volume import ClusterTarget
from securebench.errors import InvalidInputError
from securebench.stats.cost import Price
from support.result_folders import result_folder, result_line

TARGET = ClusterTarget(None, None)
USAGE = {"requests": 2, "input_tokens": 1_000_000, "cached_tokens": 0, "output_tokens": 0}


def attempt(task, model="m", **changes):
    metadata = {"usage": USAGE, "provider_models": [model]}
    return result_line(task, producer_metadata=metadata, **changes)


@pytest.fixture
def folder(tmp_path):
    lines = [
        attempt("a", tags=["x", "y"], difficulty="hard"),
        attempt("b", "other", passed=False),
        result_line("c", passed=None, outcome="infrastructure"),
    ]
    return result_folder(tmp_path / "run", lines)


@pytest.fixture
def results(folder):
    return read_results(folder, "nightly", {"m": Price(1_250_000, 0, 0)})


def read_csv(results):
    text = b"".join(as_csv(results)).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv(results):
    first, second, third = read_csv(results)
    assert (first["task_id"], first["passed"], first["tags"]) == ("a", "true", "x; y")
    assert (first["input_tokens"], first["cost_micro_dollars"]) == ("1000000", "1250000")
    assert (second["passed"], second["cost_micro_dollars"]) == ("false", "")
    assert (third["passed"], third["score"], third["requests"]) == ("", "", "")


FORMULAS = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe(text):
    assert cell_text(text).startswith("'")


SEPARATORS = [";", "\t", ",", "|", "\n", '";', "; ", ';"', "\t "]


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d"])
def test_no_reader_finds_a_formula_behind_its_separator(separator, start):
    text = cell_text(f"the answer was x{separator}{start}A1")
    assert f"'{start}A1" in text


@pytest.mark.parametrize("cell", ["a=1", "1-2", "a; b", "x;1=2", "", 0, 1.5, None])
def test_other_cells_stay(cell):
    assert cell_text(cell) == ("" if cell is None else str(cell))


def test_openmetrics(results):
    text = b"".join(as_openmetrics(results)).decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    common = (("benchmark", results.benchmark_id), ("run", "nightly"))
    assert samples[("securebench_result_verdicts", *common)] == 2
    rate = ("benchmark", results.benchmark_id), ("bound", "value"), ("run", "nightly")
    assert samples[("securebench_result_pass_rate", *rate)] == 0.5
    assert samples[("securebench_result_cost_dollars", *common)] == 1.25
    assert samples[("securebench_result_unpriced_tokens", *common)] == 1_000_000
    assert text.endswith("# EOF\n")


def test_parquet(folder, tmp_path):
    out = tmp_path / "out.parquet"
    assert export_run(str(folder), out, ExportFormat.PARQUET, TARGET) == 0
    table = parquet.read_table(out)
    rows = table.to_pylist()
    assert [row["task_id"] for row in rows] == ["a", "b", "c"]
    assert [row["passed"] for row in rows] == [True, False, None]
    assert table.column_names == list(next(attempt_rows(read_results(folder, "r"))))


def test_a_file_is_written_whole_or_not_at_all(folder, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert export_run(str(folder), out, ExportFormat.CSV, TARGET) == 0
    assert capsys.readouterr().out == f"securebench: written {out}\n"
    assert out.read_bytes().startswith(b'"run","run_id","benchmark_id","task_id"')
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_without_the_library_of_parquet(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    want = r"need pyarrow: pip install 'securebench\[export\]'"
    with pytest.raises(InvalidInputError, match=want):
        export_run(str(folder), tmp_path / "out.parquet", ExportFormat.PARQUET, TARGET)
