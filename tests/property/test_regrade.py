"""Grading again: an unchanged pack gives the same grades, a changed key exactly its flips."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.operator_world import opened
from support.regrade_world import RegradeWorld

CHOICES = "AB"


TASKS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), min_size=1, max_size=5
)
"""Of each task: what the agent chose, the key of the run, and whether the key is changed later."""


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(tasks=TASKS)
def test_only_a_changed_key_flips_a_grade(tasks: list[tuple[int, int, bool]]) -> None:
    with TemporaryDirectory() as folder, opened(RegradeWorld, Path(folder)) as world:
        world.answers = [CHOICES[chosen] for chosen, _, _ in tasks]
        world.rows(key for _, key, _ in tasks)
        first = world.finished()
        want = [chosen == key for chosen, key, _ in tasks]
        assert world.grades(first) == want
        assert world.grades(world.regraded("same")) == want
        world.rows(1 - key if is_changed else key for _, key, is_changed in tasks)
        flipped = [
            passed is not is_changed for passed, (_, _, is_changed) in zip(want, tasks, strict=True)
        ]
        assert world.grades(world.regraded("changed")) == flipped
        assert world.harness_pods == {first}
