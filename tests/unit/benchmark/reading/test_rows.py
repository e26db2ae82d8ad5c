import pytest

from securebench.benchmark.reading.rows import BenchmarkManifest, parse_rows, split_lines

MANIFEST = BenchmarkManifest(id="b", version=1)


def parse(text, *, manifest=MANIFEST, limit=None):
    lines = split_lines(text.encode().splitlines(keepends=True))
    parsed = parse_rows(lines, manifest, path="t", limit=limit)
    return parsed.rows, [str(error) for error in parsed.errors]


def test_a_full_row():
    rows, errors = parse(
        '{"id": "a", "family": "f", "input": {"q": 1}, "eval": {"x": 2}, "assets": [{"path": "p"}],'
        ' "environment": {"image": "i"}, "metadata": {"m": 3}, "note": 4}'
    )
    assert errors == []
    (row,) = rows
    assert (row.id, row.family, row.line, row.unknown_keys) == ("a", "f", 1, ("note",))
    assert (row.input, row.eval, row.assets) == ({"q": 1}, {"x": 2}, ({"path": "p"},))
    assert (row.environment, row.metadata) == ({"image": "i"}, {"m": 3})


def test_null_sections_are_absent():
    rows, errors = parse(
        '{"id": "a", "family": "f", "input": null, "eval": null, "assets": null,'
        ' "environment": null, "metadata": null}'
    )
    assert errors == []
    assert (rows[0].input, rows[0].assets, rows[0].metadata) == ({}, (), {})


def test_default_family_of_the_manifest():
    manifest = BenchmarkManifest(id="b", version=1, default_family="d")
    rows, _ = parse('{"id": "a"}\n{"id": "b", "family": "own"}', manifest=manifest)
    assert [row.family for row in rows] == ["d", "own"]


def test_blank_lines_count_in_line_numbers():
    rows, _ = parse('\n  \n  {"id": "a", "family": "f"}  \r\n\n{"id": "b", "family": "f"}')
    assert [row.line for row in rows] == [3, 5]


BAD = {
    "bad json": ("{", "t:1: invalid JSON"),
    "no object": ("[1]", "t:1: benchmark row must be an object"),
    "no id": ('{"family": "f"}', "t:1: benchmark row line 1.id is required"),
    "blank id": (
        '{"id": " ", "family": "f"}',
        "t:1: benchmark row line 1.id must be a non-empty string",
    ),
    "half a character": ('{"id": "\\ud800", "family": "f"}', "t:1: benchmark row line 1.id must"),
    "no family": ('{"id": "a"}', "t:1: benchmark row line 1: family is required"),
    "blank family": (
        '{"id": "a", "family": ""}',
        "t:1: benchmark row line 1.family must be a non-empty string",
    ),
    "input": (
        '{"id": "a", "family": "f", "input": []}',
        "t:1: benchmark row line 1.input must be an object",
    ),
    "assets": (
        '{"id": "a", "family": "f", "assets": {}}',
        "t:1: benchmark row line 1.assets must be a list of objects",
    ),
    "asset": (
        '{"id": "a", "family": "f", "assets": ["x"]}',
        "t:1: benchmark row line 1.assets[0] must be an object",
    ),
    "asset path": (
        '{"id": "a", "family": "f", "assets": [{"mount": "x"}]}',
        "t:1: benchmark row line 1.assets[0].path is required",
    ),
    "asset path type": (
        '{"id": "a", "family": "f", "assets": [{"path": 1}]}',
        "t:1: benchmark row line 1.assets[0].path must be a non-empty string",
    ),
    "asset mount": (
        '{"id": "a", "family": "f", "assets": [{"path": "p", "mount": ""}]}',
        "t:1: benchmark row line 1.assets[0].mount must be a non-empty string",
    ),
    "asset read_only": (
        '{"id": "a", "family": "f", "assets": [{"path": "p", "read_only": "yes"}]}',
        "t:1: benchmark row line 1.assets[0].read_only must be a boolean",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case):
    text, want = BAD[case]
    rows, errors = parse(text)
    assert rows == ()
    (error,) = errors
    assert error.startswith(want)


def test_all_defects_of_all_rows_in_file_order():
    _, errors = parse('{"id": "", "input": 1}\nx\n{"id": "c", "family": "f", "eval": 1}')
    assert [error.split(":")[1] for error in errors] == ["1", "1", "1", "2", "3"]


def test_duplicate_ids_name_both_lines():
    _, errors = parse('{"id": "a", "family": "f"}\n\n{"id": "a", "family": "f"}')
    assert errors == ["t:3: duplicate task id 'a' on lines 1 and 3"]


def test_limit_reads_nothing_behind_it():
    def lines():
        yield b'{"id": "a", "family": "f"}\n'
        raise AssertionError("a line behind the limit was read")

    assert len(parse_rows(split_lines(lines()), MANIFEST, limit=0).rows) == 0
    assert len(parse_rows(split_lines(lines()), MANIFEST, limit=1).rows) == 1
    rows, errors = parse('{"id": "a", "family": "f"}\nbroken', limit=1)
    assert len(rows) == 1
    assert errors == []
