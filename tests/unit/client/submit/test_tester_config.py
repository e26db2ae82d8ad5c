"""Tester YAML, schema 0.2 (contract 3)."""

from pathlib import Path

import pytest

from securebench.agents.registry import AGENTS
from securebench.client.tester_config import (
    BenchmarkSection,
    load_tester_config,
    parse_tester_config,
    with_tester_overrides,
)
from securebench.errors import ConfigError, ConfigErrors

GOOD = """\
schema_version: "0.2"
run:
  id: run 1
  output_dir: out/../results
benchmark:
  manifest: ../pack/manifest.yaml
  tasks: ../pack/tasks.jsonl
harness:
  type: command
  env: [TOKEN, B]
  config:
    command: [python3, run.py]
verification:
  disallow_dangerous_commands: false
  deny_commands: [" chroot ", chroot]
"""


TOKENS = "an integer from 1 to 1000000000000"


def good(**changes):
    data = {
        "schema_version": "0.2",
        "run": {"id": "r", "output_dir": "out"},
        "benchmark": {"manifest": "m.yaml", "tasks": "t.jsonl"},
        "harness": {"type": "command"},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        if key:
            data[section] = {**data.get(section, {}), key: value}
        else:
            data[section] = value
    return data


def messages(data):
    with pytest.raises(ConfigErrors) as caught:
        parse_tester_config(data)
    return [str(error) for error in caught.value.errors]


def without(key, **changes):
    return {name: value for name, value in good(**changes).items() if name != key}


def test_a_pack_by_its_folder():
    found = parse_tester_config(without("benchmark", pack="mine"), base_dir="base").benchmark
    assert found == BenchmarkSection.of_folder(Path("base/mine"))
    assert (found.manifest.name, found.tasks.name) == ("manifest.yaml", "tasks.jsonl")
    assert messages(without("benchmark")) == [
        "name the pack: with pack, its folder, or with benchmark, manifest and tasks"
    ]


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "tester.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_whole_file(write):
    path = write(GOOD)
    config = load_tester_config(path)
    folder = path.parent
    assert config.run.id == "run 1"
    assert config.run.output_dir == folder / "out/../results"
    assert str(config.run.output_dir).endswith("out/../results")
    assert config.benchmark.manifest == folder / "../pack/manifest.yaml"
    assert config.benchmark.tasks == folder / "../pack/tasks.jsonl"
    assert config.harness.env == ("TOKEN", "B")
    assert config.harness.config == {"command": ["python3", "run.py"]}
    assert config.verification.disallow_dangerous_commands is False
    assert config.verification.deny_commands == ("chroot",)
    assert (config.run.limit, config.run.resume) == (None, False)


def test_defaults_and_relative_paths_without_a_folder():
    config = parse_tester_config(good())
    assert config.run.output_dir == Path("out")
    assert config.benchmark.manifest == Path("m.yaml")
    assert config.harness.env == ()
    assert config.harness.config == {}
    assert config.verification.disallow_dangerous_commands is True
    assert config.verification.deny_commands == ()
    assert config.schema_version == "0.2"


def test_base_dir_is_joined_and_absolute_paths_stay():
    config = parse_tester_config(good(run__output_dir="/abs"), base_dir="base")
    assert config.run.output_dir == Path("/abs")
    assert config.benchmark.tasks == Path("base/t.jsonl")


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ([], "Tester config root must be an object"),
        (None, "Tester config root must be an object"),
        (good(limit=3), "root contains unsupported field(s): limit"),
        (good(run__attempts=0), "run.attempts must be an integer from 1 to 100"),
        (good(run__attempts=2.0), "run.attempts must be an integer from 1 to 100"),
        (good(run__budget=5), "run.budget must be an object"),
        (good(run__budget={}), "run.budget.tokens is required"),
        (good(run__budget={"tokens": 0}), f"run.budget.tokens must be {TOKENS}"),
        (good(run__budget={"tokens": 10**12 + 1}), f"run.budget.tokens must be {TOKENS}"),
        (good(run__resume=True), "run contains unsupported field(s): resume"),
        (good(benchmark__split="x"), "benchmark contains unsupported field(s): split"),
        (
            good(harness__image="x", harness__command="y"),
            "harness contains unsupported field(s): command, image",
        ),
        (good(verification__mode="x"), "verification contains unsupported field(s): mode"),
        (good(schema_version="0.1"), "Unsupported tester schema_version '0.1'"),
        (good(schema_version=0.2), "schema_version must be a string"),
        (good(run="x"), "root.run must be an object"),
        (good(benchmark=None), "root.benchmark must be an object"),
        (good(pack="x"), "name the pack: with pack, its folder, or with benchmark, manifest"),
        (good(harness=[]), "root.harness must be an object"),
        (good(run__id=" "), "run.id must be a non-empty string"),
        (good(run__id=7), "run.id must be a non-empty string"),
        (good(run={"id": "x"}), "run.output_dir is required"),
        (good(benchmark={"tasks": "t"}), "benchmark.manifest is required"),
        (
            good(harness__type="docker"),
            (
                "harness.type must be one of claude_code, codex, command, mini_swe_agent, nop,"
                " opencode, oracle"
            ),
        ),
        (good(harness__type=None), "harness.type must be one of"),
        (good(harness__type=["command"]), "harness.type must be one of"),
        (good(harness={}), "harness.type must be one of"),
        (good(harness__env="TOKEN"), "harness.env must be a list of names"),
        (good(harness__env=["A=B"]), "harness.env[0] must be a non-empty string without '='"),
        (good(harness__env=["A", ""]), "harness.env[1] must be a non-empty string without '='"),
        (good(harness__config="x"), "harness.config must be an object"),
        (good(verification="x"), "verification must be an object"),
        (
            good(verification__disallow_dangerous_commands="yes"),
            "verification.disallow_dangerous_commands must be a boolean",
        ),
        (
            good(verification__deny_commands="chroot"),
            "verification.deny_commands must be a list",
        ),
        (
            good(verification__deny_commands=["chroot", "mount"]),
            "verification.deny_commands[1] must be one of chroot",
        ),
        (good(verification__deny_commands=[1]), "verification.deny_commands[0] must be one of"),
    ],
)
def test_one_defect_gives_one_message(data, want):
    found = messages(data)
    assert len(found) == 1
    assert found[0].startswith(want)


