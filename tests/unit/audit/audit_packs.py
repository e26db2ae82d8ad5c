"""Small packs for tests of the audit."""

import json
from pathlib import Path
from typing import Any

from securebench.audit.subject import Subject, load_subject

Row = dict[str, Any]

GOLD = """diff --git a/src/a.py b/src/a.py
index a9831f7..b03e1c6 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1 +1 @@
-value = 2
+value = 3
"""


def write_pack(folder: Path, *rows: Row, answers: tuple[Row, ...] = ()) -> Subject:
    """Write a pack of rows, which need no environment, and read it."""
    folder.mkdir(exist_ok=True)
    (folder / "manifest.yaml").write_text("id: small\nversion: 1\n")
    environment = {"image": "small:1", "workdir": "/testbed"}
    lines = [json.dumps({"environment": environment, **row}) for row in rows]
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    if answers:
        (folder / "oracle").mkdir(exist_ok=True)
        (folder / "oracle" / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    subject = load_subject(folder / "manifest.yaml", folder / "tasks.jsonl")
    assert subject.checked.errors == ()
    assert subject.answer_errors == ()
    return subject


def repo(name: str = "fix", *, gold: str | None = GOLD, **policy: list[str]) -> Row:
    tests: Row = {"source": "command", "command": "pytest"}
    if policy:
        tests["candidate_policy"] = policy
    row_eval: Row = {"tests": tests}
    if gold is not None:
        row_eval["gold_patch"] = gold
    row_input = {"repo": "a/b", "base_commit": "0" * 40, "instructions": "Make it 3."}
    return {"id": name, "family": "repo_patch", "input": row_input, "eval": row_eval}


def code(name: str = "add") -> Row:
    tests = {"source": "inline", "code": "assert add(1, 2) == 3"}
    row_input = {"prompt": "Write add."}
    return {"id": name, "family": "code_completion", "input": row_input, "eval": {"tests": tests}}


def short(question: str, *answers: object, **more: object) -> Row:
    row_eval = {"accepted_answers": list(answers), **more}
    row_input = {"question": question}
    return {"id": "q", "family": "short_answer", "input": row_input, "eval": row_eval}


def choice(choices: list[str], answer: object, question: str = "Which?") -> Row:
    row_input = {"question": question, "choices": choices}
    return {"id": "c", "family": "multiple_choice", "input": row_input, "eval": {"answer": answer}}


def free(prompt: str, **rubric: object) -> Row:
    row_eval = {"rubric": {"type": "contains_any", **rubric}}
    return {"id": "f", "family": "free_response", "input": {"prompt": prompt}, "eval": row_eval}


def deferred(name: str = "tool") -> Row:
    return {"id": name, "family": "tool_call", "input": {"prompt": "Call it."}, "eval": {}}
