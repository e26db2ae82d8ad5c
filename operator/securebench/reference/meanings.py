"""What the keys of a tester YAML mean, beside the rules that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from securebench.core.json_schema import NO_DEFAULT, Schema, described
from securebench.core.json_values import object_at, object_in


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


TESTER: Final[Mapping[str, Meaning]] = {
    "schema_version": Meaning("Version of this format, in quotes.", "0.2"),
    "run": Meaning("The run.", {"id": "my-run", "output_dir": "results"}),
    "run.id": Meaning("Name of the run in records; at most 512 characters.", "my-run"),
    "run.attempts": Meaning(
        "Independent attempts per task, all of which count (pass@k); `--attempts` replaces it.",
        3,
        default=1,
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
    "benchmark": Meaning("The pack.", {"manifest": "manifest.yaml", "tasks": "tasks.jsonl"}),
    "benchmark.manifest": Meaning("Its manifest, relative to this file.", "manifest.yaml"),
    "benchmark.tasks": Meaning("Its task file, relative to this file.", "tasks.jsonl"),
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
    "prices": Meaning(
        "What tokens cost, in micro-dollars per million tokens: `model`, `input`, `cached_input`"
        " (default: `input`) and `output`. Changes nothing about the run.",
        [{"model": "gpt-5-mini", "input": 250_000, "output": 2_000_000}],
        [],
    ),
}
"""Keys of the file, without those of ``harness.config``."""

_PATH: Final = "a path in the workspace"
CONFIG: Final[Mapping[str, Meaning]] = {
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