def test_missing_version_is_named():
    data = good()
    del data["schema_version"]
    assert messages(data) == ["schema_version is required"]


def test_harness_config_is_not_looked_into():
    assert parse_tester_config(good(harness__config={"nonsense": 1})).harness.config


def test_all_defects_come_together_with_file_and_line(write):
    path = write(
        """\
schema_version: "0.2"
harness:
  type: podman
  env:
    - OK
    - "A=B"
run:
  id: ""
benchmark:
  manifest: m
  tasks: t
  split: dev
limit: 3
"""
    )
    with pytest.raises(ConfigErrors) as caught:
        load_tester_config(path)
    assert [str(error) for error in caught.value.errors] == [
        (
            f"{path}:3: harness.type must be one of {', '.join(sorted(AGENTS))}; for another agent"
            " write command, with harness.config.command and provider"
        ),
        f"{path}:4: harness.env[1] must be a non-empty string without '='",
        f"{path}:7: run.output_dir is required",
        f"{path}:8: run.id must be a non-empty string",
        f"{path}:12: benchmark contains unsupported field(s): split",
        f"{path}:13: root contains unsupported field(s): limit",
    ]


MISSPELT = {
    "section": (
        "run:", "runs:", "2: root contains unsupported field(s): runs, did you mean 'run'?"),
    "key": ("id:", "idd:", "2: run contains unsupported field(s): idd, did you mean 'id'?"),
    "version": (
        "schema_version", "schema-version",
        "1: root contains unsupported field(s): schema-version, did you mean 'schema_version'?"),
}  # fmt: skip
RIGHT = """\
schema_version: "0.2"
run: {id: r, output_dir: out}
benchmark: {manifest: m, tasks: t}
harness: {type: command, config: {command: x, task_file: t.json}}
"""


