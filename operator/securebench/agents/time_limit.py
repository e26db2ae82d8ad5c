"""How long the agent may work (contract 15.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.benchmark.families.fields import is_positive
from securebench.benchmark.pack.environment import TIMEOUT_PROBLEM
from securebench.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.harness_config import HarnessConfig


def agent_time_limit(environment: Mapping[str, object], harness: HarnessConfig) -> float | None:
    """Return the seconds that the agent's command may take, or None for no limit.

    The smaller of the task's and the tester's limit, of those given; the harness default
    only where neither is given.

    Raises:
        ConfigError: ``environment.timeout_seconds`` is no positive number.
    """
    task_limit = environment.get("timeout_seconds")
    tester_limit = None if harness.is_default_timeout else harness.timeout_seconds
    if task_limit is None:
        return harness.timeout_seconds
    if not isinstance(task_limit, int | float) or not is_positive(task_limit):
        raise ConfigError(TIMEOUT_PROBLEM)
    return float(task_limit) if tester_limit is None else min(float(task_limit), tester_limit)
