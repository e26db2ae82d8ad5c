import jsonschema
import pytest

from securebench.benchmark.reading.plain import parse_yaml
from securebench.benchmark.reading.rows import MANIFEST, AssetRoots, parse_manifest
from securebench.errors import ConfigErrors

FULL = """\
id: demo
version: 2
defaults:
  family: terminal_task
  environment:
    image: python:3.11-slim
    resources: [1]
asset_roots:
  public: files/
  eval: private
asset_defaults:
  read_only: false
owner: me
licence: x
"""


def test_full_manifest():
    manifest = parse_manifest(FULL, path="m.yaml")
    assert (manifest.id, manifest.version, manifest.path) == ("demo", 2, "m.yaml")
    assert manifest.default_family == "terminal_task"
    assert manifest.default_environment == {"image": "python:3.11-slim", "resources": [1]}
    assert manifest.asset_roots == AssetRoots("files/", "private")
    assert manifest.asset_read_only is False
    assert manifest.unknown_keys == (("owner", 13), ("licence", 14))


MISSPELT = {
    "section": ("id: a\nversion: 1\ndefault: {family: x}",
                "m:3: unknown manifest key 'default', did you mean 'defaults'?"),
    "required": ("idd: a\nversion: 1", "m:1: unknown manifest key 'idd', did you mean 'id'?"),
    "version": (
        "id: a\nverison: 1", "m:2: unknown manifest key 'verison', did you mean 'version'?"),
    "key of a section": (
        "id: a\nversion: 1\ndefaults:\n  environmentt: {}",
        "m:4: unknown manifest key 'defaults.environmentt', did you mean 'defaults.environment'?"),
    "environment": (
        "id: a\nversion: 1\ndefaults:\n  environment:\n    imgae: x",
        "m:5: unknown key 'imgae' in environment, did you mean 'image'?"),
    "environment, no near one": (
        "id: a\nversion: 1\ndefaults: {environment: {gpu: 1}}",
        ("m:3: unknown key 'gpu' in environment; known are env, image,"
        " materialize_workdir_from_image, network, packages, resources, setup, timeout_seconds,"
        " workdir")),
    "family": (
        "id: a\nversion: 1\ndefaults:\n  family: short-answer",
        "m:4: unknown family 'short-answer', did you mean 'short_answer'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSPELT)
def test_what_is_misspelt_is_named_once_with_the_nearest_word(case):
    text, want = MISSPELT[case]
    with pytest.raises(ConfigErrors) as caught:
        parse_manifest(text, path="m")
    assert [str(error) for error in caught.value.errors] == [want]


def test_a_key_near_one_that_is_there_is_a_warning():
    assert parse_manifest("id: a\nidx: 1\nversion: 1").unknown_keys == (("idx", 2),)


MINIMAL = {
    "nothing": "id: a\nversion: 1",
    "null sections": "id: a\nversion: 1\ndefaults:\nasset_roots: null\nasset_defaults: ~",
    "null values": "id: a\nversion: 1\ndefaults: {family: null, environment: null}\n"
    "asset_roots: {public: null}\nasset_defaults: {read_only: null}",
}


@pytest.mark.parametrize("case", MINIMAL)
def test_defaults(case):
    manifest = parse_manifest(MINIMAL[case])
    assert manifest.default_family is None
    assert manifest.default_environment == {}
    assert manifest.asset_roots == AssetRoots("assets/", "hidden/")
    assert manifest.asset_read_only is True
    jsonschema.validate(parse_yaml(MINIMAL[case]).value, MANIFEST.schema)


BAD = {
    "no mapping": ("- a", ["m:1: manifest root must be a mapping"]),
    "empty": ("", ["m:1: manifest root must be a mapping"]),
    "missing": ("x: 1", ["m:1: manifest id is required", "m:1: manifest version is required"]),
    "id": ("id: 3\nversion: 1", ["m:1: manifest id must be a non-empty string: put it in quotes"]),
    "null id": ("id: null\nversion: 1", ["m:1: manifest id must be a non-empty string"]),
    "blank id": ("id: ' '\nversion: 1", ["m:1: manifest id must be a non-empty string"]),
    "text version": (
        "id: a\nversion: '1'",
        ["m:2: manifest version must be an integer: write the number without quotes"],
    ),
    "bool version": ("id: a\nversion: true", ["m:2: manifest version must be an integer"]),
    "sections": (
        "id: a\nversion: 1\ndefaults: 1\nasset_roots: []\nasset_defaults: x",
        [
            "m:3: manifest defaults must be a mapping",
            "m:4: manifest asset_roots must be a mapping",
            "m:5: manifest asset_defaults must be a mapping",
        ],
    ),
    "defaults": (
        "id: a\nversion: 1\ndefaults:\n  environment: x\n  family: ''",
        [
            "m:4: manifest defaults.environment must be a mapping",
            "m:5: manifest defaults.family must be a non-empty string",
        ],
    ),
    "read only": (
        "id: a\nversion: 1\nasset_defaults: {read_only: 'no'}",
        ["m:3: manifest asset_defaults.read_only must be a boolean"],
    ),
    "roots": (
        "id: a\nversion: 1\nasset_roots:\n  public: ../x\n  eval: .",
        [
            "m:4: manifest asset_roots.public must not contain '..'",
            "m:5: manifest asset_roots.eval must not be '.'",
        ],
    ),
    "root types": (
        "id: a\nversion: 1\nasset_roots:\n  public: 3\n  eval: /x",
        [
            "m:4: manifest asset_roots.public must be a non-empty relative path: put it in quotes",
            "m:5: manifest asset_roots.eval must be relative",
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_all_defects_with_key_lines(case):
    text, want = BAD[case]
    with pytest.raises(ConfigErrors) as caught:
        parse_manifest(text, path="m")
    assert [str(error) for error in caught.value.errors] == want


def test_syntax_error_has_file_and_line():
    with pytest.raises(ConfigErrors) as caught:
        parse_manifest("id: a\nversion: 1\nid: b", path="m")
    assert str(caught.value) == "m:3: invalid YAML: duplicate key 'id'"
