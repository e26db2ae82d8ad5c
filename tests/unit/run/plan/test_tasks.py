import pytest

from securebench.agents.harness import CommandHarness
from securebench.benchmark.families.base import CodePlan
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import parse_manifest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.errors import PackError
from securebench.protocol.candidate import Extraction
from securebench.run.plan.build import task_plan
from securebench.run.verification.checks import CheckPlan, SourcePlan
from securebench.run.verification.code import CodeVerification
from securebench.run.verification.command import CommandVerification
from securebench.run.verification.text import TextVerification

MANIFEST = parse_manifest("id: p\nversion: 1\n", path="manifest.yaml")
HARNESS = CommandHarness(command="echo A", timeout_seconds=None)
POLICY = VerificationPolicy()
QUESTION = {"question": "Which?", "choices": ["a", "b"]}
CHECKER = {"command": "sh check.sh"}


def row(family="multiple_choice", **changes):
    known = {
        "id": "t1",
        "family": family,
        "input": QUESTION if family == "multiple_choice" else {"instructions": "Do it."},
        "environment": {"image": "python:3.11-slim"},
        "eval": {"answer": 0} if family == "multiple_choice" else {"checker": CHECKER},
    }
    return compile_benchmark_row(known | changes, manifest=MANIFEST)


def planned(task=None, harness=HARNESS, policy=POLICY, index=0):
    return task_plan(index, task or row(), harness, policy)


def terminal(checker=CHECKER, needed=None, **environment):
    more = {} if needed is None else {"needed_commands": needed}
    return row(
        "terminal_task",
        eval={"checker": checker, **more},
        environment={"image": "python:3.11-slim", **environment},
    )


def test_a_text_task():
    plan = planned(index=3)
    assert (plan.index, plan.environment.image, plan.environment.workspace) == (
        3,
        "python:3.11-slim",
        "/workspace",
    )
    assert plan.environment.workdir == plan.environment.workspace
    assert plan.extraction == Extraction("stdout", "text", None)
    assert plan.verification == TextVerification()
    assert (plan.refusal, plan.denial, plan.environment.starts_filled) == (None, None, False)
    assert plan.row_digest.startswith("sha256:")


def test_a_terminal_task():
    plan = planned(terminal(workdir="/app", materialize_workdir_from_image=True))
    assert (plan.environment.workspace, plan.environment.starts_filled) == ("/app", True)
    assert plan.extraction == Extraction("workspace", "workspace", None)
    check = CheckPlan(("sh", "-lc", "sh check.sh"), "/app", 300.0)
    assert plan.verification == CommandVerification(check)


def test_a_family_without_verifier():
    plan = planned(row("browser_task", input={"goal": "x"}, eval={}))
    assert (plan.verification, plan.extraction.mode) == (None, "unsupported")


LIMITS = {
    "none at all": (None, None, None),
    "the task's": (60, None, 60.0),
    "the tester's": (None, 5.0, 5.0),
    "the smaller, task": (3, 5.0, 3.0),
    "the smaller, tester": (60, 5.0, 5.0),
}


@pytest.mark.parametrize("name", LIMITS)
def test_time_limit_of_the_agent(name):
    task_limit, tester_limit, want = LIMITS[name]
    environment = {"image": "i"} | ({} if task_limit is None else {"timeout_seconds": task_limit})
    harness = CommandHarness(
        command="x", timeout_seconds=tester_limit, is_default_timeout=tester_limit is None
    )
    assert planned(row(environment=environment), harness).environment.timeout_seconds == want


CHECK_LIMITS = {
    "neither": ({}, {}, 300.0),
    "the environment's": ({}, {"timeout_seconds": 40}, 40.0),
    "the checker's": ({"timeout_seconds": 7}, {"timeout_seconds": 40}, 7.0),
}


@pytest.mark.parametrize("name", CHECK_LIMITS)
def test_time_limit_of_the_check(name):
    checker, environment, want = CHECK_LIMITS[name]
    plan = planned(terminal(CHECKER | checker, **environment))
    assert plan.verification is not None
    assert plan.verification.time_limit_seconds == want


CHECK_PLACES = {None: "/app", "sub/dir": "/app/sub/dir", "/elsewhere": "/elsewhere"}


@pytest.mark.parametrize("workdir", CHECK_PLACES)
def test_folder_of_the_check(workdir):
    checker = CHECKER if workdir is None else CHECKER | {"workdir": workdir}
    plan = planned(terminal(checker, workdir="/app"))
    assert isinstance(plan.verification, CommandVerification)
    assert plan.verification.check.workdir == CHECK_PLACES[workdir]


