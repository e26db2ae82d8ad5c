"""Targets that read text: messages, journals, rows, manifests, tester YAML, env files, patches."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from random import Random

from fuzz.loop import Target
from securebench.agents.registry import harness_config
from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import lint_pack
from securebench.benchmark.pack.lane_plan import json_file, materialization_plan
from securebench.benchmark.pack.task import SecureBenchTask, compile_rows, row_digest
from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import judge_patch
from securebench.benchmark.patch.reader import NoncanonicalPatchError, read_patch
from securebench.benchmark.resources import Component
from securebench.client.submit import EnvFileError, load_env_file
from securebench.client.tester_config import load_tester_config
from securebench.controller.volume.journal import checksum, encode_all, first_link, read_entries
from securebench.errors import ConfigErrors, InvalidInputError, JournalCorruptError
from securebench.run.api.field_types import Outcome
from securebench.run.observe import termination
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    Opened,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)
from support.build import (
    KEY,
    NOW,
    production,
    seal_message,
    supervise_message,
    text_message,
    verification,
)

UID = "uid"
"""Run of the journals."""

# Messages


def check_message(data: bytes, _root: Path) -> None:
    """Whatever a message says, the journal can give it back."""
    text = data.decode("utf-8", "replace")
    usage = astuple(termination.container_usage(text))
    assert all(0 <= count <= termination.MAX_COUNT for count in usage)
    entries: list[Entry] = [Produced(KEY, production(command=termination.command_report(text)))]
    with suppress(termination.BadMessageError):
        candidate, stdout, stderr = termination.sealed_candidate(text, 1)
        entries.append(Produced(KEY, production(candidate=candidate, stdout=stdout, stderr=stderr)))
    with suppress(termination.BadMessageError):
        stdout, stderr = termination.collected_streams(text)
        entries.append(Verified(KEY, verification(stdout=stdout, stderr=stderr)))
    with suppress(termination.BadMessageError):
        passed, metadata = termination.text_verdict(text)
        assert termination.text_verdict(
            json.dumps({"v": 1, "passed": passed, "metadata": metadata})
        )
        entries.append(Verified(KEY, verification(passed=passed, metadata=metadata)))
    lines, link = encode_all(entries, first_link(UID))
    assert read_entries(lines, UID) == (tuple(entries), len(lines), link)


JSON_TOKENS = (
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1e400", b"-0.0", b'"\\ud800"', b"NaN", b'"v":1',
    b"\\u0000", b"\xef\xbb\xbf", b"[" * 300, b'{"a":' * 300, b'"v": 2', b'"metadata": {}', b'"passed": true',
)  # fmt: skip
MESSAGE = Target(
    "message",
    check_message,
    seeds=tuple(
        text.encode()
        for text in (
            supervise_message(),
            seal_message(memory_peak_bytes=1, cpu_periods=2, cpu_throttled=1),
            text_message(memory_peak_bytes=10**30),
            supervise_message(124),
            "{}",
            "",
            supervise_message(duration_seconds=10**400),
            text_message(metadata={"a": [[[1]]]}),
        )
    ),
    tokens=(*JSON_TOKENS, b"duration_seconds", b"exit_code", b"problem", b'"candidate_missing"'),
)

# Journals

ENTRIES: tuple[Entry, ...] = (
    RunBound("uid", "sha256:plan"),
    Opened(1, NOW + 0.1),
    LaunchBegun(LaunchKey(0, 1, Role.HARNESS, 1), NOW),
    Opened(2, NOW),
    Produced(KEY, production()),
    LaunchBegun(LaunchKey(0, 1, Role.VERIFIER, 1), NOW),
    Verified(KEY, verification(metadata={"a": [1, None, 2.5, {"b": True}]})),
    Finished(
        Finish(KEY, Outcome.SCORED, "", "", "", passed=True, metadata={"k": "\u00e9"}),
        "a" * 64,
        NOW,
    ),
    RunEnded("Completed", "1 of 1 passed", NOW),
)
"""What was written; every input is a damaged copy of it."""

JOURNAL_BYTES, _ = encode_all(ENTRIES, first_link(UID))


def check_journal(data: bytes, _root: Path) -> None:
    """Damage is corruption, or it took the end: nothing is made up, left out or in another place."""
    with suppress(JournalCorruptError):
        found, size, _ = read_entries(data, UID)
        assert found == ENTRIES[: len(found)]
        assert data[:size] == encode_all(found, first_link(UID))[0]
        assert data[:size].count(b"\n") == len(found)
        assert b"\n" not in data[size:-1]


def check_sealed_journal(data: bytes, _root: Path) -> None:
    """Lines with a right checksum in their place are read or refused, whatever stands in them."""
    with suppress(JournalCorruptError):
        found, size, _ = read_entries(data, UID)
        assert size <= len(data)
        encode_all(found, first_link(UID))


def resealed(data: bytes, rng: Random) -> bytes:
    """Give most lines a right checksum in a chain that holds."""
    lines = data.split(b"\n")
    link = first_link(UID)
    for index, line in enumerate(lines):
        _, space, body = line[8:].lstrip(b" ").partition(b" ")
        if space and rng.random() < 0.95:
            own = checksum(link, body)
            lines[index] = b"%b %b %b" % (link, own, body)
            link = own
    return b"\n".join(lines)


JOURNAL = Target("journal", check_journal, seeds=(JOURNAL_BYTES,))
SEALED_JOURNAL = Target(
    "sealed_journal",
    check_sealed_journal,
    seeds=(JOURNAL_BYTES,),
    tokens=(*JSON_TOKENS, b'{"type":"', b'","entry":', b"Opened", b"NaN", b"Infinity"),
    repair=resealed,
)

# Packs

MANIFEST = b"""\
id: smoke
version: 1
defaults:
  family: multiple_choice
  environment: {image: "python:3.11-slim", timeout_seconds: 60}
