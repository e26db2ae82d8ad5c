"""code_completion: a Python module judged by tests in another process (contract 14.4).

``stubs`` are modules that solve nothing: tests that pass with one of them prove nothing.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from securebench.benchmark.families.base import (
    ISOLATIONS,
    SEPARATE,
    SHARED,
    Advice,
    AuditProblem,
    AuditRules,
    CodePlan,
    Family,
    Field,
    FieldSection,
    TaskView,
    TrialRule,
)
from securebench.benchmark.families.reached_code import (
    CHECK,
    candidate_names,
    needs_one_process,
    never_run,
    uncalled_check,
)
from securebench.benchmark.resources import Lane
from securebench.grading.code.own_process import uses_of_own_process
from securebench.json_values import (
    SECONDS,
    STRING,
    TEXT,
    described,
    first_limit,
    is_text,
    is_time_limit,
    object_of,
)

LANGUAGE = "python"


REPEATS = 8
"""``tests.repeat`` is at most so much."""


CODE_SECONDS = 30.0
"""Time limit where neither tests nor environment give one (contract 15.8)."""


ENTRY_POINT = re.compile(r"[^\W\d]\w*(?:\(\))?(?:\.[^\W\d]\w*(?:\(\))?)*")
"""A name, or a method as in ``Solution().twoSum``."""


CLASS = re.compile(r"\bclass\s+([^\W\d]\w*)\s*[:(]")


DEFINITION = re.compile(r"\b(?:def|class)\s+([^\W\d]\w*)")


_TESTS = object_of(
    {
        "source": described({"description": "`inline`"}, "Always `inline`.", "inline"),
        "code": described(
            {"description": "a non-empty string"},
            "Python that is run after the candidate was imported, with its names; it passes when it"
            " ends without an exception.",
            "assert clamp(5, 1, 3) == 3",
        ),
        "timeout_seconds": described(
            {"description": SECONDS["description"]},
            "Time limit of import and tests together; without it `environment.timeout_seconds`,"
            " else 30.",
            10,
        ),
        "isolation": described(
            {"description": "`separate` or `shared`"},
            "`separate`: tests and candidate in containers of their own. `shared`: in one"
            " interpreter.",
            SEPARATE,
            SEPARATE,
        ),
        "repeat": described(
            {"description": "an integer"},
            f"So many sampled calls are repeated in a fresh process; 0 to {REPEATS}.",
            2,
            0,
        ),
    }
)
"""Values that do not hold are a verifier's configuration error (VC of contract 14.4)."""


_ENTRY_POINT = Field(
    "entry_point",
    described(
        {"description": "a function's name"},
        "The function that `check(candidate)` of the tests is called with, in `input` or `eval`;"
        " a method as `Solution().run`. Without a `check`, or where the tests call it themselves,"
        " it does nothing.",
        "clamp",
    ),
)


def configuration_problem(task: TaskView) -> str | None:
    """Return why the tests cannot be run, or None."""
    language = task.resources.value("language")
    if language is not None and language != LANGUAGE:
        return f"code_completion supports input.language {LANGUAGE} only"
    tests = task.resources.value("tests")
    if (
        not isinstance(tests, Mapping)
        or tests.get("source") != "inline"
        or not is_text(tests.get("code"))
    ):
        return "code_completion requires structured inline tests"
    if "timeout_seconds" in tests and not is_time_limit(tests["timeout_seconds"]):
        return f"code_completion tests.timeout_seconds must be {SECONDS['description']}"
    if tests.get("isolation", SEPARATE) not in ISOLATIONS:
        return f"code_completion tests.isolation must be one of {', '.join(ISOLATIONS)}"
    entry = task.resources.value("entry_point")
    if entry is not None and not (isinstance(entry, str) and ENTRY_POINT.fullmatch(entry)):
        return "code_completion entry_point must be a function's name, as double or Solution().run"
    return _repeat_problem(tests)