def test_an_argv_stays_an_argv():
    plan = planned(terminal({"command": ["python3", "-I", "check.py"]}))
    assert isinstance(plan.verification, CommandVerification)
    assert plan.verification.check.command == ("python3", "-I", "check.py")


@pytest.mark.parametrize("kind", ["pytest", "script"])
def test_a_file_of_the_pack_checks(kind):
    checker = {"source": kind, "path": "./tests//check.py", "timeout_seconds": 9}
    plan = planned(terminal(checker, workdir="/app"))
    check = CheckPlan((), "/app", 9.0, source=SourcePlan(kind, "tests/check.py"))
    assert plan.verification == CommandVerification(check)


def test_a_file_is_taken_where_the_tester_says():
    harness = CommandHarness(command="x", artifact_path="out/answer.txt")
    assert planned(harness=harness).extraction == Extraction("file", "text", "out/answer.txt")


# Refusals


def coding(prompt="Write f.", starter="", *, environment=None, **tests):
    return row(
        "code_completion",
        input={"prompt": prompt, "starter_code": starter},
        eval={"tests": {"source": "inline", "code": "f()", **tests}},
        environment={"image": "python:3.11-slim", **(environment or {})},
    )


CODE_PLANS = {
    "defaults": (coding(), CodePlan(30.0, "separate", ())),
    "the task's time": (coding(environment={"timeout_seconds": 7}), CodePlan(7.0, "separate", ())),
    "the tests' time": (
        coding(environment={"timeout_seconds": 7}, timeout_seconds=2.5),
        CodePlan(2.5, "separate", ()),
    ),
    "separate": (coding(isolation="separate"), CodePlan(30.0, "separate", ())),
    "shared": (coding(isolation="shared"), CodePlan(30.0, "shared", ())),
    "repeat": (coding(repeat=3), CodePlan(30.0, "separate", (), 3)),
    "declared": (
        coding("def sum(a, b):", "class json:\n    def other(): len(x)"),
        CodePlan(30.0, "separate", ("json", "sum")),
    ),
}


@pytest.mark.parametrize("name", CODE_PLANS)
def test_tests_of_code(name):
    task, want = CODE_PLANS[name]
    plan = planned(task)
    assert plan.verification == CodeVerification(want)
    assert plan.extraction == Extraction("stdout", "code", None)


def test_odd_tests_are_the_verifiers_trouble():
    plan = planned(coding(isolation="odd"))
    assert plan.refusal is not None
    assert plan.refusal.reason == "verifier_configuration"


def test_a_candidate_file_may_not_be_what_the_agent_was_given():
    task = row(assets=[{"path": "a.txt", "mount": "data/a.txt"}])
    harness = CommandHarness(command="x", artifact_path="data/a.txt")
    with pytest.raises(PackError, match=r"harness\.config\.artifact_path"):
        planned(task, harness)


def test_a_row_that_cannot_be_judged_is_the_verifiers_trouble():
    plan = planned(row(eval={"answer": 77}))
    assert plan.refusal is not None
    assert (plan.refusal.outcome, plan.refusal.reason, plan.refusal.phase) == (
        "verifier",
        "verifier_configuration",
        "verification",
    )
    assert "77" not in plan.refusal.message


# Dangerous commands

DENIALS = {
    "nothing needed": (None, POLICY, None, ()),
    "refused by default": (["chroot"], POLICY, "disabled by tester policy", ()),
    "allowed": (
        ["chroot"],
        VerificationPolicy(disallow_dangerous_commands=False),
        None,
        ("SYS_CHROOT",),
    ),
    "denied by name": (
        ["chroot"],
        VerificationPolicy(disallow_dangerous_commands=False, deny_commands=("chroot",)),
        "denied by tester policy: chroot",
        (),
    ),
}


@pytest.mark.parametrize("name", DENIALS)
def test_dangerous_commands(name):
    needed, policy, reason, capabilities = DENIALS[name]
    plan = planned(terminal(needed=needed), policy=policy)
    assert isinstance(plan.verification, CommandVerification)
    assert plan.verification.check.capabilities == capabilities
    if reason is None:
        assert plan.denial is None
    else:
        assert plan.denial is not None
        assert plan.denial.message == f"the checker needs a command that is {reason}"
        assert plan.denial.reason == "verifier_dangerous_command_denied"
        assert plan.denial.metadata["denied_commands"] == ["chroot"]
        assert "chroot" in str(plan.denial.metadata["verifier_stderr"])
