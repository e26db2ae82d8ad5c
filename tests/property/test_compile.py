import json

from hypothesis import given
from hypothesis import strategies as st

from securebench.benchmark.pack.task import (
    BenchmarkPack,
    compile_benchmark_row,
    compile_rows,
    row_digest,
)
from securebench.benchmark.reading.plain import PlainProblem, parse_yaml
from securebench.benchmark.reading.rows import BenchmarkManifest, split_lines
from securebench.names import kubernetes_name, label_value, logical_name

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=4), child),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
FAMILIES = st.sampled_from(["multiple_choice", "repo_patch", "terminal_task", "tool_call", "x"])
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "family": FAMILIES | JSON,
        "input": OBJECTS | JSON,
        "eval": OBJECTS | JSON,
        "assets": st.lists(OBJECTS, max_size=2) | JSON,
        "environment": OBJECTS | JSON,
        "metadata": OBJECTS | JSON,
    },
)
MANIFEST = BenchmarkManifest("demo", 1, default_family="tool_call")


def pack(rows):
    lines = [json.dumps(row).encode() for row in rows]
    return BenchmarkPack(MANIFEST, tuple(split_lines(lines)), "t")


@given(st.lists(ROWS, max_size=4))
def test_any_json_compiles_or_is_an_error_and_always_the_same(rows):
    first, second = compile_rows(pack(rows)), compile_rows(pack(rows))
    assert first.tasks == second.tasks
    assert list(map(str, first.errors)) == list(map(str, second.errors))
    broken = {error.line for error in first.errors}
    whole = {row.line for row, _ in first.tasks}
    assert whole | broken == set(range(1, len(rows) + 1))
    assert [error.line for error in first.errors] == sorted(error.line for error in first.errors)


@given(st.lists(ROWS, max_size=4), st.integers(0, 4))
def test_limit_is_a_prefix(rows, limit):
    limited, shorter = compile_rows(pack(rows), limit=limit), compile_rows(pack(rows[:limit]))
    assert limited.tasks == shorter.tasks
    assert list(map(str, limited.errors)) == list(map(str, shorter.errors))


@given(st.permutations(["a", "b", "c"]))
def test_row_digest_does_not_depend_on_the_order_of_value_keys(order):
    values = {key: ord(key) for key in order}
    row = {"id": "x", "family": "tool_call", "input": {"values": values}}
    want = {"id": "x", "family": "tool_call", "input": {"values": {"a": 97, "b": 98, "c": 99}}}
    assert row_digest(compile_benchmark_row(row, manifest=MANIFEST)) == row_digest(
        compile_benchmark_row(want, manifest=MANIFEST)
    )


@given(st.text())
def test_any_text_is_a_document_or_a_plain_problem(text):
    try:
        document = parse_yaml(text)
    except PlainProblem:
        return
    json.dumps(document.value, allow_nan=False)


@given(st.text())
def test_names_keep_their_guarantees(text):
    logical = logical_name(text)
    assert logical.isascii()
    assert logical not in {"", ".", ".."}
    assert "/" not in logical
    assert len(label_value(text)) <= 63
    name = kubernetes_name(text)
    assert 0 < len(name) <= 63
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name[0] != "-"
    assert name[-1] != "-"
    assert kubernetes_name(name) == name