"""
ROWS = b"""\
{"id": "c", "input": {"question": "Which?", "choices": ["red", "blue"]}, "eval": {"answer": 1}}
{"id": "s", "family": "short_answer", "input": {"question": "q"}, "eval": {"accepted_answers": ["x", 2], "tolerance": 0.5}}
{"id": "f", "family": "free_response", "input": {"prompt": "p"}, "eval": {"rubric": {"accepted_answers": ["y"]}}}
{"id": "k", "family": "code_completion", "input": {"prompt": "def f():", "entry_point": "f"}, "eval": {"tests": {"source": "assert f"}}}
{"id": "t", "family": "terminal_task", "input": {"instruction": "do"}, "eval": {"checker": {"command": ["sh", "x"], "source": "x"}}, "assets": [{"path": "a", "mount": "b", "read_only": false}]}
{"id": "r", "family": "repo_patch", "input": {"problem_statement": "p", "repo": "r", "base_commit": "0123abc"}, "eval": {"tests": {"command": "t", "test_patch": {"type": "inline", "value": "x"}}, "candidate_policy": {"allow_paths": ["src"]}}, "environment": {"workdir": "/repo"}}
{"id": "other", "family": "tool_call", "input": {"a": {"type": "file", "path": "p"}}, "eval": {"hidden": [1]}, "metadata": {"x": 1}}
"""


def use(task: SecureBenchTask) -> None:
    """Do with a task what a run does with its values."""
    row_digest(task)
    json_file(task.agent_payload())
    json_file(task.hidden_payload())
    task.resource_summary()
    for component in (Component.AGENT, Component.TEST_SANDBOX, Component.EVALUATOR):
        with suppress(InvalidInputError):
            materialization_plan(task, component)


def check_files(root: Path, manifest: bytes, rows: bytes) -> None:
    (root / "manifest.yaml").write_bytes(manifest)
    (root / "tasks.jsonl").write_bytes(rows)
    checked = check_pack(root / "manifest.yaml", root / "tasks.jsonl")
    for finding in lint_pack(checked):
        str(finding).encode("utf-8", "backslashreplace")
    for _, task in checked.tasks:
        use(task)
    if checked.tasks:
        assert compile_rows(checked.pack).tasks == checked.tasks


def check_rows(data: bytes, root: Path) -> None:
    check_files(root, MANIFEST, data)


def check_manifest(data: bytes, root: Path) -> None:
    check_files(root, data, ROWS.split(b"\n")[0])


ROW_TOKENS = (
    *JSON_TOKENS, b'"id"', b'"family"', b'"input"', b'"eval"', b'"assets"', b'"environment"', b'"metadata"',
    b'"terminal_task"', b'"repo_patch"', b'"code_completion"', b'{"type": "file", "path": "../x"}', b'"tests"',
    b'"checker"', b'"setup_patch"', b'"workdir"', b'"image"', b'"timeout_seconds"', b'"candidate_policy"',
    b'"needed_commands"', b'"expected_state"', b'"materialize_workdir_from_image"', b'"path": "a/./b"',
)  # fmt: skip
ROW = Target(
    "row",
    check_rows,
    seeds=(ROWS, *(line + b"\n" for line in ROWS.splitlines())),
    tokens=ROW_TOKENS,
)
YAML_TOKENS = (
    b"&a ", b"*a", b"<<: *a\n", b"!!int ", b"!!float ", b"!!timestamp x", b"!!bool ", b"!!binary ", b"!!set {a}", b"!!omap",
    b"!!python/object:os.system ", b"? ", b"- ", b": ", b"\n  ", b"---\n", b"...\n", b"%YAML 1.1\n", b"|\n ", b">-\n ",
    b"'", b'"', b"\\x00", b"\\ud800", b"1:60:1", b"0x" + b"f" * 5000, b"0b1", b"0o7", b"1_000", b".inf", b".nan", b"~",
    b"2001-01-01", b"2001-13-01", b"!", b"!!str", b"[[", b"{{", b"\t", b"#", b"1:1" + b":1" * 300 + b".5", b"=", b"\xc2\x85",
    b"!!int ''", b"!!float ''", b"!!pairs", b"@", b"!<tag:yaml.org,2002:int> ", b"1.5e+400", b"1:1" + b":1" * 2500,
)  # fmt: skip
MANIFEST_TARGET = Target(
    "manifest",
    check_manifest,
    seeds=(
        MANIFEST,
        MANIFEST
        + b"asset_roots: {public: a/, eval: b}\nasset_defaults:\n  read_only: false\nnote: x\n",
        b"a: &a {b: 1}\nid: x\nversion: 2\ndefaults:\n  environment:\n    <<: *a\n    env: [1, 2.5, ~]\n",
        *(
            b"id: x\nversion: 1\ndefaults: {environment: {x: " + token + b"}}\n"
            for token in YAML_TOKENS
        ),
    ),
    tokens=(
        *YAML_TOKENS,
        b"id",
        b"version",
        b"defaults",
        b"family",
        b"environment",
        b"asset_roots",
    ),
    traced=("/securebench/", "/yaml/constructor.py", "/yaml/resolver.py"),
)

# Tester files

TESTER = b"""\
schema_version: "0.2"
run: {id: nightly, output_dir: results}
benchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}
harness:
  type: command
  env: [A, B]
  config: {command: [python, agent.py], timeout_seconds: 30, allow_domains: [example.org]}