@pytest.mark.parametrize("case", MISSPELT)
def test_a_misspelt_key_is_named_once_with_the_nearest_known_one(write, case):
    right, wrong, want = MISSPELT[case]
    path = write(RIGHT.replace(right, wrong))
    with pytest.raises(ConfigErrors) as caught:
        load_tester_config(path)
    assert [str(error) for error in caught.value.errors] == [f"{path}:{want}"]


ENCODINGS = {
    "UTF-8 with a mark": ("utf-8-sig", None),
    "UTF-16": ("utf-16", ":1: the file is UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (
        "utf-16-le", ":1: the file is UTF-16 without a mark; save it as UTF-8"),
    "UTF-32": ("utf-32", ":1: the file is UTF-32; save it as UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENCODINGS)
def test_encodings(write, case):
    encoding, want = ENCODINGS[case]
    path = write("")
    path.write_bytes(RIGHT.encode(encoding))
    if want is None:
        assert load_tester_config(path).run.id == "r"
        return
    with pytest.raises(ConfigErrors) as caught:
        load_tester_config(path)
    assert str(caught.value) == f"{path}{want}"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", ":1: Tester config root must be an object"),
        ("- a\n", ":1: Tester config root must be an object"),
        ("a: [1,\nb: }", ":2: invalid YAML"),
        ("a: 1\na: 2\n", ":2: invalid YAML: duplicate key 'a'"),
        ("a: !!python/object:os.system x\n", ":1: invalid YAML"),
        ("\x07", ": invalid YAML"),
        ("[" * 5000, ": invalid YAML"),
    ],
)
def test_what_is_no_configuration_is_a_config_error(write, text, want):
    path = write(text)
    with pytest.raises(ConfigErrors) as caught:
        load_tester_config(path)
    assert str(caught.value.errors[0]).startswith(f"{path}{want}")


def test_unreadable_files(tmp_path):
    with pytest.raises(ConfigErrors, match="cannot be read: No such file"):
        load_tester_config(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigErrors, match="not UTF-8"):
        load_tester_config(tmp_path / "latin.yaml")


def test_number_as_version_fails_from_yaml(write):
    path = write(GOOD.replace('"0.2"', "0.2"))
    with pytest.raises(ConfigErrors, match=r":1: schema_version must be a string"):
        load_tester_config(path)


def test_errors_of_the_harness_get_their_place(write):
    path = write(GOOD)
    config = load_tester_config(path)
    errors = ConfigErrors(
        [
            ConfigError("elsewhere"),
            ConfigError("bad", key=("harness", "config", "command")),
            ConfigError("missing", key=("harness", "config", "model")),
        ]
    )
    assert [str(error) for error in config.placed(errors).errors] == [
        f"{path}:1: elsewhere",
        f"{path}:11: missing",
        f"{path}:12: bad",
    ]
    parsed = parse_tester_config(good())
    assert parsed.placed(errors).errors == errors.errors


def test_a_budget_of_the_run():
    config = parse_tester_config(good(run__budget={"tokens": 500}))
    assert config.run.budget_tokens == 500
    assert with_tester_overrides(config) == config
    assert with_tester_overrides(config, budget_tokens=9).run.budget_tokens == 9
    for tokens in (0, 10**12 + 1):
        with pytest.raises(ConfigError, match=f"budget_tokens must be {TOKENS}: {tokens}"):
            with_tester_overrides(config, budget_tokens=tokens)


def test_overrides():
    config = parse_tester_config(good(), base_dir="base")
    assert with_tester_overrides(config) == config
    changed = with_tester_overrides(config, output_dir="here", attempts=3, limit=1, resume=True)
    assert changed.run.attempts == 3
    assert changed.run.budget_tokens is None
    assert changed.run.output_dir == Path("here")
    assert (changed.run.limit, changed.run.resume) == (1, True)
    assert changed.run.id == config.run.id
    for limit in (0, -1):
        with pytest.raises(ConfigError, match=f"limit must be at least 1: {limit}"):
            with_tester_overrides(config, limit=limit)
