import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.benchmark.families.registry import EVAL_VISIBILITY, FAMILIES
from securebench.benchmark.files.materialize import write_lanes
from securebench.benchmark.pack.lane_plan import materialization_plan
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import BenchmarkManifest
from securebench.benchmark.resources import Lane
from securebench.run.records.redaction import redact_verification, task_secrets

MANIFEST = BenchmarkManifest("demo", 1)
PRIVATE_PREFIX = "PRIVATE-"

NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
KNOWN_KEYS = sorted({key for lanes in EVAL_VISIBILITY.values() for key in lanes})
FAMILY_NAMES = st.sampled_from(sorted(EVAL_VISIBILITY.keys() - FAMILIES.keys()))
PRIVATE_TEXT = st.text(st.characters(codec="utf-8"), max_size=8).map(PRIVATE_PREFIX.__add__)
PUBLIC_TEXT = st.text(st.characters(codec="utf-8"), max_size=12).filter(
    lambda text: PRIVATE_PREFIX not in text
)


def json_values(leaves):
    return st.recursive(
        leaves | st.integers() | st.booleans() | st.none(),
        lambda child: st.lists(child, max_size=3) | st.dictionaries(NAMES, child, max_size=3),
        max_leaves=6,
    )


@st.composite
def rows(draw):
    row_input = draw(st.dictionaries(NAMES, json_values(PUBLIC_TEXT), max_size=3))
    keys = draw(st.lists(st.sampled_from(KNOWN_KEYS) | NAMES, unique=True, max_size=4))
    row_eval = {
        key: draw(json_values(PRIVATE_TEXT).filter(lambda value: not _is_reference(value)))
        for key in keys
        if key not in row_input
    }
    row_input.pop("assets", None)
    return {
        "id": draw(NAMES),
        "family": draw(FAMILY_NAMES),
        "input": row_input,
        "eval": row_eval,
    }


def _is_reference(value):
    return isinstance(value, dict) and "path" in value


@given(rows())
def test_no_private_value_in_what_the_agent_sees(row):
    task = compile_benchmark_row(row, manifest=MANIFEST)
    assert PRIVATE_PREFIX not in repr(task.agent_payload())
    assert PRIVATE_PREFIX not in repr(task.view_for("result"))
    assert PRIVATE_PREFIX not in repr(task.resource_summary())
    contents = [item.content or b"" for item in materialization_plan(task, "agent").files]
    assert PRIVATE_PREFIX.encode() not in b"".join(contents)


@given(rows())
def test_evaluator_and_test_sandbox_see_their_own_lane_only(row):
    task = compile_benchmark_row(row, manifest=MANIFEST)
    hidden = {item.name for item in task.resources.in_lane(Lane.HIDDEN)}
    inputs = {item.name for item in task.resources.in_lane(Lane.EVALUATION_INPUTS)}
    assert not hidden & task.evaluation_payload().keys()
    assert not inputs & task.hidden_payload().keys()
    assert hidden | inputs == row["eval"].keys()


@settings(max_examples=25, deadline=None)
@given(rows())
def test_no_private_byte_in_the_public_lane(row):
    task = compile_benchmark_row(row, manifest=MANIFEST)
    with tempfile.TemporaryDirectory() as folder:
        write_lanes(task, Path(folder), Path(folder) / "lanes")
        public = [path for path in (Path(folder) / "lanes/public").rglob("*") if path.is_file()]
        assert all(PRIVATE_PREFIX.encode() not in path.read_bytes() for path in public)
        names = {path.stem for path in public}
        assert not names & (row["eval"].keys() - row["input"].keys() - {"task"})


@given(rows(), st.text(max_size=5), st.text(max_size=5))
def test_no_long_secret_survives_redaction(row, before, after):
    task = compile_benchmark_row(row, manifest=MANIFEST)
    secrets = task_secrets(task.resources)
    output = "".join(f"{before}{secret}{after}" for secret in sorted(secrets))
    result = redact_verification(secrets, output, output, {"deep": [output, *secrets]}, output)
    for secret in secrets:
        assert secret not in result.stdout
        assert secret not in result.stderr
        assert secret not in repr(result.metadata["deep"])
        assert secret not in (result.failure_message or "")