def _repeat_problem(tests: Mapping[str, object]) -> str | None:
    repeat = tests.get("repeat", 0)
    if type(repeat) is not int or not 0 <= repeat <= REPEATS:
        return f"code_completion tests.repeat must be a whole number from 0 to {REPEATS}"
    if repeat and tests.get("isolation") == SHARED:
        return f"code_completion tests.repeat needs tests.isolation: {SEPARATE}"
    return None


def _code_plan(task: TaskView) -> CodePlan:
    """Return how the tests of a task run."""
    tests = task.resources.value("tests")
    fields = tests if isinstance(tests, Mapping) else {}
    repeat = fields.get("repeat")
    return CodePlan(
        timeout_seconds=first_limit(
            (fields.get("timeout_seconds"), task.environment.get("timeout_seconds")), CODE_SECONDS
        ),
        isolation=str(fields.get("isolation", SEPARATE)),
        declared=_declared_names(task),
        repeat=repeat if isinstance(repeat, int) else 0,
    )


def _declared_names(task: TaskView) -> tuple[str, ...]:
    """Return builtins and standard modules that prompt or starter code define, sorted.

    The tests get every other builtin and standard module as Python has it, whatever the candidate
    defines.
    """
    found = _asked(task, DEFINITION)
    return tuple(sorted(found & (sys.stdlib_module_names | set(dir(builtins)))))


def _test_sources(task: TaskView) -> Iterator[tuple[str, str]]:
    tests = task.resources.value("tests")
    code = tests.get("code") if isinstance(tests, Mapping) else None
    if isinstance(code, str):
        yield "eval.tests.code", code


def _never_run(task: TaskView) -> Iterator[str]:
    for name, source in _test_sources(task):
        for line, problem in never_run(source, _asked(task, DEFINITION)):
            yield f"{name}, line {line}: {problem}"


def _isolation_advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    tests = row_eval.get("tests")
    code = tests.get("code") if isinstance(tests, Mapping) else None
    if not isinstance(tests, Mapping) or not isinstance(code, str):
        return
    if tests.get("isolation", SEPARATE) != SEPARATE:
        return
    found = [
        *(
            (line, f"{name} does not reach the candidate, {what}")
            for line, name, what in uses_of_own_process(code)
        ),
        *needs_one_process(code),
    ]
    for line, message in found:
        yield Advice("isolation", f"eval.tests.code, line {line}: {message}")


def _asked(task: TaskView, definition: re.Pattern[str]) -> frozenset[str]:
    """Return names that prompt or starter code define."""
    texts = (task.resources.value(name) for name in ("prompt", "starter_code"))
    texts_of = (text for text in texts if isinstance(text, str))
    return frozenset(name for text in texts_of for name in definition.findall(text))


def _stubs(task: TaskView, _reference: str | None) -> Mapping[str, str]:
    used = {name for _, source in _test_sources(task) for name in candidate_names(source)}
    names = {name for name in used | _asked(task, DEFINITION) if _is_name(name)}
    asked = _asked(task, CLASS)
    classes = {name for name in names if name in asked or name[0].isupper()}
    starter = task.resources.value("starter_code")
    alone = {"the starter code alone": starter} if isinstance(starter, str) else {}
    return {**stubs(names - classes, classes), **alone} if names else {}


def _is_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__")


def _stub_problem(record: Mapping[str, object]) -> AuditProblem | None:
    if not record["passed"]:
        return None
    remedy = "assert values that only a solution returns, and that they are of the right type"
    return AuditProblem("passes the tests", remedy)


