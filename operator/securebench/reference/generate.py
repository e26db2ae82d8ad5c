"""Write schemas and pages of the reference: ``python -m securebench.reference.generate [ROOT]``.

The pages describe packs, families and the tester YAML. They are made from the schemas that read
these files, from the plans of real tasks, from templates of ``securebench init`` and from the texts
beside this module. The meanings of the tester YAML's keys stand here, because only pages and the
editors' schema need them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, cast

from securebench.agents.registry import AGENTS, harness_config
from securebench.benchmark.families.base import Family, FieldSection
from securebench.benchmark.families.registry import row_families
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.harbor.keys import COMPOSE_REFUSED, KEYS
from securebench.benchmark.reading.rows import ASSET, MANIFEST, ROW
from securebench.benchmark.resources import Lane
from securebench.client.harbor_job import JOB_KEYS
from securebench.client.packs import TaskVisibility, task_visibility
from securebench.client.starter import COMMAND, agents, starter_files
from securebench.client.tester_config import TESTER, load_tester_config
from securebench.json_values import NO_DEFAULT, Schema, described, object_at, object_in, text_at
from securebench.reference.go_structs import GO_STRUCTS, go_structs
from securebench.run.pods.volumes import DEFAULT_LIMITS

NOTHING: Final = "-"


class FieldRow(NamedTuple):
    """One key of a table, by its dotted path."""

    name: str
    schema: Schema
    is_required: bool
    other: str = ""
    """Of two forms the first key of the one that does not have this key."""


def field_rows(schema: Schema, place: str = "", other: str = "") -> Iterator[FieldRow]:
    """Yield the keys of an object and of objects in it, in the order of the schema.

    Args:
        schema: Schema of an object; of two forms the keys of both.
        place: Path of the object; empty for the root.
        other: Of two forms the first key of the other one; empty for the only form.
    """
    required = cast("Collection[str]", schema.get("required", ()))
    for name, below in object_at(schema, "properties").items():
        here = f"{place}.{name}" if place else name
        own = object_in(below)
        yield FieldRow(here, own, name in required, other)
        yield from field_rows(*_below(own, here))
    for form, opposite in (("then", "else"), ("else", "then")):
        if form in schema:
            needed = cast("Sequence[str]", object_at(schema, opposite).get("required", ()))
            yield from field_rows(object_at(schema, form), place, next(iter(needed), ""))


def field_table(rows: Collection[FieldRow], lanes: Mapping[str, str] | None = None) -> str:
    """Return the rows as a table.

    Args:
        rows: In order.
        lanes: Lane of each top-level key, where keys have one.
    """
    columns = ["field", *(["lane"] if lanes else []), "value", "default", "meaning", "example"]
    lines = [columns, ["---"] * len(columns)]
    for row in rows:
        lane = [] if lanes is None else [lanes.get(row.name.split(".")[0].split("[")[0], "")]
        about = text_at(row.schema, "markdownDescription")
        if row.other and not row.is_required:
            about = f"Not with `{row.other}`. {about}"
        lines.append(
            [f"`{row.name}`", *lane, _kind(row.schema), _default(row), about, _example(row)]
        )
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _below(schema: Schema, place: str) -> tuple[Schema, str]:
    """Return what has the keys below a key: itself, or the items of its list."""
    if "items" in schema:
        return object_at(schema, "items"), f"{place}[]"
    return schema, place


def _kind(schema: Schema) -> str:
    known = schema.get("enum")
    if "const" in schema:
        return f"`{schema['const']}`"
    if isinstance(known, list):
        return " or ".join(f"`{each}`" for each in known if each is not None)
    if "description" in schema:
        return str(schema["description"])
    kind = schema.get("type", "object" if "then" in schema else "any")
    return str(kind[0] if isinstance(kind, list) else kind)


def _default(row: FieldRow) -> str:
    if row.is_required:
        return f"**required** without `{row.other}`" if row.other else "**required**"
    return f"`{json.dumps(row.schema['default'])}`" if "default" in row.schema else NOTHING


def _example(row: FieldRow) -> str:
    examples = row.schema.get("examples")
    found = examples[0] if isinstance(examples, list) and examples else None
    return NOTHING if found is None else f"`{json.dumps(found, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


class Meaning(NamedTuple):
    """What authors read about a key.

    Attributes:
        default: What holds where it is missing.
        value: What it must be, where its schema does not say it.
    """

    about: str
    example: object
    default: object = NO_DEFAULT
    value: str = ""


TESTER_MEANINGS: Final[Mapping[str, Meaning]] = {
    "schema_version": Meaning("Version of this format, in quotes.", "0.2"),
    "run": Meaning("The run.", {"id": "my-run", "output_dir": "results"}),
    "run.id": Meaning("Name of the run in records; at most 512 characters.", "my-run"),
    "run.attempts": Meaning(
        "Independent attempts per task, all of which count (pass@k); `--attempts` replaces it.",
        3,
        default=1,
    ),
    "run.tasks": Meaning(
        "Only the tasks with these ids, or ids that match a shell pattern; `--task` replaces it.",
        ["algebra-*"],
    ),
    "run.deadline_seconds": Meaning(
        "The whole run is ended after so long; `--deadline` replaces it.", 7200, default=86400
    ),
    "run.budget": Meaning(
        "What all launches of the run may use of the model provider together; without it there is"
        " no bound.",
        {"tokens": 2000000},
    ),
    "run.budget.tokens": Meaning(
        "Tokens, input and output together; `--budget-tokens` replaces it.", 2000000
    ),
    "run.output_dir": Meaning(
        "Folder for results, relative to this file; `--output-dir` replaces it.", "results"
    ),
    "benchmark": Meaning(
        "The pack, by its files; or `pack`.", {"manifest": "manifest.yaml", "tasks": "tasks.jsonl"}
    ),
    "benchmark.manifest": Meaning("Its manifest, relative to this file.", "manifest.yaml"),
    "benchmark.tasks": Meaning("Its task file, relative to this file.", "tasks.jsonl"),
    "pack": Meaning(
        "The pack, by its folder, relative to this file; or `benchmark`. The folder has"
        " `manifest.yaml` and `tasks.jsonl`, or holds Harbor task folders.",
        "my-pack",
    ),
    "harness": Meaning(
        "What works on the tasks.", {"type": "command", "config": {"command": "cat answer.txt"}}
    ),
    "harness.type": Meaning(
        "`command` is a program in the task's image; the CLI of a provider otherwise. `oracle` and"
        " `nop` examine a pack.",
        "command",
    ),
    "harness.env": Meaning(
        "Names of variables of your shell or env file that the agent gets. It can read their"
        " values; the key of a model provider needs no entry.",
        ["LANG"],
        [],
    ),
    "harness.config": Meaning("Depends on the type; see below.", {"command": "cat answer.txt"}, {}),
    "verification": Meaning(
        "What verifiers may do.",
        {"disallow_dangerous_commands": False},
        {},
    ),
    "verification.disallow_dangerous_commands": Meaning(
        "Whether checks that need a Linux capability are refused.",
        False,  # noqa: FBT003 - an example
        True,  # noqa: FBT003 - a default
    ),
    "verification.deny_commands": Meaning(
        "Commands that are refused even if others are allowed.", ["chroot"], []
    ),
    "prices[].model": Meaning("Full name of the model, as records have it.", "gpt-5-mini"),
    "prices[].input": Meaning("Of input that did not come from the provider's cache.", 250_000),
    "prices[].cached_input": Meaning(
        "Of input from the cache; without it what `input` says.", 25_000
    ),
    "prices[].output": Meaning("Of output.", 2_000_000),
    "pods": Meaning("The Pods of the run.", {"resources": {"limits": {"memory": "2Gi"}}}),
    "pods.resources": Meaning(
        "As `spec.resources` of a BenchmarkRun: of the agent and of the check.",
        {"limits": {"memory": "2Gi"}},
    ),
    "pods.resources.requests": Meaning("What a node reserves.", {"cpu": "500m"}),
    "pods.resources.requests.cpu": Meaning("Cores.", "500m"),
    "pods.resources.requests.memory": Meaning("Bytes.", "512Mi"),
    "pods.resources.limits": Meaning("What a container may use.", {"memory": "2Gi"}),
    "pods.resources.limits.cpu": Meaning("Cores.", "2"),
    "pods.resources.limits.memory": Meaning("Bytes.", "2Gi"),
    "pods.resources.workspace": Meaning("Size of the workspace on the node's disk.", "1Gi"),
    "pods.node_selector": Meaning(
        "Labels that a node must have; the administrator lists the allowed ones."
        " `--node-selector` replaces it.",
        {"disk": "ssd"},
    ),
    "prices": Meaning(
        "What tokens cost, in micro-dollars per million tokens: `model`, `input`, `cached_input`"
        " (default: `input`) and `output`. Changes nothing about the run.",
        [{"model": "gpt-5-mini", "input": 250_000, "output": 2_000_000}],
        [],
    ),
}
"""Keys of the file, without those of ``harness.config``."""

_PATH: Final = "a path in the workspace"
CONFIG_MEANINGS: Final[Mapping[str, Meaning]] = {
    "command": Meaning(
        "What runs: a text by `sh -lc`, or a list of words.", "python3 /opt/agent/solve.py"
    ),
    "artifact_path": Meaning(
        "File in the workspace that holds the candidate; without it stdout does, and of a"
        " terminal_task the workspace.",
        "answer.txt",
        value=_PATH,
    ),
    "extraction": Meaning(
        "Of a repo_patch task: `git_diff` takes what the command changed in the repository.",
        "git_diff",
        "stdout",
    ),
    "task_file": Meaning(
        "Where the task's values are, in the workspace.", "task.json", "task.json", _PATH
    ),
    "timeout_seconds": Meaning(
        "Time limit of the agent on each task; a smaller one of the task wins. Without both,"
        " 900 for the CLI of a provider and none for a command.",
        600,
    ),
    "network": Meaning(
        "`none`: tasks of Harbor that ask for an open network run without one. Without this key"
        " such tasks are refused.",
        "none",
    ),
    "allowed_domains": Meaning(
        "Hosts that the agent may reach through the gateway, with what is below them.",
        ["pypi.org"],
        [],
    ),
    "model": Meaning("Model of the provider.", "gpt-5"),
    "image": Meaning(
        "Image with the agent, mounted at /opt/securebench/agent beside the task's image.",
        "registry.example/my-agent:1",
    ),
    "provider": Meaning(
        "A model provider by its URL; without it the agent's vendor, and none for a command.",
        {"url": "https://models.example.org/v1", "key": "MODELS_KEY"},
    ),
    "provider.url": Meaning(
        "Base URL as SDKs take it; http:// and private hosts need the administrator's list.",
        "https://models.example.org/v1",
    ),
    "provider.api": Meaning(
        "What it speaks: `chat_completions`, `responses` or `messages`.",
        "responses",
        "chat_completions",
    ),
    "provider.key": Meaning(
        "Variable with its key, and entry of the Secret; without it no key is sent.", "MODELS_KEY"
    ),
    "provider.ca": Meaning(
        "Certificates in PEM form that are trusted instead of all others.",
        "-----BEGIN CERTIFICATE-----\n…",
    ),
    "version": Meaning("Version of the CLI, or `latest`.", "latest", "latest"),
    "budget": Meaning("What one launch may use; without it there is no bound.", {"requests": 50}),
    "budget.requests": Meaning("Requests to the provider.", 50),
    "budget.tokens": Meaning("Tokens, input and output together.", 200000),
    "allow_external_tools": Meaning(
        "Whether tools may be used that the provider carries out, such as its web search, also by"
        " models and endings that use them by themselves (`o3-deep-research`, `x:online`).",
        True,  # noqa: FBT003 - an example
        False,  # noqa: FBT003 - a default
    ),
}
"""Keys of ``harness.config``, of whatever type."""


def with_descriptions(schema: Schema, meanings: Mapping[str, Meaning], place: str = "") -> Schema:
    """Return an object's schema with the meanings of its keys.

    Args:
        schema: Schema of an object.
        meanings: By dotted path.
        place: Path of the object; empty for the root.
    """
    properties = {}
    for name, below in object_at(schema, "properties").items():
        here = f"{place}.{name}" if place else name
        own, meaning = object_in(below), meanings.get(here)
        items = object_at(own, "items")
        if "properties" in items:
            own = {**own, "items": with_descriptions(items, meanings, f"{here}[]")}
        deeper = with_descriptions(own, meanings, here) if "properties" in own else own
        properties[name] = deeper if meaning is None else _with(deeper, meaning)
    return {**schema, "properties": properties}


def _with(schema: Schema, meaning: Meaning) -> Schema:
    value = {"description": meaning.value} if meaning.value else {}
    return described({**schema, **value}, meaning.about, meaning.example, meaning.default)


def tester_schema() -> dict[str, object]:
    """Return the schema that editors check a tester YAML with."""
    schema = with_descriptions(TESTER.schema, TESTER_MEANINGS)
    properties = object_at(schema, "properties")
    harness = {
        **object_at(properties, "harness"),
        "allOf": [_config_of(name) for name in AGENTS],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SecureBench tester YAML",
        **schema,
        "properties": {**properties, "harness": harness},
        "oneOf": [{"required": [name]} for name in ("benchmark", "pack")],
    }


def config_schema(agent: str) -> Schema:
    """Return the schema of ``harness.config`` for a harness type."""
    return with_descriptions(AGENTS[agent].config.schema, CONFIG_MEANINGS)


def _config_of(agent: str) -> dict[str, object]:
    """Return what ``config`` must be where ``type`` names an agent."""
    config = config_schema(agent)
    is_needed = ["config"] if config["required"] else []
    return {
        "if": {"properties": {"type": {"const": agent}}, "required": ["type"]},
        "then": {"properties": {"config": config}, "required": is_needed},
    }


NOTE: Final = (
    "<!-- Generated by `make generate` from the schemas and operator/securebench/reference; do not"
    " edit. -->"
)
FIELDS_PAGE: Final = "docs/reference/pack-fields.md"
TESTER_PAGE: Final = "docs/reference/tester-yaml.md"
HARBOR_PAGE: Final = "docs/reference/harbor-keys.md"
FAMILY_PAGES: Final = "docs/reference/families"
_TEXTS: Final = files("securebench.reference").joinpath("texts")
_LANES: Final = {
    Lane.PUBLIC: "agent",
    Lane.EVALUATION_INPUTS: "evaluation_inputs",
    Lane.HIDDEN: "hidden",
}
_PART: Final = "\n--- "
_ONE_LINE: Final = "In `tasks.jsonl` a task is one line."
_COMMON_FIELDS: Final = (
    "Beside these a row has the [fields of all rows](../pack-fields.md#tasksjsonl)."
)
_LIMITS: Final = ", ".join(f"{name} {value}" for name, value in DEFAULT_LIMITS.items())
_COSTS: Final = (
    f"A task container has the limits {_LIMITS} unless the run (`spec.podTemplate`) or the"
    f" installation says otherwise.\nBeyond its memory the attempt ends with outcome `resource`."
    " [Figures](../../figures.md) has measured times."
)


def pages() -> Mapping[str, str]:
    """Return the text of each page by its path in the repository."""
    made = {f"{FAMILY_PAGES}/{name}.md": family_page(each) for name, each in row_families().items()}
    return {
        FIELDS_PAGE: fields_page(),
        TESTER_PAGE: tester_page(),
        HARBOR_PAGE: harbor_page(),
        **made,
    }


def fields_page() -> str:
    """Return the page about manifest, rows and assets."""
    texts = _parts("pack-fields")
    example = starter_files("unit-conversion", "short_answer", COMMAND)
    manifest = list(field_rows(MANIFEST.schema))
    rows = [row for row in field_rows(ROW.schema) if not row.name.startswith("assets[]")]
    parts = [
        texts[""],
        f"## manifest.yaml\n\n{_block('yaml', _plain_yaml(example['manifest.yaml']))}",
        field_table(manifest),
        f"## tasks.jsonl\n\n{texts['rows']}",
        field_table(rows),
        _families(),
        f"## Files of the pack\n\n{texts['assets']}",
        field_table(list(field_rows(ASSET.schema))),
        f"## Who sees what\n\n{texts['lanes']}",
        _lane_table(),
        f"## Reference answers\n\n{texts['answers']}",
        _block("json", example["oracle/answers.jsonl"]),
    ]
    return _page("Fields of a pack", parts)


def tester_page() -> str:
    """Return the page about the tester YAML."""
    texts = _parts("tester-yaml")
    example = starter_files("unit-conversion", "short_answer", COMMAND)["tester.yaml"]
    fields = field_table(list(field_rows(with_descriptions(TESTER.schema, TESTER_MEANINGS))))
    parts = [texts[""], _block("yaml", _plain_yaml(example)), fields, texts["config"]]
    for name, agent in AGENTS.items():
        keys = list(field_rows(config_schema(name)))
        what = " (to examine a pack)" if agent.is_audit else ""
        parts.append(f"### harness.config of {name}{what}\n\n{field_table(keys)}")
    return _page("Tester YAML", parts)


def harbor_page() -> str:
    """Return the page about the keys of a Harbor task folder."""
    texts = _parts("harbor-keys")
    keys = (
        (f"`{name}`", key.effect.value, _sentence(key.later or key.about))
        for name, key in KEYS.items()
    )
    services = ((f"`{name}`", _sentence(reason)) for name, reason in COMPOSE_REFUSED.items())
    job = ((f"`{name}`", rule.use.value, _sentence(rule.about)) for name, rule in JOB_KEYS.items())
    parts = [
        texts[""],
        f"## Files\n\n{texts['folder']}",
        f"## task.toml\n\n{texts['task.toml']}",
        _table(("key", "use", "meaning or reason"), *keys),
        f"## docker-compose.yaml\n\n{texts['compose']}",
        _table(("key of a service", "reason"), *services),
        f"## Job configuration\n\n{texts['job']}",
        _table(("key", "use", "meaning or reason"), *job),
    ]
    return _page("Keys of a Harbor task folder", parts)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _section_table(section: FieldSection) -> str:
    lanes = {field.name: _LANES[field.lane] for field in section.fields}
    return field_table(list(field_rows(section.schema)), lanes)


def family_page(family: Family) -> str:
    """Return the page of one family."""
    texts, sections = _parts(family.name), (family.input, family.eval)
    starter = starter_files("example", family.name, COMMAND)
    row = json.loads(starter["tasks.jsonl"].splitlines()[0])
    tables = (f"### {each.name}\n\n{_section_table(each)}" for each in sections)
    parts = [
        texts[""],
        f"## A task\n\n{_json(row)}",
        f"`securebench init FOLDER --family {family.name}` makes a pack of such tasks. {_ONE_LINE}",
        f"## Fields\n\n{_COMMON_FIELDS}",
        *tables,
        *_program(family.name),
        f"## How it is graded\n\n{texts['graded']}",
        f"## What it costs\n\n{texts['cost']}",
        _COSTS,
    ]
    return _page(family.name, parts)


def _program(family: str) -> Iterator[str]:
    """Yield what the program sees and how the answer is taken, from the plans of real tasks."""
    visible_tasks, texts = _visible_tasks(family), _parts("program")
    first = next(iter(visible_tasks.values()))
    found = ((f"`{file['path']}`", _yes(file["read_only"])) for file in first["agent"]["files"])
    yield f"## What your program sees\n\n{texts['']}"
    yield _table(("file", "read-only"), *found)
    yield f"`task.json` of the task above:\n\n{_json(first['agent']['values'])}"
    yield "## How the answer is taken"
    yield _table(
        ("", *(f"`{name}`" for name in visible_tasks)),
        ("starts in", *(f"`{each['working_folder']}`" for each in visible_tasks.values())),
        ("hands in", *map(_answer, visible_tasks.values())),
        ("network", *(", ".join(each["network"]) or "none" for each in visible_tasks.values())),
        (
            "time limit of this task",
            *(f"{each['agent_seconds']:g} s" for each in visible_tasks.values()),
        ),
    )
    yield texts["answer"]


def _visible_tasks(family: str) -> Mapping[str, TaskVisibility]:
    """Return the first task of a pack of ``securebench init`` as each kind of agent gets it."""
    return {agent: _visible_task(starter_files("example", family, agent)) for agent in agents()}


def _visible_task(starter: Mapping[str, str]) -> TaskVisibility:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in starter.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        config = load_tester_config(root / "tester.yaml")
        task = load_tasks(root / "manifest.yaml", root / "tasks.jsonl").tasks[0]
        harness = harness_config(config.harness.type, config.harness.config)
        return task_visibility(0, task, harness, config.verification, root)


def _answer(visible: TaskVisibility) -> str:
    candidate = visible["candidate"]
    source = {
        "stdout": "its output on stdout",
        "file": f"the file `{candidate['path']}`",
        "git_diff": "its changes to the repository",
        "workspace": "the workspace as it leaves it",
    }[str(candidate["from"])]
    return f"{candidate['kind']}: {source}" if candidate["kind"] != "workspace" else source


def _families() -> str:
    links = ", ".join(f"[{name}](families/{name}.md)" for name in row_families())
    return f"Keys of `input` and `eval` depend on the family: {links}."


def _lane_table() -> str:
    rows = (
        (name, *(_names(family, lane) for lane in Lane)) for name, family in row_families().items()
    )
    return _table(("family", "the agent gets", "evaluation_inputs", "hidden"), *rows)


def _names(family: Family, lane: Lane) -> str:
    fields = (*family.input.fields, *family.eval.fields)
    return ", ".join(f"`{each.name}`" for each in fields if each.lane is lane) or NOTHING


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _table(header: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parts(name: str) -> Mapping[str, str]:
    """Return the parts of a text by name; the first has none."""
    first, *others = _TEXTS.joinpath(f"{name}.md").read_text("utf-8").split(_PART)
    named = (part.split("\n", 1) for part in others)
    return {"": first.strip(), **{title.strip(): body.strip() for title, body in named}}


def _plain_yaml(text: str) -> str:
    """Return YAML without the line for editors, whose path holds in a pack's folder only."""
    return "\n".join(line for line in text.splitlines() if "yaml-language-server" not in line)


def _json(value: object) -> str:
    return _block("json", json.dumps(value, indent=2, ensure_ascii=False))


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def _page(title: str, parts: Sequence[str]) -> str:
    return "\n\n".join((NOTE, f"# {title}", *parts)) + "\n"


TESTER_SCHEMA = "operator/securebench/schemas/tester.schema.json"


def generated_files() -> Mapping[str, str]:
    """Return the text of each generated file by its path in the repository."""
    schema = f"{json.dumps(tester_schema(), indent=2, sort_keys=True)}\n"
    return {TESTER_SCHEMA: schema, GO_STRUCTS: go_structs(), **pages()}


def write(root: Path) -> None:
    """Write all generated files below ``root``, the repository's folder."""
    for name, text in generated_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(*sys.argv[1:]).absolute())
