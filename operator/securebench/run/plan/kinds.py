"""Kinds of verification by name: ours, and those of other installed packages.

A kind is a subclass of ``run.verification.base.Verification``. It is loaded by its name, so that a
plan can be built without knowing any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.benchmark.families.base import CheckRequest, Family
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.rows import verifier_configuration_problem
from securebench.benchmark.scorers.dangerous_commands import CommandDecision
from securebench.errors import ConfigError
from securebench.plugins import PluginRegistry
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from securebench.run.verification.base import Verification

_OURS: Final = "securebench.run.verification"
KINDS: Final[PluginRegistry[type[Verification]]] = PluginRegistry(
    "securebench.verifications",
    {
        "text": f"{_OURS}.text:TextVerification",
        "command": f"{_OURS}.command:CommandVerification",
        "code": f"{_OURS}.code:CodeVerification",
        "patch": f"{_OURS}.patch:PatchVerification",
        "reward": f"{_OURS}.reward:RewardVerification",
    },
)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a kind plans from.

    Attributes:
        task: The compiled row.
        family: Its family.
        workspace: Absolute path of the workspace in containers of the task's image.
        decision: Whether the checker may run, and the Linux capabilities that it gets.
    """

    task: SecureBenchTask
    family: Family
    workspace: str
    decision: CommandDecision

    @property
    def check(self) -> CheckRequest | None:
        """The check that the row asks for; None if no check can run."""
        return check_request(self.task)


def check_request(task: SecureBenchTask) -> CheckRequest | None:
    """Return the check that a row asks for; None if no check can run."""
    family = FAMILIES.get(task.task_type)
    if family is None or family.check is None or verifier_configuration_problem(task) is not None:
        return None
    return family.check(task)


def kind_named(name: str) -> type[Verification]:
    """Return the kind of verification with that name.

    Raises:
        ConfigError: No installed package has it, or it cannot be loaded.
    """
    found = KINDS.get(name)
    if found is None:
        hint = did_you_mean_or_known(name, KINDS)
        raise ConfigError(f"no installed package has the verification {name!r}{hint}")
    return found
