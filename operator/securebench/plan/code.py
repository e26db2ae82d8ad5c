"""How a code_completion row is tested."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping

from securebench.families.code_completion import SEPARATE
from securebench.packs.task import SecureBenchTask
from securebench.plan.model import CodePlan
from securebench.verifiers.code.plain import SAFE_MODULES

CODE_SECONDS = 30.0
"""Time limit where neither tests nor environment give one (contract 15.8)."""

DEFINITION = re.compile(r"\b(?:def|class)\s+([^\W\d]\w*)")


def code_plan(task: SecureBenchTask) -> CodePlan:
    """Plan the tests of a task."""
    tests = task.resources.value("tests")
    fields = tests if isinstance(tests, Mapping) else {}
    return CodePlan(
        timeout_seconds=_limit(
            fields.get("timeout_seconds"), task.environment.get("timeout_seconds")
        ),
        isolation=str(fields.get("isolation", SEPARATE)),
        declared=declared_names(task),
        repeat=_repeat(fields.get("repeat")),
    )


def declared_names(task: SecureBenchTask) -> tuple[str, ...]:
    """Return builtins and standard modules that prompt or starter code define, sorted.

    The tests get every other builtin and standard module as Python has it, whatever the candidate
    defines.
    """
    texts = (task.resources.value(name) for name in ("prompt", "starter_code"))
    found = {name for text in texts if isinstance(text, str) for name in DEFINITION.findall(text)}
    return tuple(sorted(found & (SAFE_MODULES | set(dir(builtins)))))


def _repeat(number: object) -> int:
    return number if isinstance(number, int) else 0


def _limit(*limits: object) -> float:
    for limit in limits:
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return CODE_SECONDS
