"""Keeps the network policies of one run: made before its first Pod, restored during it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial

from securebench.cluster.port import AlreadyExists, ObjectKind, Raw
from securebench.controller.actuators.informers import PolicyInformer
from securebench.controller.actuators.object_creator import ObjectCreator, find_own, object_name
from securebench.controller.context import Context
from securebench.names import RUN_UID_LABEL
from securebench.run.decide.network import ObservedPolicies, Repair
from securebench.run.observe.pods import object_view
from securebench.run.plan.model import RunPlan
from securebench.run.pods.network_policy import run_policies

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
"""Pause between two replacements of a policy that somebody keeps editing."""


class PolicyKeeper:
    """Watches the policies of a run, creates them and restores them.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        plan: The run.
        creator: Makes them in the background.
        on_change: Called when one appears, changes or goes.
    """

    def __init__(
        self, context: Context, plan: RunPlan, creator: ObjectCreator, on_change: Callable[[], None]
    ) -> None:
        policies = run_policies(plan, context.settings.gateway.nameservers)
        self._wanted = {object_name(policy): policy for policy in policies}
        self._stored: dict[str, Raw] = {}
        self._cluster = context.cluster
        self._uid = plan.identity.uid
        self._creator = creator
        self._informer = PolicyInformer(
            context.cluster,
            f"{RUN_UID_LABEL}={self._uid}",
            context.settings.relist_seconds,
            on_change,
        )

    def observe(self) -> ObservedPolicies:
        """Return their observed state."""
        return ObservedPolicies(self._wanted, self._informer.objects, self._stored)

    def repair(self, repair: Repair) -> None:
        """Start to create a missing policy, or to replace an edited one."""
        key = f"{ObjectKind.NETWORK_POLICY.value} {repair.name}"
        if not repair.edited_uid:
            self._creator.create_object(key, partial(self._make, repair.name))
        else:
            self._creator.create_object(
                key, partial(self._make_again, repair), pause_seconds=RETRY_SECONDS
            )

    def check(self) -> None:
        """Raise what ended the watch, if it has ended."""
        self._informer.check()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch them in the background until the block ends.

        Raises:
            ClusterError: The API server did not answer the list.
        """
        async with self._informer.watching():
            yield

    async def _make(self, name: str) -> None:
        manifest = self._wanted[name]
        try:
            made = await self._cluster.create(ObjectKind.NETWORK_POLICY, manifest)
        except AlreadyExists:
            found = await find_own(self._cluster, ObjectKind.NETWORK_POLICY, name, self._uid)
            self._informer.note_created(found)
            return
        self._stored[name] = object_view(made).spec
        self._informer.note_created(made)

    async def _make_again(self, repair: Repair) -> None:
        """Replace an edited policy; a later one of its name is left alone."""
        logger.warning("NetworkPolicy %s was edited; it is made again", repair.name)
        await self._cluster.delete(
            ObjectKind.NETWORK_POLICY, repair.name, uid=repair.edited_uid, grace_seconds=None
        )
        self._informer.note_deleted(repair.name, repair.edited_uid)
        await self._make(repair.name)
