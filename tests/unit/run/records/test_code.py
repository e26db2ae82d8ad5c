"""What a record says of a code_completion's tests."""

from dataclasses import replace

import pytest

from securebench.benchmark.families.base import CodePlan
from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey
from securebench.run.records.labels import IsolationLabel
from securebench.run.records.record import RecordContext, RecordTexts, candidate_record
from securebench.run.state.attempts import CommandReport, Finish
from securebench.run.verification.code import CodeVerification
from support.build import history_of, production, verification
from support.manifest_samples import code_task, run_plan

FILES = {
    "test_file": "solution_test.py",
    "candidate_file": "candidate.py",
    "supervisor_file": "solution_supervisor.py",
    "worker_file": "candidate_worker.py",
}
CASES = {
    "passed": (CommandReport(exit_code=0, phase="tests"), True, {"exit_code": 0}),
    "failed": (CommandReport(exit_code=1, phase="tests"), False, {"exit_code": 1}),
    "time limit": (
        CommandReport(exit_code=137, timed_out=True, phase="tests"),
        False,
        {
            "exit_code": 124,
            "failure_reason": "verifier_timeout",
            "timed_out": True,
            "timeout_seconds": 12.5,
        },
    ),
}

FENCED = {"candidate_form": "fenced"}
SHARED = {"containment_profile": "shared_runtime", "hidden_test_runtime_secrecy": False}
WAYS = {
    "nothing said": ("separate", "", {}, {}),
    "values": ("separate", "values", {"grading": "values"}, {}),
    "objects": ("separate", "objects", {"grading": "objects"}, {}),
    "no word of a runner": ("separate", "tests", {}, {}),
    "values of a fenced block": ("separate", "values-fenced", {"grading": "values"}, FENCED),
    "objects of a fenced block": ("separate", "objects-fenced", {"grading": "objects"}, FENCED),
    "a shared fenced block": ("shared", "fenced", {"grading": "in-process"}, SHARED | FENCED),
    "shared": ("shared", "", {"grading": "in-process"}, SHARED),
    "shared, whatever it says": ("shared", "values", {"grading": "in-process"}, SHARED),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_metadata(name, way):
    command, passed, want = CASES[name]
    isolation, said, grading, profile = WAYS[way]
    task = code_task(index=0, verification=CodeVerification(CodePlan(12.5, isolation, ())))
    resources = (*task.task.resources, Resource("own", Lane.EVALUATION_INPUTS, "text", isolation))
    task = replace(task, task=replace(task.task, resources=ResourceBundle(resources)))
    checked, command = verification(passed=passed), replace(command, grading=said)
    history = history_of(
        production=production(),
        verification=replace(checked, command=command),
    )
    finish = Finish(AttemptKey(0, 1), Outcome.SCORED, passed=passed)
    texts = RecordTexts(candidate="def area(side): ...", verifier_stderr="assert area(2) == 4")
    context = RecordContext(IsolationLabel.VERIFIED, finished_at=5.0)
    made = candidate_record(run_plan(task), task, history, finish, texts, context)
    metadata = made["verifier_metadata"]
    known = {
        "verifier": "code_completion",
        "image": task.environment.image,
        "image_id": checked.facts.image_id,
        "language": "python",
        "isolation": isolation,
        "duration_seconds": 0.0,
        **FILES,
    }
    assert metadata == known | profile | want
    assert {name: value for name, value in made["labels"].items() if name == "grading"} == grading
    assert made["candidate_text"] == "def area(side): ..."
    assert "area(2) == 4" not in str(made["verifier_stderr"])
