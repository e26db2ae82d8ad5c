"""Runs with an oracle or a nop, as the command line starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.cluster.port import metadata
from securebench.errors import ConfigErrors
from unit.client.bench import Bench

COMMAND = 'type: command\n  config: {command: "python3 answer.py"}'
ANSWERS = [{"id": name, "candidate": f"answer {name}"} for name in "abc"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    write_answers(made, *ANSWERS)
    return made


def write_answers(bench: Bench, *answers: object) -> None:
    folder = bench.folder / "pack/oracle"
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(answer) + "\n" for answer in answers)
    (folder / "answers.jsonl").write_text(text)


def packs(bench: Bench) -> dict[str, bool]:
    """Return which packs lie on the volume and whether they have answers."""
    folder = bench.namespace.root / "packs"
    return {
        path.name: (path / "oracle/answers.jsonl").exists()
        for path in folder.iterdir()
        if not path.name.startswith(".")
    }


@pytest.mark.parametrize(
    ("harness", "is_audit", "has_answers"),
    [(COMMAND, False, False), ("type: nop", True, False), ("type: oracle", True, True)],
)
async def test_label_and_answers(
    bench: Bench, harness: str, *, is_audit: bool, has_answers: bool
) -> None:
    bench.edit(COMMAND, harness)
    assert (await bench.run()).exit_code == 0
    (run,) = bench.namespace.runs()
    labels = metadata(run)["labels"]
    assert isinstance(labels, dict)
    assert labels.get("securebench.dev/purpose") == ("audit" if is_audit else None)
    assert labels["app.kubernetes.io/managed-by"] == "securebench-cli"
    assert list(packs(bench).values()) == [has_answers]


async def test_packs_with_and_without_answers_do_not_replace_each_other(bench: Bench) -> None:
    bench.edit(COMMAND, "type: nop")
    await bench.run()
    bench.edit("type: nop", "type: oracle")
    await bench.run()
    write_answers(bench, *reversed(ANSWERS))
    await bench.run()
    found = packs(bench)
    assert sorted(found.values()) == [False, True, True]
    assert len({name[:21] for name in found}) == 1


async def test_answers_are_checked_before_anything(bench: Bench) -> None:
    bench.edit(COMMAND, "type: oracle")
    write_answers(bench, ANSWERS[0], {"id": "b"}, {"id": "typo", "candidate": "x"})
    path = bench.folder / "pack/oracle/answers.jsonl"
    with pytest.raises(ConfigErrors) as caught:
        await bench.run()
    assert [str(error) for error in caught.value.errors] == [
        f"{path}:2: the answer for task 'b' needs either candidate or command",
        f"{path}:3: the pack has no task 'typo'",
        f"{path}: there is no answer for task 'c'",
    ]
    path.unlink()
    with pytest.raises(ConfigErrors, match="the pack has no such file"):
        await bench.run()
    assert bench.namespace.operations() == []


async def test_answers_behind_the_limit_are_no_error(bench: Bench) -> None:
    bench.edit(COMMAND, "type: oracle")
    assert bench.start(limit=1) is not None
    write_answers(bench, *ANSWERS, {"id": "typo", "candidate": "x"})
    assert bench.start(limit=1) is not None
    with pytest.raises(ConfigErrors, match="the pack has no task 'typo'"):
        bench.start()


@pytest.mark.parametrize("change", ["type: nop", "other answers"])
async def test_an_oracle_does_not_resume_what_it_did_not_do(bench: Bench, change: str) -> None:
    bench.edit(COMMAND, "type: oracle")
    await bench.run()
    if change == "other answers":
        write_answers(bench, *reversed(ANSWERS))
    else:
        bench.edit("type: oracle", change)
    with pytest.raises(ConfigErrors, match="its harness digest is"):
        await bench.run(resume=True)


async def test_domains_are_refused(bench: Bench) -> None:
    bench.edit(COMMAND, "type: nop\n  config: {allowed_domains: [a.dev]}")
    with pytest.raises(ConfigErrors) as caught:
        bench.start()
    assert str(caught.value).endswith(
        "tester.yaml:6: harness.config contains unsupported field(s): allowed_domains"
    )
