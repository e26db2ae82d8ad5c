"""Keeps the network policies of one run: made before its first Pod, restored when they are gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from securebench.cluster.port import ObjectKind
from securebench.controller.actuators.launches import Launcher, object_name
from securebench.controller.actuators.pod_mirror import PolicyMirror
from securebench.controller.process.context import Context
from securebench.core.names import RUN_UID_LABEL
from securebench.run.plan.model import RunPlan
from securebench.run.pods.network_policy import run_policies


class PolicyKeeper:
    """Knows which policies of a run are missing and has them made.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        plan: The run.
        launcher: Makes them in the background.
        on_change: Called when one appears or goes.
    """

    def __init__(
        self, context: Context, plan: RunPlan, launcher: Launcher, on_change: Callable[[], None]
    ) -> None:
        policies = run_policies(plan, context.settings.gateway.nameservers)
        self._wanted = {object_name(policy): policy for policy in policies}
        self._launcher = launcher
        self._mirror = PolicyMirror(
            context.cluster,
            f"{RUN_UID_LABEL}={plan.identity.uid}",
            context.clock,
            context.settings.relist_seconds,
            on_change,
        )

    @property
    def is_complete(self) -> bool:
        """Whether all of them are there, so that Pods may be created."""
        return self._wanted.keys() <= self._mirror.objects.keys()

    def restore(self) -> None:
        """Begin to make what is missing."""
        for name, policy in self._wanted.items():
            if name not in self._mirror.objects:
                self._launcher.restore(ObjectKind.NETWORK_POLICY, policy, self._mirror.saw)

    def check(self) -> None:
        """Raise what ended the watch, if it has ended."""
        self._mirror.check()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Watch them in the background until the block ends.

        Raises:
            ClusterError: The API server did not answer the list.
        """
        async with self._mirror.following():
            yield