def _with_call(
    row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Mapping[str, object]:
    """Return ``eval`` whose tests call their ``check(candidate)``, as HumanEval's harness does."""
    entry = row_eval.get("entry_point", row_input.get("entry_point"))
    tests = row_eval.get("tests")
    if not (isinstance(entry, str) and ENTRY_POINT.fullmatch(entry) and isinstance(tests, Mapping)):
        return row_eval
    code = tests.get("code")
    if not isinstance(code, str):
        return row_eval
    if f"def {CHECK}" not in code or uncalled_check(code) is None:
        return row_eval
    return {**row_eval, "tests": {**tests, "code": f"{code}\n\n{CHECK}({entry})\n"}}


def _record_metadata(task: TaskView) -> Mapping[str, object]:
    return {"language": task.resources.value("language") or LANGUAGE}


_EQUAL = """class _Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 0
    def __iter__(self): return iter(())
    def __getitem__(self, key): return self
    def __call__(self, *arguments, **names): return self
    def __getattr__(self, name): return self
    def __enter__(self): return self
    def __exit__(self, *error): return False
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __add__
    def __abs__(self): return self
    def __round__(self, digits=None): return self
    def __float__(self): return 0.0
    def __int__(self): return 0
"""


_EMPTY = """for each in (*arguments, *names.values()):
        if hasattr(each, "clear"):
            each.clear()
    return None"""


_BODIES: Mapping[str, str] = {
    "a stub that returns None": "return None",
    "a stub that returns 0": "return 0",
    'a stub that returns ""': 'return ""',
    "a stub that returns []": "return []",
    "a stub that returns True": "return True",
    "a stub that returns its argument": "return arguments[0] if arguments else None",
    "a stub that raises": 'raise ValueError("stub")',
    "a stub that empties its arguments": _EMPTY,
    "a stub whose result equals everything": "return _Equal()",
}


def stubs(functions: Iterable[str], classes: Iterable[str]) -> dict[str, str]:
    """Return modules by what is said of them.

    Args:
        functions: Names of the functions that tests call.
        classes: Names of the classes; every method of theirs does what the functions do.
    """
    calls, kinds = sorted(functions), sorted(classes)
    return {said: _module(body, calls, kinds) for said, body in _BODIES.items()}


def _module(body: str, functions: Iterable[str], classes: Iterable[str]) -> str:
    parts = [_EQUAL, f"def _stub(*arguments, **names):\n    {body}\n"]
    parts += [f"{name} = _stub\n" for name in functions]
    for name in classes:
        parts.append(
            f"class {name}:\n"
            "    def __init__(self, *arguments, **names): pass\n"
            "    def __getattr__(self, name):\n"
            '        if name[:2] == "__": raise AttributeError(name)\n'
            "        return _stub\n"
        )
    return "".join(parts)


FAMILY = Family(
    name="code_completion",
    candidate_kind="code",
    verification="code",
    input=FieldSection(
        "input",
        (
            Field(
                "prompt",
                described(
                    TEXT, "What is to be written.", "Write a function clamp(value, low, high)."
                ),
                required=True,
            ),
            _ENTRY_POINT,
            Field("language", described(TEXT, "Always `python`.", LANGUAGE, LANGUAGE)),
            Field(
                "starter_code",
                described(
                    STRING,
                    "Code to begin with; the agent hands in the whole module.",
                    "def clamp(value, low, high):\n",
                ),
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "tests",
                described(
                    _TESTS,
                    "The tests that judge the candidate.",
                    {"source": "inline", "code": "assert clamp(5, 1, 3) == 3"},
                ),
                required=True,
                lane=Lane.EVALUATION_INPUTS,
            ),
            replace(_ENTRY_POINT, lane=Lane.EVALUATION_INPUTS),
            Field(
                "reference_solution",
                described(
                    STRING,
                    "A solution, for people; it never scores.",
                    "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
                ),
                lane=Lane.HIDDEN,
            ),
            Field(
                "canonical_solution",
                described(
                    STRING,
                    "The same under the name that HumanEval uses.",
                    "    return max(low, min(value, high))\n",
                ),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    own_problem=configuration_problem,
    code=_code_plan,
    record_metadata=_record_metadata,
    test_sources=_test_sources,
    answer_problems=_never_run,
    completed=_with_call,
    advice=_isolation_advice,
    required_resources=("prompt",),
    audit=AuditRules(
        trials=(
            TrialRule(
                "stubs",
                "the tests of {} tasks fail with stubs",
                _stubs,
                AuditProblem(
                    "no name is known that its tests take from the candidate",
                    "call the candidate by its name in the tests",
                    checked=False,
                ),
                _stub_problem,
                decides=True,
            ),
        ),
        settings=frozenset({"isolation", "language", "entry_point"}),
    ),
)