verification: {disallow_dangerous_commands: false, deny_commands: [rm]}
"""
CODEX = TESTER.replace(b"type: command", b"type: codex").replace(
    b"config: {command: [python, agent.py], ", b"config: {model: m, version: 1.2.3, "
)


def check_tester(data: bytes, root: Path) -> None:
    path = root / "tester.yaml"
    path.write_bytes(data)
    with suppress(ConfigErrors):
        config = load_tester_config(path)
        with suppress(InvalidInputError):
            filled = harness_config(config.harness.type, config.harness.config).filled_config()
            json.dumps(filled, allow_nan=False)


def check_env(data: bytes, root: Path) -> None:
    path = root / "env"
    path.write_bytes(data)
    environ: dict[str, str] = {}
    with suppress(EnvFileError):
        found = load_env_file(path, environ=environ)
        assert all(
            name and "=" not in name and "\0" not in name + value for name, value in found.items()
        )


TESTER_TOKENS = (
    *YAML_TOKENS,
    *(b"schema_version", b"run", b"harness", b"config", b"command", b"timeout_seconds", b"budget"),
    *(b"allow_domains", b"provider", b"model", b"version", b"task_file", b"requests", b"tokens"),
    *(b"codex", b"claude_code", b"*.x.y"),
)
TESTER_TARGET = Target(
    "tester",
    check_tester,
    seeds=(TESTER, CODEX, CODEX.replace(b"codex", b"claude_code")),
    tokens=TESTER_TOKENS,
)
ENV = Target(
    "env",
    check_env,
    seeds=(b"# x\nexport A=1\nB='x y'\n\nC=\"\"\n",),
    tokens=(b"export ", b"=", b"\r\n"),
)

# Patches

POLICY = CandidatePolicy.of({"patch_preserved_paths": ["kept/*"]})
PATCH_SEEDS = tuple(
    text.encode()
    for text in (
        "diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ f\n-a\n+b\n c\n",
        "diff --git a/x b/x\nnew file mode 100755\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n",
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        "diff --git a/x b/y z\nsimilarity index 90%\nrename from x\nrename to y z\n",
        'diff --git "a/\\303\\244" "b/\\303\\244"\nold mode 100644\nnew mode 100755\n',
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../x\n\\ No newline at end of file\n",
        "diff --git a/x b/x\nindex 1111..2222\nGIT binary patch\nliteral 4\nLcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n",
        "diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\ndiff --git a/kept/x b/kept/x\nold mode 100644\nnew mode 100755\n",
    )
)  # fmt: skip
PATCH_TOKENS = tuple(
    text.encode()
    for text in (
        "diff --git a/", " b/", "--- a/", "+++ b/", "--- /dev/null\n", "+++ /dev/null\n", "@@ -1 +1 @@\n", "\n", "\t",
        "@@ -0,0 +1 @@\n", "+", "-", " ", "\\ No newline at end of file\n", "old mode 100644\n", "new mode 120000\n",
        "new file mode 100644\n", "deleted file mode 100644\n", "rename from ", "rename to ", "copy from ", "index 1..2\n",
        "GIT binary patch\n", "literal 4\n", "delta 9\n", "../", ".git/", '"', "\\056", "\\", "similarity index 9%\n",
        "120000", "160000", "\r\n", "\x0c", "\u2028", "\u00a0", "-- \n2.39\n", "diff --cc x\n", "kept/",
    )
)  # fmt: skip


def check_patch(data: bytes, root: Path) -> None:
    """Sections cover the text, and git sees the same paths in what is let through."""
    text = data.decode("utf-8", "replace")
    judgement = judge_patch(text, POLICY)
    assert (judgement.problem is None) == bool(judgement.text)
    try:
        sections = read_patch(text)
    except NoncanonicalPatchError:
        assert judgement.problem is not None
        return
    end = sections[-1].end
    data = text.encode()
    assert b"".join(data[each.start : each.end] for each in sections) == data[:end]
    if judgement.problem is None:
        seen = git_paths(judgement.text, root)
        assert seen is None or seen <= set(judgement.applied), (seen, judgement.applied)
        assert not any(path.startswith("kept/") for path in seen or ())


def git_paths(text: bytes, root: Path) -> set[str] | None:
    """Return the paths that git would touch; None where it refuses the patch."""
    arguments = ("apply", "--numstat", "-z", "--unsafe-paths", "--directory=", "-")
    result = subprocess.run(
        ["git", *arguments], cwd=root, input=text, capture_output=True, check=False
    )
    if result.returncode:
        return None
    return numstat_paths(result.stdout.decode("utf-8", "surrogateescape"))


def numstat_paths(output: str) -> set[str]:
    """Read ``added TAB removed TAB path NUL``; of a moved file both paths follow, each with a NUL."""
    found: set[str] = set()
    rest = output
    while rest:
        _, _, rest = rest.partition("\t")
        _, _, rest = rest.partition("\t")
        count = 1
        if rest.startswith("\0"):
            rest, count = rest[1:], 2
        for _ in range(count):
            path, _, rest = rest.partition("\0")
            found.add(path)
    return found


PATCH = Target("patch", check_patch, seeds=PATCH_SEEDS, tokens=PATCH_TOKENS)

Checker = Callable[[bytes, Path], None]
TARGETS = (MESSAGE, JOURNAL, SEALED_JOURNAL, ROW, MANIFEST_TARGET, TESTER_TARGET, ENV, PATCH)
