"""Every rule finds what is planted for it in tests/packs/bad-pack, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from securebench.audit.command import audit, every_rule
from securebench.audit.images import catalogue
from securebench.audit.subject import FindingOutcome, Rule, load_subject
from unit.audit.image_archives import Work, docker_archive

SOURCE = Path(__file__).parents[2] / "packs" / "bad-pack"
COMMENT = b"    # Twice the number; the sum of a number and itself.\n"
BASE = b"def double(number):\n" + COMMENT + b"    return number * "
CHECK = Path("hidden") / "image-with-removed-check" / "check.sh"
SYSTEM = {"etc/os-release": b"ID=small\n"}

WANT = {
    (each["rule"], each["object"]) for each in json.loads((SOURCE / "findings.json").read_text())
}


@pytest.fixture
def bad(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "bad")
    return tmp_path / "bad"


@pytest.fixture
def fixed(bad):
    shutil.copytree(bad / "fixed", bad / "pack", dirs_exist_ok=True)
    shutil.copy(bad / "fixed" / "verdicts.json", bad)
    return bad


def write_images(folder: Path, pack: Path, *, is_bad: bool) -> None:
    folder.mkdir()
    work = Work(folder / "work")
    work.commit({"calc.py": BASE + b"3\n"})
    work.forget()
    clean = work.layer("testbed")
    if is_bad:
        work.commit({"calc.py": BASE + b"4\n"})
        work.git("reset", "-q", "--hard", "HEAD~1")
        work.forget()
    check = (pack / CHECK).read_bytes()
    removed = [{"opt/check.sh": check}, {"opt/.wh.check.sh": b""}]
    layers = {
        "plain": [SYSTEM],
        "repository": [SYSTEM, clean],
        "future": [SYSTEM, work.layer("testbed")],
        "removed": [SYSTEM, *(removed if is_bad else [])],
    }
    for name, content in layers.items():
        reference = f"docker.io/securebench/bad-pack-{name}:1"
        docker_archive(folder / f"{name}.tar", reference, content)


def findings_of(folder: Path, *, is_bad: bool):
    verdicts = json.loads((folder / "verdicts.json").read_text())
    write_images(folder / "archives", folder / "pack", is_bad=is_bad)

    def run_pack(pack, kind, limit):
        del limit
        name = {"base-fails": "base", "stubs": "stubs"}.get(pack.name.removeprefix("pack-"), kind)
        return [
            {"task_id": task, "passed": passed, "verifier_metadata": {"phase": "checks"}}
            for task, passed in verdicts[name].pop(0).items()
        ]

    subject = load_subject(folder / "pack" / "manifest.yaml", folder / "pack" / "tasks.jsonl")
    return audit(subject, catalogue(folder / "archives"), run_pack, runs=2).findings


def test_each_rule_finds_its_defect_and_no_other(bad):
    failed = [
        each for each in findings_of(bad, is_bad=True) if each.outcome is FindingOutcome.FAILED
    ]

    place = f"{bad}/pack/"
    assert {(each.rule, each.object.removeprefix(place)) for each in failed} == WANT
    assert {rule for rule, _ in WANT} == set(every_rule())
    assert len(failed) == len(WANT)
    assert all(each.message and each.remedy for each in failed)


def test_the_image_that_the_cluster_runs_removes_the_packs_own_check():
    assert (SOURCE / "images" / "removed" / "check.sh").read_bytes() == (
        SOURCE / "pack" / CHECK
    ).read_bytes()


def test_without_the_defects_every_rule_passes(fixed):
    found = findings_of(fixed, is_bad=False)

    assert [each for each in found if each.outcome is FindingOutcome.FAILED] == []
    assert {each.rule for each in found if each.outcome is FindingOutcome.NOT_CHECKED} == {
        Rule.LINT
    }
    assert {each.rule for each in found} == set(every_rule())


def test_findings_tell_no_hidden_value(bad):
    text = repr(findings_of(bad, is_bad=True))

    for value in ("nine and twenty", "seven and forty", "number * 2", "double(4) == 8"):
        assert value not in text


@pytest.mark.parametrize("broken", ["pack/tasks.jsonl", "pack/oracle/answers.jsonl"])
def test_a_pack_with_errors_is_checked_by_lint_only(bad, broken):
    (bad / broken).write_text("{\n")

    found = findings_of(bad, is_bad=True)

    assert {each.rule for each in found if each.outcome is FindingOutcome.FAILED} == {Rule.LINT}
    others = [each for each in found if each.rule is not Rule.LINT]
    assert {each.outcome for each in others} == {FindingOutcome.NOT_CHECKED}
    assert {each.rule for each in others} == set(every_rule()) - {Rule.LINT}
