"""Every YAML block of the documentation is what its reader can use."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from securebench.client.tester_config import parse_tester_config
from securebench.errors import SecureBenchError
from securebench.run.api.models import BenchmarkRunSpec
from securebench.suite.api import BenchmarkSuiteSpec

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "operator" / "securebench" / "schemas"
CHART = ROOT / "charts" / "securebench"
CI_SCHEMAS = Path(__file__).parent / "schemas"
PAGES = [
    path
    for place in ("docs/**/*.md", "README.md", "images/*.md", "charts/securebench/README.md")
    for path in sorted(ROOT.glob(place))
    if "decisions" not in path.parts
]
_FENCE = re.compile(
    r"^(?P<indent> *)```yaml[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)

HARNESS = {"type": "command", "config": {"command": "true"}}
RUN = {"pack": {"volume": {"path": "a-pack"}}, "harness": HARNESS}
TESTER = {
    "schema_version": "0.2",
    "run": {"id": "a-run", "output_dir": "results"},
    "benchmark": {"manifest": "manifest.yaml", "tasks": "tasks.jsonl"},
    "harness": HARNESS,
}
MANIFEST = {"id": "a-pack", "version": 1}
SPEC_FIELDS = {field.alias or name for name, field in BenchmarkRunSpec.model_fields.items()}
VALUES = set(yaml.safe_load((CHART / "values.yaml").read_text()))


def blocks():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield pytest.param(match["text"], id=f"{page.relative_to(ROOT)}:{line}")


def schema(path):
    return json.loads(path.read_text(encoding="utf-8"))


def check_run(spec):
    BenchmarkRunSpec.model_validate_json(json.dumps({**RUN, **spec}))


def check_targets(lines):
    """Check what a recipe of continuous integration calls of ours."""
    targets = [name for line in lines for name in re.findall(r"\bmake ([\w-]+)", line)]
    assert targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def check(block):
    """Check a block, completed with what every object of its kind has."""
    keys = set(block)
    if block.get("kind") == "BenchmarkSuite":
        BenchmarkSuiteSpec.parse(block["spec"])
    elif block.get("kind") == "BenchmarkRun" or keys == {"metadata", "spec"}:
        check_run(block["spec"])
    elif block.get("kind") == "Kustomization":
        assert block["resources"]
    elif "jobs" in keys:
        jsonschema.validate(block, schema(CI_SCHEMAS / "github-workflows.json"))
        check_targets(
            step.get("run", "") for job in block["jobs"].values() for step in job["steps"]
        )
    elif all(isinstance(job, dict) and "script" in job for job in block.values()):
        jsonschema.validate(block, schema(CI_SCHEMAS / "gitlab-ci.json"))
        check_targets(line for job in block.values() for line in job["script"])
    elif "schema_version" in keys or keys == {"harness"}:
        parse_tester_config({**TESTER, **block})
    elif keys <= SPEC_FIELDS:
        check_run(block)
    elif keys <= VALUES:
        jsonschema.validate(block, schema(CHART / "values.schema.json"))
    else:
        manifest = schema(SCHEMAS / "manifest.schema.json")
        assert keys <= set(manifest["properties"])
        jsonschema.validate({**MANIFEST, **block}, manifest)


@pytest.mark.parametrize("text", list(blocks()))
def test_a_block_is_valid(text):
    for block in yaml.safe_load_all(text):
        check(block)


@pytest.mark.parametrize(
    "block",
    [
        {"kind": "BenchmarkRun", "spec": {"parallel": 3}},
        {"kind": "BenchmarkSuite", "spec": {"matrix": {"packs": []}}},
        {"harness": {"type": "unheard-of"}},
        {"settings": {"bounds": {"text": 1}}},
        {"defaults": {"family": "unheard-of"}},
        {"schema_version": "0.1"},
        {"unheard-of": 1},
        {"on": "push", "jobs": {"a": {"runs-on": "ubuntu", "steps": [{"runs": "make push"}]}}},
        {"on": "push", "jobs": {"a": {"runs-on": "ubuntu", "steps": [{"run": "make unheard-of"}]}}},
        {"a": {"script": ["make push"], "image": 1}},
        {"a": {"script": ["make unheard-of"]}},
    ],
)
def test_a_wrong_block_is_found(block):
    with pytest.raises((AssertionError, ValueError, jsonschema.ValidationError, SecureBenchError)):
        check(block)
