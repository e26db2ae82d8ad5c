"""A family that no module of the audit knows brings rules of its own."""

import pytest

from securebench.audit.command import Report, audit, every_rule
from securebench.audit.subject import Finding, FindingOutcome, Rule
from securebench.benchmark.families.base import (
    AnswerRule,
    AuditProblem,
    AuditRules,
    Family,
    Field,
    FieldSection,
    TaskRule,
    TextVerifier,
    TrialRule,
)
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.result import VerificationResult
from securebench.json_values import TEXT
from securebench.protocol.volume import PackAudit
from unit.audit.audit_packs import choice, write_pack


def is_short(task, reference):
    if len(str(task.resources.value("verse"))) < 3 or reference is None:
        yield AuditProblem("the verse is too short", "write a longer one")


def verify(text, public, _hidden):
    return VerificationResult(passed=text == public["verse"], metadata={})


RHYME = Family(
    name="rhyme",
    candidate_kind="text",
    verification="text",
    input=FieldSection("input", (Field("verse", TEXT, required=True),)),
    eval=FieldSection("eval", (Field("tune", TEXT, lane=Lane.HIDDEN),)),
    scorer=TextVerifier(verify, lambda _public, _hidden: None),
    audit=AuditRules(
        rules=(TaskRule("length", "{} verses are long", is_short),),
        answers=AnswerRule("sings", "{} sing", AuditProblem("it does not sing", "sing")),
        trials=(
            TrialRule(
                "echoes",
                "{} echoes fail",
                lambda task, _reference: {} if task.id == "mute" else {"": "la"},
                AuditProblem("it has no echo", "look yourself", checked=False),
                lambda record: AuditProblem("an echo passes", "mend") if record["passed"] else None,
            ),
        ),
        asks=("verse",),
        settings=frozenset({"tune"}),
    ),
)
TUNE = "a tune of many words"


def rhyme(name, verse):
    return {"id": name, "family": "rhyme", "input": {"verse": verse}, "eval": {"tune": TUNE}}


@pytest.fixture
def found(tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "rhyme", RHYME)
    rows = (rhyme("bad", "la"), rhyme("mute", TUNE[::-1]), choice(["a", "b"], "A"))
    answers = ({"id": "bad", "candidate": "x"}, {"id": "mute", "candidate": "x"})
    subject = write_pack(tmp_path / "pack", *rows, answers=answers)

    def run_pack(folder, kind, _limit):
        passed = folder.name == "pack-echoes" and kind == "oracle"
        return [{"task_id": name, "passed": passed} for name in ("bad", "mute", "c")]

    findings = audit(subject, run_pack=run_pack).findings
    assert list(dict.fromkeys(each.rule for each in findings)) == list(every_rule())
    return findings


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ("length", [("failed", "task 'bad'", "the verse is too short")]),
        ("sings", [("failed", f"task '{name}'", "it does not sing") for name in ("bad", "mute")]),
        ("oracle", [("failed", "task 'c'", "it fails with the pack's reference answer")]),
        (
            "echoes",
            [
                ("failed", "task 'bad'", "an echo passes"),
                ("not_checked", "task 'mute'", "it has no echo"),
            ],
        ),
        (
            Rule.NULL_ANSWERS,
            [
                ("failed", f"task '{name}'", "an echo of the question passes")
                for name in ("bad", "mute")
            ],
        ),
        (Rule.PAYLOAD, [("passed", "pack", "what the agents of 3 tasks get was searched")]),
    ],
)
def test_a_rule_of_a_new_family(rule, want, found):
    assert [
        (each.outcome.value, each.object, each.message) for each in found if each.rule == rule
    ] == want


@pytest.mark.parametrize("rule", ["sings", "oracle", "nop"])
def test_no_audit_passed_without_the_rule(rule, monkeypatch):
    monkeypatch.setitem(FAMILIES, "rhyme", RHYME)
    finding = Finding(rule, FindingOutcome.NOT_CHECKED, "pack", "m")
    assert Report("p", "sha256:1", 1, "t", (finding,)).verdict is PackAudit.NONE
