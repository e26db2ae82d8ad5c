import json
from pathlib import Path

import jsonschema
import pytest

import securebench.schemas as schemas_folder
from securebench.benchmark.families.registry import FAMILIES, row_families
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import (
    BenchmarkManifest,
    rendered_schemas,
    row_problems,
    row_schema,
)
from securebench.errors import ConfigErrors

FOLDER = Path(schemas_folder.__path__[0])


def test_published_files_are_up_to_date():
    published = {
        path.name: path.read_text()
        for path in FOLDER.glob("*.schema.json")
        if path.name.startswith(("row.", "manifest."))
    }
    assert published == rendered_schemas()


@pytest.mark.parametrize("name", rendered_schemas())
def test_schemas_are_valid(name):
    jsonschema.Draft202012Validator.check_schema(json.loads(rendered_schemas()[name]))


VALUES = [
    None, True, 0, -1, 2.5, "", " ", "x", [], [""], ["x"], ["x", 1], [True], {}, {"a": 1},
    {"source": "command", "command": "x"}, {"source": "command", "command": []},
    {"source": "command", "command": ["x"], "timeout_seconds": -1},
    {"source": "command", "command": "x", "candidate_policy": {"allow_paths": [""]}},
    {"source": "command", "command": "x", "test_patch": {"source": "inline", "patch": "p"}},
    {"source": "command", "command": "x", "test_patch": {"source": "inline", "patch": "p", "q": 1}},
    {"command": "x"}, {"command": "x", "timeout_seconds": 0}, {"command": "x", "source": "script"},
    {"source": "pytest", "path": "p"}, {"source": "make", "path": "p"}, {"source": "script"},
    {"allow_paths": ["x"]}, {"allow_paths": "x"}, ["chroot"], ["mount"],
]  # fmt: skip

BASE = {
    "multiple_choice": ({"question": "q", "choices": ["a"]}, {"answer": 0}),
    "short_answer": ({"question": "q"}, {"accepted_answers": ["x"]}),
    "free_response": ({"prompt": "p"}, {"rubric": "r"}),
    "code_completion": ({"prompt": "p"}, {"tests": {}}),
    "repo_patch": (
        {"repo": "r", "base_commit": "c", "instructions": "i"},
        {"tests": {"source": "command", "command": "x"}},
    ),
    "terminal_task": ({"instructions": "i"}, {"checker": {"command": "x"}}),
}


@pytest.mark.parametrize("family", row_families())
def test_schema_and_validator_agree_on_every_field(family):
    validator = jsonschema.Draft202012Validator(row_schema(FAMILIES[family]))
    row_input, row_eval = BASE[family]
    fields = [("input", field.name) for field in FAMILIES[family].input.fields]
    fields += [("eval", field.name) for field in FAMILIES[family].eval.fields]
    fields += [("input", "unknown"), ("eval", "unknown")]
    for section, name in fields:
        for value in VALUES:
            row = {"id": "a", "family": family, "input": {**row_input}, "eval": {**row_eval}}
            row[section][name] = value
            mine = not list(row_problems(family, row["input"], row["eval"]))
            assert validator.is_valid(row) is mine, (section, name, value)


SHARED = {
    "asset": ({"assets": [{"path": "x", "mnt": "y"}]}, False),
    "asset keys without effect": ({"assets": [{"path": "x", "type": "image", "mode": 1}]}, True),
    "environment": ({"environment": {"imgae": "x"}}, False),
    "environment keys without effect": ({"environment": {"network": "none"}}, True),
    "free": ({"metadata": {"x": 1}, "note": 1, "environment": None}, True),
}


@pytest.mark.parametrize("case", SHARED)
def test_keys_that_all_families_share(case):
    extra, want = SHARED[case]
    row_input, row_eval = BASE["free_response"]
    row = {"id": "a", "family": "free_response", "input": row_input, "eval": row_eval, **extra}
    validator = jsonschema.Draft202012Validator(row_schema(FAMILIES["free_response"]))
    assert validator.is_valid(row) is want
    manifest = BenchmarkManifest("m", 1)
    if want:
        compile_benchmark_row(row, manifest=manifest)
    else:
        with pytest.raises(ConfigErrors, match=r"did you mean|unknown field"):
            compile_benchmark_row(row, manifest=manifest)


@pytest.mark.parametrize("family", row_families())
def test_schema_requires_what_the_validator_requires(family):
    validator = jsonschema.Draft202012Validator(row_schema(FAMILIES[family]))
    row_input, row_eval = BASE[family]
    assert validator.is_valid({"id": "a", "input": row_input, "eval": row_eval})
    for name in (*row_input, *row_eval):
        fewer_input = {key: value for key, value in row_input.items() if key != name}
        fewer_eval = {key: value for key, value in row_eval.items() if key != name}
        assert not validator.is_valid({"id": "a", "input": fewer_input, "eval": fewer_eval})
        assert list(row_problems(family, fewer_input, fewer_eval))
